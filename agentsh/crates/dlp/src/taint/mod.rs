//! What came from where: results are remembered, arguments are searched for copies of them.
//!
//! Text is folded to symbols ([`symbols`]), symbols to keyed hashes ([`hash`]), and the hashes of results stand in
//! indices ([`index`]) that answer in one probe. A copied run of [`GUARANTEED_RUN`] symbols is always found.

mod arrived;
mod blocks;
mod boilerplate;
mod calls;
mod cells;
mod coverage;
mod decoded_views;
mod detector;
mod entry;
mod eviction;
mod filter;
mod findings;
mod grams;
pub mod hash;
mod index;
pub mod judge;
mod known;
pub mod leaves;
pub mod marker;
mod markers;
pub mod memory;
mod origin;
mod passages;
pub mod persist;
mod pieces;
mod plain_words;
mod positions;
mod print;
mod ranges;
pub mod repeats;
mod room;
mod scan;
pub mod sent;
mod sinks;
mod slices;
mod sources;
pub mod symbols;
mod turned;
mod values;

pub use findings::{OPAQUE, PACKED};
pub use judge::{Finding, Findings};
pub use leaves::Leaves;
pub use memory::{Config, Evicted, Stored, TaintMemory};
pub use origin::{Origin, OriginId};
pub use scan::GUARANTEED_RUN;
