//! What one character folds to. Tables are built per page on first use.

use std::sync::OnceLock;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// The result of folding a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folding {
    /// Space, punctuation, sign, mark or invisible: not compared.
    Nothing,
    One(char),
    /// More than one.
    Several(&'static str),
}

const PAGE: usize = 256;
/// Planes 0 and 1 contain every script and every look-alike; the others are ideographs, which stay unchanged.
const PAGES: usize = 0x2_0000 / PAGE;
/// In an entry: the rest is the place in [`Page::several`], and in the lowest byte the length there.
const SEVERAL: u32 = 1 << 31;

/// Their letters are on another page, so that a page never waits for itself.
pub const HANGUL_SYLLABLES: std::ops::RangeInclusive<char> = '\u{ac00}'..='\u{d7a3}';

struct Page {
    entries: [u32; PAGE],
    several: String,
}

static TABLE: [OnceLock<Box<Page>>; PAGES] = [const { OnceLock::new() }; PAGES];

/// The folding of `character`. At most 600 KiB of tables, however hostile the text.
#[must_use]
pub fn folding(character: char) -> Folding {
    let code = character as usize;
    let Some(page) = TABLE.get(code / PAGE) else {
        let kept = character.is_alphanumeric() && !is_combining_mark(character);
        return if kept { Folding::One(character) } else { Folding::Nothing };
    };
    let page = page.get_or_init(|| build_page(code / PAGE));
    match page.entries[code % PAGE] {
        0 => Folding::Nothing,
        entry if entry & SEVERAL != 0 => {
            let start = (entry & !SEVERAL) as usize >> 8;
            Folding::Several(page.several.get(start..start + (entry & 0xff) as usize).unwrap_or(""))
        }
        code => char::from_u32(code).map_or(Folding::Nothing, Folding::One),
    }
}

