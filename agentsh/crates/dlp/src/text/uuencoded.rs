//! Uuencoded and xxencoded lines: the first character says how many bytes follow.

use super::Step;
use super::profile::Profile;
use super::runs::NONE;
use super::walk::Walk;

static UU: [u8; 256] = {
    let mut table = [NONE; 256];
    let mut byte = 32_u8;
    while byte <= 96 {
        table[byte as usize] = (byte - 32) & 0x3f;
        byte += 1;
    }
    table
};
static XX: [u8; 256] = {
    const LETTERS: &[u8; 64] = b"+-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut table = [NONE; 256];
    let mut value = 0_u8;
    while value < 64 {
        table[LETTERS[value as usize] as usize] = value;
        value += 1;
    }
    table
};

pub(super) fn decode(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    if profile.upper() + profile.digits() < 8 {
        return;
    }
    if profile.lower() * 2 <= profile.length {
        lines(text, &UU, walk);
    }
    if profile.letters_and_digits() * 10 >= (profile.length - profile.white()) * 8 {
        lines(text, &XX, walk);
    }
}

fn lines(text: &str, table: &[u8; 256], walk: &mut Walk<'_>) {
    walk.work(text.len());
    let (mut out, mut start, mut end, mut position) = (Vec::new(), 0, 0, 0);
    for line in text.split_inclusive('\n') {
        if let Some(bytes) = decoded(line.trim_end_matches(['\r', '\n']).as_bytes(), table) {
            if out.is_empty() {
                start = position;
            }
            out.extend(bytes);
            end = position + line.len();
        } else if !out.is_empty() {
            walk.found_bytes(Step::Uuencoded, &out, start..end);
            out.clear();
        }
        position += line.len();
    }
    walk.found_bytes(Step::Uuencoded, &out, start..end);
}

fn decoded(line: &[u8], table: &[u8; 256]) -> Option<Vec<u8>> {
    let value = |byte: &u8| table[usize::from(*byte)];
    let (first, body) = line.split_first()?;
    let length = usize::from(value(first));
    let letters = length.div_ceil(3) * 4;
    let fits = (1..=63).contains(&length) && body.len() == letters;
    if !fits || body.iter().any(|byte| value(byte) == NONE) {
        return None;
    }
    let mut out = Vec::with_capacity(letters);
    for group in body.chunks_exact(4) {
        let word = group.iter().fold(0_u32, |word, byte| word << 6 | u32::from(value(byte)));
        out.extend_from_slice(&word.to_be_bytes()[1..]);
    }
    out.truncate(length);
    Some(out)
}
