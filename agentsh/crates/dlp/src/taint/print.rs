//! One result as keyed hashes.

use super::slices::Followed;

/// Secrets of one result that are followed in pieces, and cells of it.
pub(super) const MAX_FOLLOWED: usize = 512;
pub(super) const MAX_CELLS: usize = 4096;
/// Maximum number of symbols of one result; the rest is not remembered, which is reported.
pub(super) const MAX_SYMBOLS: usize = 8 << 20;
/// The detectors' indices into [`Print::tags`].
pub(super) const RUNS: usize = 0;
pub(super) const SECRETS: usize = 1;
pub(super) const VALUES: usize = 2;
pub(super) const PROSE: usize = 3;

/// Everything about one result that is remembered: what detectors take, and what is written to disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Print {
    /// One byte for each short n-gram.
    pub shadow: Vec<u8>,
    pub spans: Vec<(u32, u32, u8)>,
    /// Tag and position.
    pub tags: [Vec<(u32, u32)>; 4],
    /// Its secrets in pieces.
    pub followed: Vec<Followed>,
    /// The tags of its cells.
    pub cells: Vec<u64>,
}
