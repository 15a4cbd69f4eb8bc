//! Sources of records, read at any offset: a file or bytes. Only the part in use is held in memory.

use std::io::{self, Read};

/// A source that can be read at any offset.
pub trait Source {
    /// # Errors
    /// When it is not known.
    fn length(&self) -> io::Result<u64>;
    /// Reads some bytes at `offset`; 0: nothing is there.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl Source for std::fs::File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(self, buffer, offset)
    }
}

impl Source for &[u8] {
    fn length(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)).unwrap_or_default();
        let size = rest.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..size), rest.get(..size)) {
            to.copy_from_slice(from);
        }
        Ok(size)
    }
}

/// So many bytes at an offset; None if it ends before.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn read_exactly_at(source: &impl Source, offset: u64, size: usize) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; size];
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match source.read_at(rest, offset.saturating_add(done as u64))? {
            0 => return Ok(None),
            some => done += some,
        }
    }
    Ok(Some(bytes))
}

/// Reads a source from its start to its end.
pub(crate) struct Reading<'s, S> {
    source: &'s S,
    at: u64,
}

impl<'s, S: Source> Reading<'s, S> {
    pub fn of(source: &'s S) -> Self {
        Self { source, at: 0 }
    }
}

impl<S: Source> Read for Reading<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}
