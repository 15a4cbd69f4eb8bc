//! Byte frequencies of a text, which decide in one pass which decoders to try.

pub(super) struct Profile {
    counts: [u32; 256],
    pub length: usize,
}

impl Profile {
    pub(super) fn of(bytes: &[u8]) -> Self {
        // Four tables: a run of equal bytes would otherwise wait for its own last addition.
        let mut tables = [[0_u32; 256]; 4];
        let mut quads = bytes.chunks_exact(4);
        for quad in &mut quads {
            for (table, byte) in tables.iter_mut().zip(quad) {
                table[usize::from(*byte)] += 1;
            }
        }
        for byte in quads.remainder() {
            tables[0][usize::from(*byte)] += 1;
        }
        let mut counts = [0; 256];
        for (byte, count) in counts.iter_mut().enumerate() {
            *count = tables.iter().map(|table| table[byte]).sum();
        }
        Self { counts, length: bytes.len() }
    }

    pub(super) fn count(&self, byte: u8) -> usize {
        usize::try_from(self.counts[usize::from(byte)]).unwrap_or(usize::MAX)
    }

    pub(super) fn contains_any(&self, bytes: &[u8]) -> bool {
        bytes.iter().any(|byte| self.count(*byte) > 0)
    }

    pub(super) fn range(&self, range: std::ops::RangeInclusive<u8>) -> usize {
        range.map(|byte| self.count(byte)).sum()
    }

    pub(super) fn digits(&self) -> usize {
        self.range(b'0'..=b'9')
    }

    pub(super) fn uppercase_count(&self) -> usize {
        self.range(b'A'..=b'Z')
    }

    pub(super) fn lower(&self) -> usize {
        self.range(b'a'..=b'z')
    }

    pub(super) fn letters_and_digits(&self) -> usize {
        self.digits() + self.uppercase_count() + self.lower()
    }

    pub(super) fn high(&self) -> usize {
        self.range(0x80..=0xff)
    }

    pub(super) fn white(&self) -> usize {
        self.count(b' ') + self.count(b'\n') + self.count(b'\t') + self.count(b'\r')
    }
}
