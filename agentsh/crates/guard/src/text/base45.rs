//! Base45 (RFC 9285), as it stands in codes that telephones read: three letters for two bytes, least first.

use super::Step;
use super::profile::Profile;
use super::runs::NONE;
use super::views::Walk;

const LETTERS: &[u8; 45] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ $%*+-./:";
/// Fewer letters are a word, or a name with its number.
const SHORTEST: usize = 18;

static TABLE: [u8; 256] = {
    let mut table = [NONE; 256];
    let mut value = 0_u8;
    while value < 45 {
        table[LETTERS[value as usize] as usize] = value;
        value += 1;
    }
    table
};

pub(super) fn decode(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    if profile.upper() < 4 || profile.digits() < 2 {
        return;
    }
    walk.work(text.len());
    let bytes = text.as_bytes();
    let mut position = 0;
    let mut out = Vec::new();
    while position < bytes.len() {
        let start = position;
        let (mut upper, mut digits) = (0, 0);
        while let Some(byte) = bytes.get(position).filter(|byte| TABLE[usize::from(**byte)] != NONE) {
            upper += usize::from(byte.is_ascii_uppercase());
            digits += usize::from(byte.is_ascii_digit());
            position += 1;
        }
        let run = &bytes[start..position];
        position += 1;
        // Of drawn letters a fifth are digits, and half are capitals.
        if run.len() < SHORTEST || digits * 20 < run.len() || upper * 5 < run.len() {
            continue;
        }
        // A word in front of it shifts the groups.
        for offset in 0..3 {
            unpack(&run[offset..], &mut out);
            walk.work(out.len());
            walk.found_bytes(Step::Base45, &out, start..start + run.len());
        }
    }
}

/// Up to the first group that is no two bytes, unless all of it is one word in front of the rest.
fn unpack(run: &[u8], out: &mut Vec<u8>) {
    out.clear();
    for group in run.chunks(3) {
        let word =
            group.iter().rev().fold(0_u32, |word, letter| word * 45 + u32::from(TABLE[usize::from(*letter)]));
        match (group.len(), u16::try_from(word), u8::try_from(word)) {
            (3, Ok(pair), _) => out.extend_from_slice(&pair.to_be_bytes()),
            (2, _, Ok(byte)) => out.push(byte),
            _ if out.len() < SHORTEST / 3 * 2 => out.clear(),
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::text::{Limits, visit};

    const SAID: &str = "the orchard at Lindenau goes to the Brandt family";

    fn written(bytes: &[u8]) -> String {
        let letter = |value: u32| char::from(super::LETTERS[value as usize]);
        bytes
            .chunks(2)
            .flat_map(|pair| match pair {
                [high, low] => {
                    let word = u32::from(*high) << 8 | u32::from(*low);
                    vec![letter(word % 45), letter(word / 45 % 45), letter(word / 2025)]
                }
                rest => rest
                    .iter()
                    .flat_map(|one| [u32::from(*one) % 45, u32::from(*one) / 45])
                    .map(letter)
                    .collect(),
            })
            .collect()
    }

    #[test]
    fn it_is_read_alone_and_behind_words() {
        // The vector of the RFC.
        assert_eq!(written(b"Hello!!"), "%69 VD92EX0");
        for text in [
            written(SAID.as_bytes()),
            format!("data: {}", written(SAID.as_bytes())),
            format!("HC1:{}", written(SAID.as_bytes())),
        ] {
            let mut seen = false;
            let _ = visit(&text, &Limits::default(), &mut |view| seen |= view.text.contains(&SAID[8..]));
            assert!(seen, "{text}");
        }
    }
}
