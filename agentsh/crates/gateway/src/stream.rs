//! The events of one HTTP response, kept until they are read and a while longer, for reconnection with `Last-Event-ID`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

use hyper::body::Bytes;
use tokio::sync::Notify;

use crate::mcp::Pause;

/// Bytes of read events kept for resumption.
const KEPT_BYTES: usize = 256 << 10;

pub struct Stream {
    pub id: u64,
    inner: RefCell<Inner>,
    /// Events arrived, the stream ended, or another reader came.
    changed: Notify,
}

#[derive(Default)]
struct Inner {
    /// Oldest first.
    events: VecDeque<Bytes>,
    /// Number of the oldest kept event.
    first: u64,
    /// Number of the oldest unread event.
    unread: u64,
    read_bytes: usize,
    unread_bytes: usize,
    is_done: bool,
    /// The server postponed the answer: the reader should reconnect.
    pause: Option<Pause>,
    /// Counts readers: only the newest reads.
    reader: u64,
    is_read: bool,
}

impl Stream {
    pub fn new(id: u64) -> Self {
        Self { id, inner: RefCell::default(), changed: Notify::new() }
    }

    pub fn push(&self, message: &[u8]) {
        let mut inner = self.inner.borrow_mut();
        inner.unread_bytes += message.len();
        inner.events.push_back(Bytes::copy_from_slice(message));
        drop(inner);
        self.changed.notify_waiters();
    }

    /// The answer is postponed.
    pub fn pause(&self, pause: Pause) {
        self.inner.borrow_mut().pause = Some(pause);
        self.changed.notify_waiters();
    }

    /// Marks the end.
    pub fn finish(&self) {
        self.inner.borrow_mut().is_done = true;
        self.changed.notify_waiters();
    }

    pub fn is_done(&self) -> bool {
        self.inner.borrow().is_done
    }

    pub fn unread_bytes(&self) -> usize {
        self.inner.borrow().unread_bytes
    }

    /// It has a reader.
    pub fn is_read(&self) -> bool {
        self.inner.borrow().is_read
    }

    /// Complete and read.
    pub fn is_over(&self) -> bool {
        let inner = self.inner.borrow();
        inner.is_done && inner.unread_bytes == 0
    }

    /// The only and last message, if so: it needs no stream.
    pub fn only_message(&self) -> Option<Bytes> {
        let inner = self.inner.borrow();
        let is_sole = inner.is_done && inner.first == 0 && inner.events.len() == 1;
        is_sole.then(|| inner.events.front().cloned()).flatten()
    }

    pub fn is_empty(&self) -> bool {
        self.inner.borrow().events.is_empty()
    }

    /// Waits for an event, a pause or the end.
    pub async fn wait_for_event(&self) {
        loop {
            let changed = self.changed.notified();
            if !self.is_empty() || self.is_done() || self.inner.borrow().pause.is_some() {
                return;
            }
            changed.await;
        }
    }

    /// Reads from this event's number, or from the oldest unread. Earlier readers end.
    pub fn reader(self: &std::rc::Rc<Self>, from: Option<u64>) -> Reader {
        let mut inner = self.inner.borrow_mut();
        inner.reader += 1;
        inner.is_read = true;
        // A resuming client wants the answer now.
        if from.is_some()
            && let Some(pause) = inner.pause.take()
        {
            pause.again.notify_one();
        }
        let next = from.map_or(inner.unread, |from| from.clamp(inner.first, inner.unread));
        let number = inner.reader;
        drop(inner);
        self.changed.notify_waiters();
        Reader { stream: std::rc::Rc::clone(self), number, next, may_pause: false }
    }
}

pub struct Reader {
    stream: std::rc::Rc<Stream>,
    number: u64,
    next: u64,
    may_pause: bool,
}

impl Reader {
    /// Ends at a pause, if this client can resume.
    pub fn until_paused(mut self, may_pause: bool) -> Self {
        self.may_pause = may_pause;
        self
    }

    /// Not the real end: the event number to resume from, and the server's delay.
    pub fn paused(&self) -> Option<(u64, Option<Duration>)> {
        let inner = self.stream.inner.borrow();
        let pause = inner
            .pause
            .as_ref()
            .filter(|_| self.may_pause && inner.reader == self.number && !inner.is_done)?;
        Some((self.next, pause.retry))
    }

    pub fn stream_id(&self) -> u64 {
        self.stream.id
    }

    /// The next event with its number; None at the end, at a pause, or for another reader.
    pub async fn next(&mut self) -> Option<(u64, Bytes)> {
        loop {
            let changed = self.stream.changed.notified();
            {
                let mut inner = self.stream.inner.borrow_mut();
                if inner.reader != self.number {
                    return None;
                }
                if let Some(event) = inner.take(self.next) {
                    self.next += 1;
                    return Some((self.next - 1, event));
                }
                if inner.is_done || self.may_pause && inner.pause.is_some() {
                    return None;
                }
            }
            changed.await;
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut inner = self.stream.inner.borrow_mut();
        if inner.reader == self.number {
            inner.is_read = false;
        }
    }
}

impl Inner {
    fn take(&mut self, number: u64) -> Option<Bytes> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let event = self.events.get(at)?.clone();
        if number >= self.unread {
            self.unread = number + 1;
            self.unread_bytes -= event.len();
            self.read_bytes += event.len();
        }
        while self.read_bytes > KEPT_BYTES && self.first < self.unread {
            let Some(old) = self.events.pop_front() else { break };
            self.read_bytes -= old.len();
            self.first += 1;
        }
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use std::rc::Rc;

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn reconnecting_reader_resumes_and_replaces_the_earlier_one() {
        let stream = Rc::new(Stream::new(1));
        for text in ["a", "b", "c"] {
            stream.push(text.as_bytes());
        }
        let mut first = stream.reader(None);
        assert_eq!(first.next().await.unwrap(), (0, Bytes::from("a")));
        assert_eq!(first.next().await.unwrap().0, 1);
        // The connection broke after the first event arrived.
        let mut second = stream.reader(Some(1));
        assert!(first.next().await.is_none());
        assert_eq!(second.next().await.unwrap(), (1, Bytes::from("b")));
        assert_eq!(second.next().await.unwrap().0, 2);
        assert_eq!(stream.unread_bytes(), 0);
        stream.finish();
        assert!(second.next().await.is_none() && stream.is_over());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn events_kept_for_reconnection_are_bounded() {
        let stream = Rc::new(Stream::new(1));
        let mut reader = stream.reader(None);
        for _ in 0..100 {
            stream.push(&vec![b'x'; 10_000]);
            reader.next().await.unwrap();
        }
        assert!(stream.inner.borrow().events.len() <= KEPT_BYTES / 10_000 + 1);
        // A request for evicted events gets those that are left.
        let mut late = stream.reader(Some(4));
        assert!(late.next().await.unwrap().0 > 4);
    }
}
