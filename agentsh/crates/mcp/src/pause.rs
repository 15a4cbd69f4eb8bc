//! Pauses of a remote server's event stream, which the gateway passes on to its HTTP client.

use std::rc::Rc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};

use super::jsonrpc::Key;

/// Unread pauses; more are waited out.
const MAX_QUEUED_PAUSES: usize = 64;

/// This request is answered later.
#[derive(Clone, Debug)]
pub struct Pause {
    pub key: Key,
    /// The server's requested delay.
    pub retry: Option<Duration>,
    /// Ask again now, because the client is back; otherwise after the delay.
    pub again: Rc<Notify>,
}

pub type PauseSender = mpsc::Sender<Pause>;
pub type PauseReceiver = mpsc::Receiver<Pause>;

#[must_use]
pub fn pauses() -> (PauseSender, PauseReceiver) {
    mpsc::channel(MAX_QUEUED_PAUSES)
}
