//! Searches responses for secrets, as the program reads them: without chunk headers. Headers are recognised by their
//! line alone, so requests need not be matched with responses.

use std::collections::VecDeque;

use agentsh_egress::secret_search::SecretSearch;

/// Hexadecimal digits of a chunk's length.
const MAX_DIGITS: usize = 16;

/// The responses of one connection.
#[derive(Debug)]
pub struct ResponseReader {
    /// The bytes as received.
    raw: SecretSearch,
    /// Without chunk headers.
    joined: SecretSearch,
    at: ChunkState,
    /// A possible chunk header.
    pending: Vec<u8>,
    /// Bytes that came.
    came: u64,
    /// Bytes without chunk headers.
    given: u64,
    /// For each run of bytes without chunk headers, its start among the received bytes.
    runs: VecDeque<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    Data,
    /// A line end that may precede a chunk header.
    Cr,
    Lf,
    Length,
    /// Spaces after the length, with which some servers pad it. Extensions are rare.
    Space,
    LengthCr,
}

impl ResponseReader {
    #[must_use]
    pub fn new(watch: impl Fn() -> SecretSearch) -> Self {
        Self {
            raw: watch(),
            joined: watch(),
            at: ChunkState::Data,
            pending: Vec::new(),
            came: 0,
            given: 0,
            runs: VecDeque::from([(0, 0)]),
        }
    }

    /// Whether a secret is in the received bytes, with this piece.
    pub fn finds_in(&mut self, piece: &[u8]) -> bool {
        if self.raw.is_idle() {
            return false;
        }
        let mut out = Vec::with_capacity(piece.len());
        let mut rest = piece;
        while let Some(first) = rest.first() {
            let plain = match self.at {
                ChunkState::Data => memchr::memchr(b'\r', rest).unwrap_or(rest.len()),
                _ => 0,
            };
            let (bytes, later) = rest.split_at(plain.max(1));
            if plain == 0 {
                self.byte(*first, &mut out);
                self.came += 1;
            } else {
                self.came += plain as u64;
                self.pending.extend_from_slice(bytes);
                self.give(&mut out);
            }
            rest = later;
        }
        let (raw, joined) = (self.raw.finds_in(piece), self.joined.finds_in(&out));
        // Positions that the search has passed are not needed.
        let kept = self.given.saturating_sub(self.joined.longest_text());
        while self.runs.get(1).is_some_and(|(given, _)| *given <= kept) {
            self.runs.pop_front();
        }
        raw || joined
    }

    /// The number of last bytes that may begin a secret.
    #[must_use]
    pub fn partial_match_length(&self) -> usize {
        let begun = match self.joined.partial_match_length() as u64 {
            0 => 0,
            begun => self.came - self.received_position(self.given - begun),
        };
        self.raw.partial_match_length().max(usize::try_from(begun).unwrap_or(usize::MAX))
    }

    /// The position among received bytes of a byte without chunk headers.
    fn received_position(&self, given: u64) -> u64 {
        let run = self.runs.iter().rev().find(|(from, _)| *from <= given);
        run.map_or(given, |(from, came)| came + (given - from))
    }

