//! Limits of work, all proportional to the text; what they leave out is reported.

/// Bounds of one [`super::visit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Decodings inside each other.
    pub depth: usize,
    /// Bytes of all views together, for each byte of the text. Nested base64 needs 3, a JSON string 1.
    pub output_per_byte: usize,
    /// Bytes of views that every text may have on top, so that a short text is read whole.
    pub output_floor: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth: 6, output_per_byte: 8, output_floor: 64 * 1024 }
    }
}

impl Limits {
    /// Bytes that all views of a text may have.
    pub(super) fn max_view_bytes(&self, text: &str) -> usize {
        text.len().saturating_mul(self.output_per_byte).saturating_add(self.output_floor)
    }
}

/// The result of a visit, and what it left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    /// Views were left out or cut because they were too many bytes. Who must not miss anything refuses the text.
    pub exhausted: bool,
    /// Something decodes below the deepest level that is looked at.
    pub too_deep: bool,
    /// There are bytes that look drawn: encrypted, or packed in a way that has no sign.
    pub opaque: bool,
    /// There is a compressed file or stream: zip, gzip, zlib, bzip2, xz, zstd, LZ4, 7z, RAR, a PDF with such streams.
    pub packed: bool,
    /// Bytes of all views, the text itself not counted.
    pub output: usize,
    /// Bytes looked at by all decoders: the measure of work.
    pub work: u64,
}

impl Outcome {
    /// Whether everything that is encoded in the text was seen.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !(self.exhausted || self.too_deep || self.opaque || self.packed)
    }
}
