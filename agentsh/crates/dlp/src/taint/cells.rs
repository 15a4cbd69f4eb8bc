//! Values of JSON, CSV, YAML and tables without their names: several values of one result count as that result, in any
//! form, and added up over all servers. Kept as keyed hashes.
//!
//! Numbers: four in one call, because a question about two things of one row has three; eight over all calls, twice as
//! many. A value that a result has three times is a category. 65,536 cells bound its memory. Cost: up to six hashes for
//! each word of a call. Alone it finds 9 of 207 attempts. It misses values that are cut or rewritten.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::decoded_views::DecodedViews;
use super::detector::Detector;
use super::findings::{CELLS, Search};
use super::hash::Hasher;
use super::leaves::{Leaves, Role};
use super::memory::TaintMemory;
use super::origin::OriginId;
use super::placed::Placed;
use super::plain_words;
use super::print::{MAX_CELLS as MAX_OF_RESULT, Print};
use super::symbols::Folded;
use crate::Severity;
use crate::json;

/// So many different cells of one result in one call, or in all calls, are a finding.
const MANY: usize = 4;
const MANY_OVER_CALLS: usize = 8;
/// Words of a cell, and symbols.
const MAX_WORDS: usize = 6;
const MIN_SYMBOLS: usize = 5;
/// Letters and digits of it that say something.
const MIN_OWN: usize = 4;
const MAX_SYMBOLS: usize = 64;
/// A value that occurs more often in one result is a category, not private data.
const MAX_TIMES: u8 = 2;
/// Cells of all results, and of public ones.
const MAX_CELLS: usize = 65_536;
const MAX_PUBLIC: usize = 32_768;
/// Results that one cell is kept for.
const MAX_ORIGINS: usize = 4;
/// Maximum number of cells that are remembered as sent.
const MAX_SENT: usize = 32_768;
/// Lines of a table, at least.
const MIN_LINES: usize = 3;
/// Members of the protocol, not of a result.
const OF_PROTOCOL: [&str; 4] = ["type", "mimeType", "uri", "role"];

#[derive(Clone, Debug, Default)]
pub(super) struct Cells {
    origins: BTreeMap<u64, Vec<OriginId>>,
    results: VecDeque<(OriginId, Vec<u64>)>,
    count: usize,
    public: BTreeSet<u64>,
    sent: BTreeSet<u64>,
    /// The number of arrived cells of each result.
    arrived: BTreeMap<OriginId, usize>,
    /// The cells that the last call sent for the first time.
    last: Vec<u64>,
}

/// Cells of one result in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Carried {
    origin: OriginId,
    /// The first leaf that holds one.
    leaf: usize,
    in_call: usize,
    over_calls: usize,
}

/// The tags of the cells of a result: of a private one those that may be private data.
pub(super) fn of_result(hasher: &Hasher, private: bool, result: &Leaves<'_>) -> Vec<u64> {
    let mut times: BTreeMap<u64, u8> = BTreeMap::new();
    each_cell(result, &mut |cell| {
        if let Some(tag) = tag(hasher, cell)
            && (times.len() < MAX_OF_RESULT || times.contains_key(&tag))
        {
            let times = times.entry(tag).or_default();
            *times = times.saturating_add(1);
        }
    });
    times.into_iter().filter(|(_, times)| !private || *times <= MAX_TIMES).map(|(tag, _)| tag).collect()
}

impl Detector for Cells {
    type SentParts = Vec<u64>;

    fn remember(&mut self, placed: &Placed<'_>, print: &Print) {
        self.add(placed.id, placed.origin.private, &print.cells);
    }

    fn begin(&mut self) {
        self.last.clear();
    }

    fn judge(&mut self, memory: &TaintMemory, views: &DecodedViews, search: &mut Search<'_, '_>) {
        let leaves = |id| memory.origin(id).is_some_and(search.leaving);
        for carried in self.find_carried(&memory.hasher, search.call, views.iter(), leaves) {
            let Some(origin) = memory.origin(carried.origin).filter(|_| carried.is_finding()) else {
                continue;
            };
            let (shown, amount) = if carried.in_call >= MANY {
                let values = format!("{} values", carried.in_call);
                (format!("[{values} of one result]"), values)
            } else {
                let values = format!("{} values", carried.over_calls);
                let shown = format!("[{values} of one result over several calls]");
                (shown, values + ", most of them in earlier calls,")
            };
            let provenance = search.provenance(carried.origin, origin);
            let chain = Vec::new();
            search.push(CELLS, "values", Severity::High, carried.leaf, shown, provenance, chain, amount);
        }
    }

