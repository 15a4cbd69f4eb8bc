//! Splits a byte stream into lines, in bounded memory.

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::rc::Rc;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Longest line when the policy says nothing: 16 MiB.
pub const DEFAULT_LIMIT: usize = 16 << 20;
/// Bytes kept from the start of an oversized line.
pub const HEAD_BYTES: usize = 4096;
/// Bytes kept from its end, because many peers write the id last.
pub const TAIL_BYTES: usize = 512;

const CHUNK: usize = 64 << 10;
/// A larger buffer is freed once it is empty.
const MAX_KEPT_BYTES: usize = 1 << 20;

/// Memory for long lines, shared by all connections of a session. A line up to [`MAX_KEPT_BYTES`] bytes needs none, so using it
/// up stops no ordinary message.
#[derive(Clone, Debug, Default)]
pub struct Budget(Option<Rc<Cell<usize>>>);

impl Budget {
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(Some(Rc::new(Cell::new(bytes))))
    }

    /// Takes all or nothing. Unlimited without a bound.
    fn take(&self, bytes: usize) -> bool {
        let Some(left) = &self.0 else { return true };
        let rest = left.get().checked_sub(bytes);
        left.set(rest.unwrap_or(left.get()));
        rest.is_some()
    }

    fn give_back(&self, bytes: usize) {
        if let Some(left) = &self.0 {
            left.set(left.get().saturating_add(bytes));
        }
    }
}

/// One line without its end.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    Line(&'a [u8]),
    /// The line exceeded the limit; `bytes` includes a final `\r`.
    Oversized {
        bytes: u64,
        head: Vec<u8>,
        tail: Vec<u8>,
    },
}

/// Reads lines that end with `\n` or `\r\n`; the last one may have no end. Skips blank lines.
#[derive(Debug)]
pub struct LineReader<R> {
    source: R,
    limit: usize,
    buffer: Vec<u8>,
    /// Earlier bytes are delivered.
    start: usize,
    /// There is no newline between `start` and here.
    scanned: usize,
    skipping: Option<Skipped>,
    ended: bool,
    budget: Budget,
    /// This reader's share of the budget.
    taken: usize,
}

impl<R> Drop for LineReader<R> {
    fn drop(&mut self) {
        self.budget.give_back(self.taken);
    }
}

#[derive(Debug, Default)]
struct Skipped {
    bytes: u64,
    head: Vec<u8>,
    tail: Vec<u8>,
}

enum Found {
    Line(Range<usize>),
    Oversized(Skipped),
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// `limit` in bytes, without the line end.
    pub fn new(source: R, limit: usize) -> Self {
        Self {
            source,
            limit,
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            skipping: None,
            ended: false,
            budget: Budget::default(),
            taken: 0,
        }
    }

    /// With a shared budget. A line without room counts as oversized.
    #[must_use]
    pub fn with_budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// Waits for bytes. False at the end of the stream; the rest is then a last line for [`Self::next_frame`].
    /// Cancel-safe.
    ///
    /// # Errors
    /// Those of the stream.
    pub async fn fill(&mut self) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        self.make_room();
        let outcome = self.source.read_buf(&mut self.buffer).await;
        // A failed stream has ended.
        self.ended = !matches!(outcome, Ok(count) if count > 0);
        outcome.map(|count| count > 0)
    }

    /// Whether everything was read and taken.
    pub fn is_at_end(&self) -> bool {
        self.ended && self.start == self.buffer.len() && self.skipping.is_none()
    }

    pub fn next_frame(&mut self) -> Option<Frame<'_>> {
        match self.advance()? {
            Found::Line(range) => Some(Frame::Line(&self.buffer[range])),
            Found::Oversized(Skipped { bytes, head, tail }) => Some(Frame::Oversized { bytes, head, tail }),
        }
    }

    /// Allocated bytes.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    fn advance(&mut self) -> Option<Found> {
        loop {
            let newline = memchr::memchr(b'\n', &self.buffer[self.scanned..]).map(|at| self.scanned + at);
            let (end, next) = match newline {
                Some(end) => (end, end + 1),
                None if self.ended && (self.start < self.buffer.len() || self.skipping.is_some()) => {
                    (self.buffer.len(), self.buffer.len())
                }
                None => {
                    self.scanned = self.buffer.len();
                    self.skip_if_oversized();
                    return None;
                }
            };
            let line = self.start..end;
            self.start = next;
            self.scanned = next;
            if let Some(mut skipped) = self.skipping.take() {
                skipped.add(&self.buffer[line]);
                return Some(Found::Oversized(skipped));
            }
            let content = line.start..line.start + without_return(&self.buffer[line.clone()]).len();
            if content.len() > self.limit {
                let mut skipped = Skipped::default();
                skipped.add(&self.buffer[line]);
                return Some(Found::Oversized(skipped));
            }
            if !self.buffer[content.clone()].trim_ascii().is_empty() {
                return Some(Found::Line(content));
            }
        }
    }

    fn skip_if_oversized(&mut self) {
        let length = self.buffer.len() - self.start;
        // One more, for a final `\r`.
        if self.skipping.is_none() && length <= self.limit.saturating_add(1) && self.has_room_for(length) {
            return;
        }
        let unfinished = &self.buffer[self.start..];
        self.skipping.get_or_insert_default().add(unfinished);
        self.buffer.clear();
        self.start = 0;
        self.scanned = 0;
        self.shrink_buffer();
    }

    /// Whether an unfinished line of this length fits. The buffer may be twice as long.
    fn has_room_for(&mut self, length: usize) -> bool {
        let most = self.limit.saturating_add(2 * CHUNK);
        let wanted = if length > MAX_KEPT_BYTES { (2 * length).min(most) } else { 0 };
        if wanted > self.taken && self.budget.take(wanted - self.taken) {
            self.taken = wanted;
        }
        wanted <= self.taken
    }

    /// Frees a large buffer and its budget.
    fn shrink_buffer(&mut self) {
        if self.buffer.capacity() > MAX_KEPT_BYTES && self.taken > 0 {
            self.buffer = Vec::new();
        }
        self.budget.give_back(std::mem::take(&mut self.taken));
    }

    fn make_room(&mut self) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            if self.buffer.capacity() > MAX_KEPT_BYTES {
                self.buffer = Vec::new();
            }
            self.shrink_buffer();
        } else if self.start > 0 {
            self.buffer.drain(..self.start);
        }
        self.scanned -= self.start;
        self.start = 0;
        let length = self.buffer.len();
        if self.buffer.capacity() - length < CHUNK / 4 {
            let most = self.limit.saturating_sub(length).saturating_add(CHUNK);
            self.buffer.reserve_exact(length.max(CHUNK).min(most));
        }
    }
}

impl Skipped {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let missing = HEAD_BYTES - self.head.len();
        self.head.extend_from_slice(&bytes[..bytes.len().min(missing)]);
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]);
        let surplus = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..surplus);
    }
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}
