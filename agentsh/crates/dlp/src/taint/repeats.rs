//! Results that a server repeats byte for byte: they are not read again.

use std::collections::VecDeque;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::origin::{Origin, OriginId};

/// How long after a result the same one counts as a repeat. Records on disk are kept this much longer than a
/// lifetime, because they do not say whether there was a repeat.
pub const REPEAT_WINDOW: Duration = Duration::from_secs(60);
/// Results that may be repeated.
const MAX: usize = 256;

/// A collision-resistant hash of one server's text: two texts with one hash would hide one of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TextHash([u8; 32]);

impl TextHash {
    pub fn new(origin: &Origin, bytes: &[u8]) -> Self {
        let server = origin.server.0.as_bytes();
        let sha = Sha256::new()
            .chain_update([u8::from(origin.private)])
            .chain_update((server.len() as u64).to_le_bytes())
            .chain_update(server)
            .chain_update(bytes);
        Self(sha.finalize().into())
    }
}

impl std::fmt::Debug for TextHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TextHash")
    }
}

/// Oldest first, each with the time of the result.
#[derive(Debug, Default)]
pub struct Repeats {
    recent: VecDeque<(Duration, TextHash, OriginId)>,
}

impl Repeats {
    /// The result that was the same.
    pub fn find(&self, said: &TextHash, now: Duration) -> Option<OriginId> {
        let (_, _, id) = self
            .recent
            .iter()
            .rev()
            .find(|(time, known, _)| *time + REPEAT_WINDOW >= now && known == said)?;
        Some(*id)
    }

    pub fn add(&mut self, said: TextHash, id: OriginId, now: Duration) {
        while self.recent.len() >= MAX
            || self.recent.front().is_some_and(|(time, ..)| *time + REPEAT_WINDOW < now)
        {
            self.recent.pop_front();
        }
        self.recent.push_back((now, said, id));
    }
}
