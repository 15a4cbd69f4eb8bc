//! What a text really says: one spelling for texts that read the same, and the texts that are encoded inside it.
//!
//! [`fold()`] and [`Stream`] give the spelling in which two texts are compared; [`visit`] gives every text that
//! decodes from one. A search that is to find a known text wherever it hides folds what it looks for once, then
//! folds every view and looks there:
//!
//! | hidden by | found in |
//! |---|---|
//! | case, spaces, punctuation, invisible characters, look-alikes, fullwidth, interleaved `s-e-c-r-e-t` | [`fold()`] of the text |
//! | an encoding, a container, a permutation over an encoding, a byte combined with each of encoded ones | [`fold()`] of a view |
//! | digits and signs for letters (leetspeak) | [`Stream::Leet`], on both sides |
//! | a letter shift (rot13, any Caesar) or atbash over plain text | [`Stream::Shift`], on both sides |
//! | characters in reverse order | a folded stream of what is looked for, read backwards |
//!
//! The last three are streams and not views because they fit every text: as views they would multiply the work
//! on honest texts by thirty.

mod base58;
mod base85;
mod characters;
mod compressed;
mod decoded;
mod encoded;
mod encoded_words;
mod escapes;
mod fold;
mod hidden;
mod limits;
mod listed;
mod masked;
mod morse;
mod numbers;
mod permuted;
mod profile;
mod quoted_printable;
mod radix;
mod readable;
mod rearranged;
mod runs;
mod step;
mod stream;
mod uuencoded;
mod views;

#[cfg(test)]
mod fold_tests;
#[cfg(test)]
mod view_properties;
#[cfg(test)]
mod view_tests;

pub use characters::{Folding, folding};
pub use decoded::Decoded;
pub use encoded::looks_encoded;
pub use fold::{Folded, fold, fold_into};
pub use limits::{Limits, Outcome};
pub use permuted::turned;
pub use step::Step;
pub use stream::Stream;
pub use views::{View, spelled, visit, visit_orders};
