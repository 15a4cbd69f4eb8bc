//! Where data came from: results are remembered, and arguments are searched for copies of them.
//!
//! Text is folded to symbols ([`symbols`]), symbols to keyed hashes ([`hash`]), and the hashes of results are kept in
//! indices ([`index`]) that answer in one probe. Each detector ([`detector`]) is a file of its own: exact
//! [`runs`], [`values`], prose in [`pieces`], secrets in pieces ([`coverage`]), values of tables ([`cells`]) and [`markers`]. A copied run of [`GUARANTEED_RUN`] symbols is always found.

mod blocks;
mod boilerplate;
mod cells;
mod coverage;
mod decoded_views;
mod detector;
mod entry;
mod eviction;
mod filter;
mod findings;
pub mod hash;
mod hits;
mod index;
pub mod judge;
mod known_text;
pub mod leaves;
pub mod marker;
mod markers;
pub mod memory;
mod origin;
mod passages;
pub mod persist;
mod pieces;
mod placed;
mod plain_words;
mod position_change;
mod print;
mod ranges;
mod reading;
pub mod repeats;
mod room;
mod runs;
mod scan;
mod search_targets;
pub mod sent;
mod slices;
mod sources;
pub mod symbols;
mod values;
mod views;

pub use findings::{OPAQUE, PACKED};
pub use judge::{Finding, Findings, ReadResult, Reader};
pub use leaves::Leaves;
pub use memory::{Config, Evicted, Stored, TaintMemory};
pub use origin::{Origin, OriginId};
pub use runs::GUARANTEED_RUN;
pub use views::Views;
