//! Every character reads as something bounded, and folded again it stays; copies are looked for in symbols of which the
//! whole is its parts.

use super::dlp::taint::symbols;
use super::secrets::views::{Folding, folding};

/// Bytes that one character may become: U+FDFA is the longest.
const MAX_LENGTH: usize = 36;

pub fn check(data: &[u8]) {
    let Some((cut, bytes)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(bytes);
    let cut = text.floor_char_boundary(usize::from(*cut) * text.len() / 255);
    let (front, back) = text.split_at(cut);
    text.chars().for_each(character);
    symbols_of(&text, front, back);
}

fn character(character: char) {
    let folded = read_as(character);
    assert!(folded.len() <= MAX_LENGTH, "{character} reads as {folded}");
    assert!(folded.chars().all(char::is_alphanumeric), "{character} reads as {folded}");
    let again: String = folded.chars().map(read_as).collect();
    assert_eq!(again, folded, "folded again it is something else");
}

fn read_as(character: char) -> String {
    match folding(character) {
        Folding::Nothing => String::new(),
        Folding::One(one) => one.to_string(),
        Folding::Several(several) => several.to_owned(),
    }
}

fn symbols_of(text: &str, front: &str, back: &str) {
    let whole = symbols::Folded::of(text);
    let mut parts = symbols::Folded::of(front);
    parts.push(back);
    assert_eq!(parts.symbols, whole.symbols);
    assert!(whole.symbols.len() <= text.len());
    assert!(whole.symbols.iter().all(|symbol| *symbol != 0));
    let loud = symbols::Folded::of(&text.to_ascii_uppercase());
    assert_eq!(loud.symbols, whole.symbols, "case is seen");
}
