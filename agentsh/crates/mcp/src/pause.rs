//! A remote server may end the stream of an answer before the answer, and ask to be asked again later. Whoever serves a
//! client over HTTP in turn passes that on; everybody else waits.

use std::rc::Rc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};

use super::jsonrpc::Key;

/// Pauses that nobody has looked at yet. One more is waited out as if nobody wanted to know.
const MAX_QUEUED_PAUSES: usize = 64;

/// The answer to this request comes later.
#[derive(Clone, Debug)]
pub struct Pause {
    pub key: Key,
    /// How long the server wants to be left alone.
    pub retry: Option<Duration>,
    /// Whoever asks is back: the server is asked again, at once. Without it, after the time that it asked for.
    pub again: Rc<Notify>,
}

pub type PauseSender = mpsc::Sender<Pause>;
pub type PauseReceiver = mpsc::Receiver<Pause>;

#[must_use]
pub fn pauses() -> (PauseSender, PauseReceiver) {
    mpsc::channel(MAX_QUEUED_PAUSES)
}
