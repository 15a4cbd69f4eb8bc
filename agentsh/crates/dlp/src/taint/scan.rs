//! Looks for remembered text in a stream of symbols: a bounded number of steps for each symbol, however much is
//! remembered.
//!
//! Exact runs are 30 symbols long, since everyday phrases have fewer; values are whole, or 12 symbols of a secret. One tag is
//! kept for ten symbols. Alone runs find 2 of 207 attempts and values 6; they miss shorter phrases, other words, the last
//! four digits of a number, and a hash of a key.

use std::collections::BTreeMap;
use std::ops::Range;

use super::blocks::BLOCK;
use super::entry::Entry;
use super::entry::Span;
use super::grams::{Intervals, Symbols, Unit};
use super::hash::{self, Hasher, LONG, LONG_STEPS, Roll, SHORT, STEPS};
use super::index::Index;
use super::memory::TaintMemory;
use super::origin::{Origin, OriginId};
use super::pieces::{self, MAX_PIECES, Piece};
use super::symbols::Folded;
use crate::threads::side_by_side;
use agentsh_secrets::values::Kind;

/// Every copied run of so many symbols (letters and digits) is found, wherever it stands. Shorter runs are everyday
/// phrases.
pub const GUARANTEED_RUN: usize = 30;
// A run has a long gram at every place where one may be kept.
const _: () = assert!(GUARANTEED_RUN >= LONG + Symbols::APART - 1);
/// So much of a secret is as bad as all of it.
const MIN_PIECE: usize = 12;
/// Places of interval grams that are compared in one scan.
const MAX_PLACES: usize = 8192;
/// Hits of one scan in what would leave as it stands, as many in what would leave shifted, and as many in what may go
/// there.
const MAX_HITS: usize = 256;
/// Hits that are asked whether they cover a place already.
const RECENT: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A copied passage.
    Run,
    /// A secret or personal value, or a piece of a secret.
    Value(Kind),
    /// A passage behind a Caesar cipher, a mirrored alphabet or read backwards.
    Shifted(Option<Kind>),
}

/// `start..end` are symbols, or letters for [`What::Shifted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    pub start: usize,
    pub end: usize,
    pub origin: OriginId,
    /// The result may not go where the text goes.
    pub leaves: bool,
    pub what: What,
}

/// Whether a result may not go where the text goes that is searched.
pub(super) type Leaving<'l> = &'l (dyn Fn(&Origin) -> bool + Sync);

/// What one scan found. What may go there does not take the room of what may not: nobody can fill it up first.
#[derive(Default)]
pub(super) struct Hits {
    pub list: Vec<Hit>,
    /// Parts of prose that may not go there, too short to be a copy by themselves: each place of a result once.
    pub pieces: Vec<Piece>,
    /// Where they stand in the text, each time that they do: ranges in order.
    pub of_pieces: Vec<Range<usize>>,
    /// There are more of them than are counted.
    has_more_pieces: bool,
    leaving: usize,
    leaving_shifted: usize,
    harmless: usize,
}

impl Hits {
    /// Whether so much leaves that not all of it was looked at.
    pub fn is_full(&self) -> bool {
        self.leaving >= MAX_HITS || self.leaving_shifted >= MAX_HITS
    }

    /// A result of which pieces were not counted any more.
    pub fn uncounted(&self) -> Option<OriginId> {
        self.pieces.last().filter(|_| self.has_more_pieces).map(|piece| piece.origin)
    }

    /// Whether there is room for another one as it stands.
    fn has_room(&self, leaves: bool) -> bool {
        (if leaves { self.leaving } else { self.harmless }) < MAX_HITS
    }

    fn push(&mut self, hit: Hit) {
        let count = match hit {
            Hit { leaves: false, .. } => &mut self.harmless,
            Hit { what: What::Shifted(_), .. } => &mut self.leaving_shifted,
            Hit { .. } => &mut self.leaving,
        };
        *count += 1;
        self.list.push(hit);
    }
}

/// Candidates whose memory is kept for the next text.
const KEEP: usize = 16 * 1024;

/// Buffers that are used again.
#[derive(Clone, Debug, Default)]
pub(super) struct Scanner {
    symbols: Candidates,
    letters: Candidates,
}

