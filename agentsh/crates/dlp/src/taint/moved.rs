//! Results that are counted from another place on, once much between them is forgotten or the numbers grow too large.

use super::entry::{Keeps, Span, packed};
use super::index::Index;

/// Where one result stood and stands.
#[derive(Debug)]
pub(super) struct Was {
    pub start: u32,
    pub letters_start: u32,
    pub keeps: Keeps,
    pub spans: Box<[Span]>,
    /// None: nothing of it is remembered.
    pub now: Option<u32>,
}

#[derive(Debug)]
pub(super) enum Moved {
    /// All places are so much less, in symbols and in letters.
    Down(u32, u32),
    /// These results, in their order, and nothing between them. Letters stay where they were.
    Together(Vec<Was>),
}

impl Moved {
    /// Moves the places of symbols; `is_text`: they are forgotten where only the secrets of a result are left.
    pub fn symbols(&self, index: &mut Index, is_text: bool) {
        match self {
            Self::Down(symbols, _) => index.rebase(*symbols),
            Self::Together(all) => index.remap(|at| {
                let was = all.get(all.partition_point(|was| was.start <= at).checked_sub(1)?)?;
                let start = was.now?;
                match was.keeps {
                    Keeps::All => Some(start + (at - was.start)),
                    Keeps::Secrets if is_text => None,
                    _ => packed(&was.spans, at - was.start).map(|at| start + at),
                }
            }),
        }
    }

    /// As [`Moved::symbols`], of places that count letters.
    pub fn letters(&self, index: &mut Index, is_text: bool) {
        match self {
            Self::Down(_, letters) => index.rebase(*letters),
            Self::Together(all) => index.remap(|at| {
                let was = all.get(all.partition_point(|was| was.letters_start <= at).checked_sub(1)?)?;
                (was.keeps == Keeps::All || was.keeps == Keeps::Secrets && !is_text).then_some(at)
            }),
        }
    }
}
