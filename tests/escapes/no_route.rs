//! Reach the host's own services, or anything outside.
//! Stopped by: a network namespace with a loopback of its own and no route.

use std::net::{TcpListener, UdpSocket};
use std::time::Duration;

use crate::support::{everywhere, no, yes};

#[test]
fn network_without_a_route_reaches_nothing() {
    everywhere(|sandbox| {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let everywhere = TcpListener::bind("[::]:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let (tcp_address, udp_address) = (tcp.local_addr().unwrap(), udp.local_addr().unwrap());
        let port = everywhere.local_addr().unwrap().port();
        let mut expected = vec![
            no(format!("tcp {tcp_address}")),
            no(format!("tcp [::1]:{port}")),
            no(format!("fast-open {tcp_address}")),
            no(format!("udp {udp_address}")),
            no("tcp 1.1.1.1:443"),
            no("udp 1.1.1.1:53"),
            no("tcp [2606:4700:4700::1111]:443"),
            no("tcp 169.254.169.254:80"),
            no("resolve example.com"),
            no("resolve host.docker.internal"),
            yes("resolve localhost"),
            yes("tcp-own"),
            yes("udp-own"),
        ];
        if let Some(own) = own_address() {
            expected.push(no(format!("tcp {own}:{port}")));
        }
        sandbox.holds(&expected);

        let echo = std::thread::spawn(move || {
            let mut buffer = [0; 16];
            let (_, from) = udp.recv_from(&mut buffer).unwrap();
            udp.send_to(b"pong", from).unwrap();
        });
        let outside = sandbox.place.outside(&[&format!("tcp {tcp_address}"), &format!("udp {udp_address}")]);
        assert_eq!(outside, ["DONE", "DONE"]);
        // It received exactly one datagram: none came out of the sandbox.
        echo.join().unwrap();
    });
}

/// An address of this machine that is not loopback; nothing is sent to find it.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket
        .local_addr()
        .ok()
        .map(|address| address.ip())
        .filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}
