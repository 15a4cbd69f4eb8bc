//! Reports connections inside that nothing answered because of the policy: to a port of this machine's loopback with a
//! listener, or to an address without a rule. The program only sees *connection refused*.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::session::drain::{Next, drain, serve};
use agentsh_net::EgressContext;
use agentsh_sandbox::spawn;
use agentsh_sandbox::unanswered_packets::{self, MAX_LENGTH};
use agentsh_store::Journal;

/// Limit of examined addresses per sandbox.
const MAX_DIFFERENT: usize = 1000;
/// Minimum interval between reads of the listeners' table.
const TABLE_HOLDS: Duration = Duration::from_secs(1);

/// Reports until dropped.
pub(super) struct UnansweredWatcher {
    watched: Vec<Rc<WatchedSocket>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

struct WatchedSocket {
    socket: AsyncFd<OwnedFd>,
    egress: Rc<EgressContext<Journal>>,
    /// Ports without a listener on this machine: the sandbox's own.
    own: RefCell<BTreeSet<u16>>,
    machine: RefCell<ListeningPorts>,
}

/// This machine's loopback listeners, as last read.
#[derive(Default)]
struct ListeningPorts {
    read: Option<Instant>,
    ports: BTreeSet<u16>,
}

impl Drop for UnansweredWatcher {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl UnansweredWatcher {
    /// `published`: ports of the sandbox, to which agentsh itself connects.
    pub(super) fn watch(
        egress: &Rc<EgressContext<Journal>>,
        sockets: Vec<OwnedFd>,
        published: &BTreeSet<u16>,
    ) -> Self {
        let watch = |socket| {
            let socket = spawn::watch(socket, Interest::READABLE).ok()?;
            Some(Rc::new(WatchedSocket {
                socket,
                egress: Rc::clone(egress),
                own: RefCell::new(published.clone()),
                machine: RefCell::default(),
            }))
        };
        let watched: Vec<_> = sockets.into_iter().filter_map(watch).collect();
        let start = |watched: &Rc<WatchedSocket>| {
            let watched = Rc::clone(watched);
            agentsh_base::task::spawn_local(async move { watched.serve().await })
        };
        let tasks = watched.iter().map(start).collect();
        Self { watched, tasks }
    }

    /// Reads the last packets of an ended sandbox. Returns the sockets.
    pub(super) async fn finish(mut self) -> Vec<OwnedFd> {
        for task in std::mem::take(&mut self.tasks) {
            task.abort();
            // Cancelled or failed, it has released the socket.
            let _ = task.await;
        }
        let mut sockets = Vec::new();
        for watched in std::mem::take(&mut self.watched) {
            while drain(async || watched.read_packet().await).await == Next::More {}
            if let Ok(watched) = Rc::try_unwrap(watched) {
                sockets.push(watched.socket.into_inner());
            }
        }
        sockets
    }
}

impl WatchedSocket {
    async fn serve(&self) {
        serve(&self.socket, async || self.read_packet().await).await;
    }

    /// Reads one packet.
    async fn read_packet(&self) -> Next {
        let mut packet = [0; MAX_LENGTH];
        let Ok(length) = rustix::io::read(self.socket.get_ref(), &mut packet) else { return Next::Empty };
        let Some(found) = packet.get(..length).and_then(unanswered_packets::read) else { return Next::More };
        let (address, port) = (found.destination.ip(), found.destination.port());
        if !address.is_loopback() || (found.is_tcp && self.is_of_machine(port)) {
            self.egress.was_unanswered(found.destination, found.is_tcp).await;
        }
        Next::More
    }

    /// Whether this machine has a listener at the port.
    fn is_of_machine(&self, port: u16) -> bool {
        let mut own = self.own.borrow_mut();
        // The port belongs to a program that polls its own server.
        if own.contains(&port) || own.len() >= MAX_DIFFERENT {
            return false;
        }
        let mut machine = self.machine.borrow_mut();
        if machine.read.is_none_or(|read| read.elapsed() >= TABLE_HOLDS) {
            *machine = ListeningPorts { read: Some(Instant::now()), ports: listening_ports() };
        }
        let listens = machine.ports.contains(&port);
        if !listens {
            own.insert(port);
        }
        listens
    }
}

fn listening_ports() -> BTreeSet<u16> {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| std::fs::read_to_string(table).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines()).filter_map(listens_on).collect()
}

/// The port of a `/proc/net/tcp` line in state `0A` that loopback reaches.
fn listens_on(line: &str) -> Option<u16> {
    let mut words = line.split_whitespace().skip(1);
    let (Some(local), Some(_remote), Some("0A")) = (words.next(), words.next(), words.next()) else {
        return None;
    };
    let (address, number) = local.split_once(':')?;
    let port = u16::from_str_radix(number, 16).ok()?;
    address_of(address).is_some_and(is_reached).then_some(port)
}

fn is_reached(address: IpAddr) -> bool {
    address.is_loopback() || address.is_unspecified()
}

/// Hexadecimal, in native byte order.
fn address_of(text: &str) -> Option<IpAddr> {
    let mut bytes = Vec::new();
    for at in (0..text.len()).step_by(8) {
        bytes.extend(u32::from_str_radix(text.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    }
    match bytes.len() {
        4 => Some(IpAddr::from(*bytes.first_chunk::<4>()?)),
        16 => Some(IpAddr::from(*bytes.first_chunk::<16>()?).to_canonical()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn listening_ports_are_read_from_proc_net_tcp() {
        let line =
            "   0: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1";
        assert_eq!(listens_on(line), Some(22));
        assert_eq!(listens_on(&line.replace(" 0A ", " 01 ")), None);
        assert_eq!(listens_on(&line.replace("0100007F", "0102000A")), None);
        let six = "   0: 00000000000000000000000001000000:0016 00000000000000000000000000000000:0000 0A";
        assert_eq!(listens_on(six), Some(22));
        assert_eq!(listens_on("  sl  local_address rem_address   st"), None);
    }
}
