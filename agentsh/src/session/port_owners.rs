//! Which program listens at a port of this machine. agentsh must not advise to open the port of an agent that runs
//! unsandboxed.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use agentsh_agents::Kind;

/// Limit of cached ports.
const MAX_PORTS: usize = 200;

#[derive(Debug, Default)]
pub struct PortOwners(RefCell<BTreeMap<u16, Option<&'static str>>>);

impl PortOwners {
    /// The title of the agent that listens at a port.
    #[must_use]
    pub fn agent(&self, port: u16) -> Option<&'static str> {
        if let Some(known) = self.0.borrow().get(&port) {
            return *known;
        }
        let found = agent_at(port);
        let mut known = self.0.borrow_mut();
        if known.len() < MAX_PORTS {
            known.insert(port, found);
        }
        found
    }
}

fn agent_at(port: u16) -> Option<&'static str> {
    let sockets: BTreeSet<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .flat_map(|table| listening_sockets(&fs::read_to_string(table).unwrap_or_default(), port))
        .collect();
    if sockets.is_empty() {
        return None;
    }
    // Other users' processes are unreadable, and not this user's agents.
    let processes = fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.path());
    let holds = |process: &Path| {
        let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        open.into_iter()
            .filter_map(|entry| fs::read_link(entry.path()).ok())
            .any(|link| link.to_str().is_some_and(|link| sockets.contains(link)))
    };
    processes.filter(|process| holds(process)).find_map(|process| agent_of(&process))
}

/// `socket:[INODE]` of each listener at the port.
fn listening_sockets(table: &str, port: u16) -> Vec<String> {
    const TCP_LISTEN_STATE: &str = "0A";
    let line = |line: &str| {
        let parts: Vec<&str> = line.split_whitespace().collect();
        let local = parts.get(1)?.rsplit(':').next()?;
        let is_it = u16::from_str_radix(local, 16) == Ok(port) && parts.get(3) == Some(&TCP_LISTEN_STATE);
        is_it.then(|| parts.get(9).map(|inode| format!("socket:[{inode}]"))).flatten()
    };
    table.lines().filter_map(line).collect()
}

/// The agent that a process is, by its command line.
fn agent_of(process: &Path) -> Option<&'static str> {
    let line = fs::read(process.join("cmdline")).unwrap_or_default();
    let executable = fs::read_link(process.join("exe")).unwrap_or_default();
    // An interpreter and its script.
    let words = line.split(|byte| *byte == 0).take(4).map(|word| OsStr::from_bytes(word).to_string_lossy());
    let words = words.chain([executable.as_os_str().to_string_lossy()]);
    words.map(|word| Kind::of(&word)).find(|kind| !kind.is_unknown()).map(Kind::title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_of_sockets_is_read() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:6377 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0 0 10 0\n\
             1: 0100007F:6377 0100007F:9999 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0 100 0 0 10 0\n";
        assert_eq!(listening_sockets(table, 0x6377), ["socket:[4711]"]);
        assert!(listening_sockets(table, 80).is_empty());
    }
}
