//! The strict reader (RFC 8259). It refuses everything that peers could interpret differently.

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use super::text::unescape;
use super::tree::Json;
use crate::words;

/// Arrays and objects may be nested this deep.
pub const MAX_DEPTH: usize = 128;
/// Values in one message. A tree takes 48 bytes for each, and what judges it several times that: 60 MiB for the most hostile line.
pub const MAX_VALUES: usize = 1 << 18;
/// Values in one file of the user's, which is read alone.
pub const MAX_FILE_VALUES: usize = 1 << 21;
/// Up to this many members, comparing each with each is faster than hashing.
const PAIRWISE_MEMBERS: usize = 12;

words! {
    /// The codes are stable: events contain them.
    pub enum JsonErrorKind: code {
        InvalidUtf8 = "invalid-utf8",
        InvalidJson = "invalid-json",
        DuplicateKey = "duplicate-key",
        TooDeep = "too-deep",
        TooManyValues = "too-many-values",
    }
}

/// Why a text is not JSON that may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{} at byte {offset}", .kind.code(), .kind.description())]
pub struct JsonError {
    pub kind: JsonErrorKind,
    /// Bytes from the start of the text.
    pub offset: usize,
}

impl JsonErrorKind {
    /// In words, where the code does not say all.
    fn description(self) -> String {
        match self {
            Self::DuplicateKey => " (two members with one name and different values)".to_owned(),
            Self::TooDeep => format!(" (more than {MAX_DEPTH} levels)"),
            Self::TooManyValues => format!(" (more than {MAX_VALUES} values)"),
            _ => String::new(),
        }
    }
}

/// Reads one JSON value and nothing else.
///
/// # Errors
/// Invalid UTF-8, anything outside RFC 8259 (NaN, a byte order mark, trailing data, raw control characters), two members
/// of one object with the same name once unescaped and different values, nesting over [`MAX_DEPTH`], more than [`MAX_VALUES`] values.
pub fn read(bytes: &[u8]) -> Result<Json<'_>, JsonError> {
    read_to_depth(bytes, MAX_DEPTH)
}

/// Like [`read`], with another depth, for text that is only hashed and never forwarded. Each level costs stack.
///
/// # Errors
/// Like [`read`].
pub fn read_to_depth(bytes: &[u8], deepest: usize) -> Result<Json<'_>, JsonError> {
    read_within(bytes, deepest, MAX_VALUES)
}

/// Like [`read`], for a file: up to [`MAX_FILE_VALUES`] values.
///
/// # Errors
/// Like [`read`].
pub fn read_file(bytes: &[u8]) -> Result<Json<'_>, JsonError> {
    read_within(bytes, MAX_DEPTH, MAX_FILE_VALUES)
}

fn read_within(bytes: &[u8], deepest: usize, most: usize) -> Result<Json<'_>, JsonError> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| JsonError { kind: JsonErrorKind::InvalidUtf8, offset: error.valid_up_to() })?;
    let mut reader = Reader { text, bytes, at: 0, depth: 0, deepest, values: 0, most };
    reader.white_space();
    let value = reader.value()?;
    reader.white_space();
    if reader.at < bytes.len() { Err(reader.invalid()) } else { Ok(value) }
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    deepest: usize,
    values: usize,
    most: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self) -> Result<Json<'a>, JsonError> {
        self.values += 1;
        if self.values > self.most {
            return Err(self.error(JsonErrorKind::TooManyValues));
        }
        match self.peek() {
            Some(b'"') => self.string().map(Json::String),
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'-' | b'0'..=b'9') => self.number().map(Json::Number),
            Some(b't') => self.literal("true", Json::Bool(true)),
            Some(b'f') => self.literal("false", Json::Bool(false)),
            Some(b'n') => self.literal("null", Json::Null),
            _ => Err(self.invalid()),
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Json<'a>, JsonError>) -> Result<Json<'a>, JsonError> {
        if self.depth >= self.deepest {
            return Err(self.error(JsonErrorKind::TooDeep));
        }
        self.depth += 1;
        self.at += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn array(&mut self) -> Result<Json<'a>, JsonError> {
        let mut items = Vec::new();
        self.white_space();
        if self.skip(b']') {
            return Ok(Json::Array(items));
        }
        loop {
            self.white_space();
            items.push(self.value()?);
            self.white_space();
            if self.skip(b']') {
                return Ok(Json::Array(items));
            }
            self.expect(b',')?;
        }
    }

    fn object(&mut self) -> Result<Json<'a>, JsonError> {
        let mut members = Vec::new();
        self.white_space();
        if self.skip(b'}') {
            return Ok(Json::Object(members));
        }
        loop {
            self.white_space();
            let name = self.string()?;
            self.white_space();
            self.expect(b':')?;
            self.white_space();
            members.push((name, self.value()?));
            self.white_space();
            if self.skip(b'}') {
                break;
            }
            self.expect(b',')?;
        }
        if duplicate(&members).is_none() {
            return Ok(Json::Object(members));
        }
        collapsed(members).map(Json::Object).map_err(|name| JsonError {
            kind: JsonErrorKind::DuplicateKey,
            offset: (name.as_ptr() as usize).saturating_sub(self.bytes.as_ptr() as usize),
        })
    }

    fn string(&mut self) -> Result<&'a str, JsonError> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            self.at += plain_length(&self.bytes[self.at..]);
            match self.peek() {
                Some(b'"') => {
                    let raw = &self.text[start..self.at];
                    self.at += 1;
                    return Ok(raw);
                }
                Some(b'\\') => self.escape()?,
                _ => return Err(self.invalid()),
            }
        }
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 1;
                Ok(())
            }
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                        return Err(self.invalid());
                    }
                    self.at += 1;
                }
                Ok(())
            }
            _ => Err(self.invalid()),
        }
    }

    fn number(&mut self) -> Result<&'a str, JsonError> {
        let start = self.at;
        self.skip(b'-');
        if !self.skip(b'0') {
            self.digits()?;
        }
        if self.skip(b'.') {
            self.digits()?;
        }
        if self.skip(b'e') || self.skip(b'E') {
            let _signed = self.skip(b'+') || self.skip(b'-');
            self.digits()?;
        }
        Ok(&self.text[start..self.at])
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let length = self.bytes[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if length == 0 {
            return Err(self.invalid());
        }
        self.at += length;
        Ok(())
    }

    fn literal(&mut self, word: &str, value: Json<'a>) -> Result<Json<'a>, JsonError> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(self.invalid());
        }
        self.at += word.len();
        Ok(value)
    }

    fn white_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), JsonError> {
        if self.skip(byte) { Ok(()) } else { Err(self.invalid()) }
    }

    fn invalid(&self) -> JsonError {
        self.error(JsonErrorKind::InvalidJson)
    }

    fn error(&self, kind: JsonErrorKind) -> JsonError {
        JsonError { kind, offset: self.at }
    }
}

