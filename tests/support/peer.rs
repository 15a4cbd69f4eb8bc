//! An MCP client that sees every byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::outcome;
use super::place::Place;

const LIMIT: Duration = Duration::from_secs(30);

pub struct Peer {
    pub child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Vec<u8>>,
    errors: Arc<Mutex<Vec<u8>>>,
    error_reader: Option<std::thread::JoinHandle<()>>,
    serial: u64,
    /// Messages that were not the answer which was waited for.
    pub aside: Vec<Value>,
}

impl Peer {
    /// `agentsh mcp run --id fixture -- fixture_server WORDS`
    pub fn server(place: &Place, words: &[&str]) -> Self {
        let server = place.program("fixture_server");
        let mut command = place.agentsh(&["mcp", "run", "--id", "fixture", "--"]);
        command.arg(server).args(words);
        Self::start(&mut command)
    }

    /// The same, after the handshake.
    pub fn ready(place: &Place, words: &[&str]) -> Self {
        let mut peer = Self::server(place, words);
        peer.shake_hands();
        peer
    }

    pub fn start(command: &mut Command) -> Self {
        Self::with_errors(command, Stdio::piped())
    }

    /// Its standard error goes to `errors`.
    pub fn with_errors(command: &mut Command, errors: Stdio) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().unwrap();
        let (sender, lines) = channel();
        let output = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            loop {
                let mut line = Vec::new();
                match output.read_until(b'\n', &mut line) {
                    Ok(read) if read > 0 && sender.send(line).is_ok() => {}
                    _ => break,
                }
            }
        });
        let errors = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&errors);
        let read_errors = move |mut stream: std::process::ChildStderr| {
            let mut buffer = [0; 4096];
            while let Ok(read) = stream.read(&mut buffer) {
                if read == 0 {
                    break;
                }
                kept.lock().unwrap().extend_from_slice(&buffer[..read]);
            }
        };
        let stream = child.stderr.take();
        let error_reader = stream.map(|stream| std::thread::spawn(move || read_errors(stream)));
        let input = child.stdin.take();
        Self { child, input, lines, errors, error_reader, serial: 0, aside: Vec::new() }
    }

    /// Nothing more will be sent; answers may still come.
    pub fn close(&mut self) {
        self.input = None;
    }

    pub fn shake_hands(&mut self) -> Value {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"roots": {}, "sampling": {}},
            "clientInfo": {"name": "suite", "version": "1"}});
        let answer = self.request("initialize", params);
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        answer
    }

    pub fn send(&mut self, message: &Value) {
        self.send_line(message.to_string().as_bytes());
    }

    pub fn send_line(&mut self, line: &[u8]) {
        let input = self.input.as_mut().unwrap();
        input.write_all(line).and_then(|()| input.write_all(b"\n")).unwrap();
    }

    /// Sends a request and waits for its whole response.
    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        self.answer(&id)
    }

    /// Sends a request; the id is returned.
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        self.serial += 1;
        let id = json!(self.serial);
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    pub fn answer(&mut self, id: &Value) -> Value {
        let is_it = |message: &Value| message.get("method").is_none() && message["id"] == *id;
        if let Some(at) = self.aside.iter().position(is_it) {
            return self.aside.remove(at);
        }
        loop {
            let message = self.next();
            if is_it(&message) {
                return message;
            }
            self.aside.push(message);
        }
    }

    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// None: the connection ended first.
    pub fn try_call(&mut self, tool: &str, arguments: Value) -> Option<Value> {
        self.serial += 1;
        let params = json!({"name": tool, "arguments": arguments});
        let request = json!({"jsonrpc": "2.0", "id": self.serial, "method": "tools/call", "params": params});
        writeln!(self.input.as_mut()?, "{request}").ok()?;
        loop {
            let message: Value = serde_json::from_slice(&self.lines.recv_timeout(LIMIT).ok()?).ok()?;
            if message["id"] == self.serial {
                return Some(message);
            }
        }
    }

    /// The text of a call that must succeed.
    #[track_caller]
    pub fn text(&mut self, tool: &str, arguments: Value) -> String {
        let answer = self.call(tool, arguments);
        match answer["result"]["content"][0]["text"].as_str() {
            Some(text) if answer["result"]["isError"] != true => text.to_owned(),
            _ => panic!("{tool}: {answer}\n{}", self.errors()),
        }
    }

    /// The next message, whatever it is.
    pub fn next(&mut self) -> Value {
        let line = self.next_line();
        serde_json::from_slice(&line)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&line)))
    }

    pub fn next_line(&mut self) -> Vec<u8> {
        match self.lines.recv_timeout(super::patience(LIMIT)) {
            Ok(line) => line,
            Err(error) => panic!("no message: {error}\nstandard error:\n{}", self.errors()),
        }
    }

    /// A message that comes within the time, if one does.
    pub fn line_within(&mut self, limit: Duration) -> Option<Vec<u8>> {
        self.lines.recv_timeout(limit).ok()
    }

    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.errors.lock().unwrap()).into_owned()
    }

    /// Closes the input and waits for the end: exit code and standard error.
    pub fn finish(mut self) -> (i32, String) {
        self.input = None;
        let code = outcome::wait(&mut self.child);
        if let Some(reader) = self.error_reader.take() {
            reader.join().unwrap();
        }
        (code, self.errors())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
