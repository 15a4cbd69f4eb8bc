//! Lines out of a byte stream, in bounded memory.

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::rc::Rc;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Longest line when the policy says nothing: 16 MiB.
pub const DEFAULT_LIMIT: usize = 16 << 20;
/// How much of the start of an oversized line is kept.
pub const HEAD_BYTES: usize = 4096;
/// How much of its end is kept: many peers write the id last.
pub const TAIL_BYTES: usize = 512;

const CHUNK: usize = 64 << 10;
/// A buffer above this is given back once it is empty.
const KEEP: usize = 1 << 20;

/// Memory for long lines that all connections of a session share. A line up to [`KEEP`] bytes needs none of it, so that
/// whoever takes it all stops nobody's ordinary messages.
#[derive(Clone, Debug, Default)]
pub struct Budget(Option<Rc<Cell<usize>>>);

impl Budget {
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(Some(Rc::new(Cell::new(bytes))))
    }

    /// Takes all of it, or nothing. There is always enough where nobody set a bound.
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

/// One line, without its line end.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    Line(&'a [u8]),
    /// The line was over the limit and is gone; `bytes` counts a `\r` at its end.
    Oversized {
        bytes: u64,
        head: Vec<u8>,
        tail: Vec<u8>,
    },
}

/// Reads lines that end with `\n` or `\r\n`; the last one may lack its end. Blank lines are skipped.
#[derive(Debug)]
pub struct LineReader<R> {
    source: R,
    limit: usize,
    buffer: Vec<u8>,
    /// Everything before is delivered.
    start: usize,
    /// No newline stands between `start` and here.
    scanned: usize,
    skipping: Option<Skipped>,
    ended: bool,
    budget: Budget,
    /// What of the budget this reader holds.
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
    /// `limit` is the longest line in bytes, without its line end.
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

    /// With a bound on what it and others hold together. A line for which there is no room is as one over the limit.
    #[must_use]
    pub fn within(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// Waits for more bytes. False at the end of the stream; what is left is then a last line for
    /// [`Self::next_frame`]. Nothing is lost when the future is dropped.
    ///
    /// # Errors
    /// Those of the stream.
    pub async fn fill(&mut self) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        self.make_room();
        let outcome = self.source.read_buf(&mut self.buffer).await;
        // A stream that failed once gives nothing more.
        self.ended = !matches!(outcome, Ok(count) if count > 0);
        outcome.map(|count| count > 0)
    }

    /// Whether the stream ended and everything it gave was taken.
    pub fn is_at_end(&self) -> bool {
        self.ended && self.start == self.buffer.len() && self.skipping.is_none()
    }

    /// The next whole line that is already here.
    pub fn next_frame(&mut self) -> Option<Frame<'_>> {
        match self.advance()? {
            Found::Line(range) => Some(Frame::Line(&self.buffer[range])),
            Found::Oversized(Skipped { bytes, head, tail }) => Some(Frame::Oversized { bytes, head, tail }),
        }
    }

    /// Bytes of memory the reader holds.
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
        // One more for the `\r` that may belong to the line end.
        if self.skipping.is_none() && length <= self.limit.saturating_add(1) && self.has_room_for(length) {
            return;
        }
        let unfinished = &self.buffer[self.start..];
        self.skipping.get_or_insert_default().add(unfinished);
        self.buffer.clear();
        self.start = 0;
        self.scanned = 0;
        self.let_go();
    }

    /// Whether an unfinished line of this length may be held. The buffer is up to twice as long.
    fn has_room_for(&mut self, length: usize) -> bool {
        let most = self.limit.saturating_add(2 * CHUNK);
        let wanted = if length > KEEP { (2 * length).min(most) } else { 0 };
        if wanted > self.taken && self.budget.take(wanted - self.taken) {
            self.taken = wanted;
        }
        wanted <= self.taken
    }

    /// A large buffer, and its share of the budget.
    fn let_go(&mut self) {
        if self.buffer.capacity() > KEEP && self.taken > 0 {
            self.buffer = Vec::new();
        }
        self.budget.give_back(std::mem::take(&mut self.taken));
    }

    fn make_room(&mut self) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            if self.buffer.capacity() > KEEP {
                self.buffer = Vec::new();
            }
            self.let_go();
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
