//! What results said, as keyed hashes: bounded, oldest first.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use super::boilerplate;
use super::hash::{self, Hasher, LONG, LONG_STEPS, SHORT, STEPS};
use super::index::{Filter, Index};
use super::near;
use super::symbols::Folded;
use crate::guard::secrets::{self, Kind};
use crate::types::ServerId;

/// One of so many neighbouring grams is kept.
pub(super) const WINDOW: usize = 13;
pub(super) const STEP_WINDOW: usize = 25;
/// In secrets, where small pieces count.
const SECRET_WINDOW: usize = 3;
/// Short grams in a row, all of them known before, that make a known passage.
const KNOWN_RUN: usize = LONG - SHORT + 1;
/// Values that are looked at in one result.
const MAX_ENTITIES: usize = 4096;
/// Symbols of one result; what stands beyond is not remembered, and [`Remembered::truncated`] says so.
pub(super) const MAX_SYMBOLS: usize = 8 << 20;
/// What agents said before they read it: so many grams until the older half is forgotten.
const SAID: usize = 65_536;
/// Symbols of one call that count as said.
const MAX_SAID: usize = 16_384;
/// Positions are 32 bits wide; beyond this they are counted from a new start.
const REBASE: u32 = 1 << 31;

#[derive(Clone, Debug)]
pub struct Config {
    /// How long a result is remembered: 60 to 86,400 s, default 3600.
    pub lifetime: Duration,
    /// Bytes for everything remembered, default 24 MiB.
    pub memory: usize,
    /// Whether [`Stored::record`] is made.
    pub record: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { lifetime: Duration::from_secs(3600), memory: 24 << 20, record: false }
    }
}

impl Config {
    /// The same with a lifetime within its limits.
    #[must_use]
    pub fn clamped(self) -> Self {
        let lifetime = self.lifetime.clamp(Duration::from_secs(60), Duration::from_secs(86_400));
        Self { lifetime, memory: self.memory.max(1 << 20), ..self }
    }
}

/// Counts results; never used twice in one memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OriginId(pub u64);

/// Where a result came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub server: ServerId,
    pub tool: String,
    /// The id of the call, as it stood on the wire.
    pub call: String,
    /// Since 1970.
    pub time: Duration,
    /// Whether the server is a private source.
    pub private: bool,
}

/// Results that had to go before their time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    pub results: u64,
    /// Symbols of text.
    pub symbols: u64,
}

/// What remembering one result did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub id: OriginId,
    pub evicted: Option<Evicted>,
    /// The result was longer than what one result may take.
    pub truncated: bool,
    /// The result as [`super::persist`] writes it.
    pub record: Option<Vec<u8>>,
}

/// A secret or personal value inside a result. Positions are symbols from the start of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub start: u32,
    pub end: u32,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub origin: Origin,
    pub start: u32,
    pub end: u32,
    pub letters_start: u32,
    pub spans: Box<[Span]>,
    pub pairs: u16,
    pub tags: u32,
}

#[derive(Debug)]
pub struct TaintMemory {
    pub(super) config: Config,
    pub(super) hasher: Hasher,
    pub(super) mac_key: [u8; 32],
    pub(super) entries: VecDeque<Entry>,
    first_id: u64,
    /// Bytes that the live entries take.
    used: usize,
    /// One byte for each short gram, at the position of its first symbol.
    shadow: VecDeque<u8>,
    shadow_start: u32,
    next_letter: u32,
    pub(super) long: Index,
    pub(super) short: Index,
    pub(super) steps: Index,
    pub(super) secret_steps: Index,
    pub(super) values: Index,
    pub(super) pairs: Index,
    public: Option<Filter>,
    said: [Filter; 2],
    said_count: usize,
    grams: Vec<u64>,
}

/// Everything about one result that is remembered: what goes into the indices, and what is written to disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Print {
    pub shadow: Vec<u8>,
    pub letters: u32,
    pub spans: Vec<(u32, u32, u8)>,
    /// Tag and position, for each index in the order of `TaintMemory::indices`.
    pub tags: [Vec<(u32, u32)>; 6],
}

