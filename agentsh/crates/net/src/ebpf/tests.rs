//! Runs the programs on a cgroup and a network namespace of the test. Needs root; otherwise its parts are skipped and
//! counted.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::{AddressFamily, Protocol, SocketType};

use super::*;

const CHILD: &str = "AGENTSH_EBPF_TEST_CGROUP";

/// Starts this test again as a process of its own, which becomes the sandboxed one. False in that process.
fn in_a_child(name: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return false;
    }
    if !rustix::process::getuid().is_root() {
        let _ = writeln!(std::io::stderr(), "skipped part of net::ebpf::tests::{name}: needs root");
        return true;
    }
    let cgroup = cgroup2_mount().unwrap().join(format!("agentsh-test-{}-{name}", std::process::id()));
    std::fs::create_dir_all(cgroup.join("sandbox")).unwrap();
    #[expect(clippy::disallowed_methods, reason = "the child is this test, not an agent")]
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let test = format!("{}::{name}", module_path!().split_once("::").unwrap().1);
    let done = child.args(["--exact", &test, "--nocapture"]).env(CHILD, &cgroup).output().unwrap();
    // A cgroup stays busy until its last process is reaped.
    let removed = ["sandbox", ""].map(|part| std::fs::remove_dir(cgroup.join(part)).is_ok());
    let text =
        [done.stdout, done.stderr].map(|stream| String::from_utf8_lossy(&stream).into_owned()).concat();
    assert!(done.status.success() && text.contains("1 passed"), "{text}");
    assert_eq!(removed, [true, true]);
    true
}

/// A process in a policed cgroup, alone in a network namespace whose only device is loopback.
struct World {
    loaded: Loaded,
    attached: Option<(Attached, Attached)>,
    cgroup: u64,
    relay_v4: TcpListener,
    relay_v6: TcpListener,
}

impl World {
    fn new() -> Self {
        let parent = PathBuf::from(std::env::var_os(CHILD).unwrap());
        let own = parent.join("sandbox");
        let loaded = Loaded::load().unwrap_or_else(|error| panic!("{error}"));
        let attached = loaded.attach(std::fs::File::open(&parent).unwrap().as_fd()).unwrap();
        let directory = std::fs::File::open(&own).unwrap();
        let for_redirected = loaded.attach_for_redirected(directory.as_fd()).unwrap();
        let cgroup = cgroup_id(directory.as_fd()).unwrap();
        std::fs::write(own.join("cgroup.procs"), std::process::id().to_string()).unwrap();
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        #[expect(clippy::disallowed_methods, reason = "brings loopback up")]
        let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
        assert!(up.success());
        let relay_v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay_v6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
        let (SocketAddr::V4(v4), SocketAddr::V6(v6)) =
            (relay_v4.local_addr().unwrap(), relay_v6.local_addr().unwrap())
        else {
            panic!("families")
        };
        let config = SandboxConfig {
            listener_v4: Some(v4),
            listener_v6: Some(v6),
            resolver: Some("127.0.0.53:53".parse().unwrap()),
        };
        loaded.configure(cgroup, &config).unwrap();
        Self { loaded, attached: Some((attached, for_redirected)), cgroup, relay_v4, relay_v6 }
    }

    fn allow(&self, place: &str) {
        let place: SocketAddr = place.parse().unwrap();
        self.loaded.allow(self.cgroup, place.ip(), place.port()).unwrap();
    }

    /// Connects; then what the relay finds, and what the program sees as its peer.
    fn through(&self, place: &str) -> (Origin, SocketAddr) {
        let place: SocketAddr = place.parse().unwrap();
        let mut client = connect(place).unwrap();
        let relay = if place.ip().to_canonical().is_ipv4() { &self.relay_v4 } else { &self.relay_v6 };
        let (mut server, peer) = relay.accept().unwrap();
        let origin = self.loaded.origin(self.cgroup, peer).unwrap();
        assert_eq!(self.loaded.original_destination(self.cgroup, peer), None, "an origin is taken once");
        client.write_all(b"ping").unwrap();
        let mut four = [0; 4];
        server.read_exact(&mut four).unwrap();
        (origin, client.peer_addr().unwrap())
    }
}

fn connect(place: SocketAddr) -> std::io::Result<TcpStream> {
    TcpStream::connect_timeout(&place, Duration::from_secs(5))
}

