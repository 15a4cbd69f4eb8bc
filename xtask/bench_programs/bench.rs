//! The program that the benchmarks run: launches in full sandboxes beside their peers, an echo server, and the
//! client that times it. Prints one JSON object per measurement; `cargo xtask bench` compares.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark stops at the first surprise, prints, and starts programs"
)]

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use agentsh::policy::{ProcessPolicy, limits};
use agentsh::sandbox::plan::{Access, Program, Terminal};
use agentsh::session::Context;
use agentsh::session::launch::{Start, prepare, start};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<usize>().ok()).expect("a number");
    match words.first().map(String::as_str) {
        Some(agentsh::sandbox::init::VERB) => return agentsh::sandbox::init::main().into(),
        Some("launch") => launches(&words[1], number(2)),
        Some("serve") => serve(),
        Some("call") => call(number(1), number(2), &words[3..]),
        Some("pipeline") => pipeline(number(1), &words[2..]),
        Some("hold") => hold(&words[1..]),
        _ => return ExitCode::FAILURE,
    }
    ExitCode::SUCCESS
}

/// `program` in a full server sandbox, under bubblewrap with comparable mounts, and bare; interleaved.
fn launches(program: &str, rounds: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let context = Context::find().unwrap();
    let (mut ours, mut peer, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        ours.push(timed(|| runtime.block_on(in_sandbox(&context, program, round))));
        peer.push(timed(|| run(&mut bubblewrap(&context, program))));
        bare.push(timed(|| run(&mut Command::new(program))));
    }
    println!(r#"{{"agentsh":{},"bwrap":{},"bare":{}}}"#, quantiles(ours), quantiles(peer), quantiles(bare));
}

async fn in_sandbox(context: &Context, program: &str, round: usize) {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null").unwrap();
    let limits = limits::limits_for_server();
    let policy = ProcessPolicy::server_default();
    let start_of = Start {
        label: "bench",
        policy: &policy,
        limits: &limits,
        for_agent: false,
        terminal: Terminal::NewSession,
        program: Program {
            path: program.into(),
            argv: vec![program.to_owned()],
            env: vec!["PATH=/usr/bin".to_owned()],
            workdir: context.project.clone(),
        },
        pinned: Vec::new(),
        program_roots: vec![PathBuf::from(program).parent().unwrap().to_owned()],
        descriptors: Vec::new(),
        project_access: Some(Access::ReadOnly),
        grants: Vec::new(),
        own_state: Vec::new(),
        denied: Vec::new(),
        unmasked: Vec::new(),
        execute: Vec::new(),
        files: Vec::new(),
        extra: Vec::new(),
        names: Default::default(),
        listen: Vec::new(),
        stdio: [null.as_fd(), null.as_fd(), null.as_fd()],
        allow_degraded: false,
    };
    let layout = prepare(context, &start_of);
    let name = format!("agentsh-{}-{round}", std::process::id());
    let mut running = start(context, start_of, layout, &name).await.unwrap();
    assert_eq!(running.child.exit().await, 0);
}

fn bubblewrap(context: &Context, program: &str) -> Command {
    let (home, project) = (&context.home, &context.project);
    let mut command = Command::new("bwrap");
    command.args(["--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin"]);
    command.args([
        "--symlink",
        "usr/lib",
        "/lib",
        "--symlink",
        "usr/lib64",
        "/lib64",
        "--symlink",
        "usr/sbin",
        "/sbin",
    ]);
    command.args([
        "--ro-bind",
        "/opt",
        "/opt",
        "--ro-bind",
        "/etc",
        "/etc",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
    ]);
    command.args(["--tmpfs", "/tmp", "--tmpfs", "/var/tmp", "--tmpfs"]).arg(home);
    command.arg("--ro-bind").arg(project).arg(project);
    let directory = PathBuf::from(program).parent().unwrap().to_owned();
    command.arg("--ro-bind").arg(&directory).arg(&directory);
    command.arg("--chdir").arg(project).args(["--new-session", "--die-with-parent", program]);
    command
}

fn run(command: &mut Command) {
    assert!(command.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap().success());
}

/// Answers every request with what was sent in `arguments.text`, or with `arguments.bytes` bytes.
fn serve() {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(&line) else { continue };
        let Some(id) = message.get("id") else { continue };
        let bytes = message["params"]["arguments"]["bytes"].as_u64().unwrap_or(5);
        let text = "x".repeat(usize::try_from(bytes).unwrap());
        writeln!(
            out,
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#
        )
        .unwrap();
        out.flush().unwrap();
    }
}

/// `calls` calls, one after the other, each answered with `bytes` bytes.
fn call(calls: usize, bytes: usize, command: &[String]) {
    let mut server = Server::start(command);
    let mut times = Vec::new();
    for id in 0..calls + calls / 10 {
        let time = timed(|| {
            server.send(id, bytes);
            server.receive();
        });
        // The first tenth warms caches.
        if id >= calls / 10 {
            times.push(time);
        }
    }
    println!("{}", quantiles(times));
}

/// `calls` calls without waiting for answers; calls per second, wall clock.
fn pipeline(calls: usize, command: &[String]) {
    let Server { mut process, mut input, mut output } = Server::start(command);
    let started = Instant::now();
    let writer = std::thread::spawn(move || {
        for id in 0..calls {
            write_call(&mut input, id, 5);
        }
        input
    });
    let mut line = String::new();
    for _ in 0..calls {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the server ended");
    }
    let took = started.elapsed();
    drop(writer.join().unwrap());
    process.wait().unwrap();
    println!(r#"{{"per_second":{:.0}}}"#, calls as f64 / took.as_secs_f64());
}

/// Starts every command of a list separated by `--`, calls each once, and waits for a line on standard input,
/// during which somebody measures.
fn hold(words: &[String]) {
    let mut servers: Vec<Server> = words.split(|word| word == "--").map(Server::start).collect();
    let mut told = String::new();
    let stdin = std::io::stdin();
    let mut calls = 1;
    loop {
        for server in &mut servers {
            for id in 0..calls {
                server.send(id, 5);
                server.receive();
            }
        }
        println!("ready");
        std::io::stdout().flush().unwrap();
        told.clear();
        if stdin.lock().read_line(&mut told).unwrap() == 0 {
            return;
        }
        calls = told.trim().parse().unwrap_or(1);
    }
}

struct Server {
    process: std::process::Child,
    input: std::process::ChildStdin,
    output: BufReader<std::process::ChildStdout>,
}

impl Server {
    fn start(command: &[String]) -> Self {
        let mut process = Command::new(&command[0])
            .args(&command[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::with_capacity(1 << 20, process.stdout.take().unwrap());
        Self { process, input, output }
    }

    fn send(&mut self, id: usize, bytes: usize) {
        write_call(&mut self.input, id, bytes);
    }

    fn receive(&mut self) {
        let mut line = Vec::new();
        assert!(self.output.read_until(b'\n', &mut line).unwrap() > 0, "the server ended");
        assert!(
            line.windows(8).take(64).any(|part| part == b"\"result\""),
            "{}",
            String::from_utf8_lossy(&line)
        );
    }
}

fn write_call(input: &mut impl Write, id: usize, bytes: usize) {
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"bytes":{bytes}}}}}}}"#
    );
    input.write_all((line + "\n").as_bytes()).unwrap();
}

fn timed(work: impl FnOnce()) -> Duration {
    let started = Instant::now();
    work();
    started.elapsed()
}

fn quantiles(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_secs_f64() * 1e6;
    format!(r#"{{"p50_us":{:.1},"p95_us":{:.1},"min_us":{:.1}}}"#, at(50), at(95), at(0))
}