/// Grams that may be remembered, each with its place.
#[derive(Clone, Debug, Default)]
struct Candidates {
    short: Vec<(usize, u32)>,
    long: Vec<(usize, u32)>,
    pieces: Vec<(usize, u32)>,
}

impl Candidates {
    /// Every gram is looked up: of what is remembered, one of several neighbours is kept.
    fn find<U: Unit>(
        &mut self,
        hasher: &Hasher,
        text: &[u8],
        values: &Index,
        passages: &Index,
        prose: Option<&Index>,
    ) {
        let Self { short, long, pieces } = self;
        short.clear();
        long.clear();
        pieces.clear();
        let prose = prose.filter(|prose| !prose.is_empty());
        if values.is_empty() && passages.is_empty() && prose.is_none() {
            return;
        }
        let mut tags = [0; BLOCK];
        U::each_block(hasher, text, |grams| {
            if !values.is_empty() {
                let own = grams.own().iter().map(|gram| hash::tag(*gram)).enumerate();
                short.extend(
                    own.filter(|(_, tag)| values.may_have(*tag)).map(|(at, tag)| (grams.at + at, tag)),
                );
            }
            if let Some(prose) = prose {
                let own = grams.own().iter().map(|gram| pieces::tag(*gram)).enumerate();
                pieces.extend(
                    own.filter(|(_, tag)| prose.may_have(*tag)).map(|(at, tag)| (grams.at + at, tag)),
                );
            }
            let (start, count) = U::long_of(grams, &mut tags);
            let own = tags[..count].iter().copied().enumerate();
            long.extend(own.filter(|(_, tag)| passages.may_have(*tag)).map(|(at, tag)| (start + at, tag)));
        });
    }
}

impl Candidates {
    fn find_symbols(&mut self, memory: &TaintMemory, text: &Folded) {
        let TaintMemory { hasher, short, long, prose, .. } = memory;
        self.find::<Symbols>(hasher, &text.symbols, short, long, Some(prose));
    }

    fn find_letters(&mut self, memory: &TaintMemory, text: &Folded) {
        let TaintMemory { hasher, secret_steps, steps, .. } = memory;
        self.find::<Intervals>(hasher, &text.letters, secret_steps, steps, None);
    }
}

impl Scanner {
    pub fn scan(&mut self, memory: &TaintMemory, text: &Folded, leaving: Leaving<'_>) -> Hits {
        let mut hits = Hits::default();
        if memory.is_empty() {
            return hits;
        }
        let Self { symbols, letters } = self;
        side_by_side(
            text.symbols.len(),
            || symbols.find_symbols(memory, text),
            || letters.find_letters(memory, text),
        );
        self.values(memory, &text.symbols, leaving, &mut hits);
        self.passages(memory, &text.symbols, leaving, &mut hits);
        self.pieces(memory, &text.symbols, leaving, &mut hits);
        self.shifted(memory, leaving, &mut hits);
        if self.symbols.long.capacity().max(self.letters.long.capacity()) > KEEP {
            *self = Self::default();
        }
        hits
    }

    /// As [`Scanner::scan`] where nothing leaves: of what is copied as it stands.
    pub fn copies(&mut self, memory: &TaintMemory, text: &Folded) -> Hits {
        let mut hits = Hits::default();
        self.symbols.find_symbols(memory, text);
        self.values(memory, &text.symbols, &|_| false, &mut hits);
        self.passages(memory, &text.symbols, &|_| false, &mut hits);
        self.pieces(memory, &text.symbols, &|_| true, &mut hits);
        hits
    }

    fn values(&self, memory: &TaintMemory, symbols: &[u8], leaving: Leaving<'_>, hits: &mut Hits) {
        memory.short.find_all(&self.symbols.short, memory.floor(), |at, place| {
            let Some((origin, entry)) = memory.entry_at(place) else { return };
            let covered = |hit: &Hit| hit.origin == origin && hit.start <= at && at < hit.end;
            let leaves = leaving(&entry.origin);
            if !hits.has_room(leaves) || hits.list.iter().rev().take(RECENT).any(covered) {
                return;
            }
            let Some((start, end)) = extend(memory, symbols, at, place, entry, usize::MAX) else { return };
            let relative = place - entry.start;
            let Some(span) = span_at(&entry.spans, relative) else { return };
            let before = (at - start).min((relative - span.start) as usize);
            let after = (end - at).min((span.end - relative) as usize);
            let whole = (span.end - span.start) as usize;
            let needed = if span.kind.is_secret() { whole.min(MIN_PIECE) } else { whole };
            if before + after >= needed {
                hits.push(Hit {
                    start: at - before,
                    end: at + after,
                    origin,
                    leaves,
                    what: What::Value(span.kind),
                });
            }
        });
    }

