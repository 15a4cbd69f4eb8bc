//! The decoded arguments of one call, for detectors that count over several calls.

/// Decoded views, each with its leaf; limited in number and bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct DecodedViews {
    kept: Vec<(usize, String)>,
    bytes: usize,
}

impl DecodedViews {
    /// Limits on the memory and the time of one call: the first findings count.
    const MAX_COUNT: usize = 64;
    const BYTES: usize = 128 << 10;

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn add(&mut self, text: &str, leaf: usize) {
        if self.kept.len() < Self::MAX_COUNT && self.bytes + text.len() <= Self::BYTES {
            self.bytes += text.len();
            self.kept.push((leaf, text.to_owned()));
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (usize, &str)> {
        self.kept.iter().map(|(leaf, text)| (*leaf, text.as_str()))
    }
}