    fn forget(&mut self) {
        for tag in std::mem::take(&mut self.last) {
            if !self.sent.remove(&tag) {
                continue;
            }
            for origin in self.origins.get(&tag).into_iter().flatten() {
                if let Some(count) = self.arrived.get_mut(origin) {
                    *count = count.saturating_sub(1);
                }
            }
        }
    }

    fn export(&self) -> Vec<u64> {
        self.last.clone()
    }

    fn import(&mut self, _: &TaintMemory, brought: Vec<u64>) {
        brought.into_iter().for_each(|tag| self.note(tag));
    }

    fn adopt(&mut self, copy: Self, memory: &TaintMemory, _: OriginId) {
        self.begin();
        self.import(memory, copy.last);
    }
}

impl Cells {
    pub fn is_empty(&self) -> bool {
        self.origins.is_empty()
    }

    fn add(&mut self, id: OriginId, is_private: bool, tags: &[u64]) {
        if !is_private {
            for tag in tags {
                if self.public.len() < MAX_PUBLIC {
                    self.public.insert(*tag);
                }
            }
            return;
        }
        if tags.len() < MANY {
            return;
        }
        self.count += tags.len();
        while self.count > MAX_CELLS
            && let Some((old, tags)) = self.results.pop_front()
        {
            self.drop_result(old, &tags);
        }
        let mut arrived = 0;
        for tag in tags {
            let origins = self.origins.entry(*tag).or_default();
            if origins.len() >= MAX_ORIGINS {
                origins.remove(0);
            }
            origins.push(id);
            arrived += usize::from(self.sent.contains(tag));
        }
        if arrived > 0 {
            self.arrived.insert(id, arrived);
        }
        self.results.push_back((id, tags.to_vec()));
    }

    /// Notes a cell as sent, unless it was.
    fn note(&mut self, tag: u64) {
        if self.sent.len() >= MAX_SENT || !self.sent.insert(tag) {
            return;
        }
        for origin in self.origins.get(&tag).into_iter().flatten() {
            *self.arrived.entry(*origin).or_default() += 1;
        }
        self.last.push(tag);
    }

    fn drop_result(&mut self, old: OriginId, tags: &[u64]) {
        self.count -= tags.len();
        for tag in tags {
            if let Some(origins) = self.origins.get_mut(tag) {
                origins.retain(|origin| *origin != old);
                if origins.is_empty() {
                    self.origins.remove(tag);
                }
            }
        }
        self.arrived.remove(&old);
    }

    /// The cells in a call of each result that `leaves`, in its leaves or in `views` (texts that decode from it, each with its
    /// leaf). Notes them as sent.
    fn find_carried<'v>(
        &mut self,
        hasher: &Hasher,
        call: &'v Leaves<'_>,
        views: impl Iterator<Item = (usize, &'v str)>,
        leaves: impl Fn(OriginId) -> bool,
    ) -> Vec<Carried> {
        self.begin();
        if self.is_empty() {
            return Vec::new();
        }
        let mut found: BTreeMap<OriginId, (usize, BTreeSet<u64>)> = BTreeMap::new();
        let own = call.items.iter().enumerate().filter_map(|(at, leaf)| {
            matches!(leaf.role, Role::Text | Role::Number | Role::Name).then_some((at, &*leaf.text))
        });
        for (at, text) in own.chain(views) {
            each_run(hasher, text, &mut |tag| {
                let Some(origins) = self.origins.get(&tag).filter(|_| !self.public.contains(&tag)) else {
                    return;
                };
                for origin in origins {
                    found.entry(*origin).or_insert_with(|| (at, BTreeSet::new())).1.insert(tag);
                }
            });
        }
        found.retain(|origin, _| leaves(*origin));
        found.values().flat_map(|(_, tags)| tags).for_each(|tag| self.note(*tag));
        let carried = |(origin, (leaf, tags)): (OriginId, (usize, BTreeSet<u64>))| Carried {
            origin,
            leaf,
            in_call: tags.len(),
            over_calls: self.arrived.get(&origin).copied().unwrap_or_default(),
        };
        found.into_iter().map(carried).collect()
    }
}

