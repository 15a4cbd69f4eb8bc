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

/// What `od -An` prints: words of two bytes in base 8.
#[test]
fn dumps_of_octal_words_are_read() {
    let words = SAID.as_bytes().chunks(2).map(|pair| {
        let word = u16::from(pair[0]) | u16::from(*pair.get(1).unwrap_or(&0)) << 8;
        format!(" {word:06o}")
    });
    let words: Vec<String> = words.collect();
    let lines: Vec<String> = words.chunks(8).map(|line| line.concat()).collect();
    assert_seen(&lines.join("\n"));
}