impl TaintMemory {
    #[must_use]
    pub fn new(config: Config, key: &[u8; 32]) -> Self {
        Self {
            config: config.clamped(),
            hasher: Hasher::new(key),
            mac_key: hash::derive(key, b"taint record"),
            entries: VecDeque::new(),
            first_id: 1,
            used: 0,
            shadow: VecDeque::new(),
            shadow_start: 0,
            next_letter: 0,
            long: Index::default(),
            short: Index::default(),
            steps: Index::default(),
            secret_steps: Index::default(),
            values: Index::default(),
            pairs: Index::default(),
            public: None,
            said: [Filter::new(SAID), Filter::new(SAID)],
            said_count: 0,
            grams: Vec::new(),
        }
    }

    /// Results that are remembered now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes that what is remembered takes.
    #[must_use]
    pub fn size(&self) -> usize {
        let indices = [&self.long, &self.short, &self.steps, &self.secret_steps, &self.values, &self.pairs];
        indices.iter().map(|index| index.size()).sum::<usize>()
            + self.shadow.capacity()
            + self.entries.iter().map(entry_size).sum::<usize>()
    }

    #[must_use]
    pub fn origin(&self, id: OriginId) -> Option<&Origin> {
        self.entry(id).map(|entry| &entry.origin)
    }

    /// Everything that is remembered, oldest first.
    pub fn origins(&self) -> impl Iterator<Item = (OriginId, &Origin)> {
        (self.first_id..).map(OriginId).zip(self.entries.iter().map(|entry| &entry.origin))
    }