/// Length of the run that holds no quote, no backslash and no control character, eight bytes at a time.
fn plain_length(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let (chunks, tail) = bytes.as_chunks::<8>();
    for (index, chunk) in chunks.iter().enumerate() {
        let word = u64::from_le_bytes(*chunk);
        let quote = word ^ (ONES * b'"' as u64);
        let backslash = word ^ (ONES * b'\\' as u64);
        // Each term has the high bit of a byte set when that byte is zero (or below 0x20): a borrow can only reach
        // bytes above the first hit, and the first hit is all that counts.
        let hit = ((quote.wrapping_sub(ONES) & !quote)
            | (backslash.wrapping_sub(ONES) & !backslash)
            | (word.wrapping_sub(ONES * 0x20) & !word))
            & HIGHS;
        if hit != 0 {
            return index * 8 + (hit.trailing_zeros() / 8) as usize;
        }
    }
    let plain = tail.iter().take_while(|&&byte| byte >= 0x20 && byte != b'"' && byte != b'\\').count();
    chunks.len() * 8 + plain
}

/// Members with equal names and equal values are harmless, whichever of them a reader takes. Returns the name of a
/// member whose value differs from that of another one with the same name.
fn collapsed<'a>(members: Vec<(&'a str, Json<'a>)>) -> Result<Vec<(&'a str, Json<'a>)>, &'a str> {
    let mut places = HashMap::with_capacity(members.len());
    let mut left: Vec<(&str, Json<'_>)> = Vec::with_capacity(members.len());
    for (name, value) in members {
        match places.entry(unescape(name)) {
            Entry::Vacant(place) => {
                place.insert(left.len());
                left.push((name, value));
            }
            Entry::Occupied(place) => {
                if left.get(*place.get()).is_none_or(|(_, first)| *first != value) {
                    return Err(name);
                }
            }
        }
    }
    Ok(left)
}

/// The second of two members that have the same name.
fn duplicate<'a>(members: &[(&'a str, Json<'a>)]) -> Option<&'a str> {
    if members.len() <= PAIRWISE_MEMBERS {
        if members.iter().any(|(name, _)| name.contains('\\')) {
            let names: Vec<Cow<'_, str>> = members.iter().map(|(name, _)| unescape(name)).collect();
            return duplicate_pairwise(&names).and_then(|index| members.get(index)).map(|(name, _)| *name);
        }
        let mut later = members.iter().enumerate();
        return later
            .find(|(index, (name, _))| members.iter().take(*index).any(|(earlier, _)| earlier == name))
            .map(|(_, (name, _))| *name);
    }
    // Names that are alike have one hash; eight bytes each, however many there are.
    let state = RandomState::new();
    let mut hashes: Vec<u64> =
        members.iter().map(|(name, _)| state.hash_one(unescape(name).as_bytes())).collect();
    hashes.sort_unstable();
    if hashes.windows(2).all(|pair| pair[0] != pair[1]) {
        return None;
    }
    let mut seen = HashSet::with_capacity(members.len());
    members.iter().map(|(name, _)| *name).find(|name| !seen.insert(unescape(name)))
}

fn duplicate_pairwise(names: &[Cow<'_, str>]) -> Option<usize> {
    (1..names.len()).find(|&index| names.iter().take(index).any(|earlier| *earlier == names[index]))
}
