//! What one character folds to. The tables are built page by page when a page is first met.

use std::sync::OnceLock;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// What remains of a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folding {
    /// Space, punctuation, sign, mark or invisible: not compared.
    Nothing,
    One(char),
    /// More than one: see [`expand`].
    Several,
}

const PAGE: usize = 256;
/// Planes 0 and 1 hold every script and every look-alike; what lies beyond is ideographs, which stay as they are.
const PAGES: usize = 0x2_0000 / PAGE;
const SEVERAL: u32 = u32::MAX;

static TABLE: [OnceLock<Box<[u32; PAGE]>>; PAGES] = [const { OnceLock::new() }; PAGES];

/// What `character` folds to. At most 512 KiB of tables, however hostile the text.
#[must_use]
pub fn folding(character: char) -> Folding {
    let code = character as usize;
    let Some(page) = TABLE.get(code / PAGE) else {
        let kept = character.is_alphanumeric() && !is_combining_mark(character);
        return if kept { Folding::One(character) } else { Folding::Nothing };
    };
    let entry = page.get_or_init(|| build_page(code / PAGE))[code % PAGE];
    match entry {
        0 => Folding::Nothing,
        SEVERAL => Folding::Several,
        code => char::from_u32(code).map_or(Folding::Nothing, Folding::One),
    }
}

/// Every character that `character` folds to, in order.
pub fn expand(character: char, mut each: impl FnMut(char)) {
    step(character, 2, &mut each);
}

/// `further`: how often what came out may be folded again, until nothing changes.
fn step(character: char, further: usize, each: &mut dyn FnMut(char)) {
    if let Some(letter) = own_letter(character) {
        each(letter);
        return;
    }
    let plain: String = compatible(character);
    if plain.is_ascii() {
        return plain.chars().for_each(each);
    }
    // A look-alike of Latin letters becomes those letters, also when only its other case looks like one.
    for variant in [Some(character), only(character.to_uppercase()), only(character.to_lowercase())].into_iter().flatten() {
        let mut buffer = [0; 4];
        let skeleton: String = unicode_security::skeleton(variant.encode_utf8(&mut buffer)).collect();
        let latin: String = skeleton.chars().flat_map(|part| compatible(part).chars().collect::<Vec<_>>()).collect();
        if !latin.is_empty() && latin.is_ascii() {
            return latin.chars().for_each(each);
        }
    }
    for part in plain.chars() {
        if part == character || further == 0 {
            each(part);
        } else {
            step(part, further - 1, each);
        }
    }
}

fn build_page(page: usize) -> Box<[u32; PAGE]> {
    let mut entries = Box::new([0_u32; PAGE]);
    for (low, entry) in entries.iter_mut().enumerate() {
        let code = u32::try_from(page * PAGE + low).ok();
        let Some(character) = code.and_then(char::from_u32) else { continue };
        let (mut first, mut count) = (0, 0_usize);
        expand(character, |folded| {
            first = folded as u32;
            count += 1;
        });
        *entry = match count {
            0 => 0,
            1 => first,
            _ => SEVERAL,
        };
    }
    entries
}

/// Compatibility decomposition in lower case, letters and digits alone.
fn compatible(character: char) -> String {
    if is_filler(character) {
        return String::new();
    }
    let kept = |part: &char| part.is_alphanumeric() && !is_combining_mark(*part) && !is_filler(*part);
    let lower: String = character.nfkd().filter(kept).flat_map(char::to_lowercase).collect();
    lower.nfkd().filter(kept).collect()
}

/// Letters that show nothing.
fn is_filler(character: char) -> bool {
    matches!(character, '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}')
}

fn only(mut characters: impl Iterator<Item = char>) -> Option<char> {
    characters.next().filter(|_| characters.next().is_none())
}

/// Letters in frames, small capitals, turned letters and braille, which no Unicode table folds.
fn own_letter(character: char) -> Option<char> {
    const SMALL_CAPITALS: &str = "ᴀaʙbᴄcᴅdᴇeꜰfɢgʜhɪiᴊjᴋkʟlᴍmɴnᴏoᴘpꞯqʀrꜱsᴛtᴜuᴠvᴡwʏyᴢz";
    const TURNED: &str = "ɐaɔcǝeɟfƃgɥhᴉiɾjʞkɯmɹrʇtʌvʎy";
    const BRAILLE: &str = "⠁a⠃b⠉c⠙d⠑e⠋f⠛g⠓h⠊i⠚j⠅k⠇l⠍m⠝n⠕o⠏p⠟q⠗r⠎s⠞t⠥u⠧v⠺w⠭x⠽y⠵z";
    const FRAMES: [u32; 4] = [0x1_f130, 0x1_f150, 0x1_f170, 0x1_f1e6];
    let code = character as u32;
    for start in FRAMES {
        if (start..start + 26).contains(&code) {
            return char::from_u32(u32::from(b'a') + (code - start));
        }
    }
    // Digits in black and in sans-serif circles.
    for start in [0x2776, 0x2780, 0x278a] {
        if (start..start + 9).contains(&code) {
            return char::from_u32(u32::from(b'1') + (code - start));
        }
    }
    let listed = |table: &str| {
        let mut characters = table.chars();
        while let (Some(from), Some(to)) = (characters.next(), characters.next()) {
            if from == character {
                return Some(to);
            }
        }
        None
    };
    [SMALL_CAPITALS, TURNED, BRAILLE].into_iter().find_map(listed)
}
