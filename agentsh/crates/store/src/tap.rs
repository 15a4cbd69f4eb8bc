//! Subscribers of the journal: the webhook, the page of a running session, telemetry.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use tokio::sync::broadcast::{self, error::RecvError, error::TryRecvError};

use super::writer::Pending;
use super::{Event, record};
use crate::types::SessionId;

/// Events that wait for the slowest subscriber; older ones are lost to it. Each is at most 64 KiB.
const MAX_QUEUED_EVENTS: usize = 256;

/// An event that is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedEvent {
    pub session: SessionId,
    /// Place in the session, from 1.
    pub seq: u64,
    pub time: Timestamp,
    /// The event as recorded: JSON of at most 64 KiB.
    pub body: String,
}

impl CommittedEvent {
    #[must_use]
    pub fn event(&self) -> Option<Event> {
        record::parse(&serde_json::from_str(&self.body).ok()?)
    }
}

/// A message to a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TapMessage {
    Event(Arc<CommittedEvent>),
    /// The subscriber was too slow: so many events were lost.
    Lost(u64),
}

/// Events in the order of the record.
#[derive(Debug)]
pub struct Subscription(broadcast::Receiver<Arc<CommittedEvent>>);

impl Subscription {
    /// None when the journal is closed and all events were received.
    pub async fn next(&mut self) -> Option<TapMessage> {
        match self.0.recv().await {
            Ok(told) => Some(TapMessage::Event(told)),
            Err(RecvError::Lagged(lost)) => Some(TapMessage::Lost(lost)),
            Err(RecvError::Closed) => None,
        }
    }

    /// The next message if there is one.
    pub fn try_next(&mut self) -> Option<TapMessage> {
        match self.0.try_recv() {
            Ok(told) => Some(TapMessage::Event(told)),
            Err(TryRecvError::Lagged(lost)) => Some(TapMessage::Lost(lost)),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }
}

/// The journal's end.
pub(crate) struct Tap {
    session: SessionId,
    /// None before the first subscriber, and after the journal has ended.
    sender: Mutex<Option<broadcast::Sender<Arc<CommittedEvent>>>>,
}

impl Tap {
    pub(crate) fn new(session: SessionId) -> Self {
        Self { session, sender: Mutex::new(None) }
    }

    pub(crate) fn subscribe(&self) -> Subscription {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        Subscription(sender.get_or_insert_with(|| broadcast::Sender::new(MAX_QUEUED_EVENTS)).subscribe())
    }

    /// `before`: events of the session that are before these.
    pub(crate) fn publish(&self, before: u64, events: Vec<Pending>) {
        let Some(sender) = self.sender.lock().unwrap_or_else(PoisonError::into_inner).clone() else { return };
        for (seq, Pending { time, body, .. }) in (before + 1..).zip(events) {
            // The subscriber is gone: nothing to do.
            let _ = sender.send(Arc::new(CommittedEvent { session: self.session, seq, time, body }));
        }
    }

    pub(crate) fn close(&self) {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
