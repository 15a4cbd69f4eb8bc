//! An MCP client that does what the lines on its standard input say and answers each with one line of JSON.
//!
//! `client CMD ARGS...` starts that server; `client --config FILE` starts every server of an `mcpServers` file and
//! calls the first one.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::texts;

pub fn main(words: &[String]) {
    let mut servers = match words {
        [flag, file] if flag == "--config" => of_config(file),
        [program, arguments @ ..] => vec![Server::start(Command::new(program).args(arguments))],
        [] => panic!("no server"),
    };
    println!("{}", json!(servers.len()));
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| words[index].parse::<usize>().unwrap();
        let server = servers.first_mut().unwrap();
        let answer = match words[0] {
            // Microseconds of each call.
            "calls" => json!((0..number(1)).map(|_| server.call(number(2))).collect::<Vec<f64>>()),
            // The same with a text of a kind as the argument.
            "send" => {
                let arguments = format!("{{\"text\":\"{}\"}}", texts::of(words[2], number(3)));
                json!((0..number(1)).map(|_| server.call_with(&arguments, 0)).collect::<Vec<f64>>())
            }
            // The same with a text of many words as the result: another one each time (`words`), or `again`.
            kind @ ("words" | "again") => {
                let arguments = format!("{{\"{kind}\":{}}}", number(2));
                json!((0..number(1)).map(|_| server.call_with(&arguments, number(2))).collect::<Vec<f64>>())
            }
            // So many results, each of which says something else; of another server where there is one.
            "notes" => {
                let tool = server.tool;
                server.tool = if server.has_notes { "n__echo" } else { tool };
                for note in 0..number(1) {
                    server.call_with(&format!("{{\"note\":{note}}}"), 100);
                }
                server.tool = tool;
                Value::Null
            }
            // Microseconds of each listing.
            "list" => json!((0..number(1)).map(|_| server.list()).collect::<Vec<f64>>()),
            // Seconds for all of them, and how many were refused; 0 calls a second means as fast as possible.
            "pipeline" => json!(server.pipeline(number(1), number(2), number(3))),
            other => panic!("unknown order {other}"),
        };
        println!("{answer}");
    }
    for server in servers {
        server.end();
    }
}

/// Every server of an `mcpServers` file.
pub(super) fn of_config(file: &str) -> Vec<Server> {
    let text = std::fs::read_to_string(file).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    config["mcpServers"].as_object().unwrap().values().map(Server::of_entry).collect()
}

pub(super) struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    serial: u64,
    line: Vec<u8>,
    /// As it is listed: a proxy puts a prefix before it.
    tool: &'static str,
    /// Behind a proxy there is a server `n`.
    has_notes: bool,
}

impl Server {
    fn of_entry(entry: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let mut command = Command::new(text(&entry["command"]));
        command.args(entry["args"].as_array().into_iter().flatten().map(text));
        command.envs(entry["env"].as_object().into_iter().flatten().map(|(name, value)| (name, text(value))));
        Self::start(&mut command)
    }

    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let output = BufReader::with_capacity(1 << 20, output);
        let mut server =
            Self { child, input, output, serial: 0, line: Vec::new(), tool: "echo", has_notes: false };
        let client = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}});
        server.ask(&format!("\"method\":\"initialize\",\"params\":{client}"));
        server.send("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
        server.ask("\"method\":\"tools/list\"");
        let lists = |name: &[u8; 9]| server.line.windows(9).any(|part| part == name);
        server.has_notes = lists(b"\"n__echo\"");
        if lists(b"\"e__echo\"") {
            server.tool = "e__echo";
        }
        server
    }

    /// One listing of the tools; microseconds.
    fn list(&mut self) -> f64 {
        let started = Instant::now();
        self.ask("\"method\":\"tools/list\"");
        started.elapsed().as_secs_f64() * 1e6
    }

    /// One call whose result holds `bytes` of text; microseconds from the first byte out to the last byte in.
    pub(super) fn call(&mut self, bytes: usize) -> f64 {
        self.call_with(&format!("{{\"bytes\":{bytes}}}"), bytes)
    }

    /// One call whose answer has more bytes than `least`.
    pub(super) fn call_with(&mut self, arguments: &str, least: usize) -> f64 {
        let tool = self.tool;
        let request =
            format!("\"method\":\"tools/call\",\"params\":{{\"name\":\"{tool}\",\"arguments\":{arguments}}}");
        let started = Instant::now();
        self.ask(&request);
        let time = started.elapsed().as_secs_f64() * 1e6;
        assert!(self.line.len() > least, "{}", String::from_utf8_lossy(&self.line));
        assert!(self.line.windows(8).any(|part| part == b"\"result\""), "a call was refused");
        time
    }

    fn ask(&mut self, rest: &str) {
        self.serial += 1;
        let id = self.serial;
        self.send(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{rest}}}\n"));
        self.line.clear();
        assert!(self.output.read_until(b'\n', &mut self.line).unwrap() > 0, "the server is gone");
    }

    fn send(&mut self, text: &str) {
        self.input.write_all(text.as_bytes()).unwrap();
    }

    /// Sends `count` small calls, of which at most `window` are on the way at once and no more than `per_second`
    /// leave in a second.
    fn pipeline(&mut self, count: usize, window: usize, per_second: usize) -> (f64, usize) {
        let started = Instant::now();
        let (mut sent, mut answered, mut refused) = (0, 0, 0);
        let mut batch = String::new();
        while answered < count {
            while sent < count && sent - answered < window {
                self.serial += 1;
                batch.push_str(&format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"tools/call\",\"params\":{{\"name\":\"{}\",\"arguments\":{{\"bytes\":5}}}}}}\n",
                    self.serial, self.tool
                ));
                sent += 1;
            }
            if per_second > 0 {
                let due = Duration::from_secs_f64(sent as f64 / per_second as f64);
                std::thread::sleep(due.saturating_sub(started.elapsed()));
            }
            self.send(&batch);
            batch.clear();
            // Reads at least one answer, and all others that arrived with it.
            loop {
                self.line.clear();
                assert!(self.output.read_until(b'\n', &mut self.line).unwrap() > 0, "the server is gone");
                answered += 1;
                refused += usize::from(!self.line.windows(8).any(|part| part == b"\"result\""));
                if !self.output.buffer().contains(&b'\n') {
                    break;
                }
            }
        }
        (started.elapsed().as_secs_f64(), refused)
    }

    pub(super) fn end(self) {
        let Self { mut child, input, output, .. } = self;
        drop((input, output));
        let _ = child.wait();
    }
}
