//! What is kept of one result, and its size.

use std::time::Duration;

use super::origin::{Origin, OriginId};
use agentsh_secrets::values::Kind;

/// A secret or personal value inside a result. Positions are symbols from the start of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub start: u32,
    pub end: u32,
    pub kind: Kind,
}

/// The parts of a result that are still remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RememberedParts {
    All,
    Secrets,
    Nothing,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub id: OriginId,
    pub keeps: RememberedParts,
    pub origin: Origin,
    pub until: Duration,
    pub start: u32,
    pub end: u32,
    pub spans: Box<[Span]>,
    /// Grams of its prose that are kept.
    pub kept_of_prose: u32,
    pub tags: u32,
    /// Bytes that it takes.
    pub size: usize,
}

pub(super) fn entry_size(entry: &Entry) -> usize {
    size_of::<Entry>()
        + entry.spans.len() * size_of::<Span>()
        + entry.origin.server.0.capacity()
        + entry.origin.tool.capacity()
        + entry.origin.call.capacity()
        + 48
}

/// With the share of the indices that the entry fills (8 bytes a tag, two thirds full, and the filter).
pub(super) fn live_size(entry: &Entry) -> usize {
    entry_size(entry) + (entry.end - entry.start) as usize + entry.tags as usize * 15
}

/// Like [`live_size`], when only the secrets are left: each has a tag for nearly every symbol.
pub(super) fn size_of_secrets(entry: &Entry) -> usize {
    (entry_size(entry) + symbols_of(&entry.spans) * 15).min(entry.size)
}

/// Spans that overlap as one range; they are in order.
pub(super) fn ranges(spans: &[Span]) -> impl Iterator<Item = (u32, u32)> {
    let mut rest = spans.iter().peekable();
    std::iter::from_fn(move || {
        let first = rest.next()?;
        let (from, mut to) = (first.start, first.end);
        while let Some(next) = rest.next_if(|next| next.start <= to) {
            to = to.max(next.end);
        }
        Some((from, to))
    })
}

/// The place of a symbol among those of the secrets. None: no secret contains it.
pub(super) fn position_in_secrets(spans: &[Span], at: u32) -> Option<u32> {
    let mut before = 0;
    for (from, to) in ranges(spans) {
        if at < from {
            return None;
        }
        if at < to {
            return Some(before + (at - from));
        }
        before += to - from;
    }
    None
}

/// Symbols of the secrets of a result.
fn symbols_of(spans: &[Span]) -> usize {
    ranges(spans).map(|(from, to)| (to - from) as usize).sum()
}
