//! Encoded text in lines that carry something else as well: the addresses and letters of a dump, numbers of lines.

use super::Step;
use super::profile::Profile;
use super::views::Walk;

/// Lines before a pattern is believed.
const MIN_LINES: usize = 3;
/// Bytes that a line of a dump shows.
const MAX_SHOWN: usize = 64;

pub(super) fn decode(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    if profile.count(b'\n') == 0 && profile.count(b' ') < 8 {
        return;
    }
    let whole = 0..text.len();
    if let Some(bytes) = dumped(text) {
        walk.work(text.len());
        walk.found_bytes(Step::Hex, &bytes, whole.clone());
    }
    if let Some(lines) = numbered(text) {
        walk.work(text.len());
        walk.found_text(Step::NumberedLines, &lines, whole);
    }
}

/// What `xxd` or `hexdump -C` printed.
fn dumped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut lines, mut dumped) = (0, 0);
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        lines += 1;
        let before = bytes.len();
        dumped += usize::from(dump_line(line, &mut bytes).is_some() && bytes.len() > before);
    }
    (dumped > 0 && dumped * 4 >= lines * 3 && bytes.len() >= 8).then_some(bytes)
}

/// An address, groups of hexadecimal digits, and behind a bar or a wider gap the same as letters.
fn dump_line(line: &str, bytes: &mut Vec<u8>) -> Option<()> {
    let line = line.trim_start();
    let digits = line.bytes().take_while(u8::is_ascii_hexdigit).count();
    let rest = &line[digits..];
    let (rest, colon) = rest.strip_prefix(':').map_or((rest, false), |rest| (rest, true));
    if !(4..=16).contains(&digits) || !rest.starts_with(' ') || !colon && digits < 7 {
        return None;
    }
    let (mut shown, mut width, mut gap) = (0, 0, 0);
    for piece in rest.split(' ') {
        if piece.is_empty() {
            gap += 1;
            continue;
        }
        let is_group = piece.len() % 2 == 0 && piece.bytes().all(|byte| byte.is_ascii_hexdigit());
        // `hexdump` has a wider gap in the middle, `xxd` one before the letters.
        let wide = shown > 0 && (gap > 1 || gap == 1 && width > 2);
        let ended = !is_group || wide || shown >= MAX_SHOWN;
        if ended || width > 0 && piece.len() > width {
            break;
        }
        (width, gap) = (width.max(piece.len()), 0);
        for pair in piece.as_bytes().chunks(2) {
            bytes.push(u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?);
            shown += 1;
        }
    }
    Some(())
}

/// Lines without the numbers in front of them.
fn numbered(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let (mut lines, mut counted) = (0, 0);
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        lines += 1;
        let line = line.trim_start();
        let digits = line.bytes().take_while(u8::is_ascii_digit).count();
        let rest = line[digits..].trim_start_matches([' ', '\t', '.', ':', ')', '|', '-', ']']);
        let is_numbered = (1..=8).contains(&digits) && rest.len() + digits < line.len();
        counted += usize::from(is_numbered);
        out.push_str(if is_numbered { rest } else { line });
        out.push('\n');
    }
    (lines >= MIN_LINES && counted * 4 >= lines * 3).then_some(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn dumps_of_both_kinds_are_read() {
        let said = b"The offer stands at 84.50 a share; do not tell.";
        let (mut xxd, mut canonical) = (String::new(), String::new());
        for (at, line) in said.chunks(16).enumerate() {
            let letters: String = line.iter().map(|byte| char::from(*byte)).collect();
            let pairs: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            let groups: Vec<String> = pairs.chunks(2).map(<[String]>::concat).collect();
            xxd += &format!("{:08x}: {:<40} {letters}\n", at * 16, groups.join(" "));
            let (left, right) = pairs.split_at(pairs.len().min(8));
            canonical +=
                &format!("{:08x}  {:<23}  {:<23}  |{letters}|\n", at * 16, left.join(" "), right.join(" "));
        }
        assert_eq!(dumped(&xxd).unwrap(), said, "{xxd}");
        assert_eq!(dumped(&canonical).unwrap(), said, "{canonical}");
        assert_eq!(dumped("a plain text\nof two lines"), None);
    }

    #[test]
    fn numbers_of_lines_are_taken_off() {
        assert_eq!(numbered("001 aGVs\n002 bG8g\n003 d29y").unwrap(), "aGVs\nbG8g\nd29y\n");
        assert_eq!(numbered("one\ntwo\nthree"), None);
    }
}
