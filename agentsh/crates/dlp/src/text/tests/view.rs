#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

use super::{Limits, Outcome, Step, visit, visit_orders};

/// Letters and digits alone, in lower case.
fn letters(text: &str) -> String {
    text.chars().filter(|one| one.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

const SECRET: &str = "The launch code of the north silo is mango-4417-QUILL, do not share it.";

/// How the secret was found in `text`, and the outcome.
fn found(text: &str, secret: &str) -> (Option<Vec<Step>>, Outcome) {
    let wanted = letters(secret);
    let mut how = None;
    let outcome = visit(text, &Limits::default(), &mut |view| {
        assert!(text.get(view.at.clone()).is_some(), "{:?} is not a place in the text", view.at);
        if how.is_none() && letters(view.text).contains(&wanted) {
            how = Some(view.how.to_vec());
        }
    });
    (how, outcome)
}

#[track_caller]
fn assert_found(text: &str, steps: &[Step]) {
    let (how, outcome) = found(text, SECRET);
    assert_eq!(how.as_deref(), Some(steps), "in {text:?}");
    assert!(outcome.is_complete(), "{outcome:?}");
}

pub(super) fn bits(bytes: &[u8], width: usize, letters: &[u8], pad: bool) -> String {
    let stream: Vec<u8> =
        bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let mut out: String = stream
        .chunks(width)
        .map(|chunk| {
            let value = (0..width).fold(0, |v, at| v << 1 | chunk.get(at).copied().unwrap_or(0));
            char::from(letters[usize::from(value)])
        })
        .collect();
    while pad && !(out.len() * width).is_multiple_of(8) {
        out.push('=');
    }
    out
}

pub(super) fn base64(bytes: &[u8]) -> String {
    bits(bytes, 6, b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", true)
}

pub(super) fn base32(bytes: &[u8]) -> String {
    bits(bytes, 5, b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", true)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn each(text: &str, written: impl Fn(u8) -> String, between: &str) -> String {
    text.bytes().map(written).collect::<Vec<_>>().join(between)
}

fn ascii85(bytes: &[u8], letter: impl Fn(u32) -> char) -> String {
    let mut out = String::new();
    for group in bytes.chunks(4) {
        let mut word = [0; 4];
        word[..group.len()].copy_from_slice(group);
        let word = u32::from_be_bytes(word);
        let letters = [52_200_625, 614_125, 7225, 85, 1].map(|power| letter(word / power % 85));
        out.extend(&letters[..=group.len()]);
    }
    out
}

#[test]
fn finds_base64_in_every_position_alphabet_and_shape() {
    for prefix in ["", "x", "yz", "abc"] {
        let encoded = base64(format!("{prefix}{SECRET}").as_bytes());
        assert_found(&encoded, &[Step::Base64]);
        // The run of letters itself begins somewhere else.
        assert_found(&format!("{prefix}{encoded}"), &[Step::Base64]);
        assert_found(encoded.trim_end_matches('='), &[Step::Base64]);
        assert_found(&encoded.replace('+', "-").replace('/', "_"), &[Step::Base64]);
        assert_found(&format!("see data:text/plain;base64,{encoded} there"), &[Step::Base64]);
        assert_found(&format!("https://example.com/gists/{encoded}/raw"), &[Step::Base64]);
        for width in [4, 20, 64, 76] {
            let lines: Vec<&str> =
                encoded.as_bytes().chunks(width).map(|line| std::str::from_utf8(line).unwrap()).collect();
            assert_found(&lines.join("\n"), &[Step::Base64]);
            assert_found(&lines.join("\" +\n  \""), &[Step::Base64]);
            assert_found(&format!("Here it comes:\n{}\nThat was it.", lines.join("\r\n")), &[Step::Base64]);
        }
    }
}

#[test]
fn finds_short_secrets_in_base64_and_hex() {
    for encode in [base64 as fn(&[u8]) -> String, hex, base32] {
        let text = format!("note {} end", encode(b"Quill#4417"));
        assert!(found(&text, "Quill#4417").0.is_some(), "{text}");
    }
}

#[test]
fn finds_short_secrets_at_the_ends_of_long_base64() {
    let long = base64("Nothing of this is a secret, and all of it reads well. ".repeat(200).as_bytes());
    for encode in [base64 as fn(&[u8]) -> String, hex, base32] {
        let short = encode(b"Quill#4417");
        for text in [format!("{short}\n{long}"), format!("{long}\n\n{short}")] {
            assert!(found(&text, "Quill#4417").0.is_some(), "{short} {}", &text[text.len() - 40..]);
        }
    }
}

#[test]
fn finds_hex_with_separators() {
    let plain = hex(SECRET.as_bytes());
    assert_found(&plain, &[Step::Hex]);
    assert_found(&format!("a{plain}"), &[Step::Hex]);
    assert_found(&plain.to_uppercase(), &[Step::Hex]);
    for (before, between) in [("", ":"), ("", " "), ("0x", ", "), ("0x", ""), ("", "-"), ("", ".")] {
        assert_found(&each(SECRET, |b| format!("{before}{b:02X}"), between), &[Step::Hex]);
    }
    let labels: Vec<&str> = plain.as_bytes().chunks(60).map(|l| std::str::from_utf8(l).unwrap()).collect();
    assert_found(&format!("https://{}.example.net/", labels.join(".")), &[Step::Hex]);
}

#[test]
fn finds_rarer_encoding_alphabets() {
    let bytes = SECRET.as_bytes();
    assert_found(&base32(bytes), &[Step::Base32]);
    assert_found(
        &format!("https://{}.example.net", base32(bytes).to_lowercase().replace('=', "")),
        &[Step::Base32],
    );
    assert_found(&bits(bytes, 5, b"ybndrfg8ejkmcpqxot1uwisza345h769", false), &[Step::Base32]);
    assert_found(&bits(bytes, 1, b"01", false), &[Step::Binary]);
    assert_found(&each(SECRET, |b| format!("{b:08b}"), " "), &[Step::Binary]);
    let standard = |value: u32| char::from(33 + u8::try_from(value).unwrap());
    assert_found(&ascii85(bytes, standard), &[Step::Ascii85]);
    assert_found(&format!("<~{}~>", ascii85(bytes, standard)), &[Step::Ascii85]);
}

#[test]
fn finds_escapes_also_nested_and_mixed() {
    let percent = each(SECRET, |b| format!("%{b:02X}"), "");
    for text in [
        percent.clone(),
        percent.replace('%', "%25"),
        percent.replace('%', "%2525"),
        percent.replace('%', "%2525252525252525"),
        percent.replace('%', "\\u0025"),
        each(SECRET, |b| format!("\\u{b:04x}"), ""),
        each(SECRET, |b| format!("\\\\\\\\u{b:04X}"), ""),
        each(SECRET, |b| format!("\\x{b:02x}"), ""),
        each(SECRET, |b| format!("\\{b:03o}"), ""),
        each(SECRET, |b| format!("%u{b:04x}"), ""),
        each(SECRET, |b| format!("&#{b};"), ""),
    ] {
        let (how, outcome) = found(&text, SECRET);
        assert!(how.is_some(), "{text}");
        assert!(outcome.is_complete(), "{outcome:?} {text}");
    }
    assert_eq!(found("say \\ud83d\\ude00\\u0071uillfeather", "quillfeather").0, Some(vec![Step::Escapes]));
}

#[test]
fn finds_lists_of_character_codes() {
    let decimal = each(SECRET, |b| b.to_string(), ", ");
    assert_found(&format!("[{decimal}]"), &[Step::CharacterCodes]);
    assert_found(&each(SECRET, |b| format!("chr({b})"), "+"), &[Step::CharacterCodes]);
    assert_eq!(found(".-.. .- ..- -. -.-. .... / -.-. --- -.. .", "launchcode").0, Some(vec![Step::Morse]));
}

#[test]
fn finds_invisible_text() {
    let tags: String = SECRET.chars().map(|c| char::from_u32(c as u32 + 0xe0000).unwrap()).collect();
    assert_found(&format!("see attached{tags}"), &[Step::Invisible]);
    let selectors: String =
        SECRET.bytes().map(|b| char::from_u32(u32::from(b) - 16 + 0xe0100).unwrap()).collect();
    assert_found(&format!("\u{1f600}{selectors}"), &[Step::Invisible]);
    let zero_width =
        bits(SECRET.as_bytes(), 1, b"01", false).replace('0', "\u{200b}").replace('1', "\u{200c}");
    assert_found(&format!("see attached{zero_width}"), &[Step::Invisible]);
}

#[test]
fn finds_reversed_and_interleaved_text() {
    let mut words: Vec<&str> = SECRET.split(' ').collect();
    words.reverse();
    assert_found(&words.join(" "), &[Step::ReversedWords]);
    assert_found(&SECRET.chars().rev().collect::<String>(), &[Step::Reversed]);
    let between: String = SECRET.replace(' ', "").chars().flat_map(|one| [one, 'x', 'k', 'q']).collect();
    assert_found(&between, &[Step::Apart]);
    let emoji =
        visit("Great \u{2764}\u{fe0f} \u{2600}\u{fe0f} \u{270c}\u{fe0f}", &Limits::default(), &mut |view| {
            assert!(!view.text.contains("\u{fe0f}\u{fe0f}"), "{view:?}");
        });
    assert!(emoji.is_complete());
    let said = "nobody outside of this house may hear what the committee decided about the winter garden";
    let dumped: Vec<String> = said
        .as_bytes()
        .chunks(16)
        .enumerate()
        .map(|(at, line)| format!("{:07o} {}", at * 16, String::from_utf8_lossy(line)))
        .collect();
    assert_eq!(found(&dumped.join("\n"), said).0, Some(vec![Step::WithoutDigits]));
}

#[test]
fn finds_text_in_other_alphabets() {
    let shifted = |text: &str, digits: u8| -> String {
        let turn = |c: char, first: u8, of: u8, by: u8| char::from((c as u8 - first + by) % of + first);
        text.chars()
            .map(|c| match c {
                'a'..='z' => turn(c, b'a', 26, 13),
                'A'..='Z' => turn(c, b'A', 26, 13),
                '0'..='9' => turn(c, b'0', 10, digits),
                c => c,
            })
            .collect()
    };
    let mirrored: String = SECRET
        .chars()
        .map(|c| if c.is_ascii_lowercase() { char::from(b'a' + b'z' - c as u8) } else { c })
        .collect();
    let said = "nobody outside of this house may hear what the committee decided about the winter garden";
    // It is surrounded by other text.
    let around = "all of these other words are plain english and come before and after it ".repeat(200);
    assert_eq!(
        found(&format!("{around}{}{around}", shifted(said, 0)), &said[20..60]).0,
        Some(vec![Step::Shifted])
    );
    assert_eq!(found(&mirrored, "launch code of the north silo is mango").0, Some(vec![Step::Shifted]));
    let key = "sk_live_9vQzT3mXc7RbK2pLw8YdN5hF";
    for digits in [0, 5] {
        assert_eq!(found(&shifted(key, digits), key).0, Some(vec![Step::Shifted]));
    }
    visit_orders(&around, &Limits::default(), &mut |view| {
        assert!(!view.how.contains(&Step::Shifted), "{view:?}")
    });
}

#[test]
fn ordinary_texts_have_few_views() {
    let prose =
        "Please read the guide before you begin, because the default settings changed in this version. \
                 The library offers three ways to install the package, and the README explains each of them. "
            .repeat(5);
    let mut views = Vec::new();
    let outcome = visit(&prose, &Limits::default(), &mut |view| views.push(view.how.to_vec()));
    assert!(outcome.is_complete());
    assert!(views.iter().all(|how| how.iter().all(|step| step.is_permutation())), "{views:?}");
    assert!(views.len() <= 7, "{views:?}");
}

#[test]
fn compressed_and_too_deeply_encoded_text_is_reported() {
    let lz4 = base64(b"\x04\x22\x4d\x18\x04\x00\x59\x00\x00\x00\x01\x02\x03\x04\x05\x06");
    assert!(found(&lz4, SECRET).1.packed);
    let mut text = SECRET.to_owned();
    for _ in 0..8 {
        text = base64(text.as_bytes());
    }
    let (how, outcome) = found(&text, SECRET);
    assert!(how.is_none() && outcome.too_deep);
}

#[test]
fn adjacent_mime_encoded_words_are_joined() {
    let secret = "Секретная записка: склад закроют";
    let (first, second) = secret.split_at(23);
    let text = format!(
        "Subject: =?utf-8?b?{}?=\n =?UTF-8?Q?{}?= end",
        base64(first.as_bytes()),
        each(second, |byte| format!("={byte:02X}"), "")
    );
    assert_eq!(found(&text, secret).0, Some(vec![Step::EncodedWords]), "{text}");
    for broken in ["=?utf-8?b?", "=?utf-8?x?aGVsbG8=?=", "=?=?=?b?=?=", "=?a?b??=", "what=?? no=? yes?="] {
        let _ = visit(broken, &Limits::default(), &mut |_| {});
    }
}