impl Carried {
    fn is_finding(&self) -> bool {
        self.in_call >= MANY || self.over_calls >= MANY_OVER_CALLS
    }
}

fn each_cell(result: &Leaves<'_>, emit: &mut dyn FnMut(&str)) {
    for (at, leaf) in result.items.iter().enumerate() {
        match leaf.role {
            Role::Number => emit(&leaf.text),
            Role::Text if result.name_of(at).is_some_and(|name| OF_PROTOCOL.contains(&name)) => {}
            Role::Text => of_text(&leaf.text, emit),
            _ => {}
        }
    }
}

fn of_text(text: &str, emit: &mut dyn FnMut(&str)) {
    if of_json(text, emit) {
        return;
    }
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.len() < MIN_LINES {
        emit(text);
        return;
    }
    if lines.iter().all(|line| line.trim_start().starts_with('{')) {
        lines.iter().for_each(|line| {
            of_json(line, emit);
        });
        return;
    }
    let columns = |line: &str, mark: char| line.matches(mark).count();
    for mark in ['\t', '|', ';', ','] {
        let count = columns(lines[0], mark);
        let same = || lines.iter().filter(|line| columns(line, mark) == count).count();
        if count > 0 && same() * 10 >= lines.len() * 8 {
            // The first line names the columns.
            lines[1..].iter().flat_map(|line| line.split(mark)).for_each(&mut *emit);
            return;
        }
    }
    let pairs: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.split_once(": ").or_else(|| line.split_once('=')))
        // A number in front names nothing: lines of a trace, of a listing, of a search.
        .filter(|pair| pair.0.contains(char::is_alphabetic))
        .map(|pair| pair.1)
        .collect();
    if pairs.len() * 2 >= lines.len() {
        pairs.into_iter().for_each(emit);
    }
}

fn of_json(text: &str, emit: &mut dyn FnMut(&str)) -> bool {
    if !text.trim_start().starts_with(['{', '[']) {
        return false;
    }
    let Ok(value) = json::read(text.as_bytes()) else { return false };
    for leaf in &Leaves::of(&value).items {
        if matches!(leaf.role, Role::Text | Role::Number) {
            emit(&leaf.text);
        }
    }
    true
}

fn split_words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// The tag of a whole cell. None: it is too short to be private data, or too long to be a cell.
fn tag(hasher: &Hasher, cell: &str) -> Option<u64> {
    if cell.len() > MAX_SYMBOLS * 4 {
        return None;
    }
    let mut folded = Folded::default();
    let mut count = 0;
    for word in split_words(cell) {
        folded.push(word);
        count += 1;
    }
    // Words of configuration and of messages are everybody's.
    let fits = (MIN_SYMBOLS..=MAX_SYMBOLS).contains(&folded.symbols.len())
        && count <= MAX_WORDS
        && plain_words::own_length(cell, MIN_OWN) >= MIN_OWN;
    fits.then(|| hasher.hash_all(&folded.symbols))
}

/// The tag of each row of words that may be a cell: at most [`MAX_WORDS`] for each word.
fn each_run(hasher: &Hasher, text: &str, emit: &mut dyn FnMut(u64)) {
    let mut folded = Folded::default();
    let mut starts = VecDeque::new();
    for word in split_words(text) {
        if starts.len() == MAX_WORDS {
            starts.pop_front();
        }
        starts.push_back(folded.symbols.len());
        folded.push(word);
        let end = folded.symbols.len();
        for start in &starts {
            if (MIN_SYMBOLS..=MAX_SYMBOLS).contains(&(end - start)) {
                emit(hasher.hash_all(&folded.symbols[*start..end]));
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/cells.rs"]
mod tests;
