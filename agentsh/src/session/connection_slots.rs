//! Limits of the agent's server connections and of their lines: each connection is a server process, and one process
//! holds all their buffers.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Semaphore;

use agentsh_base::types::ServerId;
use agentsh_mcp::framing::Budget;

/// Connections per server. A client has one, briefly two when it reconnects; subagents have their own.
const MAX_PER_SERVER: usize = 4;
/// Connections per session.
const MAX_COUNT: usize = 64;
/// Connections before their header.
const MAX_UNNAMED: usize = 32;
/// Limit of rejected connections that are answered at a time; others are closed.
const MAX_REPORTED: usize = 16;
/// Buffers of all clients' long lines, and of each server's.
const LINES: usize = 64 << 20;

pub(super) struct ConnectionSlots {
    pub unnamed: Arc<Semaphore>,
    pub client_lines: Budget,
    live: RefCell<BTreeMap<ServerId, usize>>,
    server_lines: RefCell<BTreeMap<ServerId, Budget>>,
    told: Rc<Cell<usize>>,
    lines: usize,
}

impl ConnectionSlots {
    pub fn new(max_line_bytes: u64) -> Self {
        // Two lines of the maximum length fit.
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

    /// A slot for one more connection, or why there is none.
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

    /// Held while a rejected connection is answered.
    pub fn reserve_refusal(&self) -> Option<ConnectionCount> {
        (self.told.get() < MAX_REPORTED).then(|| {
            self.told.set(self.told.get() + 1);
            ConnectionCount(Rc::clone(&self.told))
        })
    }
}

/// One live connection.
pub(super) struct ConnectionSlot {
    places: Rc<ConnectionSlots>,
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

/// What follows the text about one refusal that stands for `count`.
pub(super) fn last_of(count: u64) -> String {
    if count > 1 { format!("; the last of {count} refusals") } else { String::new() }
}

/// Counts events that an agent can cause without end.
#[derive(Default)]
pub(super) struct Repeats {
    total: u64,
    written: u64,
}

/// So many are recorded one by one, then only when their number doubles.
const RECORDED_SINGLY: u64 = 16;

impl Repeats {
    /// Counts one; returns the count for the next message, if due.
    pub fn count_and_take_due(&mut self) -> Option<u64> {
        self.total += 1;
        if self.total > RECORDED_SINGLY && !self.total.is_power_of_two() {
            return None;
        }
        let due = self.total - self.written;
        self.written = self.total;
        Some(due)
    }

    /// The count since the last message.
    pub fn unreported_count(&self) -> Option<u64> {
        Some(self.total - self.written).filter(|rest| *rest > 0)
    }
}
