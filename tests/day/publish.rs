//! Servers inside the sandbox whose ports are published on this machine.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::has;
use crate::support::{Mode, Outcome, Place, outcome::wait};

/// Answers each connection with its own line in capitals, and lives until its input ends.
const SERVER: &str = "import socket, sys, threading\n\
def serve(listener):\n    while True:\n        c = listener.accept()[0]\n        \
    f = c.makefile('rwb')\n        f.write(f.readline().upper()); f.flush(); f.close(); c.close()\n\
for word in sys.argv[1:]:\n    address, port = word.rsplit('=', 1)\n    \
    family = socket.AF_INET6 if ':' in address else socket.AF_INET\n    \
    s = socket.socket(family, socket.SOCK_STREAM); s.bind((address, int(port))); s.listen(8)\n    \
    threading.Thread(target=serve, args=(s,), daemon=True).start()\n\
print('up', flush=True)\nsys.stdin.read()\n";

/// A run whose server is up, and the printed address.
struct Served {
    child: Child,
    pub address: String,
}

impl Served {
    fn new(place: &Place, options: &[&str], listen: &str) -> Self {
        place.write("server.py", SERVER);
        let words = [&["run", "--quiet"], options, &["--", "python3", "server.py", listen]].concat();
        let mut child = place
            .agentsh(&words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut said, mut errors) = (String::new(), String::new());
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        while !errors.contains("reachable at http://") {
            assert_ne!(stderr.read_line(&mut errors).unwrap(), 0, "{errors}");
        }
        let address = errors.rsplit("http://").next().unwrap().trim().to_owned();
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "up\n");
        Self { child, address }
    }

    fn say(&self, text: &str) -> String {
        say(&self.address, text)
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert_eq!(wait(&mut self.child), 0);
        assert!(TcpStream::connect(&self.address).is_err(), "it listens after the end");
    }
}

fn say(address: &str, text: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // If the connection is closed at once, writing or reading may fail.
    let _ = writeln!(stream, "{text}");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

/// agentsh connects to a published port itself: while no server listens there, the agent asked for nothing.
#[test]
fn published_port_without_a_server_is_no_refusal_of_the_agent() {
    if !has("python3") {
        return;
    }
    let bind = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // A server of this machine, which the agent asks for.
    let listener = bind();
    let other = listener.local_addr().unwrap().port();
    for backend in ["auto", "userns"] {
        let (place, port) =
            (Place::new(Mode::Invoker).policed_by(backend), bind().local_addr().unwrap().port());
        let script =
            format!("cat; python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {other}))'");
        let mut command = place.agentsh(&["run", "--publish", &port.to_string(), "--", "sh", "-c", &script]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut errors, mut stderr) = (String::new(), BufReader::new(child.stderr.take().unwrap()));
        while !errors.contains("reachable at http://") {
            assert_ne!(stderr.read_line(&mut errors).unwrap(), 0, "{errors}");
        }
        assert_eq!(say(&format!("127.0.0.1:{port}"), "hello"), "", "{backend}");
        drop(child.stdin.take());
        stderr.read_to_string(&mut errors).unwrap();
        wait(&mut child);
        assert!(!errors.contains(&format!("localhost:{port}")), "{backend}: {errors}");
        assert!(errors.contains(&format!("refused: the agent -> localhost:{other}")), "{backend}: {errors}");
    }
}

#[test]
#[ignore = "takes long"]
fn published_server_is_reached_repeatedly() {
    if !has("python3") {
        return;
    }
    for mode in Mode::all() {
        for backend in ["auto", "userns"] {
            for listen in ["127.0.0.1=3000", "::1=3000", "0.0.0.0=3000"] {
                let place = Place::new(mode).policed_by(backend);
                let served = Served::new(&place, &["--publish", "3000:0"], listen);
                assert!(served.address.starts_with("127.0.0.1:"), "{}", served.address);
                // More than there are sockets: they are used again.
                for n in 0..40 {
                    assert_eq!(
                        served.say(&format!("hello {n}")),
                        format!("HELLO {n}\n"),
                        "{mode:?} {backend}"
                    );
                }
                served.end();
            }
        }
    }
}

#[test]
fn published_port_can_come_from_the_policy() {
    if !has("python3") {
        return;
    }
    let place = Place::new(Mode::all()[0]);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    place.user_policy(&format!("agent: {{publish: [{free}]}}\n"));
    let served = Served::new(&place, &[], &format!("127.0.0.1={free}"));
    assert_eq!(served.address, format!("127.0.0.1:{free}"));
    assert_eq!(served.say("hello"), "HELLO\n");
    served.end();
}

#[test]
fn idle_connections_to_a_published_port_do_not_block_others() {
    if !has("python3") {
        return;
    }
    let place = Place::new(Mode::all()[0]);
    let served = Served::new(&place, &["--publish", "3000:0"], "127.0.0.1=3000");
    let idle: Vec<_> = (0..30).map(|_| TcpStream::connect(&served.address).unwrap()).collect();
    let begun = Instant::now();
    drop(idle);
    assert_eq!(served.say("hello"), "HELLO\n");
    assert!(begun.elapsed() < Duration::from_secs(10));
    served.end();
}

#[test]
fn port_in_use_is_reported_before_the_start() {
    let place = Place::new(Mode::all()[0]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let publish = format!("3000:{}", taken.local_addr().unwrap().port());
    for (publish, why) in [(publish.as_str(), "in use"), ("80", "below 1024"), ("8000:x", "not a port")] {
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--publish", publish, "--", "touch", "ran"]));
        assert_eq!(outcome.code, 125, "{outcome}");
        assert!(outcome.stderr.contains(why), "{outcome}");
        assert!(!place.project.join("ran").exists());
    }
}

#[test]
fn published_port_is_reached_and_no_other_port() {
    if !has("python3") {
        return;
    }
    for mode in Mode::all() {
        let place = Place::new(mode);
        // A service of this machine at the very port: inside nobody listens there.
        let service = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = service.local_addr().unwrap().port();
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let served = Served::new(&place, &["--publish", &format!("{port}:0")], &format!("127.0.0.1={other}"));
        assert_eq!(served.say("hello"), "");
        service.set_nonblocking(true).unwrap();
        assert!(service.accept().is_err(), "a service of this machine was reached");
        // The agent may listen on any port, and is not reachable there.
        assert!(TcpStream::connect(("127.0.0.1", other)).is_err());
        served.end();
    }
}
