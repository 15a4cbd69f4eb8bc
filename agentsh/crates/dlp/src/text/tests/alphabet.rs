//! Alphabets and lists that few encoders write.

use super::view_tests::bits;
use super::{Limits, visit};

const SAID: &str = "the orchard at Lindenau goes to the Brandt family in spring";

#[track_caller]
fn assert_seen(text: &str) {
    let mut seen = false;
    let _ = visit(text, &Limits::default(), &mut |view| seen |= view.text.contains(SAID));
    assert!(seen, "in {text:?}");
}

#[test]
fn other_orders_of_base32_are_read() {
    for letters in [b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", b"ybndrfg8ejkmcpqxot1uwisza345h769"] {
        let text = bits(SAID.as_bytes(), 5, letters, false);
        for text in [text.clone(), text.to_lowercase(), text.to_uppercase(), format!("see {text} there")] {
            assert_seen(&text);
        }
    }
}

#[test]
fn xxencoded_lines_are_read() {
    let letters = b"+-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let lines: Vec<String> = SAID
        .as_bytes()
        .chunks(45)
        .map(|line| {
            let mut padded = line.to_vec();
            padded.resize(line.len().div_ceil(3) * 3, 0);
            format!("{}{}", char::from(letters[line.len()]), bits(&padded, 6, letters, false))
        })
        .collect();
    assert_seen(&lines.join("\n"));
}

#[test]
fn the_letters_of_mainframes_are_read() {
    let place = |letter: u8| match letter {
        b'a'..=b'i' => letter - b'a' + 0x81,
        b'j'..=b'r' => letter - b'j' + 0x91,
        b's'..=b'z' => letter - b's' + 0xa2,
        b'A'..=b'I' => letter - b'A' + 0xc1,
        b'J'..=b'R' => letter - b'J' + 0xd1,
        _ => 0x40,
    };
    assert_seen(&SAID.bytes().map(|letter| format!("{:02x}", place(letter))).collect::<String>());
}

#[test]
fn lists_of_numbers_of_several_bytes_are_read() {
    let numbers = |width: usize| {
        SAID.as_bytes()
            .chunks(width)
            .map(|group| group.iter().fold(0_u32, |n, byte| n << 8 | u32::from(*byte)))
    };
    for width in 2..=4 {
        let listed: Vec<String> = numbers(width).map(|number| number.to_string()).collect();
        assert_seen(&format!("[{}]", listed.join(", ")));
    }
}

/// What `od` prints: an address, and words of two bytes in base 8.
#[test]
fn dumps_of_octal_words_are_read() {
    let lines: Vec<String> = SAID
        .as_bytes()
        .chunks(16)
        .enumerate()
        .map(|(at, line)| {
            let words = line.chunks(2).map(|pair| {
                let word = u16::from(pair[0]) | u16::from(*pair.get(1).unwrap_or(&0)) << 8;
                format!(" {word:06o}")
            });
            format!("{:07o}{}", at * 16, words.collect::<String>())
        })
        .collect();
    assert_seen(&format!("{}\n{:07o}\n", lines.join("\n"), SAID.len()));
}
