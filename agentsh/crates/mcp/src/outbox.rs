//! Messages to be written; all that are ready leave in one write.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep_until};

/// With more bytes, the proxy stops reading the other side.
const HIGH_WATER_BYTES: usize = 1 << 20;
/// A larger buffer is freed once it is empty.
const MAX_KEPT_BYTES: usize = 1 << 20;

/// Between a progress notification and a following answer. The official TypeScript client misses progress that arrives
/// in the same read as the answer; servers leave such a gap, which batching would close.
const PROGRESS_GAP: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
pub struct Outbox {
    buffer: Vec<u8>,
    written: usize,
    unflushed: bool,
    /// When the last progress notification was appended.
    progressed: Option<Instant>,
    /// Places in `buffer` before which to wait.
    gaps: VecDeque<usize>,
    /// When the current gap ends.
    resume: Option<Instant>,
}

impl Outbox {
    /// Appends one message: `write` writes it without the newline.
    pub fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.buffer);
        self.buffer.push(b'\n');
    }

    /// Like `push`, for a progress notification.
    pub fn push_progress(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.push(write);
        self.progressed = Some(Instant::now());
    }

    /// Like `push`, for an answer: not in one write with a preceding progress notification.
    pub fn push_answer(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let is_written = self.waiting() == 0;
        if self.progressed.take().is_some_and(|at| !is_written || at.elapsed() < PROGRESS_GAP) {
            self.gaps.push_back(self.buffer.len());
        }
        self.push(write);
    }

    /// Appends messages that already have their newlines.
    pub fn append(&mut self, messages: &[u8]) {
        self.buffer.extend_from_slice(messages);
    }

    pub fn waiting(&self) -> usize {
        self.buffer.len() - self.written
    }

    pub fn is_full(&self) -> bool {
        self.waiting() >= HIGH_WATER_BYTES
    }

    pub fn is_idle(&self) -> bool {
        self.waiting() == 0 && !self.unflushed
    }

    /// Drops what is not written.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Writes what the sink accepts at once. Cancel-safe.
    pub async fn flush_some(&mut self, sink: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        if self.gaps.front() == Some(&self.written) {
            let resume = *self.resume.get_or_insert_with(|| Instant::now() + PROGRESS_GAP);
            sleep_until(resume).await;
            self.resume = None;
            self.gaps.pop_front();
        }
        if self.waiting() > 0 {
            let end = self.gaps.front().copied().unwrap_or(self.buffer.len());
            let count = sink.write(&self.buffer[self.written..end]).await?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.unflushed = true;
            self.written += count;
            self.forget_written();
        }
        if self.waiting() == 0 || self.gaps.front() == Some(&self.written) {
            sink.flush().await?;
            self.unflushed = false;
        }
        Ok(())
    }

    fn forget_written(&mut self) {
        if self.waiting() == 0 {
            self.written = 0;
            self.buffer.clear();
            if self.buffer.capacity() > MAX_KEPT_BYTES {
                self.buffer = Vec::new();
            }
        } else if self.written > self.buffer.len() / 2 {
            self.buffer.drain(..self.written);
            for gap in &mut self.gaps {
                *gap -= self.written;
            }
            self.written = 0;
        }
    }
}
