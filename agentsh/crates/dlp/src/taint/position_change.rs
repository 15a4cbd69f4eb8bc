//! Renumbers results when many between them were evicted, or when numbers grow too large.

use super::entry::{RememberedParts, Span, position_in_secrets};
use super::index::Index;

/// The old and the new position of one result.
#[derive(Debug)]
pub(super) struct MovedResult {
    pub start: u32,
    pub keeps: RememberedParts,
    pub spans: Box<[Span]>,
    /// None: it is no longer remembered.
    pub now: Option<u32>,
}

#[derive(Debug)]
pub(super) enum PositionChange {
    /// All positions decrease by this number.
    Down(u32),
    /// Only these results remain, in order and without gaps.
    Together(Vec<MovedResult>),
}

impl PositionChange {
    /// Moves places; `is_text`: they are forgotten where only the secrets of a result are left.
    pub fn apply(&self, index: &mut Index, is_text: bool) {
        match self {
            Self::Down(by) => index.rebase(*by),
            Self::Together(all) => index.remap(|at| {
                let was = all.get(all.partition_point(|was| was.start <= at).checked_sub(1)?)?;
                let start = was.now?;
                match was.keeps {
                    RememberedParts::All => Some(start + (at - was.start)),
                    RememberedParts::Secrets if is_text => None,
                    _ => position_in_secrets(&was.spans, at - was.start).map(|at| start + at),
                }
            }),
        }
    }
}