    /// Remembers the texts of one result.
    pub fn remember<'a>(&mut self, origin: Origin, texts: impl Iterator<Item = &'a str>) -> Stored {
        let (print, truncated) = self.print(texts);
        let record = self.config.record.then(|| self.export(&origin, &print));
        let (id, evicted) = self.insert(origin, &print);
        Stored { id, evicted, truncated, record }
    }

    /// Forgets what is older than its lifetime.
    pub fn expire(&mut self, now: Duration) {
        let lifetime = self.config.lifetime;
        while self.entries.front().is_some_and(|entry| entry.origin.time + lifetime <= now) {
            self.forget_oldest();
        }
    }

    /// What an agent sends before any result said it is its own: results that repeat it do not make it secret.
    pub(super) fn say(&mut self, text: &Folded, is_tainted: impl Fn(usize) -> bool) {
        let mut grams = std::mem::take(&mut self.grams);
        let symbols = &text.symbols[..text.symbols.len().min(MAX_SAID)];
        self.hasher.short_grams(symbols, &mut grams);
        for (at, gram) in grams.iter().enumerate() {
            if !is_tainted(at) {
                self.said[0].insert(hash::tag(*gram));
            }
        }
        self.said_count += grams.len();
        let letters = &text.letters[..text.letters.len().min(MAX_SAID)];
        self.hasher.interval_grams(letters, &mut grams);
        for gram in &grams {
            self.said[0].insert(hash::tag(*gram));
        }
        self.said_count += grams.len();
        if self.said_count > SAID {
            self.said.swap(0, 1);
            self.said[0].clear();
            self.said_count = 0;
        }
        self.grams = grams;
    }

    /// As [`TaintMemory::say`], for pairs of words.
    pub(super) fn say_pair(&mut self, tag: u32) {
        self.said[0].insert(tag);
        self.said_count += 1;
    }

    pub(super) fn entry(&self, id: OriginId) -> Option<&Entry> {
        self.entries.get(usize::try_from(id.0.checked_sub(self.first_id)?).ok()?)
    }

    /// The result that a position belongs to.
    pub(super) fn entry_at(&self, position: u32) -> Option<(OriginId, &Entry)> {
        let after = self.entries.partition_point(|entry| entry.start <= position);
        let at = after.checked_sub(1)?;
        let entry = self.entries.get(at)?;
        (position < entry.end).then_some((OriginId(self.first_id + at as u64), entry))
    }

    /// As [`TaintMemory::entry_at`], for a position that counts letters.
    pub(super) fn entry_at_letter(&self, position: u32) -> Option<(OriginId, &Entry)> {
        let after = self.entries.partition_point(|entry| entry.letters_start <= position);
        let at = after.checked_sub(1)?;
        Some((OriginId(self.first_id + at as u64), self.entries.get(at)?))
    }

    /// The kept byte of the short gram that begins at `position`.
    pub(super) fn shadow(&self, position: u32) -> Option<u8> {
        self.shadow.get(position.checked_sub(self.shadow_start)? as usize).copied()
    }

    pub(super) fn floor(&self) -> u32 {
        self.entries.front().map_or(u32::MAX, |entry| entry.start)
    }

    pub(super) fn letter_floor(&self) -> u32 {
        self.entries.front().map_or(u32::MAX, |entry| entry.letters_start)
    }

    /// Hashes the texts of a result, without what everybody says and what the agent said before.
    pub(super) fn print<'a>(&mut self, texts: impl Iterator<Item = &'a str>) -> (Print, bool) {
        let mut text = Folded::default();
        let mut spans: Vec<(Span, (u32, u32))> = Vec::new();
        let mut references: Vec<(Range<usize>, Range<usize>)> = Vec::new();
        let mut print = Print::default();
        let mut truncated = false;
        for leaf in texts {
            if text.symbols.len() + leaf.len() > MAX_SYMBOLS {
                truncated = true;
                continue;
            }
            self.fold_leaf(leaf, &mut text, &mut spans, &mut references, &mut print);
        }
        let filter = self.public.get_or_insert_with(|| boilerplate::filter(&self.hasher));
        let known = |gram: u64| {
            let tag = hash::tag(gram);
            filter.may_have(tag) || self.said[0].may_have(tag) || self.said[1].may_have(tag)
        };
        let said = &self.said;
        print.tags[5]
            .retain(|(tag, _)| !(filter.may_have(*tag) || said.iter().any(|said| said.may_have(*tag))));
        let mut grams = Vec::new();
        self.hasher.short_grams(&text.symbols, &mut grams);
        let is_known: Vec<bool> = grams.iter().map(|gram| known(*gram)).collect();
        spans.retain(|(span, _)| {
            let range = span.start as usize
                ..(span.end as usize + 1 - SHORT.min(span.end as usize)).min(is_known.len());
            !(range.start < range.end && is_known[range].iter().all(|known| *known))
        });
        let mut open = passages(&is_known, KNOWN_RUN);
        close(&mut open, references.iter().map(|(symbols, _)| symbols.clone()), SHORT);
        reopen(&mut open, spans.iter().map(|(span, _)| span.start as usize..span.end as usize), SHORT);
        print.shadow = vec![0; text.symbols.len()];
        for (at, gram) in grams.iter().enumerate() {
            let byte = hash::shadow(*gram);
            print.shadow[at] = if open[at] { byte } else { !byte };
        }
        for range in runs(&open) {
            let longs = (range.end - range.start).saturating_sub(SHORT);
            let tag = |at: usize| hash::long(grams[range.start + at], grams[range.start + at + SHORT]);
            hash::winnow(longs, WINDOW, tag, |at, tag| print.tags[0].push((tag, (range.start + at) as u32)));
        }
        for (span, _) in &spans {
            let first = span.start as usize;
            let count = (span.end as usize + 1).saturating_sub(first + SHORT);
            let window = if span.kind.is_secret() { SECRET_WINDOW } else { count.max(1) };
            let tag = |at: usize| hash::tag(grams[first + at]);
            hash::winnow(count, window, tag, |at, tag| print.tags[1].push((tag, (first + at) as u32)));
        }
        self.hasher.interval_grams(&text.letters, &mut grams);
        let is_known: Vec<bool> = grams.iter().map(|gram| known(*gram)).collect();
        let mut open = passages(&is_known, KNOWN_RUN);
        close(&mut open, references.iter().map(|(_, letters)| letters.clone()), STEPS);
        for range in runs(&open) {
            let longs = (range.end - range.start).saturating_sub(STEPS);
            let tag =
                |at: usize| hash::long_interval(grams[range.start + at], grams[range.start + at + STEPS]);
            hash::winnow(longs, STEP_WINDOW, tag, |at, tag| {
                print.tags[2].push((tag, (range.start + at) as u32))
            });
        }
        for (_, letters) in spans.iter().filter(|(span, _)| span.kind.is_secret()) {
            let count = (letters.1 as usize).saturating_sub(letters.0 as usize + STEPS);
            let tag = |at: usize| hash::tag(grams[letters.0 as usize + at]);
            hash::winnow(count, SECRET_WINDOW, tag, |at, tag| {
                print.tags[3].push((tag, letters.0 + at as u32));
            });
        }
        print.letters = text.letters.len() as u32;
        print.spans = spans.iter().map(|(span, _)| (span.start, span.end, span.kind as u8)).collect();
        (print, truncated)
    }

    /// Folds one leaf and notes where its values stand.
    fn fold_leaf(
        &self,
        leaf: &str,
        text: &mut Folded,
        spans: &mut Vec<(Span, (u32, u32))>,
        references: &mut Vec<(Range<usize>, Range<usize>)>,
        print: &mut Print,
    ) {
        let entities = with_lone_secret(leaf, secrets::find(leaf, MAX_ENTITIES));
        let leaf_start = text.symbols.len() as u32;
        let mut bounds: Vec<usize> = entities.iter().flat_map(|entity| [entity.start, entity.end]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut places = Vec::with_capacity(bounds.len());
        let mut from = 0;
        for &bound in &bounds {
            text.push(&leaf[from..bound]);
            places.push((text.symbols.len(), text.letters.len()));
            from = bound;
        }
        text.push(&leaf[from..]);
        let place = |at: usize| bounds.binary_search(&at).map_or((0, 0), |index| places[index]);
        for entity in entities {
            let (start, end) = (place(entity.start), place(entity.end));
            let symbols = &text.symbols[start.0..end.0];
            if symbols.len() >= 5 && (entity.kind.is_reference() || symbols.len() < SHORT) {
                print.tags[4].push((value_tag(&self.hasher, entity.kind, symbols), start.0 as u32));
            }
            if entity.kind.is_reference() && entity.kind != Kind::Email {
                references.push((start.0..end.0, start.1..end.1));
            } else if symbols.len() >= SHORT && !entity.kind.is_reference() {
                let span = Span { start: start.0 as u32, end: end.0 as u32, kind: entity.kind };
                spans.push((span, (start.1 as u32, end.1 as u32)));
            }
        }
        near::pairs(&self.hasher, leaf, |tag| print.tags[5].push((tag, leaf_start)));
    }

    /// Puts a print into the indices, and makes room for it.
    pub(super) fn insert(&mut self, origin: Origin, print: &Print) -> (OriginId, Option<Evicted>) {
        self.expire(origin.time);
        let evicted = self.make_room(print_size(print));
        if self.shadow_start.max(self.next_letter) > REBASE {
            self.rebase();
        }
        let start = self.shadow_start + self.shadow.len() as u32;
        let letters_start = self.next_letter;
        self.shadow.reserve_exact(if self.shadow.capacity() - self.shadow.len() < print.shadow.len() {
            print.shadow.len() + self.shadow.len() / 4
        } else {
            0
        });
        self.shadow.extend(print.shadow.iter().copied());
        let (floor, letter_floor) = (self.floor().min(start), self.letter_floor().min(letters_start));
        let entries = &self.entries;
        let server = &origin.server;
        let same = |at: u32, by_letter: bool| {
            let after = entries.partition_point(|entry| {
                if by_letter { entry.letters_start <= at } else { entry.start <= at }
            });
            // None: a place in this very result.
            entries.get(after.wrapping_sub(1)).is_none_or(|entry| {
                (if by_letter { at >= letters_start } else { at >= start }) || entry.origin.server == *server
            })
        };
        let indices = [
            &mut self.long,
            &mut self.short,
            &mut self.steps,
            &mut self.secret_steps,
            &mut self.values,
            &mut self.pairs,
        ];
        for (which, (index, tags)) in indices.into_iter().zip(&print.tags).enumerate() {
            let by_letter = which == 2 || which == 3;
            let (base, floor) = if by_letter { (letters_start, letter_floor) } else { (start, floor) };
            for &(tag, at) in tags {
                index.insert(tag, base + at, floor, |other| same(other, by_letter));
            }
        }
        self.next_letter += print.letters;
        let kind = |code: u8| Kind::from_code(code).unwrap_or(Kind::HighEntropy);
        let entry = Entry {
            origin,
            start,
            // A result without a symbol still is a result.
            end: start + print.shadow.len() as u32,
            letters_start,
            spans: print
                .spans
                .iter()
                .map(|&(start, end, code)| Span { start, end, kind: kind(code) })
                .collect(),
            pairs: u16::try_from(print.tags[5].len()).unwrap_or(u16::MAX),
            tags: print.tags.iter().map(Vec::len).sum::<usize>() as u32,
        };
        self.used += live_size(&entry);
        self.entries.push_back(entry);
        (OriginId(self.first_id + self.entries.len() as u64 - 1), evicted)
    }

    fn make_room(&mut self, needed: usize) -> Option<Evicted> {
        let mut evicted = Evicted::default();
        while self.used + needed > self.config.memory
            && let Some(oldest) = self.entries.front()
        {
            evicted.results += 1;
            evicted.symbols += u64::from(oldest.end - oldest.start);
            self.forget_oldest();
        }
        (evicted.results > 0).then_some(evicted)
    }

    fn forget_oldest(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.first_id += 1;
            self.used -= live_size(&entry);
            let gone = (entry.end - entry.start) as usize;
            self.shadow.drain(..gone.min(self.shadow.len()));
            self.shadow_start += gone as u32;
        }
    }

    fn rebase(&mut self) {
        let (by, letters) = (self.shadow_start, self.letter_floor().min(self.next_letter));
        for index in [&mut self.long, &mut self.short, &mut self.values, &mut self.pairs] {
            index.rebase(by);
        }
        for index in [&mut self.steps, &mut self.secret_steps] {
            index.rebase(letters);
        }
        for entry in &mut self.entries {
            entry.start -= by;
            entry.end -= by;
            entry.letters_start -= letters;
        }
        self.shadow_start = 0;
        self.next_letter -= letters;
    }
}

