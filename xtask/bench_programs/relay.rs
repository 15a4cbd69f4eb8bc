//! Connections through the relay next to direct ones, in a network namespace of its own: `relay AGENTSH ROUNDS` makes
//! the namespace, serves in it and gives orders to two clients, one of them in the sandbox of an agent.

use std::io::{BufRead, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::process::Command;
use std::time::Instant;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::AddressFamily;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::ordered::Client;

pub(super) const NAME: &str = "bench.test";
pub(super) const ADDRESS: &str = "93.184.216.34";
/// Connections of one turn.
const TURN: u32 = 100;
const STREAM: u64 = 1 << 30;
const STREAMS: u32 = 10;
const HELD: u64 = 10_000;
/// Both ends of each, and some.
const DESCRIPTORS: u64 = 2 * HELD + 1024;
/// What agentsh keeps for everything else.
const KEPT: u64 = 256;
const PIECE: usize = 256 * 1024;

pub fn main(words: &[String]) {
    let (agentsh, rounds) = (&words[0], words[1].parse::<u32>().unwrap());
    namespace();
    raise();
    start();
    let own = std::env::current_exe().unwrap();
    let mut direct = Client::start(Command::new(&own).args(["relay-client", ADDRESS]), "connect 1");
    let policy = "relay.yaml";
    std::fs::write(
        policy,
        format!("agent: {{network: {{allow: [{NAME}]}}, limits: {{open_files: {DESCRIPTORS}}}}}\n"),
    )
    .unwrap();
    let options = ["run", "--quiet", "--network", "userns", "--policy", "./relay.yaml", "--"];
    let mut relayed = Client::start(
        Command::new(agentsh).args(options).arg(&own).args(["relay-client", NAME]),
        "connect 1",
    );

    let (mut connect, mut stream) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    // A turn takes a few milliseconds, and the machine may be quick or slow for seconds.
    for round in 0..=rounds.max(10) {
        for (client, times) in [&mut direct, &mut relayed].into_iter().zip(&mut connect) {
            let measured = client.order(&format!("connect {TURN}"));
            // The first turn warms up.
            if round > 0 {
                times.extend(measured.as_array().unwrap().iter().filter_map(Value::as_f64));
            }
        }
    }
    for round in 0..=STREAMS {
        for (client, rates) in [&mut direct, &mut relayed].into_iter().zip(&mut stream) {
            let seconds = client.order(&format!("stream {STREAM}")).as_f64().unwrap();
            if round > 0 {
                rates.push(STREAM as f64 / 1e6 / seconds);
            }
        }
    }
    let before = resident(relayed.id());
    // As many as this machine's limit on descriptors gives, and of those the half that one sandbox may have.
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let held = HELD.min((hard - KEPT) / 2) / 2;
    let failed = relayed.order(&format!("hold {held}"));
    let after = resident(relayed.id());
    let [direct_connect, relay_connect] = connect;
    let [direct_stream, relay_stream] = stream;
    println!(
        "{}",
        json!({"connect": {"direct": direct_connect, "relay": relay_connect},
            "stream": {"direct": direct_stream, "relay": relay_stream},
            "held": {"count": held, "failed": failed, "before": before, "after": after}})
    );
}

/// Every address is this machine, and one of them has a name.
pub(super) fn namespace() {
    let (uid, gid) = (nix::unistd::getuid(), nix::unistd::getgid());
    let mut flags = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS;
    if !uid.is_root() {
        flags |= CloneFlags::CLONE_NEWUSER;
    }
    unshare(flags).unwrap();
    if !uid.is_root() {
        std::fs::write("/proc/self/setgroups", "deny").unwrap();
        std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")).unwrap();
        std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")).unwrap();
    }
    agentsh_sandbox::network::loopback_up().unwrap();
    let route = agentsh_sandbox::netlink::route_all_to_loopback(AddressFamily::Inet);
    agentsh_sandbox::netlink::ask(&[route]).unwrap();
    let hosts = std::env::current_dir().unwrap().join("hosts");
    std::fs::write(&hosts, format!("127.0.0.1 localhost\n{ADDRESS} {NAME}\n")).unwrap();
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    mount(Some(&hosts), "/etc/hosts", none, MsFlags::MS_BIND, none).unwrap();
}

fn raise() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let wanted = hard.max(DESCRIPTORS);
    setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted)
        .or_else(|_| setrlimit(Resource::RLIMIT_NOFILE, hard, hard))
        .unwrap();
}

