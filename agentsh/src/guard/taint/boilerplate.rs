//! What everybody says: texts that a result may hold without making them secret.

use super::hash::{self, Hasher};
use super::index::Filter;
use super::near;
use super::symbols::Folded;

/// Licences that stand in this repository, and openings of files that tools write.
const TEXTS: [&str; 3] = [
    include_str!("../../../../LICENSE-MIT"),
    include_str!("../../../../LICENSE-APACHE"),
    include_str!("boilerplate.txt"),
];

/// The grams of all of them.
pub(super) fn filter(hasher: &Hasher) -> Filter {
    let mut filter = Filter::new(1 << 16);
    let mut grams = Vec::new();
    // A blank line parts passages that have nothing to do with each other.
    let mut pairs = Vec::new();
    for passage in TEXTS.iter().flat_map(|text| text.split("\n\n\n")) {
        let folded = Folded::of(passage);
        hasher.short_grams(&folded.symbols, &mut grams);
        grams.iter().for_each(|gram| filter.insert(hash::tag(*gram)));
        hasher.interval_grams(&folded.letters, &mut grams);
        grams.iter().for_each(|gram| filter.insert(hash::tag(*gram)));
        near::pairs(hasher, passage, |tag| pairs.push(tag));
    }
    pairs.into_iter().for_each(|tag| filter.insert(tag));
    filter
}
