//! Texts that are not secret in a result: common ones, and what the agent said before it read it.

use std::ops::Range;

use super::boilerplate;
use super::filter::Filter;
use super::hash::{self, Hasher};
use super::symbols::Folded;

/// Capacity for the n-grams of agents; then the older half is forgotten.
const MAX_SAID_GRAMS: usize = boilerplate::FILTER_CAPACITY;
/// Maximum number of symbols of one call that count as said.
pub(super) const MAX_SAID: usize = 16_384;

#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Made when the first call or result comes.
    filters: Option<Filters>,
    said_count: usize,
}

#[derive(Clone, Debug)]
struct Filters {
    public: Filter,
    said: [Filter; 2],
    /// All of them in one, for a first look.
    any: Filter,
}

impl Known {
    /// Text that an agent sends before any result contained it is its own: results that repeat it do not make it secret.
    /// `tainted`: symbols that came from a result.
    pub fn learn_own_text(&mut self, hasher: &Hasher, text: &Folded, tainted: &[Range<usize>]) {
        if text.symbols.is_empty() {
            return;
        }
        let filters = filters(&mut self.filters, hasher);
        let symbols = &text.symbols[..text.symbols.len().min(MAX_SAID)];
        let mut own = vec![true; symbols.len()];
        for range in tainted {
            own[range.start.min(symbols.len())..range.end.min(symbols.len())].fill(false);
        }
        let mut count = 0;
        hasher.each_short_gram(symbols, |at, gram| {
            if own[at] {
                filters.insert_said(hash::tag(gram));
            }
            count += 1;
        });
        self.said_count += count;
        if self.said_count > MAX_SAID_GRAMS {
            filters.forget_older();
            self.said_count = 0;
        }
    }

    /// Makes what [`Known::has`] and [`Known::may_have`] look into.
    pub fn prepare(&mut self, hasher: &Hasher) {
        filters(&mut self.filters, hasher);
    }

    /// Whether a tag is known.
    pub fn has(&self, tag: u32) -> bool {
        self.filters.as_ref().is_some_and(|Filters { public, said, .. }| {
            public.may_have(tag) || said.iter().any(|said| said.may_have(tag))
        })
    }

    /// Like [`Known::has`] in one read, with ten times the error rate: for passages, which need many known n-grams.
    #[inline]
    pub fn may_have(&self, tag: u32) -> bool {
        self.filters.as_ref().is_some_and(|filters| filters.any.may_have(tag))
    }
}

fn filters<'f>(filters: &'f mut Option<Filters>, hasher: &Hasher) -> &'f mut Filters {
    filters.get_or_insert_with(|| {
        let public = boilerplate::filter(hasher);
        Filters {
            any: public.clone(),
            public,
            said: [Filter::new(MAX_SAID_GRAMS), Filter::new(MAX_SAID_GRAMS)],
        }
    })
}

impl Filters {
    fn insert_said(&mut self, tag: u32) {
        self.said[0].insert(tag);
        self.any.insert(tag);
    }

    fn forget_older(&mut self) {
        self.said.swap(0, 1);
        self.said[0].clear();
        self.any = self.public.clone();
        self.any.add(&self.said[1]);
    }
}