    fn passages(&self, memory: &TaintMemory, symbols: &[u8], leaving: Leaving<'_>, hits: &mut Hits) {
        memory.long.find_all(&self.symbols.long, memory.floor(), |at, place| {
            let Some((origin, entry)) = memory.entry_at(place) else { return };
            let covered = |hit: &Hit| {
                hit.origin == origin && hit.what == What::Run && at + LONG <= hit.end && hit.start <= at
            };
            let leaves = leaving(&entry.origin);
            if !hits.has_room(leaves) || hits.list.iter().rev().take(RECENT).any(covered) {
                return;
            }
            if let Some((start, end)) = extend(memory, symbols, at, place, entry, usize::MAX)
                && end - start >= GUARANTEED_RUN
            {
                hits.push(Hit { start, end, origin, leaves, what: What::Run });
            }
        });
    }

    /// Each is followed as far as the next kept gram, which is found by itself: no text costs more than its symbols.
    fn pieces(&self, memory: &TaintMemory, symbols: &[u8], leaving: Leaving<'_>, hits: &mut Hits) {
        let mut known = BTreeMap::<u32, usize>::new();
        memory.prose.find_all(&self.symbols.pieces, memory.floor(), |at, place| {
            let Some((origin, entry)) = memory.entry_at(place) else { return };
            if !leaving(&entry.origin) {
                return;
            }
            let found = extend(memory, symbols, at, place, entry, pieces::STEP);
            let Some((start, end)) = found else { return };
            let first = place - entry.start - (at - start) as u32;
            let own = self.symbols.pieces.binary_search_by_key(&at, |(own, _)| *own);
            let Some(&(_, tag)) = own.ok().and_then(|own| self.symbols.pieces.get(own)) else { return };
            match hits.of_pieces.last_mut().filter(|last| start <= last.end) {
                Some(last) => *last = last.start.min(start)..last.end.max(end),
                None => hits.of_pieces.push(start..end),
            }
            let found = first..first + (end - start) as u32;
            match known.get(&place).copied() {
                // Around the same gram.
                Some(index) => {
                    if let Some(Piece { place, .. }) = hits.pieces.get_mut(index) {
                        *place = place.start.min(found.start)..place.end.max(found.end);
                    }
                }
                None if hits.pieces.len() >= MAX_PIECES => hits.has_more_pieces = true,
                None => {
                    known.insert(place, hits.pieces.len());
                    hits.pieces.push(Piece { origin, place: found, tag });
                }
            }
        });
    }

    /// Only of what leaves: every long text has many of these grams by itself.
    fn shifted(&self, memory: &TaintMemory, leaving: Leaving<'_>, hits: &mut Hits) {
        let mut places = Places::default();
        let floor = memory.letter_floor();
        memory
            .secret_steps
            .find_all(&self.letters.short, floor, |at, place| places.add(memory, leaving, at, place));
        places.report(STEPS + 1, Some(Kind::HighEntropy), hits);
        let mut places = Places::default();
        memory.steps.find_all(&self.letters.long, floor, |at, place| places.add(memory, leaving, at, place));
        places.report(LONG_STEPS + 1, None, hits);
    }
}