/// MiB of one process.
fn resident(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let row = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    row.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1024.0
}

/// Follows orders: `relay-client NAME`.
pub fn client(words: &[String]) {
    raise();
    let address = (words[0].as_str(), 80).to_socket_addrs().unwrap().find(|found| found.is_ipv4()).unwrap();
    let mut held = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let (what, number) = line.split_once(' ').unwrap();
        let number: u64 = number.parse().unwrap();
        let answer = match what {
            "connect" => {
                let once = |_| {
                    let started = Instant::now();
                    let mut stream = TcpStream::connect(address).unwrap();
                    ask(&mut stream).unwrap();
                    started.elapsed().as_secs_f64() * 1e6
                };
                json!((0..number).map(once).collect::<Vec<f64>>())
            }
            "stream" => {
                let mut stream = TcpStream::connect(address).unwrap();
                let started = Instant::now();
                // In one piece: the server takes what it reads first for the whole request.
                let request = format!("GET /{number} HTTP/1.1\r\nHost: {NAME}\r\n\r\n");
                stream.write_all(request.as_bytes()).unwrap();
                let mut piece = vec![0; PIECE];
                let mut left = number;
                while left > 0 {
                    let read = stream.read(&mut piece).unwrap();
                    assert!(read > 0, "{left} bytes are missing");
                    left = left.saturating_sub(read as u64);
                }
                json!(started.elapsed().as_secs_f64())
            }
            _ => {
                let mut failed = 0;
                for _ in 0..number {
                    let asked = TcpStream::connect(address).and_then(|mut stream| {
                        ask(&mut stream)?;
                        Ok(stream)
                    });
                    match asked {
                        Ok(stream) => held.push(stream),
                        Err(_) => failed += 1,
                    }
                }
                // Every one of them still works.
                failed += held.iter_mut().filter_map(|stream| ask(stream).err()).count();
                json!(failed)
            }
        };
        println!("{answer}");
    }
}

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

pub(super) fn ask(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: bench.test\r\n\r\n")?;
    let mut answer = [0; ANSWER.len()];
    stream.read_exact(&mut answer)?;
    if answer == ANSWER { Ok(()) } else { Err(std::io::ErrorKind::InvalidData.into()) }
}

/// Serves on port 80 of every address.
pub(super) fn start() {
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::spawn(move || serve(&ready));
    is_ready.recv().unwrap();
}

fn serve(ready: &std::sync::mpsc::Sender<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind("0.0.0.0:80".parse().unwrap()).unwrap();
        let listener = socket.listen(4096).unwrap();
        ready.send(()).unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(answer(stream));
        }
    });
}

async fn answer(mut stream: tokio::net::TcpStream) {
    let mut request = [0; 256];
    while let Ok(read @ 1..) = stream.read(&mut request).await {
        let text = String::from_utf8_lossy(&request[..read]);
        let path = text.split_whitespace().nth(1).unwrap_or_default();
        let written = match path[1..].parse::<u64>() {
            Err(_) => stream.write_all(ANSWER).await,
            Ok(length) => pour(&mut stream, length).await,
        };
        if written.is_err() {
            break;
        }
    }
}

async fn pour(stream: &mut tokio::net::TcpStream, length: u64) -> std::io::Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let piece = vec![0; PIECE];
    let mut left = length;
    while left > 0 {
        let next = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        stream.write_all(&piece[..next]).await?;
        left -= next as u64;
    }
    Ok(())
}