/// Every character that `character` folds to, in order: what the tables are made from.
fn expand(character: char, mut each: impl FnMut(char)) {
    // A syllable is its letters, of which there are few: 11,172 syllables need not be looked up one by one.
    if HANGUL_SYLLABLES.contains(&character) {
        for letter in std::iter::once(character).nfd() {
            match folding(letter) {
                Folding::Nothing => {}
                Folding::One(folded) => each(folded),
                Folding::Several(folded) => folded.chars().for_each(&mut each),
            }
        }
        return;
    }
    // Ideographs are only themselves, but two before these, which look like T and Y.
    if matches!(character, '\u{3400}'..='\u{4dbf}' | '\u{4e2c}'..='\u{9fff}') {
        return each(character);
    }
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
    let another_case = |case: Option<char>| case.filter(|case| *case != character);
    let upper = another_case(single(character.to_uppercase()));
    let lower = another_case(single(character.to_lowercase()));
    for variant in [Some(character), upper, lower].into_iter().flatten() {
        let mut buffer = [0; 4];
        let variant: &str = variant.encode_utf8(&mut buffer);
        let looks: String = unicode_security::skeleton(variant).collect();
        // Most characters look like themselves alone.
        if looks == variant {
            continue;
        }
        // The table takes a capital I for a small L.
        let latin = match looks.as_str() {
            "l" if character.is_uppercase() => "i".to_owned(),
            _ => looks.chars().map(compatible).collect::<String>(),
        };
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

fn build_page(number: usize) -> Box<Page> {
    let mut page = Box::new(Page { entries: [0; PAGE], several: String::new() });
    for low in 0..PAGE {
        let code = u32::try_from(number * PAGE + low).ok();
        let Some(character) = code.and_then(char::from_u32) else { continue };
        let mut folded = String::new();
        expand(character, |part| folded.push(part));
        let mut parts = folded.chars();
        page.entries[low] = match (parts.next(), parts.next()) {
            (None, _) => 0,
            (Some(one), None) => one as u32,
            _ => {
                let start = u32::try_from(page.several.len()).unwrap_or(0);
                page.several.push_str(&folded);
                SEVERAL | start << 8 | u32::try_from(folded.len().min(255)).unwrap_or(0)
            }
        };
    }
    page
}

/// Compatibility decomposition in lower case, letters and digits alone.
fn compatible(character: char) -> String {
    if is_filler(character) {
        return String::new();
    }
    let kept = |part: &char| part.is_alphanumeric() && !is_combining_mark(*part) && !is_filler(*part);
    // Through the capitals, as `ß` becomes two letters and the final sigma becomes the other one.
    let lower = character.nfkd().filter(kept).flat_map(char::to_lowercase);
    let lower: String = lower.flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect();
    lower.nfkd().filter(kept).collect()
}

/// Letters that show nothing.
fn is_filler(character: char) -> bool {
    matches!(character, '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}')
}

fn single(mut characters: impl Iterator<Item = char>) -> Option<char> {
    characters.next().filter(|_| characters.next().is_none())
}

/// The first of the ten digits of each script: they are in order everywhere.
const ZEROS: [u32; 60] = [
    0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6, 0xe50, 0xed0,
    0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0, 0x1c40, 0x1c50,
    0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0x1_04a0, 0x1_0d30, 0x1_1066, 0x1_10f0, 0x1_1136,
    0x1_11d0, 0x1_12f0, 0x1_1450, 0x1_14d0, 0x1_1650, 0x1_16c0, 0x1_1730, 0x1_18e0, 0x1_1950, 0x1_1c50,
    0x1_1d50, 0x1_1da0, 0x1_1f50, 0x1_6a60, 0x1_6ac0, 0x1_6b50, 0x1_e140, 0x1_e2f0, 0x1_e950, 0x1_fbf0,
];

/// The digit that a digit of another script is.
fn own_digit(code: u32) -> Option<char> {
    let zero = ZEROS[..ZEROS.partition_point(|zero| *zero <= code)].last()?;
    char::from_digit(code.checked_sub(*zero)?, 10)
}

/// Digits of other scripts, letters in frames, with strokes and hooks, small capitals and turned letters, which
/// no table of Unicode folds.
fn own_letter(character: char) -> Option<char> {
    const STROKES: &str = "ƀbɓbƃbȼcƈcɕcđdɖdɗdƌdɇeƒfǥgɠgħhɦhɨiɩiɉjʝjƙkłlƚlɫlɬlɭlɱmɲnƞnɳnŋnøoɵoƥpɋqʠqɍrɼrɽrɾrʂsȿsŧtƭtʈtʉuʋvⱳwɏyƴyƶzȥzʐzʑz";
    const SMALL_CAPITALS: &str = "ᴀaʙbᴄcᴅdᴇeꜰfɢgʜhɪiᴊjᴋkʟlᴍmɴnᴏoᴘpꞯqʀrꜱsᴛtᴜuᴠvᴡwʏyᴢz";
    const TURNED: &str = "ɐaɔcǝeɟfƃgɥhᴉiɾjʞkɯmɹrʇtʌvʎy";
    const FRAMES: [u32; 4] = [0x1_f130, 0x1_f150, 0x1_f170, 0x1_f1e6];
    let code = character as u32;
    if let Some(digit) = own_digit(code) {
        return Some(digit);
    }
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
    // Everything listed is in these blocks.
    let is_near = matches!(code, 0xf8..=0x2ff | 0x1d00..=0x1dff | 0x2c00..=0x2cff | 0xa700..=0xa7ff);
    if is_near { [SMALL_CAPITALS, TURNED, STROKES].into_iter().find_map(listed) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(text: &str) -> String {
        let mut folded = String::new();
        for character in text.chars() {
            match folding(character) {
                Folding::Nothing => {}
                Folding::One(one) => folded.push(one.to_ascii_lowercase()),
                Folding::Several(several) => folded.push_str(several),
            }
        }
        folded
    }

    #[test]
    fn characters_of_any_script_or_style_fold_to_latin() {
        for (text, wanted) in [
            ("ṃịṇụṭẹṣ ọḟ ṭḥẹ", "minutesofthe"),
            ("mɨɲʉŧɇs øƒ ŧħɇ ƀøaɍđ", "minutesoftheboard"),
            ("t̶҉⃝h̶҉⃝e̶҉⃝", "the"),
            ("🇹\u{200c}🇭\u{200c}🇪", "the"),
            ("５４２ ٥٤٢ ५४२ ໕໔໒ 𝟝𝟜𝟚", "542542542542542"),
            ("schließen ſo", "schliessenso"),
            ("s\u{3164}k\u{ad}_l", "skl"),
            ("ⅷ ﬃ ㎏ Å", "viiiffikga"),
            ("ІGNORE ΙGNORE ӏGNORE Ꮮ", "ignoreignorelgnorel"),
            ("ｒѐɑԁ", "read"),
        ] {
            assert_eq!(folded(text), wanted, "{text}");
        }
    }

    #[test]
    fn ideographs_fold_to_themselves() {
        for character in ('\u{3400}'..='\u{4dbf}').chain('\u{4e2c}'..='\u{9fff}') {
            let mut slowly = String::new();
            step(character, 2, &mut |part| slowly.push(part));
            assert_eq!(slowly, character.to_string());
        }
    }

    #[test]
    fn digit_ranges_begin_where_the_table_says() {
        assert!(ZEROS.is_sorted());
        for zero in ZEROS {
            let is_digit = |code| char::from_u32(code).is_some_and(char::is_numeric);
            assert!((zero..zero + 10).all(is_digit), "{zero:x}");
        }
    }

    #[test]
    fn a_syllable_folds_like_any_other_character() {
        for syllable in HANGUL_SYLLABLES.step_by(7) {
            let (mut by_letters, mut looked_up) = (String::new(), String::new());
            expand(syllable, |part| by_letters.push(part));
            step(syllable, 2, &mut |part| looked_up.push(part));
            assert_eq!(by_letters, looked_up, "{syllable}");
        }
    }
}