    fn byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        let next = match (self.at, byte) {
            (ChunkState::Data, b'\r') => ChunkState::Cr,
            (ChunkState::Cr, b'\n') => ChunkState::Lf,
            (ChunkState::Lf, byte) if byte.is_ascii_hexdigit() => ChunkState::Length,
            (ChunkState::Length, byte) if byte.is_ascii_hexdigit() && self.pending.len() < MAX_DIGITS + 2 => {
                ChunkState::Length
            }
            (ChunkState::Length | ChunkState::Space, b' ') if self.pending.len() < MAX_DIGITS * 2 => {
                ChunkState::Space
            }
            (ChunkState::Length | ChunkState::Space, b'\r') => ChunkState::LengthCr,
            (ChunkState::LengthCr, b'\n') => {
                self.pending.clear();
                self.at = ChunkState::Data;
                return;
            }
            (_, b'\r') => {
                self.give(out);
                ChunkState::Cr
            }
            _ => {
                self.pending.push(byte);
                self.came += 1;
                self.give(out);
                self.came -= 1;
                self.at = ChunkState::Data;
                return;
            }
        };
        self.pending.push(byte);
        self.at = next;
    }

    /// The pending bytes are not a chunk header.
    fn give(&mut self, out: &mut Vec<u8>) {
        if self.pending.is_empty() {
            return;
        }
        let from = self.came - self.pending.len() as u64;
        if self.received_position(self.given) != from {
            self.runs.push_back((self.given, from));
        }
        self.given += self.pending.len() as u64;
        out.append(&mut self.pending);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECRET: &str = "ghp_RealSecret0123";

    fn answers() -> ResponseReader {
        ResponseReader::new(|| SecretSearch::new(vec![SECRET.as_bytes().to_vec()]))
    }

    /// The bytes passed on before the secret was recognised; None: it never was.
    fn passed(wire: &[u8], piece: usize) -> Option<Vec<u8>> {
        let (mut answers, mut held, mut passed) = (answers(), Vec::new(), Vec::new());
        for piece in wire.chunks(piece) {
            if answers.finds_in(piece) {
                return Some(passed);
            }
            held.extend_from_slice(piece);
            let kept = held.split_off(held.len().saturating_sub(answers.partial_match_length()));
            passed.append(&mut held);
            held = kept;
        }
        None
    }

    fn chunked(text: &str, size: usize, line: impl Fn(usize) -> String) -> Vec<u8> {
        let mut wire = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for chunk in text.as_bytes().chunks(size) {
            wire.extend_from_slice(line(chunk.len()).as_bytes());
            wire.extend_from_slice(chunk);
            wire.extend_from_slice(b"\r\n");
        }
        wire.extend_from_slice(b"0\r\n\r\n");
        wire
    }

    #[test]
    fn a_secret_is_found_between_lines_of_chunks() {
        let text = format!("you sent {SECRET}, did you");
        let lines: [&dyn Fn(usize) -> String; 3] =
            [&|size| format!("{size:x}\r\n"), &|size| format!("{size:04X}\r\n"), &|size| {
                format!("{size:x}   \r\n")
            }];
        for line in lines {
            for size in 1..9 {
                for piece in [1, 3, 7, 100_000] {
                    let passed = passed(&chunked(&text, size, line), piece);
                    let is_kept = |bytes: &[u8]| {
                        let letters: Vec<u8> =
                            bytes.iter().copied().filter(u8::is_ascii_alphabetic).collect();
                        !letters.windows(4).any(|part| part == b"Real")
                    };
                    assert!(
                        passed.as_ref().is_some_and(|bytes| is_kept(bytes)),
                        "{size} {piece} {:?}",
                        passed.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                    );
                }
            }
        }
    }

    #[test]
    fn a_secret_that_is_itself_like_a_line_of_a_chunk_is_found() {
        let mut answers = ResponseReader::new(|| SecretSearch::new(vec![b"deadbeef01".to_vec()]));
        assert!(answers.finds_in(b"HTTP/1.1 200 OK\r\n\r\ndeadbeef01\r\n"));
    }

    proptest! {
        #[test]
        fn answers_without_a_secret_are_unchanged(text in "[a-f0-9\r\n;g ]{0,200}", piece in 1_usize..40) {
            let (mut answers, mut held, mut passed) = (answers(), Vec::new(), Vec::new());
            for piece in text.as_bytes().chunks(piece) {
                prop_assert!(!answers.finds_in(piece));
                held.extend_from_slice(piece);
                prop_assert!(answers.partial_match_length() <= held.len());
                let kept = held.split_off(held.len().saturating_sub(answers.partial_match_length()));
                passed.append(&mut held);
                held = kept;
            }
            passed.append(&mut held);
            prop_assert_eq!(passed, text.into_bytes());
        }
    }
}
