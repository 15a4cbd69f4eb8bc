//! Common texts, which are not secret in a result.

use super::filter::Filter;
use super::hash::{self, Hasher};
use super::symbols::Folded;

/// Licences of this repository, and openings of files that tools write.
const TEXTS: [&str; 3] = [
    include_str!("../../LICENSE-MIT"),
    include_str!("../../LICENSE-APACHE"),
    include_str!("boilerplate.txt"),
];

/// Capacity of one filter of known grams.
pub(super) const FILTER_CAPACITY: usize = 1 << 17;

/// The grams of all of them.
pub(super) fn filter(hasher: &Hasher) -> Filter {
    let mut filter = Filter::new(FILTER_CAPACITY);
    for text in TEXTS {
        hasher.each_short_gram(&Folded::of(text).symbols, |_, gram| filter.insert(hash::tag(gram)));
    }
    filter
}
