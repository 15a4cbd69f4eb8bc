//! Sockets of the host's services: a container engine, a key agent, the session bus.
//! Stopped by: their files are not in the sandbox.

use std::os::unix::net::UnixListener;

use crate::support::{everywhere, no, yes};

#[test]
fn sockets_of_host_services_are_not_reached() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        place.make_directory(&place.home.join(".docker"));
        let mut listeners = Vec::new();
        let mut expected = Vec::new();
        for path in
            [place.path("service.sock"), place.path("run/bus"), place.home.join(".docker/docker.sock")]
        {
            listeners.push(UnixListener::bind(&path).unwrap());
            place.own(&path);
            expected.push(no(format!("unix {}", path.display())));
            assert_eq!(place.outside(&[&format!("unix {}", path.display())]), ["DONE"]);
        }
        expected.push(no("unix /run/dbus/system_bus_socket"));
        expected.push(yes("unix-own /tmp/own.sock"));
        sandbox.holds(&expected);
    });
}

/// Its own bridge is the one socket that an agent has; the directory around it shows nothing else.
#[test]
fn bridge_socket_is_the_only_socket_shown() {
    everywhere(|sandbox| {
        let run = sandbox.place.path("run");
        sandbox.holds(&[
            no(format!("list {} bus", run.display())),
            no("create /run/agentsh/x"),
            yes("list / run"),
        ]);
    });
}
