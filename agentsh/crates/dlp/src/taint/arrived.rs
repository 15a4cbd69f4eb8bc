//! What has arrived over all calls: too much of a text.

use super::findings::{NEAR, Search, characters};
use super::hash::SHORT;
use super::judge::Judge;
use super::leaves::Role;
use super::memory::TaintMemory;
use super::origin::OriginId;
use super::pieces::STEP;
use super::ranges::Ranges;
use crate::Severity;

/// So many symbols of one result, and so many of a hundred of its prose, are the result.
const MANY: u32 = 96;
const SHARE: u32 = 25;

impl TaintMemory {
    /// What has arrived of other results has arrived of a new one where it says the same: its grams take the place of theirs.
    pub(super) fn carry(&mut self, to: OriginId, start: u32, tags: &[(u32, u32)]) {
        if self.pieces.covered.is_empty() {
            return;
        }
        let (floor, end) = (self.floor(), self.shadow_start + self.shadow.len() as u32);
        let mut carried = Ranges::default();
        for (tag, at) in tags.iter().filter(|(tag, _)| self.prose.may_have(*tag)) {
            let new = start + at;
            self.prose.find(*tag, floor, |old| {
                let Some((from, entry)) = self.entry_at(old) else { return };
                let place = old - entry.start;
                let gram = place..place + SHORT as u32;
                let around = self.pieces.covered.get(&from).and_then(|covered| covered.around(&gram));
                let Some(around) = around.filter(|_| self.shadow(old) == self.shadow(new)) else { return };
                // As far as both agree; what stands further away has grams of its own.
                let most = STEP as u32;
                let before = (1..=most.min(place - around.start).min(*at))
                    .take_while(|by| self.shadow(old - by) == self.shadow(new - by))
                    .count() as u32;
                let room = (around.end - gram.end).min(end.saturating_sub(new + SHORT as u32));
                let after = (1..=most.min(room))
                    .take_while(|by| self.shadow(old + by) == self.shadow(new + by))
                    .count() as u32;
                carried.add(at - before..at + SHORT as u32 + after);
            });
        }
        if carried.len() > 0 {
            self.pieces.covered.insert(to, carried);
        }
    }

    /// Takes in what a copy counted of the one call that it judged, of what was read meanwhile as well.
    pub(super) fn adopt_pieces(&mut self, copy: Self) {
        let first_new = copy.next_id(0);
        self.pieces.adopt(copy.pieces);
        if self.next_id(0) > first_new {
            let tags = self.pieces.tags.clone();
            self.restore_pieces(&tags, first_new);
        }
    }

    /// Notes these grams as sent, of results from `first` on.
    pub(super) fn restore_pieces(&mut self, tags: &[u32], first: OriginId) {
        let mut places = Vec::new();
        for tag in tags.iter().filter(|tag| self.prose.may_have(**tag)) {
            self.prose.find(*tag, self.floor(), |place| {
                let found = self.entry_at(place).filter(|(origin, _)| *origin >= first);
                places.extend(found.map(|(origin, entry)| (origin, place - entry.start)));
            });
        }
        places.into_iter().for_each(|(origin, at)| self.pieces.restore(origin, at));
    }
}

impl Judge {
    /// Results of which too much has arrived with what the call brings.
    pub(super) fn arrived(&self, search: &mut Search<'_, '_>) {
        let leaf = search.call.items.iter().position(|leaf| leaf.role == Role::Text).unwrap_or(0);
        for (id, count) in self.memory.pieces.grown() {
            let Some(entry) = self.memory.entry(id) else { continue };
            let prose = entry.kept_of_prose * STEP as u32;
            if count >= MANY && count * 100 >= prose * SHARE {
                let shown = format!("[{count} characters in pieces over all calls]");
                let provenance = search.provenance(id, &entry.origin);
                let amount = format!("{} in pieces, with those of earlier calls,", characters(count));
                search.push(NEAR, "near-copy", Severity::Medium, leaf, shown, provenance, Vec::new(), amount);
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/arrived.rs"]
mod tests;
