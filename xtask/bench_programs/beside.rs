//! What waits while a long argument is judged: `beside AGENTSH CONFIG` times small calls and new connections of an agent,
//! first alone, then while another of its servers gets arguments of 1 MB back to back; without agentsh and with it.

use std::net::{TcpStream, ToSocketAddrs};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use super::client::{Server, of_config};
use super::{relay, texts};

const CALLS: usize = 2000;
const CONNECTIONS: usize = 1000;
/// Results of a third server, which may not go to the one that gets the long arguments.
const NOTES: usize = 1000;
const MEGABYTE: usize = 1_000_000;

pub fn main(words: &[String]) {
    let (agentsh, config) = (&words[0], &words[1]);
    relay::namespace();
    relay::start();
    let own = std::env::current_exe().unwrap();
    let direct = measured(Command::new(&own).args(["beside-client", relay::ADDRESS, config]));
    let policy = format!("agent: {{mcp_config: {config}, network: {{allow: [{}]}}}}\n", relay::NAME);
    std::fs::write("beside.yaml", policy).unwrap();
    let options = ["run", "--quiet", "--network", "userns", "--policy", "./beside.yaml", "--"];
    let mut inside = Command::new(agentsh);
    inside.args(options).arg(&own).args(["beside-client", relay::NAME, config]);
    let agentsh = measured(&mut inside);
    println!("{}", json!({"direct": direct, "agentsh": agentsh}));
}

fn measured(command: &mut Command) -> Value {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Microseconds of each operation: `beside-client NAME CONFIG`.
pub fn client(words: &[String]) {
    let address = (words[0].as_str(), 80).to_socket_addrs().unwrap().find(|found| found.is_ipv4()).unwrap();
    let mut servers = of_config(&words[1]).into_iter();
    let (mut small, mut busy, mut other) =
        (servers.next().unwrap(), servers.next().unwrap(), servers.next().unwrap());
    for note in 0..NOTES {
        other.call_with(&format!("{{\"note\":{note}}}"), 100);
    }
    let mut both = || {
        // The first ones warm up.
        let calls: Vec<f64> = (0..CALLS + 100).map(|_| small.call(5)).skip(100).collect();
        let connect = |_| {
            let started = Instant::now();
            relay::ask(&mut TcpStream::connect(address).unwrap()).unwrap();
            started.elapsed().as_secs_f64() * 1e6
        };
        let connects: Vec<f64> = (0..CONNECTIONS + 20).map(connect).skip(20).collect();
        json!({"calls": calls, "connects": connects})
    };
    let alone = both();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let long = std::thread::spawn(move || {
        let arguments = format!("{{\"text\":\"{}\"}}", texts::of("words", MEGABYTE));
        let mut times = Vec::new();
        while !stopped.load(Ordering::Relaxed) {
            times.push(busy.call_with(&arguments, 0));
        }
        (times, busy)
    });
    // It has begun.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let beside = both();
    stop.store(true, Ordering::Relaxed);
    let (times, busy) = long.join().unwrap();
    println!("{}", json!({"alone": alone, "beside": beside, "long": times}));
    [small, busy, other].into_iter().for_each(Server::end);
}
