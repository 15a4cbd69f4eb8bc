//! Text in lines that carry something else as well: numbers of lines, times, words that come again.

use super::Step;
use super::profile::Profile;
use super::walk::Walk;

/// Lines before a pattern is believed.
const MIN_LINES: usize = 3;

pub(super) fn decode(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    if profile.count(b'\n') == 0 && profile.count(b' ') < 8 {
        return;
    }
    let whole = 0..text.len();
    if walk.last_step() != Some(Step::NumberedLines) {
        for lines in without_heads(text) {
            walk.work(text.len());
            walk.found_text(Step::NumberedLines, &lines, whole.clone());
        }
    }
}

/// A part of what stands in front of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part<'t> {
    /// A word that counts: any number, the time of day.
    Counts,
    Word(&'t str),
    Sign(char),
}

/// Parts of a head that are looked at, and pairs of lines that may say what it is.
const MAX_PARTS: usize = 32;
const PAIRS: usize = 8;

/// The text without what nearly all its lines begin with: numbers, times, words that come again. Once without the first
/// part of it alone, once without all of it.
fn without_heads(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().map(str::trim_start).filter(|line| !line.is_empty()).collect();
    if lines.len() < MIN_LINES {
        return Vec::new();
    }
    let has = |line: &&&str, head: &[Part<'_>]| {
        parts(line).map(|(part, _)| part).zip(head).filter(|(one, other)| one == *other).count() == head.len()
    };
    let fits =
        |head: &Vec<Part<'_>>| lines.iter().filter(|line| has(line, head)).count() * 4 >= lines.len() * 3;
    let heads = lines.windows(2).take(PAIRS).map(|pair| common(pair[0], pair[1]));
    let Some(whole) = heads.filter(|head| !head.is_empty()).filter(fits).max_by_key(Vec::len) else {
        return Vec::new();
    };
    let first = first_part(&whole);
    let mut found = Vec::new();
    for length in [first, whole.len()] {
        let head = whole.get(..length).unwrap_or(&whole);
        let mut out = String::with_capacity(text.len());
        for line in &lines {
            let end = parts(line).nth(length - 1).map_or(0, |(_, end)| end);
            out.push_str(if has(&line, head) { &line[end..] } else { line });
            out.push('\n');
        }
        if found.last() != Some(&out) {
            found.push(out);
        }
    }
    found
}

/// What two lines both begin with, to the last sign of it: behind that, a word may be one of the text.
fn common<'t>(one: &'t str, other: &'t str) -> Vec<Part<'t>> {
    let both = parts(one).zip(parts(other)).take_while(|((one, _), (other, _))| one == other);
    let mut head: Vec<Part<'t>> = both.map(|((part, _), _)| part).collect();
    let is_sign = |part: &Part<'_>| matches!(part, Part::Sign(_));
    head.truncate(head.iter().rposition(is_sign).map_or(0, |last| last + 1));
    // Signs alone are no part of any text anyway.
    if head.iter().all(is_sign) {
        head.clear();
    }
    head
}

/// The parts of a head to the end of the signs behind its first word.
fn first_part(head: &[Part<'_>]) -> usize {
    let is_sign = |part: &Part<'_>| matches!(part, Part::Sign(_));
    let word = head.iter().position(|part| !is_sign(part)).unwrap_or(0);
    let signs = head[word + 1..].iter().take_while(|part| is_sign(part)).count();
    word + 1 + signs
}

/// The first parts of a line, each with where it ends.
fn parts(line: &str) -> impl Iterator<Item = (Part<'_>, usize)> {
    let mut at = 0;
    let next = move || {
        let rest = line.get(at..)?;
        let first = rest.chars().next()?;
        if !first.is_alphanumeric() {
            at += first.len_utf8();
            return Some((Part::Sign(first), at));
        }
        let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
        let word = &rest[..end];
        at += end;
        let digits = word.bytes().filter(u8::is_ascii_digit).count();
        Some((if digits * 2 >= word.len() { Part::Counts } else { Part::Word(word) }, at))
    };
    std::iter::from_fn(next).take(MAX_PARTS)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn what_stands_in_front_of_lines_is_taken_off() {
        let first = |text: &str| without_heads(text).last().cloned();
        assert_eq!(first("001 aGVs\n002 bG8g\n003 d29y").unwrap(), "aGVs\nbG8g\nd29y\n");
        assert_eq!(
            first(
                "2026-01-31T10:00:59Z the orch\n2026-01-31T10:01:59Z ard at Lin\n2026-01-31T10:02:59Z denau"
            ),
            Some("the orch\nard at Lin\ndenau\n".to_owned())
        );
        assert_eq!(
            first("part 9 of 11: the orch\npart 10 of 11: ard at\npart 11 of 11: Lindenau").unwrap(),
            "the orch\nard at\nLindenau\n"
        );
        let of_hex = without_heads("1: 7468 6520\n2: 6f72 6368\n3: 6172 6421");
        assert_eq!(of_hex[0], "7468 6520\n6f72 6368\n6172 6421\n");
        assert_eq!(first("one\ntwo\nthree"), None);
        assert_eq!(first("- one\n- two\n- three"), None);
    }
}
