//! Connections inside that nobody answered, told where the policy is why: a port of this machine's loopback on which something
//! listens, an address that no rule names. Without it the program would hear *connection refused* and nobody anything.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::session::draining::{Next, drain, serve};
use agentsh_net::EgressContext;
use agentsh_sandbox::refused::{self, MAX_LENGTH};
use agentsh_sandbox::spawn;
use agentsh_store::Journal;

/// Different ones of a sandbox that are looked into.
const MAX_DIFFERENT: usize = 1000;
/// The table of what listens on the machine is not read more often.
const TABLE_HOLDS: Duration = Duration::from_secs(1);

/// Told while it lives.
pub(super) struct UnansweredWatcher {
    watched: Vec<Rc<WatchedSocket>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

struct WatchedSocket {
    socket: AsyncFd<OwnedFd>,
    egress: Rc<EgressContext<Journal>>,
    /// Of this machine's loopback where nothing listens: a port of the sandbox's own.
    own: RefCell<BTreeSet<u16>>,
    machine: RefCell<ListeningPorts>,
}

/// The ports of the machine's loopback on which something listened when the table was read.
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
    pub(super) fn watch(egress: &Rc<EgressContext<Journal>>, sockets: Vec<OwnedFd>) -> Self {
        let watch = |socket| {
            let socket = spawn::watch(socket, Interest::READABLE).ok()?;
            Some(Rc::new(WatchedSocket {
                socket,
                egress: Rc::clone(egress),
                own: RefCell::default(),
                machine: RefCell::default(),
            }))
        };
        let watched: Vec<_> = sockets.into_iter().filter_map(watch).collect();
        let start = |watched: &Rc<WatchedSocket>| {
            let watched = Rc::clone(watched);
            tokio::task::spawn_local(async move { watched.serve().await })
        };
        let tasks = watched.iter().map(start).collect();
        Self { watched, tasks }
    }

    /// What came last, of a sandbox that has ended. Gives the sockets.
    pub(super) async fn finish(mut self) -> Vec<OwnedFd> {
        for task in std::mem::take(&mut self.tasks) {
            task.abort();
            // It was cancelled, or its socket failed: either way it holds the socket no longer.
            let _ = task.await;
        }
        let mut sockets = Vec::new();
        for watched in std::mem::take(&mut self.watched) {
            while drain(async || watched.look().await).await == Next::More {}
            if let Ok(watched) = Rc::try_unwrap(watched) {
                sockets.push(watched.socket.into_inner());
            }
        }
        sockets
    }
}

impl WatchedSocket {
    async fn serve(&self) {
        serve(&self.socket, async || self.look().await).await;
    }

    /// Looks at one packet.
    async fn look(&self) -> Next {
        let mut packet = [0; MAX_LENGTH];
        let Ok(length) = rustix::io::read(self.socket.get_ref(), &mut packet) else { return Next::Empty };
        let Some(found) = packet.get(..length).and_then(refused::read) else { return Next::More };
        let (address, port) = (found.destination.ip(), found.destination.port());
        if !address.is_loopback() || (found.is_tcp && self.is_of_machine(port)) {
            self.egress.was_unanswered(found.destination, found.is_tcp).await;
        }
        Next::More
    }

    /// Something on this machine would have answered.
    fn is_of_machine(&self, port: u16) -> bool {
        let mut own = self.own.borrow_mut();
        // A program that waits for its own server asks over and over.
        if own.contains(&port) || own.len() >= MAX_DIFFERENT {
            return false;
        }
        let mut machine = self.machine.borrow_mut();
        if machine.read.is_none_or(|read| read.elapsed() >= TABLE_HOLDS) {
            *machine = ListeningPorts { read: Some(Instant::now()), ports: listening() };
        }
        let listens = machine.ports.contains(&port);
        if !listens {
            own.insert(port);
        }
        listens
    }
}

fn listening() -> BTreeSet<u16> {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| std::fs::read_to_string(table).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines()).filter_map(listens_on).collect()
}

/// The port of a line of `/proc/net/tcp` whose state is `0A`, and whose address the loopback reaches.
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

/// Words of the machine's own byte order, in hexadecimal digits.
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
    fn lines_of_the_kernel() {
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
