//! Five letters for four bytes, in two alphabets: ascii85, and that of RFC 1924 (Python, git).

use agentsh_base::radix::{NONE, values};

use super::Step;
use super::profile::Profile;
use super::walk::Walk;

/// Shorter runs of signs are expressions of code; twelve symbols are nine bytes.
const MIN_LENGTH: usize = 12;
const RFC_1924: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

static TABLES: [(Step, [u8; 256]); 2] = [
    (Step::Ascii85, {
        let mut table = [NONE; 256];
        let mut value = 0;
        while value < 85 {
            table[33 + value as usize] = value;
            value += 1;
        }
        table
    }),
    (Step::Base85, values(RFC_1924)),
];

pub(super) fn decode(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    let marks = profile.length - profile.letters_and_digits() - profile.white() - profile.high();
    if marks < 2 || profile.length < MIN_LENGTH {
        return;
    }
    walk.work(text.len());
    let bytes = text.as_bytes();
    let (mut symbols, mut out) = (Vec::new(), Vec::new());
    for (step, table) in &TABLES {
        let mut position = 0;
        while position < bytes.len() {
            let start = position;
            let mut count = 0_usize;
            while let Some(byte) = bytes.get(position) {
                if table[usize::from(*byte)] != NONE {
                    count += 1;
                } else if *step == Step::Ascii85 && *byte == b'z' {
                    count += 5;
                } else if !(matches!(byte, b'\n' | b'\r') && count >= MIN_LENGTH) {
                    break;
                }
                position += 1;
            }
            let run = &bytes[start..position];
            if looks_encoded(count, run) {
                symbols.clear();
                for byte in run {
                    match table[usize::from(*byte)] {
                        NONE if *byte == b'z' => symbols.extend([0; 5]),
                        NONE => {}
                        value => symbols.push(value),
                    }
                }
                unpack(&symbols, &mut out);
                walk.work(symbols.len());
                walk.found_bytes(*step, &out, start..position);
            }
            position += 1;
        }
    }
}

/// Long enough, and of more different letters than words and repetitions are made of.
fn looks_encoded(symbols: usize, bytes: &[u8]) -> bool {
    if symbols < MIN_LENGTH {
        return false;
    }
    let head = &bytes[..bytes.len().min(256)];
    let marks = head.iter().filter(|byte| !byte.is_ascii_alphanumeric()).count();
    let seen = head.iter().fold(0_u128, |seen, byte| seen | 1 << (byte & 0x7f));
    marks * 12 >= head.len() && seen.count_ones() >= 10
}

fn unpack(symbols: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut groups = symbols.chunks_exact(5);
    for group in &mut groups {
        let word = group.iter().fold(0_u64, |word, symbol| word * 85 + u64::from(*symbol));
        let bytes = u32::try_from(word).unwrap_or(u32::MAX).to_be_bytes();
        out.extend_from_slice(&bytes);
    }
    let rest = groups.remainder();
    if rest.len() >= 2 {
        let word = (0..5).fold(0_u64, |word, at| word * 85 + u64::from(*rest.get(at).unwrap_or(&84)));
        let bytes = u32::try_from(word).unwrap_or(u32::MAX).to_be_bytes();
        out.extend_from_slice(&bytes[..rest.len() - 1]);
    }
}
