//! How many connections with servers the agent may have, and what their lines may take: each connection is a server of
//! its own, and all of them are held by one process.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Semaphore;

use agentsh_base::types::ServerId;
use agentsh_mcp::framing::Budget;

/// Live connections with one server. A client has one and opens the next before it closes the last; agents with helpers
/// of their own have one for each.
const MAX_PER_SERVER: usize = 4;
/// Live connections of a session.
const MAX_COUNT: usize = 64;
/// Connections that have not named their server yet.
const MAX_UNNAMED: usize = 32;
/// Refused connections that are told why at a time; others are closed.
const MAX_TOLD: usize = 16;
/// Unfinished long lines of all clients together, and of all processes of one server.
const LINES: usize = 64 << 20;

pub(super) struct Places {
    pub unnamed: Arc<Semaphore>,
    pub client_lines: Budget,
    live: RefCell<BTreeMap<ServerId, usize>>,
    server_lines: RefCell<BTreeMap<ServerId, Budget>>,
    told: Rc<Cell<usize>>,
    lines: usize,
}

impl Places {
    pub fn new(max_line_bytes: u64) -> Self {
        // Two of the longest find room, however long they may be.
        let lines = usize::try_from(max_line_bytes).unwrap_or(usize::MAX).saturating_mul(3).max(LINES);
        Self {
            unnamed: Arc::new(Semaphore::new(MAX_UNNAMED)),
            client_lines: Budget::new(lines),
            live: RefCell::default(),
            server_lines: RefCell::default(),
            told: Rc::default(),
            lines,
        }
    }

    pub fn server_lines(&self, id: &ServerId) -> Budget {
        let mut all = self.server_lines.borrow_mut();
        all.entry(id.clone()).or_insert_with(|| Budget::new(self.lines)).clone()
    }

    /// A place for one more connection, or why there is none.
    pub fn take(self: &Rc<Self>, id: &ServerId) -> Result<ConnectionSlot, String> {
        let mut live = self.live.borrow_mut();
        let all: usize = live.values().sum();
        let own = live.entry(id.clone()).or_default();
        if *own >= MAX_PER_SERVER {
            return Err(format!(
                "server '{id}' has {MAX_PER_SERVER} connections, each with a process of its own; close one first"
            ));
        }
        if all >= MAX_COUNT {
            return Err(format!("{MAX_COUNT} servers are running in this session; close a connection first"));
        }
        *own += 1;
        Ok(ConnectionSlot { places: Rc::clone(self), id: id.clone() })
    }

    /// While it lives, a refused connection is told why.
    pub fn to_be_told(&self) -> Option<ConnectionCount> {
        (self.told.get() < MAX_TOLD).then(|| {
            self.told.set(self.told.get() + 1);
            ConnectionCount(Rc::clone(&self.told))
        })
    }
}

/// One live connection.
pub(super) struct ConnectionSlot {
    places: Rc<Places>,
    id: ServerId,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if let Some(own) = self.places.live.borrow_mut().get_mut(&self.id) {
            *own = own.saturating_sub(1);
        }
    }
}

pub(super) struct ConnectionCount(Rc<Cell<usize>>);

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// Counts what an agent can cause without end.
#[derive(Default)]
pub(super) struct Repeats {
    total: u64,
    written: u64,
}

/// So many are written one by one, then only when their number has doubled.
const WRITTEN_SINGLY: u64 = 16;

impl Repeats {
    /// Counts one more; gives how many the next message stands for, when one is due.
    pub fn due(&mut self) -> Option<u64> {
        self.total += 1;
        if self.total > WRITTEN_SINGLY && !self.total.is_power_of_two() {
            return None;
        }
        let due = self.total - self.written;
        self.written = self.total;
        Some(due)
    }

    /// How many no message stood for.
    pub fn rest(&self) -> Option<u64> {
        Some(self.total - self.written).filter(|rest| *rest > 0)
    }
}
