//! Which arguments of a call come from a result.

use std::ops::Range;
use std::time::Duration;

use super::cells;
use super::decoded_views::DecodedViews;
use super::detector::Detector;
use super::findings::{Bounds, OPAQUE, PACKED, Search};
use super::hash::Hasher;
use super::hits::{Hits, MayNotFlow};
use super::known_text::{Known, MAX_SAID};
use super::leaves::{Leaf, Leaves, Role};
use super::markers::Markers;
use super::memory::{Config, Evicted, Inserted, Stored, TaintMemory};
use super::origin::{Origin, OriginId};
use super::print::Print;
use super::reading;
use super::scan::Detectors;
use super::symbols::Folded;
use super::views::{Views, steps};
use crate::threads::side_by_side;
use agentsh_secrets::values;

pub use super::findings::{Finding, Findings, Severity};

/// Eight symbols of base64 are six bytes, and fewer bytes of text are chance.
const MIN_DECODED: usize = 8;
/// A shorter name of a member is not a secret.
const MIN_SECRET_NAME: usize = 12;
/// Bytes of decoded text that one result may add to the memory.
const MAX_DECODED: usize = 2 << 20;

/// The texts that decode from a result.
fn decoded_texts(result: &Leaves<'_>, views: &Views) -> Vec<String> {
    let mut decoded = Vec::new();
    let mut room = MAX_DECODED;
    let texts = result.items.iter().filter(|leaf| leaf.role == Role::Text && leaf.text.len() >= MIN_DECODED);
    for leaf in texts {
        views.decode_result(leaf, &mut |view| {
            if view.text.len() <= room {
                room -= view.text.len();
                decoded.push(view.text.to_owned());
            }
        });
    }
    decoded
}

/// The memory, and what was sent before.
#[derive(Clone, Debug)]
pub struct Judge {
    pub memory: TaintMemory,
    pub(super) all: Detectors,
    /// Texts that decode from the call.
    decoded_views: DecodedViews,
    pub markers: Markers,
    /// The values of the last call.
    values: Folded,
    unsaid: Option<NewSymbols>,
    single: Folded,
}

/// Reads results on another thread.
#[derive(Clone, Debug)]
pub struct Reader {
    hasher: Hasher,
    known: Known,
}

/// A result as hashes, to be remembered.
#[derive(Debug)]
pub struct ReadResult {
    print: Print,
    truncated: bool,
}

impl Reader {
    #[must_use]
    pub fn read(&self, is_private: bool, result: &Leaves<'_>, views: &Views) -> ReadResult {
        read(&self.hasher, &self.known, is_private, result, views)
    }
}

fn read(hasher: &Hasher, known: &Known, is_private: bool, result: &Leaves<'_>, views: &Views) -> ReadResult {
    let texts = result.items.iter().filter(|leaf| is_said(leaf)).map(|leaf| &*leaf.text);
    let (mut print, truncated) =
        reading::read(hasher, known, is_private, texts, || decoded_texts(result, views));
    print.cells = cells::of_result(hasher, is_private, result);
    ReadResult { print, truncated }
}

/// The parts of the last call that are not known as the agent's own words, in symbols; None: not searched.
#[derive(Clone, Debug)]
struct NewSymbols(Option<Vec<Range<usize>>>);

impl Judge {
    #[must_use]
    pub fn new(config: Config, key: &[u8; 32]) -> Self {
        Self {
            memory: TaintMemory::new(config, key),
            all: Detectors::default(),
            decoded_views: DecodedViews::default(),
            markers: Markers::default(),
            values: Folded::default(),
            unsaid: None,
            single: Folded::default(),
        }
    }

    /// Remembers every text of a result, and every text that decodes from one.
    pub fn remember(&mut self, origin: Origin, result: &Leaves<'_>, views: &Views) -> Stored {
        let (hasher, known) = self.prepare();
        let read = read(hasher, known, origin.private, result, views);
        self.remember_read(origin, &read)
    }

    /// Like [`Judge::remember`], for a result that was already read.
    pub fn remember_read(&mut self, origin: Origin, read: &ReadResult) -> Stored {
        Stored { truncated: read.truncated, ..self.store(origin, &read.print) }
    }

    /// A reader for another thread. It does not see later messages.
    pub fn reader(&mut self) -> Reader {
        let (hasher, known) = self.prepare();
        Reader { hasher: hasher.clone(), known: known.clone() }
    }

    fn prepare(&mut self) -> (&Hasher, &Known) {
        self.do_deferred_work();
        let TaintMemory { known, hasher, .. } = &mut self.memory;
        known.prepare(hasher);
        (hasher, known)
    }

