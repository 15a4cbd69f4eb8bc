//! Times connections of one process that goes into a policed control group and out again, alone in a network namespace.
//! Prints microseconds as JSON. Needs root.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use agentsh_net::ebpf::{self, Loaded, SandboxConfig};
use agentsh_sandbox::cgroup::{Hierarchies, Parent};
use agentsh_sandbox::network::loopback_up;
use serde_json::json;

/// Connections between two moves.
const BATCH: usize = 50;
/// Reserved for documentation: no rule names it.
const NOWHERE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);

/// Arguments: rounds of [`BATCH`] connections each.
pub fn main(words: &[String]) {
    let rounds: usize = words[0].parse().unwrap();
    let hierarchies = Hierarchies::find();
    let name = format!("agentsh-{}-bench", std::process::id());
    let (_, home) = hierarchies.create_child(&format!("{name}-home")).unwrap();
    let (_, bare) = hierarchies.create_child(&format!("{name}-bare")).unwrap();
    let (below, parent) = hierarchies.create_child(&name).unwrap();
    let (_, policed) = below.create_child("sandbox").unwrap();
    let load = (0..20).map(|_| {
        let started = Instant::now();
        let loaded = Loaded::load().unwrap();
        let _attached = loaded.attach(parent.as_fd()).unwrap();
        microseconds(started)
    });
    let load: Vec<f64> = load.collect();
    let loaded = Loaded::load().unwrap();
    let attached = loaded.attach(parent.as_fd()).unwrap();
    let cgroup = ebpf::cgroup_id(policed.as_fd()).unwrap();
    loaded.configure(cgroup, &SandboxConfig::default()).unwrap();

    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
    loopback_up().unwrap();
    let server = Server::start();
    let mut times: [Vec<f64>; 6] = Default::default();
    for _ in 0..rounds {
        enter(&bare);
        connects(&mut times[0]);
        server.connects(&mut times[2]);
        failures((Ipv4Addr::LOCALHOST, 9).into(), ErrorKind::ConnectionRefused, &mut times[4]);
        enter(&policed);
        connects(&mut times[1]);
        server.connects(&mut times[3]);
        failures((NOWHERE, 443).into(), ErrorKind::PermissionDenied, &mut times[5]);
    }
    enter(&home);
    drop((attached, policed, parent, bare));
    let [bare, policed, bare_two, policed_two, failed, refused] = times;
    println!(
        "{}",
        json!({"load": load, "bare": bare, "policed": policed, "bare-two": bare_two, "policed-two": policed_two,
            "failed": failed, "refused": refused})
    );
    // The last group holds this process; a later run of agentsh sweeps it.
}

fn enter(group: &Parent) {
    let procs = format!("/proc/self/fd/{}/cgroup.procs", group.as_fd().as_raw_fd());
    std::fs::write(procs, std::process::id().to_string()).unwrap();
}

fn connects(times: &mut Vec<f64>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let place = listener.local_addr().unwrap();
    for _ in 0..BATCH {
        let started = Instant::now();
        let client = TcpStream::connect(place).unwrap();
        let server = listener.accept().unwrap();
        times.push(microseconds(started));
        drop((client, server));
    }
}

/// Another thread that accepts, and says when.
struct Server {
    listeners: Sender<TcpListener>,
    accepted: Receiver<Instant>,
}

impl Server {
    fn start() -> Self {
        let (listeners, served) = channel::<TcpListener>();
        let (accept, accepted) = channel();
        std::thread::spawn(move || {
            for listener in served {
                for _ in 0..BATCH {
                    let server = listener.accept().unwrap();
                    accept.send(Instant::now()).unwrap();
                    drop(server);
                }
            }
        });
        Self { listeners, accepted }
    }

    fn connects(&self, times: &mut Vec<f64>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let place = listener.local_addr().unwrap();
        self.listeners.send(listener).unwrap();
        for _ in 0..BATCH {
            let started = Instant::now();
            let client = TcpStream::connect(place).unwrap();
            let accepted = self.accepted.recv().unwrap();
            times.push((accepted - started).as_secs_f64() * 1e6);
            drop(client);
        }
    }
}

fn failures(place: SocketAddr, kind: ErrorKind, times: &mut Vec<f64>) {
    for _ in 0..BATCH {
        let started = Instant::now();
        let error = TcpStream::connect(place).unwrap_err();
        times.push(microseconds(started));
        assert_eq!(error.kind(), kind, "{error}");
    }
}

fn microseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}
