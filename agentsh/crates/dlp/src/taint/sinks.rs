//! The ends of what was sent to each server before: a text that is cut into calls is whole here.

use std::collections::BTreeMap;
use std::time::Duration;

use super::symbols::Folded;
use crate::types::ServerId;

/// Symbols and letters that are kept of one path.
const TAIL: usize = 256;
/// Symbols of a new text that are joined to them.
pub(super) const HEAD: usize = 128;
/// Bytes of encoded text that are kept of one path.
const RAW_TAIL: usize = 2048;
/// So often in a row, one character may be a piece of something.
const SAME_CHARACTER: u32 = 4;
const MAX_PATHS: usize = 64;
const MAX_SINKS: usize = 256;

/// What was last sent under one path of the arguments.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail {
    pub text: Folded,
    /// Text without spaces, as it stood: pieces of something encoded.
    pub raw: String,
    /// The text that came last, when it is short, and how often in a row.
    last: String,
    times: u32,
    time: Duration,
}

/// How much of a text was appended to a [`Tail`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pushed {
    symbols: usize,
    letters: usize,
    raw: usize,
}

/// Bounded: 64 paths of 256 servers, the longest unused go first.
#[derive(Clone, Debug, Default)]
pub(super) struct Sinks {
    sinks: BTreeMap<ServerId, BTreeMap<u64, Tail>>,
}

impl Sinks {
    /// The tail of a path; one that is older than `lifetime` is empty again.
    pub fn tail(&mut self, sink: &ServerId, path: u64, now: Duration, lifetime: Duration) -> &mut Tail {
        if !self.sinks.contains_key(sink) {
            if self.sinks.len() >= MAX_SINKS {
                self.sinks.pop_first();
            }
            self.sinks.insert(sink.clone(), BTreeMap::new());
        }
        let paths = self.sinks.entry(sink.clone()).or_default();
        if !paths.contains_key(&path)
            && paths.len() >= MAX_PATHS
            && let Some(oldest) = paths.iter().min_by_key(|(_, tail)| tail.time).map(|(path, _)| *path)
        {
            paths.remove(&oldest);
        }
        let tail = paths.entry(path).or_default();
        if tail.time + lifetime <= now {
            *tail = Tail::default();
        }
        tail.time = now;
        tail
    }

    /// What was sent to one sink is what others saw of it.
    pub fn adopt(&mut self, sink: &ServerId, mut others: Self) {
        let Some((sink, paths)) = others.sinks.remove_entry(sink) else { return };
        if !self.sinks.contains_key(&sink) && self.sinks.len() >= MAX_SINKS {
            self.sinks.pop_first();
        }
        self.sinks.insert(sink, paths);
    }

    /// Forgets the last call to a sink, which was not sent.
    pub fn take_back(&mut self, sink: &ServerId, pushed: &[(u64, Pushed)]) {
        let Some(paths) = self.sinks.get_mut(sink) else { return };
        // Two leaves may have one path.
        for (path, pushed) in pushed.iter().rev() {
            if let Some(tail) = paths.get_mut(path) {
                tail.take_back(*pushed);
            }
        }
    }
}

impl Tail {
    /// Whether `text` is what came last: a name or a setting that stands in every call, and no next piece. One
    /// character may well come a few times.
    pub fn is_repeated(&mut self, text: &str) -> bool {
        if text == self.last {
            self.times = self.times.saturating_add(1);
            return text.len() > 1 || self.times > SAME_CHARACTER;
        }
        self.times = 1;
        self.last.clear();
        if text.len() <= RAW_TAIL {
            self.last.push_str(text);
        }
        false
    }

    /// Appends what is sent now.
    pub fn push(&mut self, text: &str, folded: &Folded) -> Pushed {
        let mut pushed = Pushed {
            symbols: push_end(&mut self.text.symbols, &folded.symbols),
            letters: push_end(&mut self.text.letters, &folded.letters),
            raw: 0,
        };
        if text.len() <= RAW_TAIL && !text.contains(char::is_whitespace) {
            self.raw.push_str(text);
            pushed.raw = text.len();
            if self.raw.len() > 2 * RAW_TAIL {
                let cut =
                    (self.raw.len() - RAW_TAIL..).find(|at| self.raw.is_char_boundary(*at)).unwrap_or(0);
                self.raw.drain(..cut);
            }
        } else {
            self.raw.clear();
        }
        pushed
    }

    /// What was pushed last was not sent after all.
    fn take_back(&mut self, pushed: Pushed) {
        self.text.symbols.truncate(self.text.symbols.len().saturating_sub(pushed.symbols));
        self.text.letters.truncate(self.text.letters.len().saturating_sub(pushed.letters));
        self.raw.truncate(self.raw.len().saturating_sub(pushed.raw));
    }
}

/// Gives how much of it is there now.
fn push_end(tail: &mut Vec<u8>, new: &[u8]) -> usize {
    let new = &new[new.len().saturating_sub(TAIL)..];
    tail.extend_from_slice(new);
    if tail.len() > 2 * TAIL {
        tail.drain(..tail.len() - TAIL);
    }
    new.len()
}