    /// Remembers that a result came again which is remembered already, and has its time once more.
    pub fn remember_repeat(&mut self, origin: Origin, of: OriginId) -> Stored {
        self.memory.extend_lifetime(of, origin.time + self.memory.config.lifetime);
        Stored { repeated: true, ..self.store(origin, &Print::default()) }
    }

    fn store(&mut self, origin: Origin, print: &Print) -> Stored {
        let record = self.memory.config.record.then(|| self.memory.export(&origin, print));
        let until = origin.time + self.memory.config.lifetime;
        let (id, evicted) = self.insert(origin, print, until);
        Stored { id, evicted, repeated: false, truncated: false, record }
    }

    pub(super) fn insert(
        &mut self,
        origin: Origin,
        print: &Print,
        until: Duration,
    ) -> (OriginId, Option<Evicted>) {
        let inserted = self.memory.insert(origin, print, until);
        self.all.remember(&self.memory, &inserted, print);
        let Inserted { id, evicted, .. } = inserted;
        (id, evicted)
    }

    /// Memory taken by everything remembered, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.memory.size() + self.all.size()
    }

    /// Does work of the last call that was put off until nothing waits.
    pub fn do_deferred_work(&mut self) {
        let Some(NewSymbols(tainted)) = self.unsaid.take() else { return };
        let tainted = tainted.unwrap_or_else(|| self.all.copies(&self.memory, &self.values).hit_ranges());
        let TaintMemory { known, hasher, .. } = &mut self.memory;
        known.learn_own_text(hasher, &self.values, &tainted);
        self.values.clear();
    }

    /// The last call is not sent: what it held is not a part of what comes next.
    pub fn take_back(&mut self) {
        self.all.forget();
    }

    /// Takes in what a copy of this judge noted of the one call that it judged since it was made.
    pub fn adopt(&mut self, copy: Self) {
        self.do_deferred_work();
        self.all.adopt(copy.all, &self.memory, copy.memory.next_id(0));
        self.values = copy.values;
        self.unsaid = copy.unsaid;
    }

    /// Whether a search looks for anything.
    #[must_use]
    pub fn has_targets(&self, leaving: MayNotFlow<'_>) -> bool {
        self.memory.sources.iter().any(leaving)
    }

    /// Everything in the arguments that came from a result, whatever the server, up to a number that is separate for results
    /// that are `leaving`: those that may not go there. If there are none of them, nothing is searched. Remembers what is
    /// sent, for the next call.
    pub fn judge(
        &mut self,
        call: &Leaves<'_>,
        now: Duration,
        views: &Views,
        leaving: MayNotFlow<'_>,
    ) -> Findings {
        self.do_deferred_work();
        self.memory.expire(now);
        let mut search = Search::new(call, leaving);
        let mut values = std::mem::take(&mut self.values);
        let looks = self.has_targets(leaving);
        let most = if looks { usize::MAX } else { MAX_SAID };
        let bounds =
            fold_leaves(call, &mut values, most, |leaf| matches!(leaf.role, Role::Text | Role::Number));
        let mut tainted = None;
        self.decoded_views.clear();
        self.all.begin();
        if looks {
            search.links = self.all.values.links(&self.memory, call);
            let (hits, ()) = side_by_side(
                call.length(),
                || self.stream(&values, &bounds, &mut search),
                || {
                    call.items.iter().filter(is_decoded).for_each(|leaf| {
                        if leaf.looks_encoded() {
                            let _ = leaf.decoded_texts(&views.limits);
                        }
                    })
                },
            );
            tainted = Some(hits.hit_ranges());
            self.names(&mut search);
            for (at, leaf) in call.items.iter().enumerate() {
                self.markers.judge(&self.memory, &leaf.text, at, &Vec::<&str>::new, &mut search);
            }
            self.all.values.search_words(&self.memory, &mut search);
            self.search_decoded(views, &mut search);
            self.lists(views, &mut search);
            self.opaque(views, &mut search);
            self.all.cells.judge(&self.memory, &self.decoded_views, &mut search);
            self.all.coverage.judge(&self.memory, &self.decoded_views, &mut search);
            self.all.pieces.judge(&self.memory, &self.decoded_views, &mut search);
        }
        self.values = values;
        self.unsaid = Some(NewSymbols(tainted));
        self.single.clear();
        if looks { search.finish() } else { Findings::new() }
    }

    fn stream(&mut self, text: &Folded, bounds: &Bounds, search: &mut Search<'_, '_>) -> Hits {
        let hits = self.all.scan(&self.memory, text, search.leaving);
        search.count(&hits.list);
        for hit in &hits.list {
            search.hit(hit, bounds);
        }
        search.report_too_many_leaves(&hits, bounds.last().map_or(0, |bound| bound.1), Vec::new());
        self.all.pieces.add(&hits);
        hits
    }

    /// Names of members, and the name of the tool.
    fn names(&mut self, search: &mut Search<'_, '_>) {
        let mut text = std::mem::take(&mut self.single);
        for role in [Role::Name, Role::Tool] {
            let bounds = fold_leaves(search.call, &mut text, usize::MAX, |leaf| leaf.role == role);
            self.stream(&text, &bounds, search);
        }
        self.single = text;
    }

    /// Unreadable bytes, which may be any data that was read: they count as the newest result that may not go there.
    fn opaque(&self, views: &Views, search: &mut Search<'_, '_>) {
        let mut leaves = search.call.items.iter().enumerate();
        let found = leaves.find_map(|(at, leaf)| {
            let is_asked = is_decoded(&leaf) && leaf.looks_encoded();
            let decoded = is_asked.then(|| leaf.decoded_texts(&views.limits))?;
            (decoded.is_packed() || decoded.is_opaque()).then_some((at, leaf, decoded.is_packed()))
        });
        let newest = self.memory.origins().filter(|(_, origin)| (search.leaving)(origin)).last();
        if let (Some((at, leaf, is_packed)), Some((id, origin))) = (found, newest) {
            let provenance = search.provenance(id, origin);
            let (category, severity, what) = match is_packed {
                true => (PACKED, Severity::High, "of compressed data"),
                false => ("opaque", Severity::Medium, "that agentsh cannot decode"),
            };
            let amount = format!("{} characters {what}", leaf.text.chars().count());
            let shown = format!("[{amount}]");
            search.push(OPAQUE, category, severity, at, shown, provenance, Vec::new(), amount);
        }
    }

    /// Every text that decodes from a leaf.
    fn search_decoded(&mut self, views: &Views, search: &mut Search<'_, '_>) {
        let call = search.call;
        for (at, leaf) in call.items.iter().enumerate() {
            if leaf.role == Role::Codes {
                self.view(&leaf.text, at, &|| vec!["char-codes"], search);
            }
            if is_decoded(&leaf) {
                views.decode_leaf(leaf, &mut |view| {
                    self.view(view.text, at, &|| steps(&view), search);
                });
            }
        }
    }

    /// Searches what decodes from the values of a list as one text: an encoding that is cut into pieces.
    fn lists(&mut self, views: &Views, search: &mut Search<'_, '_>) {
        for (leaf, joined) in search.call.joined_lists() {
            views.decode(&joined, &mut |view| {
                let how = || std::iter::once("list").chain(steps(&view)).collect();
                self.view(view.text, leaf, &how, search);
            });
        }
    }

    /// Searches one text that decodes from a leaf.
    fn view(
        &mut self,
        text: &str,
        leaf: usize,
        how: &dyn Fn() -> Vec<&'static str>,
        search: &mut Search<'_, '_>,
    ) {
        if !self.all.coverage.is_empty() || !self.all.cells.is_empty() {
            self.decoded_views.add(text, leaf);
        }
        let mut folded = std::mem::take(&mut self.single);
        folded.clear();
        folded.push(text);
        let hits = self.all.scan(&self.memory, &folded, search.leaving);
        search.count(&hits.list);
        for hit in &hits.list {
            search.report_decoded_hit(hit, text, leaf, how);
        }
        if hits.is_full() || hits.uncounted_result().is_some() {
            search.report_too_many_leaves(&hits, leaf, how());
        }
        self.all.pieces.add(&hits);
        self.single = folded;
        self.markers.judge(&self.memory, text, leaf, how, search);
        self.all.values.search_single_value(&self.memory, text, leaf, search);
    }
}

