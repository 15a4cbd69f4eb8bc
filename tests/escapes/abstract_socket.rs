//! Abstract sockets have no file: a mount tree does not hide them.
//! Stopped by: they belong to the network namespace, and every sandbox has its own.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::support::{everywhere, no, yes};

#[test]
fn abstract_sockets_of_the_host_are_not_reached() {
    everywhere(|sandbox| {
        let name = format!("agentsh-suite-{}-{:?}", std::process::id(), std::thread::current().id());
        let name = name.replace(['(', ')'], "");
        let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        sandbox.holds(&[no(format!("abstract {name}")), yes("abstract-own")]);
        assert_eq!(sandbox.place.outside(&[&format!("abstract {name}")]), ["DONE"]);
    });
}