fn refused(place: &str) {
    let error = connect(place.parse().unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{place}: {error}");
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Events up to now.
fn drain(events: &mut Events) -> Vec<NetEvent> {
    std::iter::from_fn(|| events.take()).collect()
}

#[test]
fn allowed_connect_reaches_the_relay_and_getpeername_is_unchanged() {
    if in_a_child("allowed_connect_reaches_the_relay_and_getpeername_is_unchanged") {
        return;
    }
    let world = World::new();
    for place in ["198.18.0.1:443", "[fd00::1]:443", "127.0.0.1:5432"] {
        world.allow(place);
        let (origin, seen) = world.through(place);
        assert_eq!(origin.destination, place.parse().unwrap());
        assert_eq!(seen, origin.destination);
        assert_eq!(origin.tgid, std::process::id());
        assert_ne!(origin.cookie, 0);
        assert!(!origin.comm.is_empty());
    }
    let (origin, seen) = world.through("[::ffff:198.18.0.1]:443");
    assert_eq!(origin.destination, "198.18.0.1:443".parse().unwrap());
    assert_eq!(seen, "[::ffff:198.18.0.1]:443".parse().unwrap());
    world.loaded.allow_net(world.cgroup, "192.0.2.0/24".parse().unwrap(), Some(22)).unwrap();
    world.loaded.allow_net(world.cgroup, "192.0.2.128/25".parse().unwrap(), Some(80)).unwrap();
    world.loaded.allow_net(world.cgroup, "2001:db8::/32".parse().unwrap(), None).unwrap();
    // The longer prefix for another port does not hide the shorter one.
    for place in ["192.0.2.7:22", "192.0.2.200:22", "192.0.2.200:80", "[2001:db8::9]:1"] {
        assert_eq!(world.through(place).0.destination, place.parse().unwrap());
    }
    for place in ["192.0.2.7:80", "192.0.3.7:22", "[2001:db9::9]:1", "198.18.0.1:80", "198.18.0.2:443"] {
        refused(place);
    }
    world.loaded.remove(world.cgroup);
    refused("198.18.0.1:443");
    refused("127.0.0.1:9");
}

#[cfg(feature = "ebpf-log")]
#[test]
fn connect_decision_is_printed() {
    use std::io::BufRead;
    if in_a_child("connect_decision_is_printed") {
        return;
    }
    let (read, write) = rustix::pipe::pipe().unwrap();
    rustix::stdio::dup2_stderr(&write).unwrap();
    let world = World::new();
    world.allow("198.18.0.1:443");
    world.through("198.18.0.1:443");
    refused("[2001:db8::1]:443");
    connect("127.0.0.1:9".parse().unwrap()).unwrap_err();
    let (cgroup, relay) = (world.cgroup, world.relay_v4.local_addr().unwrap().port());
    let printed: Vec<_> =
        std::io::BufReader::new(std::fs::File::from(read)).lines().take(3).flatten().collect();
    let expected = [
        format!("::ffff:198.18.0.1 port 443: to the relay's port {relay}"),
        format!("2001:db8::1 port 443: refused, reason {}", Reason::NotAllowed as u8),
        "::ffff:127.0.0.1 port 9: as asked".to_owned(),
    ];
    assert_eq!(printed, expected.map(|text| format!("ebpf: cgroup {cgroup}: {text}")));
}

#[test]
fn a_refusal_is_an_event_with_its_process() {
    if in_a_child("a_refusal_is_an_event_with_its_process") {
        return;
    }
    let world = World::new();
    let runtime = runtime();
    let inside = runtime.enter();
    let mut events = world.loaded.events().unwrap();
    assert!(matches!(world.loaded.events(), Err(EbpfError::EventsTaken)));
    for (place, reason) in [
        ("203.0.113.9:443", Reason::NotAllowed),
        ("[::ffff:203.0.113.9]:443", Reason::NotAllowed),
        ("[2001:db8::1]:443", Reason::NotAllowed),
        ("169.254.169.254:80", Reason::NotAllowed),
    ] {
        refused(place);
        let event = runtime.block_on(events.next()).unwrap();
        assert_eq!((event.kind, event.reason), (Kind::Connect, reason), "{place}");
        let expected: SocketAddr = place.parse().unwrap();
        assert_eq!(event.destination, Some(SocketAddr::new(expected.ip().to_canonical(), expected.port())));
        assert_eq!((event.tgid, event.cgroup, event.protocol), (std::process::id(), world.cgroup, 6));
        assert!(!event.comm.is_empty());
    }
    // The relay's own addresses, however they are written.
    let (v4, v6) = (world.relay_v4.local_addr().unwrap(), world.relay_v6.local_addr().unwrap());
    for place in [
        v4.to_string(),
        format!("0.0.0.0:{}", v4.port()),
        format!("[::]:{}", v4.port()),
        v6.to_string(),
        format!("[::ffff:127.0.0.1]:{}", v4.port()),
    ] {
        refused(&place);
        assert_eq!(runtime.block_on(events.next()).unwrap().reason, Reason::Listener, "{place}");
    }
    assert_eq!(world.loaded.counters(), Counters { refused: 9, ..Counters::default() });
    // A full ring: refused anyway, and counted.
    let place: SocketAddr = "203.0.113.9:443".parse().unwrap();
    for _ in 0..4000 {
        assert_eq!(connect(place).unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
    let told = drain(&mut events).len() as u64;
    assert_eq!(told + world.loaded.lost_events(), 4000);
    assert!(world.loaded.lost_events() > 0);
    drop(inside);
}

#[test]
fn only_tcp_and_udp_sockets_exist_and_datagrams_stay_inside() {
    if in_a_child("only_tcp_and_udp_sockets_exist_and_datagrams_stay_inside") {
        return;
    }
    let world = World::new();
    world.allow("198.18.0.1:443");
    let protocol = |number: u32| Some(Protocol::from_raw(number.try_into().unwrap()));
    for (family, kind, number) in [
        (AddressFamily::INET, SocketType::RAW, 255),
        (AddressFamily::INET6, SocketType::RAW, 58),
        (AddressFamily::INET, SocketType::DGRAM, 1),
        (AddressFamily::INET, SocketType::DGRAM, 136),
        (AddressFamily::INET, SocketType::STREAM, 262),
        (AddressFamily::INET6, SocketType::STREAM, 262),
    ] {
        let made = rustix::net::socket(family, kind, protocol(number));
        assert!(made.is_err(), "{family:?} {kind:?} {number}");
    }
    assert!(world.loaded.counters().refused_sockets >= 4);
    let denied = |result: std::io::Result<usize>| result.unwrap_err().kind() == ErrorKind::PermissionDenied;
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // An allowed TCP port is not a UDP one.
    for place in ["8.8.8.8:53", "198.18.0.1:443", "255.255.255.255:67"] {
        assert!(denied(socket.send_to(b"x", place)), "{place}");
        assert_eq!(socket.connect(place).unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
    let six = UdpSocket::bind("[::]:0").unwrap();
    for place in ["[2001:db8::1]:53", "[::ffff:8.8.8.8]:53", "[ff02::fb]:5353"] {
        assert!(denied(six.send_to(b"x", place)), "{place}");
    }
    let inside = UdpSocket::bind("127.0.0.53:53").unwrap();
    assert_eq!(socket.send_to(b"name?", "127.0.0.53:53").unwrap(), 5);
    let mut buffer = [0; 8];
    assert_eq!(inside.recv(&mut buffer).unwrap(), 5);
}

#[test]
fn loopback_is_allowed_and_a_reused_socket_keeps_no_state() {
    if in_a_child("loopback_is_allowed_and_a_reused_socket_keeps_no_state") {
        return;
    }
    let world = World::new();
    let own = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = own.local_addr().unwrap();
    let client = connect(place).unwrap();
    let (_server, peer) = own.accept().unwrap();
    assert_eq!(client.peer_addr().unwrap(), place);
    assert_eq!(world.loaded.original_destination(world.cgroup, peer), None);
    // A connection that was never made leaves no entry.
    world.allow("198.18.0.1:443");
    drop(world.relay_v4);
    let error = connect("198.18.0.1:443".parse().unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(world.loaded.tables().waiting(), 0);
}

#[test]
fn closed_connection_event_counts_its_bytes() {
    if in_a_child("closed_connection_event_counts_its_bytes") {
        return;
    }
    let world = World::new();
    let runtime = runtime();
    let _inside = runtime.enter();
    let mut events = world.loaded.events().unwrap();
    world.allow("198.18.0.1:443");
    let mut client = connect("198.18.0.1:443".parse().unwrap()).unwrap();
    client.write_all(&[7; 1000]).unwrap();
    // The connection ends before the relay accepts it; the relay still learns its original destination.
    drop(client);
    let (mut server, peer) = world.relay_v4.accept().unwrap();
    let origin = world.loaded.origin(world.cgroup, peer).unwrap();
    let mut all = Vec::new();
    server.read_to_end(&mut all).unwrap();
    drop(server);
    assert_eq!(all.len(), 1000);
    let event = runtime.block_on(events.next()).unwrap();
    assert_eq!((event.kind, event.cookie), (Kind::Closed, origin.cookie));
    let traffic = world.loaded.bytes(origin.cookie).unwrap();
    assert_eq!(event.traffic, Some(traffic));
    assert!((1000..=1002).contains(&traffic.sent), "{traffic:?}");
    assert!(traffic.received <= 2, "{traffic:?}");
    assert_eq!(world.loaded.tables().waiting(), 0);
}

#[test]
fn unconfigured_cgroup_reaches_nothing() {
    if in_a_child("unconfigured_cgroup_reaches_nothing") {
        return;
    }
    let world = World::new();
    world.allow("198.18.0.1:443");
    let own = PathBuf::from(std::env::var_os(CHILD).unwrap()).join("sandbox");
    std::fs::create_dir(own.join("deeper")).unwrap();
    std::fs::write(own.join("deeper/cgroup.procs"), std::process::id().to_string()).unwrap();
    refused("198.18.0.1:443");
    refused("127.0.0.1:9");
    std::fs::write(own.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    std::fs::remove_dir(own.join("deeper")).unwrap();
    assert_eq!(world.through("198.18.0.1:443").0.destination, "198.18.0.1:443".parse().unwrap());
}

/// A socket that was connected before the programs came passes all of them but the one that looks at packets.
#[test]
fn no_packet_leaves_for_anywhere_but_loopback() {
    if in_a_child("no_packet_leaves_for_anywhere_but_loopback") {
        return;
    }
    let mut world = World::new();
    drop(world.attached.take());
    for net in ["203.0.113.0/24", "2001:db8::/32"] {
        #[expect(clippy::disallowed_methods, reason = "makes a route")]
        let made = std::process::Command::new("ip")
            .args(["route", "add", "local", net, "dev", "lo"])
            .status()
            .unwrap();
        assert!(made.success(), "{net}");
    }
    let connected = |from: &str, to: &str| {
        let socket = UdpSocket::bind(from).unwrap();
        socket.connect(to).unwrap();
        socket
    };
    let outside = [("0.0.0.0:0", "203.0.113.9:53"), ("[::]:0", "[2001:db8::9]:53")]
        .map(|(from, to)| connected(from, to));
    let receivers = ["127.0.0.1:0", "[::1]:0"].map(|place| UdpSocket::bind(place).unwrap());
    let inside = [("0.0.0.0:0", &receivers[0]), ("[::]:0", &receivers[1])]
        .map(|(from, to)| connected(from, &to.local_addr().unwrap().to_string()));
    let parent = PathBuf::from(std::env::var_os(CHILD).unwrap());
    let _attached = world.loaded.attach(std::fs::File::open(&parent).unwrap().as_fd()).unwrap();
    for (sent, socket) in outside.iter().enumerate() {
        assert_eq!(socket.send(b"out").unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(world.loaded.counters().dropped_packets, sent as u64 + 1);
    }
    for (socket, receiver) in inside.iter().zip(&receivers) {
        // The largest datagram of IPv4.
        assert_eq!(socket.send(&[7; 65_507]).unwrap(), 65_507);
        assert_eq!(receiver.recv(&mut vec![0; 65_536]).unwrap(), 65_507);
    }
    assert_eq!(world.loaded.counters().dropped_packets, outside.len() as u64);
}

#[test]
fn without_programs_the_namespace_has_no_route() {
    if in_a_child("without_programs_the_namespace_has_no_route") {
        return;
    }
    let mut world = World::new();
    world.allow("198.18.0.1:443");
    world.through("198.18.0.1:443");
    drop(world.attached.take());
    for place in ["198.18.0.1:443", "203.0.113.9:443", "[2001:db8::1]:443"] {
        let error = connect(place.parse().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NetworkUnreachable, "{place}: {error}");
    }
}
