//! How much of each secret has been sent: which of its places short pieces covered, over all calls to all servers outside,
//! in any argument and any order. An even shorter piece counts together with the short values sent around it.
//!
//! Numbers: more than a quarter of a secret is too much (eight symbols of a short one): to guess the rest of a random
//! key of 24 symbols then takes 2^90 attempts (decision 440). 2,048 secrets bound its memory. Cost: one hash for each symbol of the
//! first and last 32 KiB of a call. Alone it finds 4 of 207 attempts. It misses pieces that are each turned into
//! numbers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use super::decoded_views::DecodedViews;
use super::detector::Detector;
use super::findings::{COVERAGE, Search};
use super::hash::Hasher;
use super::leaves::{Leaves, Role};
use super::memory::TaintMemory;
use super::origin::OriginId;
use super::placed::Placed;
use super::print::Print;
use super::ranges::Ranges;
use super::slices::{self, Followed, Marked, SLICE};
use crate::Severity;
use crate::types::ServerId;
use agentsh_secrets::values::Kind;

/// Secrets that are followed.
const MAX_SECRETS: usize = 2048;
/// Maximum number of known places of pieces, of all secrets together.
const MAX_PLACES: usize = 128 << 10;
/// A server that has fewer secrets than this here takes room from the one that has most.
const SHARE: usize = 64;
/// Bytes of a call that are searched, and of one text that decodes from it.
const MAX_CALL: usize = 64 << 10;
const MAX_VIEW: usize = 4 << 10;
/// Longest value that is a piece, in bytes; pieces that are kept, and of one call.
const MAX_PIECE: usize = 24;
const MAX_PIECES: usize = 32;
const MAX_OF_CALL: usize = 128;
/// Arguments whose last value is kept, and how long it may be, in bytes.
const MAX_PATHS: usize = 256;
const MAX_LAST: usize = 256;

/// How much of one secret has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SecretCoverage {
    /// The server of the secret, which is known by its hash.
    pub server: ServerId,
    pub whole: u64,
    pub covered: Ranges,
}

#[derive(Clone, Debug)]
struct Secret {
    origin: OriginId,
    server: ServerId,
    /// See [`Followed`].
    whole: u64,
    kind: Kind,
    length: u32,
    tags: Vec<u32>,
    covered: Ranges,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Coverage {
    secrets: BTreeMap<u64, Secret>,
    next: u64,
    /// The positions of each piece.
    places: BTreeMap<u32, Vec<(u64, u32)>>,
    /// The number of pieces.
    known: usize,
    /// The coverage before the last call.
    before: BTreeMap<u64, Ranges>,
    /// Pieces of the last call: a repeated one covers nothing new.
    seen: BTreeSet<u32>,
    /// Short values that were sent last, each with its argument.
    pieces: VecDeque<(u64, String)>,
    last: BTreeMap<u64, String>,
    /// The changes of the last call to both, for `adopt`.
    noted: Vec<CoverageChange>,
}

/// Too much of one secret.
#[derive(Clone, Copy, Debug)]
struct Arrived {
    origin: OriginId,
    kind: Kind,
    /// The first leaf that brought something.
    leaf: usize,
    /// Number of symbols that have been sent.
    count: u32,
    length: u32,
}

#[derive(Clone, Debug)]
enum CoverageChange {
    /// The value that came last in an argument.
    Last(u64, String),
    /// Such a value is not a piece by itself.
    NoPiece(u64, String),
    Piece(u64, String),
}

impl Detector for Coverage {
    type SentParts = Vec<SecretCoverage>;

    fn remember(&mut self, placed: &Placed<'_>, print: &Print) {
        print.followed.iter().for_each(|secret| self.add(placed.id, &placed.origin.server, secret));
    }

    fn begin(&mut self) {
        self.before.clear();
        self.seen.clear();
        self.noted.clear();
    }

    fn judge(&mut self, memory: &TaintMemory, views: &DecodedViews, search: &mut Search<'_, '_>) {
        if self.is_empty() {
            return;
        }
        let leaves = |id| memory.origin(id).is_some_and(search.leaving);
        for arrived in
            self.cover_call(&memory.hasher, search.call, views.iter().map(|(_, text)| text), &leaves)
        {
            let Some(origin) = memory.origin(arrived.origin) else { continue };
            let (count, length) = (arrived.count, arrived.length);
            let shown = format!("[{count} of {length} characters over all calls]");
            let (category, provenance) = (arrived.kind.as_str(), search.provenance(arrived.origin, origin));
            let amount = format!("{count} of the {length} letters and digits of a secret, over all calls,");
            let (severity, chain) = (Severity::Critical, Vec::new());
            search.push(COVERAGE, category, severity, arrived.leaf, shown, provenance, chain, amount);
        }
    }

    /// Its short values stay: later ones may continue them.
    fn forget(&mut self) {
        for (key, before) in std::mem::take(&mut self.before) {
            if let Some(secret) = self.secrets.get_mut(&key) {
                secret.covered = before;
            }
        }
    }

