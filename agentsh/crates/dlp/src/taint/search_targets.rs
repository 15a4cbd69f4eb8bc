//! The tags that one detector searches for, and which of them a text may have.

use super::index::Index;

/// Candidates whose memory is kept for the next text.
const MAX_KEPT_CANDIDATES: usize = 16 * 1024;

#[derive(Clone, Debug, Default)]
pub(super) struct SearchTargets {
    pub index: Index,
    /// Each with its place in the text.
    seen: Vec<(usize, u32)>,
}

impl SearchTargets {
    /// Notes which of neighbouring tags may be known; the first is at `at`.
    #[inline]
    pub fn add_candidates(&mut self, at: usize, tags: impl Iterator<Item = u32>) {
        let Self { index, seen } = self;
        let known = tags.enumerate().filter(|(_, tag)| index.may_have(*tag));
        seen.extend(known.map(|(inside, tag)| (at + inside, tag)));
    }

    /// Gives `visit` each that is known: its place in the text, its tag, and a place where it is remembered. The next text
    /// begins.
    pub fn visit_found(&mut self, floor: u32, visit: impl FnMut(usize, u32, u32)) {
        self.index.find_all(&self.seen, floor, visit);
        self.seen.clear();
        self.seen.shrink_to(MAX_KEPT_CANDIDATES);
    }
}
