//! Converts byte offsets to character offsets, which most JSON readers count.

use std::collections::HashMap;

/// Bytes between two counts that are kept.
const STEP: usize = 256;

/// The texts in which something was found, by pointer. Every place in a text costs the same.
#[derive(Debug, Default)]
pub struct Characters {
    texts: HashMap<String, Text>,
}

#[derive(Debug)]
struct Text {
    bytes: Vec<u8>,
    /// Characters that begin before each multiple of [`STEP`]; empty where every byte is one.
    before: Vec<usize>,
}

impl Characters {
    pub fn add(&mut self, pointer: String, text: String) {
        let bytes = text.into_bytes();
        let before = if bytes.is_ascii() { Vec::new() } else { counts(&bytes) };
        self.texts.insert(pointer, Text { bytes, before });
    }

    /// How many characters begin before the byte `at`. A pointer that was not added has none.
    pub fn characters_before(&self, pointer: &str, at: usize) -> usize {
        let Some(text) = self.texts.get(pointer) else { return 0 };
        let at = at.min(text.bytes.len());
        match text.before.get(at / STEP) {
            Some(before) => before + beginnings(&text.bytes[at / STEP * STEP..at]),
            None => at,
        }
    }
}

fn counts(bytes: &[u8]) -> Vec<usize> {
    let mut before = vec![0];
    let mut count = 0;
    for part in bytes.chunks(STEP) {
        count += beginnings(part);
        before.push(count);
    }
    before
}

/// Bytes of UTF-8 that do not continue a character.
fn beginnings(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte & 0b1100_0000 != 0b1000_0000).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scan_positions_count_characters() {
        for text in ["plain ".repeat(3000), "süß 日本 🏁 ".repeat(2000), String::new()] {
            let mut characters = Characters::default();
            characters.add("/text".to_owned(), text.clone());
            for (count, (at, _)) in text.char_indices().enumerate() {
                assert_eq!(characters.characters_before("/text", at), count, "{at}");
            }
            assert_eq!(characters.characters_before("/text", text.len()), text.chars().count());
            assert_eq!(characters.characters_before("/other", 3), 0);
        }
    }
}
