//! Whole messages waiting to be written: everything that became ready in one turn leaves in one write.

use std::io;

use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Above this many bytes the proxy stops reading from the other side.
const HIGH: usize = 1 << 20;
/// A buffer above this is given back once it is empty.
const KEEP: usize = 1 << 20;

#[derive(Debug, Default)]
pub struct Outbox {
    buffer: Vec<u8>,
    written: usize,
    unflushed: bool,
}

impl Outbox {
    /// Appends one message: `write` gives its bytes without the newline.
    pub fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.buffer);
        self.buffer.push(b'\n');
    }

    /// Appends messages that already have their newlines.
    pub fn append(&mut self, messages: &[u8]) {
        self.buffer.extend_from_slice(messages);
    }

    pub fn waiting(&self) -> usize {
        self.buffer.len() - self.written
    }

    pub fn is_full(&self) -> bool {
        self.waiting() >= HIGH
    }

    pub fn is_idle(&self) -> bool {
        self.waiting() == 0 && !self.unflushed
    }

    /// Forgets what is not written yet.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Writes as much as the sink takes in one go. Nothing is lost or sent twice when the future is dropped.
    pub async fn flush_some(&mut self, sink: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        if self.waiting() > 0 {
            let count = sink.write(&self.buffer[self.written..]).await?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.unflushed = true;
            self.written += count;
            self.forget_written();
        }
        if self.waiting() == 0 {
            sink.flush().await?;
            self.unflushed = false;
        }
        Ok(())
    }

    fn forget_written(&mut self) {
        if self.waiting() == 0 {
            self.written = 0;
            self.buffer.clear();
            if self.buffer.capacity() > KEEP {
                self.buffer = Vec::new();
            }
        } else if self.written > self.buffer.len() / 2 {
            self.buffer.drain(..self.written);
            self.written = 0;
        }
    }
}
