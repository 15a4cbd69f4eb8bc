//! Which result each marker belongs to. A marker is found wherever it was copied, even if the text around it is too short
//! to be found as a copy. Cost: a search for two bytes. It misses copies without the marker, and results that got none.

use std::collections::{BTreeMap, BTreeSet};

use super::findings::{MARKER, Search, context};
use super::marker;
use super::memory::TaintMemory;
use super::origin::OriginId;
use crate::Severity;

/// Minimum and maximum number of markers before those of forgotten results are removed.
const MIN_SWEEP: usize = 1024;
const MAX_MARKERS: usize = 65_000;

#[derive(Clone, Debug)]
pub struct Markers {
    results: BTreeMap<u16, OriginId>,
    /// Every number that was ever a marker: forgotten markers are still removed from calls.
    marked: BTreeSet<u16>,
    /// The number of markers at which those of forgotten results are removed.
    sweep_at: usize,
}

impl Default for Markers {
    fn default() -> Self {
        Self { results: BTreeMap::new(), marked: BTreeSet::new(), sweep_at: MIN_SWEEP }
    }
}

impl Markers {
    /// The number of a marker for a result, which may not be remembered yet. `random` chooses it.
    pub fn add(&mut self, memory: &TaintMemory, origin: OriginId, random: u64) -> u16 {
        let mut number = (random ^ random >> 16 ^ random >> 32 ^ random >> 48) as u16;
        if self.results.len() >= self.sweep_at {
            self.results.retain(|_, origin| !memory.is_forgotten(*origin));
            self.sweep_at = (2 * self.results.len()).clamp(MIN_SWEEP, MAX_MARKERS);
        }
        while self.results.contains_key(&number) && self.results.len() < MAX_MARKERS {
            number = number.wrapping_add(1);
        }
        self.results.insert(number, origin);
        self.marked.insert(number);
        number
    }

    /// The results of which a text carries one.
    pub fn origins(&self) -> impl Iterator<Item = OriginId> {
        self.results.values().copied()
    }

    #[must_use]
    pub fn has(&self, number: u16) -> bool {
        self.marked.contains(&number)
    }

    /// Looks for markers in a leaf, or in a text that decodes from it.
    pub(super) fn judge(
        &self,
        memory: &TaintMemory,
        text: &str,
        leaf: usize,
        how: &dyn Fn() -> Vec<&'static str>,
        search: &mut Search<'_, '_>,
    ) {
        for mark in marker::find(text) {
            // A damaged marker does not name its result: the newest marked result counts.
            let id = match mark.number {
                Some(number) => self.results.get(&number).copied(),
                None => self.results.values().max().copied(),
            };
            if let Some((id, origin)) = id.and_then(|id| Some((id, memory.origin(id)?))) {
                let (context, provenance) = (context(text, mark.at), search.provenance(id, origin));
                let amount = "marked text".to_owned();
                search.push(MARKER, "marker", Severity::High, leaf, context, provenance, how(), amount);
            }
        }
    }
}