/// Folds the leaves that are wanted into one text, and no more of them once it has `most` symbols.
fn fold_leaves(
    call: &Leaves<'_>,
    into: &mut Folded,
    most: usize,
    wanted: impl Fn(&Leaf<'_>) -> bool,
) -> Bounds {
    into.clear();
    let mut bounds = Vec::new();
    for (at, leaf) in call.items.iter().enumerate().filter(|(_, leaf)| wanted(leaf)) {
        if into.symbols.len() >= most {
            break;
        }
        bounds.push((into.symbols.len(), at));
        // A text of mostly spaces, or with more bytes per symbol, gives fewer symbols.
        let end = leaf.text.floor_char_boundary(most.saturating_mul(4));
        into.push(&leaf.text[..end]);
    }
    bounds
}

/// Names of members are the same in every result, but for one that is a secret itself.
fn is_said(leaf: &Leaf<'_>) -> bool {
    leaf.role != Role::Name
        || leaf.text.len() >= MIN_SECRET_NAME
            && values::find(&leaf.text, 1)
                .iter()
                .any(|entity| entity.kind.is_secret() || entity.kind.is_personal())
}

/// A shorter text is only a part of the whole.
fn is_decoded(leaf: &&Leaf<'_>) -> bool {
    leaf.role != Role::Number && leaf.text.len() >= MIN_DECODED
}
