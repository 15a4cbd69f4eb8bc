//! Searches what peers send for secrets that must not come back, in the forms in which programs write them.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use memchr::memmem::Finder;

/// The length of a possible secret at the end of a piece that is held until the next piece.
const MIN_HELD: usize = 4;

/// A text as the encoders of PHP, .NET and Go or Gson write it by default.
fn in_json(text: &str) -> [String; 3] {
    let escaped = |signs: &str, escape: &dyn Fn(char) -> String| -> String {
        text.chars().map(|sign| if signs.contains(sign) { escape(sign) } else { sign.to_string() }).collect()
    };
    [
        escaped("/", &|sign| format!("\\{sign}")),
        escaped("\"&'+<>`", &|sign| format!("\\u{:04X}", u32::from(sign))),
        escaped("&'<=>", &|sign| format!("\\u{:04x}", u32::from(sign))),
    ]
}

/// A text in base64 at any alignment, in both alphabets.
fn in_base64(text: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    // Bits of the preceding text affect this many base64 digits.
    const SHARED: [usize; 3] = [0, 2, 3];
    let shifted = SHARED.iter().enumerate().flat_map(|(before, shared)| {
        let bytes = [vec![0; before], text.to_vec()].concat();
        [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD].map(|alphabet| {
            let mut digits = alphabet.encode(&bytes).into_bytes();
            // The following text affects the last digit.
            if bytes.len() % 3 != 0 {
                digits.pop();
            }
            digits.split_off(*shared)
        })
    });
    let all: BTreeSet<Vec<u8>> = shifted.collect();
    all.into_iter()
}

/// Searches a stream for texts, in any fragmentation.
#[derive(Clone, Debug, Default)]
pub struct SecretSearch {
    needles: Vec<Finder<'static>>,
    longest: usize,
    /// The last bytes seen.
    tail: Vec<u8>,
}

impl SecretSearch {
    #[must_use]
    pub fn new(needles: Vec<Vec<u8>>) -> Self {
        let longest = needles.iter().map(Vec::len).max().unwrap_or(0);
        let needles = needles.iter().map(|needle| Finder::new(needle).into_owned()).collect();
        Self { needles, longest, tail: Vec::new() }
    }

    /// Searches for secrets as they are, as encoders of JSON write them, in hexadecimal digits and in Base64.
    #[must_use]
    pub fn of_secrets<'a>(secrets: impl Iterator<Item = &'a str>) -> Self {
        let needles = secrets.flat_map(|secret| {
            let hex: String = agentsh_base::hex(secret.as_bytes());
            let written =
                [secret.to_owned(), hex.to_ascii_uppercase(), hex].into_iter().chain(in_json(secret));
            written.map(String::into_bytes).chain(in_base64(secret.as_bytes()))
        });
        let all: BTreeSet<Vec<u8>> = needles.filter(|needle| needle.len() > MIN_HELD).collect();
        Self::new(all.into_iter().collect())
    }

    /// Whether there are no secrets to search for.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.needles.is_empty()
    }

    /// Bytes of the longest text.
    #[must_use]
    pub fn longest_text(&self) -> u64 {
        self.longest as u64
    }

    /// Whether one of the texts is in a whole text.
    #[must_use]
    pub fn is_in(&self, text: &[u8]) -> bool {
        self.needles.iter().any(|needle| needle.find(text).is_some())
    }

    /// Whether a text is in the stream, with this piece.
    pub fn finds_in(&mut self, piece: &[u8]) -> bool {
        if self.needles.is_empty() {
            return false;
        }
        self.tail.extend_from_slice(piece);
        let found = self.is_in(&self.tail);
        let kept = self.tail.len().min(self.longest.saturating_sub(1));
        self.tail.drain(..self.tail.len() - kept);
        found
    }

    /// The number of last bytes that may begin a text.
    #[must_use]
    pub fn partial_match_length(&self) -> usize {
        let begins = |length: &usize| {
            let end = self.tail.get(self.tail.len() - length..).unwrap_or_default();
            self.needles.iter().any(|needle| needle.needle().starts_with(end))
        };
        (MIN_HELD..=self.tail.len()).rev().find(begins).unwrap_or(0)
    }
}