/// Follows a copy to both ends, or so many symbols at most, in symbols of the text that is searched. None when the tag was alike by chance.
fn extend(
    memory: &TaintMemory,
    symbols: &[u8],
    at: usize,
    place: u32,
    entry: &Entry,
    most: usize,
) -> Option<(usize, usize)> {
    let hasher = &memory.hasher;
    let same = |roll: Roll, place: u32| memory.shadow(place) == Some(hash::shadow(roll.gram()));
    let here = hasher.roll(symbols, at).filter(|roll| same(*roll, place))?;
    let (mut first, mut first_place, mut roll) = (at, place, here);
    while first > 0 && first_place > entry.start && at - first < most {
        roll.back(hasher, symbols[first - 1], symbols[first - 1 + SHORT]);
        if !same(roll, first_place - 1) {
            break;
        }
        first -= 1;
        first_place -= 1;
    }
    let (mut last, mut last_place, mut roll) = (at, place, here);
    while last_place + (SHORT as u32) < entry.end && last + SHORT < symbols.len() && last - at < most {
        roll.forward(hasher, symbols[last], symbols[last + SHORT]);
        if !same(roll, last_place + 1) {
            break;
        }
        last += 1;
        last_place += 1;
    }
    Some((first, last + SHORT))
}

/// The span that a gram lies in, the innermost one.
fn span_at(spans: &[Span], at: u32) -> Option<&Span> {
    let after = spans.partition_point(|span| span.start <= at);
    spans[..after].iter().rev().take(16).find(|span| at < span.end)
}

/// Where interval grams were found, by origin and by the line on which they lie: the difference of the two positions
/// for a text that runs forwards, their sum for one that runs backwards.
#[derive(Default)]
struct Places {
    lines: BTreeMap<(OriginId, bool, u32), (usize, usize, u32)>,
    count: usize,
}

impl Places {
    fn add(&mut self, memory: &TaintMemory, leaving: Leaving<'_>, at: usize, place: u32) {
        if self.count >= MAX_PLACES {
            return;
        }
        let Some((origin, entry)) = memory.entry_at_letter(place) else { return };
        if !leaving(&entry.origin) {
            return;
        }
        self.count += 1;
        let position = at as u32;
        for (backwards, line) in [(false, place.wrapping_sub(position)), (true, place.wrapping_add(position))]
        {
            let line = self.lines.entry((origin, backwards, line)).or_insert((at, at, 0));
            if line.2 == 0 || at > line.1 {
                *line = (line.0, at, line.2 + 1);
            }
        }
    }

    fn report(self, length: usize, kind: Option<Kind>, hits: &mut Hits) {
        for ((origin, ..), (first, last, count)) in self.lines {
            if count >= 2 && hits.leaving_shifted < MAX_HITS {
                let (end, what) = (last + length, What::Shifted(kind));
                hits.push(Hit { start: first, end, origin, leaves: true, what });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::memory::Config;
    use super::super::origin::Origin;
    use super::*;
    use crate::types::ServerId;

    /// Letters in an order of their own for each number.
    fn letters(number: u64, length: usize) -> String {
        let mut state = number;
        let letter = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b"abcdefghijklmnopqrstuvwxyz  "[(state >> 33) as usize % 28])
        };
        (0..length).map(letter).collect()
    }

    #[test]
    fn a_long_text_is_searched_to_its_end_also_shifted() {
        let mut memory = TaintMemory::new(Config::default(), &[7; 32]);
        let origin = Origin {
            server: ServerId("files".to_owned()),
            tool: "read".to_owned(),
            call: "1".to_owned(),
            time: Duration::from_secs(1),
            private: true,
        };
        let secret =
            "nobody outside of this house may hear what the committee decided about the winter garden";
        let result = letters(1, 300_000) + secret + &letters(2, 1000);
        memory.remember(origin, std::iter::once(result.as_str()), Vec::new, Vec::new());
        let shifted: String = secret
            .bytes()
            .map(|byte| if byte == b' ' { ' ' } else { char::from((byte - b'a' + 7) % 26 + b'a') })
            .collect();
        for (hidden, wanted) in [(secret, What::Run), (shifted.as_str(), What::Shifted(None))] {
            let text = Folded::of(&(letters(3, 400_000) + hidden));
            let hits = Scanner::default().scan(&memory, &text, &|_| true).list;
            assert!(hits.iter().any(|hit| hit.what == wanted), "{wanted:?}: {hits:?}");
        }
        let hits = Scanner::default().scan(&memory, &Folded::of(&letters(4, 400_000)), &|_| true).list;
        assert_eq!(hits, []);
    }
}
