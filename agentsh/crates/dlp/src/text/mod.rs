//! Decodes a text in every way ([`visit`]).
//!
//! Disguises that fit every text (case, look-alikes, letters for digits) are no views: as views they would multiply the
//! work on honest texts by thirty. Code that compares texts brings both into one spelling: `taint::symbols` for copies,
//! `scan` for what people read.

mod base85;
mod decoded;
mod encoded;
mod encoded_words;
mod escapes;
mod hidden;
mod interspersed;
mod limits;
mod morse;
mod numbers;
mod packed;
mod profile;
mod radix;
mod readable;
mod rearranged;
mod runs;
mod step;
mod upside_down;
mod views;
mod walk;

#[cfg(test)]
#[path = "tests/view_properties.rs"]
mod view_properties;
#[cfg(test)]
#[path = "tests/view.rs"]
mod view_tests;

pub use decoded::Decoded;
pub use encoded::looks_encoded;
pub use limits::{Limits, Outcome};
pub use step::Step;
pub use views::{visit, visit_orders, visit_plainly};
pub use walk::View;
