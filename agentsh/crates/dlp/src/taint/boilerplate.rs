//! What everybody says: texts that a result may hold without making them secret.

use super::filter::Filter;
use super::hash::{self, Hasher};
use super::symbols::Folded;

/// Licences that stand in this repository, and openings of files that tools write.
const TEXTS: [&str; 3] = [
    include_str!("../../LICENSE-MIT"),
    include_str!("../../LICENSE-APACHE"),
    include_str!("boilerplate.txt"),
];

/// Grams that one filter of known ones has room for.
pub(super) const KNOWN: usize = 1 << 17;

/// The grams of all of them.
pub(super) fn filter(hasher: &Hasher) -> Filter {
    let mut filter = Filter::new(KNOWN);
    for text in TEXTS {
        let folded = Folded::of(text);
        hasher.each_short_gram(&folded.symbols, |_, gram| filter.insert(hash::tag(gram)));
        hasher.each_interval_gram(&folded.letters, |_, gram| filter.insert(hash::tag(gram)));
    }
    filter
}
