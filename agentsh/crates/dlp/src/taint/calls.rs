//! A text that is cut into calls: the end of what was sent before, together with the beginning of what is sent now.
//!
//! It keeps 256 symbols and 2 KiB of 64 names of 256 servers, and finds 2 of 207 attempts alone. It misses one code of a
//! character for each call.

use std::time::Duration;

use super::detector::Detector;
use super::findings::Search;
use super::judge::{Decoder, Judge};
use super::leaves::Role;
use super::scan::What;
use super::sinks::HEAD;
use super::symbols::Folded;
use crate::types::ServerId;

/// Symbols that a call adds at least to what earlier ones sent; all of its text when it is shorter.
const MIN_SHARE: usize = 4;
/// Leaves of one call that are joined to earlier calls.
const MAX_TAILED: usize = 32;

impl Judge {
    /// What stands at the end of earlier calls together with the beginning of this one. Without a decoder it is only
    /// put together, for a later call.
    pub(super) fn earlier_calls(
        &mut self,
        sink: &ServerId,
        now: Duration,
        decoder: Option<&dyn Decoder>,
        search: &mut Search<'_, '_>,
    ) {
        let call = search.call;
        let lifetime = self.memory.config.lifetime;
        let mut joined = Folded::default();
        self.pushed.clear();
        for (at, leaf) in call.items.iter().enumerate().take(MAX_TAILED) {
            // Names come again with every call; only one that changes can carry something on.
            if leaf.role == Role::Codes {
                continue;
            }
            let path = call.path(at) ^ u64::from(leaf.role == Role::Name);
            let head = clip(&leaf.text, HEAD * 4);
            self.single.clear();
            self.single.push(head);
            let tail = self.sinks.tail(sink, path, now, lifetime);
            if tail.is_repeated(&leaf.text) {
                continue;
            }
            joined.clear();
            joined.symbols.extend_from_slice(&tail.text.symbols);
            joined.letters.extend_from_slice(&tail.text.letters);
            let border = (joined.symbols.len(), joined.letters.len());
            let joined_border = border.0;
            joined.symbols.extend(self.single.symbols.iter().take(HEAD));
            joined.letters.extend(self.single.letters.iter().take(HEAD));
            let hits = if border.0 > 0 && decoder.is_some() {
                self.scanner.scan(&self.memory, &joined, search.leaving).list
            } else {
                Vec::new()
            };
            for hit in hits {
                let border = if matches!(hit.what, What::Shifted(_)) { border.1 } else { border.0 };
                // One letter that goes on by chance is not a next piece, unless it is all that was sent.
                let piece = joined.symbols.len().saturating_sub(joined_border).min(MIN_SHARE);
                if hit.start + MIN_SHARE <= border && border + piece <= hit.end {
                    search.split(&hit, at);
                }
            }
            let pushed = if head.len() == leaf.text.len() {
                tail.push(head, &self.single)
            } else {
                let end = &leaf.text[leaf.text.len() - clip_back(&leaf.text, HEAD * 4)..];
                self.single.clear();
                self.single.push(end);
                tail.push(end, &self.single)
            };
            self.pushed.push((path, pushed));
            // Numbers that count up make a long row of digits, which always decodes to something.
            let raw = (leaf.role != Role::Number && tail.raw.len() > leaf.text.len() && tail.raw.len() >= 16)
                .then(|| tail.raw.clone());
            if let (Some(raw), Some(decoder)) = (raw, decoder) {
                decoder.decode(&raw, &mut |view| {
                    let how = || std::iter::once("earlier-calls").chain((view.how)()).collect();
                    self.view_as(view.text, at, &how, view.is_clean, search);
                });
            }
        }
    }

    /// The last call is not sent: what it held is not a part of what comes next.
    pub fn take_back(&mut self, sink: &ServerId) {
        self.cells.forget();
        self.coverage.forget();
        self.memory.pieces.take_back();
        self.sinks.take_back(sink, &std::mem::take(&mut self.pushed));
    }
}

fn clip(text: &str, length: usize) -> &str {
    let end = (0..=length.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

/// At most `length` bytes from the end, on a boundary.
fn clip_back(text: &str, length: usize) -> usize {
    (0..=length.min(text.len())).rev().find(|back| text.is_char_boundary(text.len() - back)).unwrap_or(0)
}