    fn export(&self) -> Vec<SecretCoverage> {
        let changed = self.before.iter().filter_map(|(key, before)| {
            let secret = self.secrets.get(key)?;
            (secret.covered != *before).then(|| SecretCoverage {
                server: secret.server.clone(),
                whole: secret.whole,
                covered: secret.covered.clone(),
            })
        });
        changed.collect()
    }

    fn import(&mut self, _: &TaintMemory, brought: Vec<SecretCoverage>) {
        for SecretCoverage { server, whole, covered } in &brought {
            let mut secrets = self.secrets.values_mut();
            if let Some(known) = secrets.find(|known| known.whole == *whole && known.server == *server) {
                known.covered.add_all(covered);
            }
        }
    }

    fn adopt(&mut self, copy: Self, _: &TaintMemory, _: OriginId) {
        self.begin();
        for key in copy.before.keys() {
            if let (Some(own), Some(secret)) = (self.secrets.get_mut(key), copy.secrets.get(key)) {
                self.before.insert(*key, own.covered.clone());
                own.covered.add_all(&secret.covered);
            }
        }
        copy.noted.into_iter().for_each(|noted| self.note(noted));
    }
}

impl Coverage {
    fn add(&mut self, id: OriginId, server: &ServerId, followed: &Followed) {
        let &Followed { kind, length, whole, ref pieces } = followed;
        // The newest reading says where it came from; what arrived of it stays.
        let alike = pieces.first().and_then(|(tag, _)| self.places.get(tag)).into_iter().flatten();
        for (key, _) in alike {
            if let Some(known) =
                self.secrets.get_mut(key).filter(|one| one.whole == whole && one.server == *server)
            {
                known.origin = id;
                return;
            }
        }
        while self.secrets.len() >= MAX_SECRETS || self.known + pieces.len() > MAX_PLACES {
            let Some(oldest) = self.in_the_way(server) else { return };
            self.drop_secret(oldest);
        }
        let key = self.next;
        self.next += 1;
        let tags: BTreeSet<u32> = pieces.iter().map(|(tag, _)| *tag).collect();
        self.known += pieces.len();
        for (tag, at) in pieces {
            self.places.entry(*tag).or_default().push((key, *at));
        }
        let (tags, covered) = (tags.into_iter().collect(), Ranges::default());
        self.secrets
            .insert(key, Secret { origin: id, server: server.clone(), whole, kind, length, tags, covered });
    }

    /// The oldest secret of this server or, if it has few, of the one that has most: a server that sends many evicts its own.
    fn in_the_way(&self, server: &ServerId) -> Option<u64> {
        let mut counts = BTreeMap::<&ServerId, usize>::new();
        for secret in self.secrets.values() {
            *counts.entry(&secret.server).or_default() += 1;
        }
        let has_share = counts.get(server).is_some_and(|count| *count >= SHARE);
        let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(most, _)| most)?;
        let whose = if has_share { server } else { most };
        self.secrets.iter().find(|(_, secret)| secret.server == *whose).map(|(key, _)| *key)
    }

