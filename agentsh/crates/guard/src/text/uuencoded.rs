//! Uuencoded lines: the first character says how many bytes follow.

use super::Step;
use super::profile::Profile;
use super::views::Walk;

pub(super) fn decode(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    if profile.upper() + profile.digits() < 8 || profile.lower() * 2 > profile.length {
        return;
    }
    walk.work(text.len());
    let (mut out, mut start, mut end, mut position) = (Vec::new(), 0, 0, 0);
    for line in text.split_inclusive('\n') {
        if let Some(bytes) = decoded(line.trim_end_matches(['\r', '\n']).as_bytes()) {
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

fn decoded(line: &[u8]) -> Option<Vec<u8>> {
    let (first, body) = line.split_first()?;
    let length = usize::from(first.checked_sub(32)?);
    let letters = length.div_ceil(3) * 4;
    let fits = (1..=63).contains(&length) && body.len() == letters;
    if !fits || body.iter().any(|byte| !(32..=96).contains(byte)) {
        return None;
    }
    let mut out = Vec::with_capacity(letters);
    for group in body.chunks_exact(4) {
        let word = group.iter().fold(0_u32, |word, byte| word << 6 | u32::from((byte - 32) & 0x3f));
        out.extend_from_slice(&word.to_be_bytes()[1..]);
    }
    out.truncate(length);
    Some(out)
}