/// The tag of a whole value.
pub(super) fn value_tag(hasher: &Hasher, kind: Kind, symbols: &[u8]) -> u32 {
    // What stands for a person or a secret is compared without regard to what it was taken for.
    let family = if kind.is_reference() { kind as u8 } else { 0 };
    hash::tag(hasher.whole(symbols).wrapping_add(u64::from(family).wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

/// A result that is one word and nothing else, and looks like a password.
fn with_lone_secret(leaf: &str, mut entities: Vec<secrets::Entity>) -> Vec<secrets::Entity> {
    let word = leaf.trim();
    let classes =
        [u8::is_ascii_digit, u8::is_ascii_uppercase, u8::is_ascii_lowercase, u8::is_ascii_punctuation]
            .iter()
            .filter(|class| word.bytes().any(|byte| class(&byte)))
            .count();
    if entities.is_empty()
        && (12..=64).contains(&word.len())
        && classes >= 4
        && !word.contains(['/', ' ', '.'])
    {
        let start = leaf.len() - leaf.trim_start().len();
        entities.push(secrets::Entity { kind: Kind::HighEntropy, start, end: start + word.len() });
    }
    entities
}

/// For each gram whether it counts: those in runs of known ones do not.
fn passages(known: &[bool], run: usize) -> Vec<bool> {
    let mut open = vec![true; known.len()];
    let mut from = 0;
    for at in 0..=known.len() {
        if known.get(at) != Some(&true) {
            if at - from >= run {
                open[from..at].fill(false);
            }
            from = at + 1;
        }
    }
    open
}

/// Closes every gram of `length` that begins in one of the ranges and does not leave it by much.
fn close(open: &mut [bool], ranges: impl Iterator<Item = Range<usize>>, length: usize) {
    for range in ranges {
        let end = (range.end + 2).saturating_sub(length).min(open.len());
        if range.start < end {
            open[range.start..end].fill(false);
        }
    }
}

fn reopen(open: &mut [bool], ranges: impl Iterator<Item = Range<usize>>, length: usize) {
    for range in ranges {
        let end = (range.end + 1).saturating_sub(length).min(open.len());
        if range.start < end {
            open[range.start..end].fill(true);
        }
    }
}

fn runs(open: &[bool]) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let mut from = 0;
    for at in 0..=open.len() {
        if open.get(at) != Some(&true) {
            if at > from {
                runs.push(from..at);
            }
            from = at + 1;
        }
    }
    runs
}

fn entry_size(entry: &Entry) -> usize {
    size_of::<Entry>()
        + entry.spans.len() * size_of::<Span>()
        + entry.origin.server.0.capacity()
        + entry.origin.tool.capacity()
        + entry.origin.call.capacity()
        + 48
}

/// With the share of the indices that the entry fills (8 bytes a tag, two thirds full, and the filter).
fn live_size(entry: &Entry) -> usize {
    entry_size(entry) + (entry.end - entry.start) as usize + entry.tags as usize * 15
}

fn print_size(print: &Print) -> usize {
    size_of::<Entry>() + 128 + print.shadow.len() + print.tags.iter().map(Vec::len).sum::<usize>() * 15
}

const _: () = assert!(LONG_STEPS == 2 * STEPS);