    fn drop_secret(&mut self, key: u64) {
        let Some(secret) = self.secrets.remove(&key) else { return };
        for tag in secret.tags {
            if let Some(places) = self.places.get_mut(&tag) {
                let before = places.len();
                places.retain(|(other, _)| *other != key);
                self.known -= before - places.len();
                if places.is_empty() {
                    self.places.remove(&tag);
                }
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    /// Counts every piece in a text.
    fn count_pieces(&mut self, hasher: &Hasher, text: &str, leaves: &dyn Fn(OriginId) -> bool) {
        Marked::of(text).for_each_piece(hasher, |tag, _| {
            if !self.seen.insert(tag) {
                return;
            }
            for (key, at) in self.places.get(&tag).into_iter().flatten() {
                if let Some(secret) = self.secrets.get_mut(key).filter(|secret| leaves(secret.origin)) {
                    self.before.entry(*key).or_insert_with(|| secret.covered.clone());
                    secret.covered.add(*at..at + SLICE as u32);
                }
            }
        });
    }

    /// Counts what a short value makes with those that were sent before it, in either order.
    fn piece(&mut self, hasher: &Hasher, path: u64, text: &str, leaves: &dyn Fn(OriginId) -> bool) {
        let last = self.last.get(&path).cloned().unwrap_or_default();
        if last == text {
            return;
        }
        if text.len() <= MAX_LAST {
            self.note(CoverageChange::Last(path, text.to_owned()));
        }
        let (old, new) = own_part(&last, text);
        if old.len() < last.len() && old.len() <= MAX_PIECE {
            // Only now it is clear that the surrounding text repeats.
            self.note(CoverageChange::NoPiece(path, last.clone()));
            if self.pieces.back().is_none_or(|(_, piece)| piece != old) {
                self.note(CoverageChange::Piece(path, old.to_owned()));
            }
        }
        if new.len() > MAX_PIECE {
            return;
        }
        for of_path in [false, true] {
            let pieces =
                || self.pieces.iter().filter(|(other, _)| !of_path || *other == path).map(|(_, one)| &**one);
            // Earlier text counted when it was sent: only pieces that extend into the new text count now.
            let before: String = pieces().collect();
            let backwards: String = pieces().rev().collect();
            let end: Vec<char> =
                before.chars().rev().filter(|one| one.is_alphanumeric()).take(SLICE - 1).collect();
            let forwards: String = end.into_iter().rev().chain(new.chars()).collect();
            let begin = backwards.chars().filter(|one| one.is_alphanumeric()).take(SLICE - 1);
            let backwards: String = new.chars().chain(begin).collect();
            self.count_pieces(hasher, &forwards, leaves);
            self.count_pieces(hasher, &backwards, leaves);
        }
        self.note(CoverageChange::Piece(path, new.to_owned()));
    }

    /// Counts what a call brings in its leaves and in `views`, texts that decode from it. Gives each secret of which too
    /// much has arrived then.
    fn cover_call<'v>(
        &mut self,
        hasher: &Hasher,
        call: &Leaves<'_>,
        views: impl Iterator<Item = &'v str>,
        leaves: &dyn Fn(OriginId) -> bool,
    ) -> Vec<Arrived> {
        let (mut room, mut pieces, mut first) = (MAX_CALL, MAX_OF_CALL, None);
        for (at, leaf) in call.items.iter().enumerate() {
            if !matches!(leaf.role, Role::Text | Role::Name | Role::Codes) {
                continue;
            }
            let before = self.before.len();
            for end in ends(&leaf.text, room) {
                room -= end.len();
                self.count_pieces(hasher, end, leaves);
            }
            if leaf.role == Role::Text && pieces > 0 {
                pieces -= 1;
                self.piece(hasher, call.path(at), &leaf.text, leaves);
            }
            if self.before.len() > before {
                first = first.or(Some(at));
            }
        }
        for view in views.filter(|view| view.len() <= MAX_VIEW) {
            self.count_pieces(hasher, view, leaves);
        }
        let leaf = first.unwrap_or(0);
        let grown = self.before.iter().filter_map(|(key, before)| {
            let secret = self.secrets.get(key).filter(|secret| secret.covered != *before)?;
            let count = secret.covered.len();
            (count >= slices::too_many(secret.length)).then_some(Arrived {
                origin: secret.origin,
                kind: secret.kind,
                leaf,
                count,
                length: secret.length,
            })
        });
        grown.collect()
    }

    fn note(&mut self, noted: CoverageChange) {
        match &noted {
            CoverageChange::Last(path, text) => {
                if self.last.len() < MAX_PATHS || self.last.contains_key(path) {
                    self.last.insert(*path, text.clone());
                }
            }
            CoverageChange::NoPiece(path, last) => {
                self.pieces.retain(|(other, piece)| other != path || piece != last);
            }
            CoverageChange::Piece(path, piece) => {
                if self.pieces.len() >= MAX_PIECES {
                    self.pieces.pop_front();
                }
                self.pieces.push_back((*path, piece.clone()));
            }
        }
        self.noted.push(noted);
    }
}

/// The beginning and the end of a text, together at most `most` bytes.
fn ends(text: &str, most: usize) -> [&str; 2] {
    if text.len() <= most {
        return [text, ""];
    }
    let half = most / 2;
    [&text[..text.floor_char_boundary(half)], &text[text.ceil_char_boundary(text.len() - half)..]]
}

/// The parts of two values of one argument, without the words that both begin and end with.
fn own_part<'t>(old: &'t str, new: &'t str) -> (&'t str, &'t str) {
    let whole = (old.trim(), new.trim());
    let (olds, news) = (word_ranges(old), word_ranges(new));
    let front = olds
        .iter()
        .zip(&news)
        .take_while(|(one, other)| old[(*one).clone()] == new[(*other).clone()])
        .count();
    let rest = olds.len().min(news.len()) - front;
    let same = |(one, other): &(&Range<usize>, &Range<usize>)| old[(*one).clone()] == new[(*other).clone()];
    let back = olds.iter().rev().zip(news.iter().rev()).take(rest).take_while(same).count();
    let own = |text: &'t str, words: &[Range<usize>]| {
        let own = &words[front..words.len() - back];
        own.first().zip(own.last()).and_then(|(first, last)| text.get(first.start..last.end))
    };
    match (front + back, own(old, &olds), own(new, &news)) {
        (1.., Some(old), Some(new)) => (old, new),
        _ => whole,
    }
}

fn word_ranges(text: &str) -> Vec<Range<usize>> {
    let start = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize;
    text.split_whitespace().map(|word| start(word)..start(word) + word.len()).collect()
}

#[cfg(test)]
#[path = "tests/coverage.rs"]
mod tests;
