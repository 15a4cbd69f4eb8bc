//! What decodes from the arguments of one call, kept for detectors that count over several calls.

use super::slices::SLICE;

/// Texts that decode from one call, for what is counted over several of them: no more than so many, and so many bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct DecodedViews {
    kept: Vec<(usize, bool, String)>,
    bytes: usize,
}

impl DecodedViews {
    /// Bounds on the memory and the time of one call: what is found first is what stands first.
    const MAX_COUNT: usize = 64;
    const BYTES: usize = 128 << 10;

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn add(&mut self, text: &str, leaf: usize, is_clean: bool) {
        if text.len() >= SLICE && self.kept.len() < Self::MAX_COUNT && self.bytes + text.len() <= Self::BYTES
        {
            self.bytes += text.len();
            self.kept.push((leaf, is_clean, text.to_owned()));
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.kept.iter().map(|(_, _, text)| text.as_str())
    }

    /// Those that are no guesses, each with its leaf.
    pub fn clean(&self) -> impl Iterator<Item = (usize, &str)> {
        self.kept.iter().filter(|(_, is_clean, _)| *is_clean).map(|(leaf, _, text)| (*leaf, text.as_str()))
    }
}
