//! Ends of calls: finds a text that is cut into several calls. The end of the last value that a server got under a name
//! and the beginning of the next one are searched and decoded as one text.
//!
//! Numbers: 256 symbols of the end and 128 of the beginning, more than four of the runs that are searched for; 2 KiB of
//! text without spaces, a long token; 64 names of 256 servers bound its memory, and the longest unused goes first. Cost:
//! one more search of 384 symbols for each argument. Alone it finds 2 of 207 attempts. It misses calls that each carry the
//! code of a single character.

use std::collections::BTreeMap;
use std::time::Duration;

use super::detector::Detector;
use super::hits::Hit;
use super::leaves::{Leaves, Role};
use super::memory::TaintMemory;
use super::origin::OriginId;
use super::symbols::Folded;
use crate::types::ServerId;

/// Symbols that a call adds at least to what earlier ones sent; all of its text when it is shorter.
const MIN_SHARE: usize = 4;
/// Leaves of one call that are joined to earlier calls.
const MAX_TAILED: usize = 32;
/// Symbols that are kept of one path.
const TAIL: usize = 256;
/// Symbols of a new text that are joined to them.
const HEAD: usize = 128;
/// Bytes of encoded text that are kept of one path.
const RAW_TAIL: usize = 2048;
/// Fewer of them are decoded by themselves.
const MIN_RAW: usize = 16;
/// Repetitions in a row up to which one character may be a piece of something.
const SAME_CHARACTER: u32 = 4;
const MAX_PATHS: usize = 64;
const MAX_SINKS: usize = 256;

/// The end of the last value under one path of the arguments.
#[derive(Clone, Debug, Default)]
struct Tail {
    text: Folded,
    /// Text without spaces, unchanged: pieces of something encoded.
    raw: String,
    /// The text that came last, when it is short, and how often in a row.
    last: String,
    times: u32,
    time: Duration,
}

/// How much of a text was appended to a [`Tail`].
#[derive(Clone, Copy, Debug, Default)]
struct Pushed {
    symbols: usize,
    raw: usize,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    sinks: BTreeMap<ServerId, BTreeMap<u64, Tail>>,
    /// The server of the last call, and what that call added to each path there.
    last: Option<ServerId>,
    pushed: Vec<(u64, Pushed)>,
    single: Folded,
}

/// The end of earlier values joined with the current one.
pub(super) struct Joined {
    /// The leaf that is sent now.
    pub leaf: usize,
    pub text: Folded,
    /// Symbols of what was sent before.
    border: usize,
    /// The possibly encoded text, unchanged.
    pub raw: Option<String>,
}

impl Joined {
    /// Whether a hit continues from an earlier call into this one. A few symbols that continue it by chance do not
    /// count, unless the call has no others.
    pub fn is_split(&self, hit: &Hit) -> bool {
        let piece = self.text.symbols.len().saturating_sub(self.border).min(MIN_SHARE);
        hit.start + MIN_SHARE <= self.border && self.border + piece <= hit.end
    }

    /// Whether anything was sent before.
    pub fn has_earlier(&self) -> bool {
        self.border > 0
    }
}

impl Detector for Calls {
    type Brought = ();

    fn begin(&mut self) {
        self.pushed.clear();
    }

    fn forget(&mut self) {
        let pushed = std::mem::take(&mut self.pushed);
        let Some(paths) = self.last.as_ref().and_then(|sink| self.sinks.get_mut(sink)) else { return };
        // Two leaves may have one path.
        for (path, pushed) in pushed.iter().rev() {
            if let Some(tail) = paths.get_mut(path) {
                tail.take_back(*pushed);
            }
        }
    }

    /// Adopts the copy's state of what was sent to one server.
    fn adopt(&mut self, mut copy: Self, _: &TaintMemory, _: OriginId) {
        if let Some((sink, paths)) = copy.last.as_ref().and_then(|sink| copy.sinks.remove_entry(sink)) {
            self.paths(&sink);
            self.sinks.insert(sink, paths);
        }
        (self.last, self.pushed) = (copy.last, copy.pushed);
    }
}

impl Calls {
    /// Notes what a call sends, and gives it together with the end of earlier ones. What is older than `lifetime` is
    /// forgotten.
    pub fn join(
        &mut self,
        sink: &ServerId,
        call: &Leaves<'_>,
        now: Duration,
        lifetime: Duration,
    ) -> Vec<Joined> {
        self.last = Some(sink.clone());
        let mut all = Vec::new();
        for (at, leaf) in call.items.iter().enumerate().take(MAX_TAILED) {
            // Names are repeated in every call; only a name that changes can carry data.
            if leaf.role == Role::Codes {
                continue;
            }
            let path = call.path(at) ^ u64::from(leaf.role == Role::Name);
            let head = &leaf.text[..leaf.text.floor_char_boundary(HEAD * 4)];
            let mut single = std::mem::take(&mut self.single);
            single.clear();
            single.push(head);
            let tail = self.tail(sink, path, now, lifetime);
            if tail.is_repeated(&leaf.text) {
                self.single = single;
                continue;
            }
            let mut text = tail.text.clone();
            let border = text.symbols.len();
            text.symbols.extend(single.symbols.iter().take(HEAD));
            let mut end = head;
            if head.len() < leaf.text.len() {
                end = &leaf.text[leaf.text.ceil_char_boundary(leaf.text.len() - HEAD * 4)..];
                single.clear();
                single.push(end);
            }
            let pushed = tail.push(end, &single);
            // Numbers that count up make a long row of digits, which always decodes to something.
            let is_raw =
                leaf.role != Role::Number && tail.raw.len() > leaf.text.len() && tail.raw.len() >= MIN_RAW;
            let raw = is_raw.then(|| tail.raw.clone());
            self.pushed.push((path, pushed));
            self.single = single;
            all.push(Joined { leaf: at, text, border, raw });
        }
        all
    }

    fn paths(&mut self, sink: &ServerId) -> &mut BTreeMap<u64, Tail> {
        if !self.sinks.contains_key(sink) && self.sinks.len() >= MAX_SINKS {
            self.sinks.pop_first();
        }
        self.sinks.entry(sink.clone()).or_default()
    }

    /// The tail of a path; one that is older than `lifetime` is empty again.
    fn tail(&mut self, sink: &ServerId, path: u64, now: Duration, lifetime: Duration) -> &mut Tail {
        let paths = self.paths(sink);
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
}

impl Tail {
    /// Whether `text` repeats the last value: a name or a setting in every call, not a next piece. One character may well
    /// repeat a few times.
    fn is_repeated(&mut self, text: &str) -> bool {
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
    fn push(&mut self, text: &str, folded: &Folded) -> Pushed {
        let mut pushed = Pushed { symbols: push_end(&mut self.text.symbols, &folded.symbols), raw: 0 };
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

    /// The last pushed text was not sent.
    fn take_back(&mut self, pushed: Pushed) {
        self.text.symbols.truncate(self.text.symbols.len().saturating_sub(pushed.symbols));
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
