//! Covered places of a text: a bounded number of disjoint ranges, in order.

use std::ops::Range;

/// Maximum number of ranges of one text. Further ones are not counted, because nearly all of it is covered then.
const MAX_COUNT: usize = 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges(Vec<Range<u32>>);

impl Ranges {
    /// Adds a range, and joins those that it touches.
    pub fn add(&mut self, new: Range<u32>) {
        if new.is_empty() {
            return;
        }
        let first = self.0.partition_point(|range| range.end < new.start);
        let last = self.0.partition_point(|range| range.start <= new.end);
        if first == last && self.0.len() >= MAX_COUNT {
            return;
        }
        let joined = self.0[first..last]
            .iter()
            .fold(new, |joined, range| joined.start.min(range.start)..joined.end.max(range.end));
        self.0.splice(first..last, [joined]);
    }

    /// Whether all of it was covered.
    pub fn has(&self, range: &Range<u32>) -> bool {
        self.containing_range(range).is_some()
    }

    /// The range that contains all of it.
    pub fn containing_range(&self, range: &Range<u32>) -> Option<Range<u32>> {
        let at = self.0.partition_point(|one| one.end < range.end);
        self.0.get(at).filter(|one| one.start <= range.start).cloned()
    }

    pub fn add_all(&mut self, others: &Self) {
        others.0.iter().cloned().for_each(|range| self.add(range));
    }

    pub fn iter(&self) -> impl Iterator<Item = &Range<u32>> {
        self.0.iter()
    }

    pub fn len(&self) -> u32 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_merged() {
        let mut ranges = Ranges::default();
        for range in [10..20, 30..40, 20..25, 24..31, 50..60, 60..60] {
            ranges.add(range);
        }
        assert_eq!(ranges.0, [10..40, 50..60]);
        assert_eq!(ranges.len(), 40);
        assert!(ranges.has(&(12..40)) && ranges.has(&(50..60)));
        assert!(!ranges.has(&(12..41)) && !ranges.has(&(45..55)) && !ranges.has(&(60..61)));
    }

    #[test]
    fn ranges_are_bounded_in_number() {
        let mut ranges = Ranges::default();
        (0..5000).for_each(|at| ranges.add(at * 3..at * 3 + 1));
        assert_eq!(ranges.0.len(), MAX_COUNT);
        ranges.add(0..5000);
        assert!(ranges.len() >= 5000 && ranges.0.len() < MAX_COUNT);
    }
}
