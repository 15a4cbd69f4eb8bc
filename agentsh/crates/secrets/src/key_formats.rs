//! Published key formats: one table for rewriting messages, tracking values and redacting the journal.

use std::ops::Range;

use crate::values::Kind;

/// The characters of a key after its prefix.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Alphabet {
    /// Letters, digits, `-` and `_`; for a whole word also dots.
    Key,
    /// Capitals and digits, of exactly the given length.
    Capitals,
    /// Hexadecimal digits, fewer than forty, so that hashes differ.
    Hex,
}

use Alphabet::{Capitals, Hex, Key};

/// A key format with a prefix.
struct Form {
    prefix: &'static str,
    /// Minimum rest of a whole word worth tracking.
    least: usize,
    alphabet: Alphabet,
    /// If a key in any text is certain: minimum and maximum rest, and tag.
    certain: Option<(usize, usize, &'static str)>,
}

const fn form(prefix: &'static str, least: usize, alphabet: Alphabet) -> Form {
    Form { prefix, least, alphabet, certain: None }
}

const fn certain_form(
    prefix: &'static str,
    least: usize,
    alphabet: Alphabet,
    (shortest, longest): (usize, usize),
    tag: &'static str,
) -> Form {
    Form { prefix, least, alphabet, certain: Some((shortest, longest, tag)) }
}

/// Longer prefixes first.
const FORMS: [Form; 69] = [
    certain_form("sk-ant-", 24, Key, (20, 200), "ANTHROPIC KEY"),
    certain_form("sk-proj-", 24, Key, (20, 250), "OPENAI KEY"),
    certain_form("sk-svcacct-", 24, Key, (20, 250), "OPENAI KEY"),
    certain_form("sk-or-v1-", 24, Key, (20, 100), "API KEY"),
    form("sk-lf-", 24, Key),
    certain_form("sk_live_", 16, Key, (16, 250), "STRIPE KEY"),
    certain_form("sk_test_", 16, Key, (16, 250), "STRIPE KEY"),
    certain_form("rk_live_", 16, Key, (16, 250), "STRIPE KEY"),
    certain_form("rk_test_", 16, Key, (16, 250), "STRIPE KEY"),
    form("pk_live_", 16, Key),
    certain_form("whsec_", 20, Key, (20, 250), "STRIPE KEY"),
    certain_form("sk-admin-", 20, Key, (20, 250), "OPENAI KEY"),
    certain_form("sk-", 20, Key, (32, 250), "OPENAI KEY"),
    certain_form("github_pat_", 22, Key, (22, 255), "GITHUB TOKEN"),
    certain_form("ghp_", 20, Key, (36, 255), "GITHUB TOKEN"),
    certain_form("gho_", 20, Key, (36, 255), "GITHUB TOKEN"),
    certain_form("ghu_", 20, Key, (36, 255), "GITHUB TOKEN"),
    certain_form("ghs_", 20, Key, (36, 255), "GITHUB TOKEN"),
    certain_form("ghr_", 20, Key, (36, 255), "GITHUB TOKEN"),
    certain_form("glpat-", 16, Key, (20, 100), "GITLAB TOKEN"),
    certain_form("gldt-", 16, Key, (20, 100), "GITLAB TOKEN"),
    certain_form("glrt-", 16, Key, (20, 100), "GITLAB TOKEN"),
    form("glsa_", 28, Key),
    certain_form("xoxb-", 20, Key, (20, 250), "SLACK TOKEN"),
    certain_form("xoxp-", 20, Key, (20, 250), "SLACK TOKEN"),
    certain_form("xoxa-", 20, Key, (20, 250), "SLACK TOKEN"),
    certain_form("xoxr-", 20, Key, (20, 250), "SLACK TOKEN"),
    certain_form("xoxs-", 20, Key, (20, 250), "SLACK TOKEN"),
    certain_form("xapp-", 20, Key, (20, 250), "SLACK TOKEN"),
    certain_form("AKIA", 16, Capitals, (16, 16), "AWS KEY"),
    certain_form("ASIA", 16, Capitals, (16, 16), "AWS KEY"),
    certain_form("ABIA", 16, Capitals, (16, 16), "AWS KEY"),
    certain_form("ACCA", 16, Capitals, (16, 16), "AWS KEY"),
    certain_form("AIza", 32, Key, (35, 35), "GCP KEY"),
    certain_form("ya29.", 20, Key, (20, 250), "GCP KEY"),
    certain_form("GOCSPX-", 20, Key, (20, 60), "GCP KEY"),
    certain_form("npm_", 30, Key, (36, 100), "NPM TOKEN"),
    certain_form("pypi-AgE", 40, Key, (40, 300), "PYPI TOKEN"),
    form("pypi-", 40, Key),
    certain_form("hf_", 28, Key, (30, 60), "API KEY"),
    certain_form("dop_v1_", 40, Key, (60, 80), "API KEY"),
    form("doo_v1_", 40, Key),
    form("dor_v1_", 40, Key),
    certain_form("shpat_", 28, Key, (28, 60), "API KEY"),
    form("shpss_", 28, Key),
    form("shpca_", 28, Key),
    form("sq0atp-", 20, Key),
    form("sq0csp-", 30, Key),
    form("EAAA", 40, Key),
    certain_form("SG.", 40, Key, (20, 100), "API KEY"),
    form("SK", 32, Hex),
    form("AC", 32, Hex),
    form("key-", 32, Hex),
    form("lin_api_", 30, Key),
    form("ntn_", 30, Key),
    form("secret_", 40, Key),
    form("figd_", 30, Key),
    form("PMAK-", 40, Key),
    form("dapi", 32, Hex),
    form("dckr_pat_", 20, Key),
    certain_form("hvs.", 24, Key, (24, 150), "API KEY"),
    form("hvb.", 24, Key),
    form("nvapi-", 40, Key),
    form("gsk_", 40, Key),
    form("r8_", 36, Key),
    form("pplx-", 40, Key),
    form("tskey-", 16, Key),
    form("age-secret-key-1", 40, Key),
    certain_form("xoxe-", 20, Key, (20, 250), "SLACK TOKEN"),
];

/// Whether a format, or a JWT, begins with this byte.
static STARTS: [bool; 256] = {
    let mut table = [false; 256];
    table[b'e' as usize] = true;
    let mut at = 0;
    while at < FORMS.len() {
        let first = FORMS[at].prefix.as_bytes()[0];
        table[first.to_ascii_lowercase() as usize] = true;
        table[first.to_ascii_uppercase() as usize] = true;
        at += 1;
    }
    table
};

/// The first two bytes of the prefixes of certain formats, a bit for each second one.
static CERTAIN_STARTS: [u128; 128] = {
    let mut table = [0; 128];
    let mut at = 0;
    while at < FORMS.len() {
        if FORMS[at].certain.is_some() {
            let prefix = FORMS[at].prefix.as_bytes();
            table[prefix[0] as usize] |= 1 << prefix[1];
        }
        at += 1;
    }
    table
};

/// The kind of a whole word that is a key, and the length of its common prefix.
pub(crate) fn key_kind(word: &str) -> Option<(Kind, usize)> {
    if word.len() < 18 {
        return None;
    }
    let first = word.as_bytes().first()?;
    if !STARTS[usize::from(*first)] {
        return None;
    }
    let fits = |form: &Form| {
        form.prefix.as_bytes().first().is_some_and(|byte| byte.eq_ignore_ascii_case(first))
            && word.len() >= form.prefix.len() + form.least
            && word.get(..form.prefix.len()).is_some_and(|start| {
                if form.prefix.len() < 6 {
                    start == form.prefix
                } else {
                    start.eq_ignore_ascii_case(form.prefix)
                }
            })
            && key_characters(&word[form.prefix.len()..], form)
    };
    if let Some(form) = FORMS.iter().find(|form| fits(form)) {
        return Some((Kind::ApiKey, form.prefix.len()));
    }
    is_jwt(word).then_some((Kind::Jwt, 0))
}

fn key_characters(rest: &str, form: &Form) -> bool {
    let all = |fits: fn(&u8) -> bool| rest.as_bytes().iter().all(fits);
    match form.alphabet {
        Capitals => rest.len() == form.least && all(|b| b.is_ascii_uppercase() || b.is_ascii_digit()),
        Hex => rest.len() < 40 && all(u8::is_ascii_hexdigit),
        Key => all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')),
    }
}

/// Three Base64 parts, the first a JSON object.
fn is_jwt(word: &str) -> bool {
    word.starts_with("eyJ") && word.len() > 40 && word.bytes().filter(|&byte| byte == b'.').count() == 2
}

/// Prefixes of certain formats.
pub(crate) fn certain_prefixes() -> impl Iterator<Item = &'static str> {
    certain_forms().map(|form| form.prefix)
}

fn certain_forms() -> impl Iterator<Item = &'static Form> {
    FORMS.iter().filter(|form| form.certain.is_some())
}

/// The key of a format whose prefix begins at a place, and its tag; `turned`: reversed, so the key ends with the prefix,
/// there. Places come in order.
pub(crate) fn certain_at(
    bytes: &[u8],
    at: usize,
    turned: bool,
    words: &mut Words,
) -> Option<(Range<usize>, &'static str)> {
    let second = if turned { at.checked_sub(1) } else { Some(at + 1) };
    let second = second.and_then(|at| bytes.get(at)).filter(|byte| byte.is_ascii())?;
    if CERTAIN_STARTS.get(usize::from(bytes[at]))? >> second & 1 == 0 {
        return None;
    }
    let is_here = |form: &&Form| match turned {
        true => bytes[..=at].iter().rev().take(form.prefix.len()).eq(form.prefix.as_bytes()),
        false => bytes[at..].starts_with(form.prefix.as_bytes()),
    };
    let form = certain_forms().find(is_here)?;
    let (least, most, tag) = form.certain?;
    let has_dots = form.prefix.ends_with('.');
    let whole = least + form.prefix.len()..=most + form.prefix.len();
    if turned {
        let word = words.start(bytes, at + 1, has_dots)..at + 1;
        let is_end = bytes.get(word.end).is_none_or(|next| !is_key(*next));
        let fits = is_end && whole.contains(&word.len());
        let turned: Vec<u8> = fits.then(|| bytes[word.clone()].iter().rev().copied().collect())?;
        return key(&turned, 0..turned.len(), form)
            .filter(|place| place.end == turned.len())
            .map(|_| (word, tag));
    }
    let word = at..words.end(bytes, at + form.prefix.len(), has_dots);
    // A format shorter than the word may continue.
    if form.alphabet == Key && !whole.contains(&word.len()) {
        return None;
    }
    Some((key(bytes, word, form)?, tag))
}

/// Bounds of key words, without and with dots, cached for words with many prefixes.
#[derive(Default)]
pub(crate) struct Words {
    ends: [usize; 2],
    starts: [Range<usize>; 2],
    #[cfg(test)]
    pub read: usize,
}

impl Words {
    fn end(&mut self, bytes: &[u8], from: usize, has_dots: bool) -> usize {
        let end = &mut self.ends[usize::from(has_dots)];
        if *end < from {
            let length = bytes[from..].iter().take_while(|byte| is_in_word(**byte, has_dots)).count();
            *end = from + length;
            #[cfg(test)]
            {
                self.read += length;
            }
        }
        *end
    }

    fn start(&mut self, bytes: &[u8], to: usize, has_dots: bool) -> usize {
        // The start of the last word, and the end of what was read.
        let read = &mut self.starts[usize::from(has_dots)];
        let new = bytes.get(read.end..to).unwrap_or_default();
        #[cfg(test)]
        {
            self.read += new.len();
        }
        if let Some(other) = new.iter().rposition(|byte| !is_in_word(*byte, has_dots)) {
            read.start = read.end + other + 1;
        }
        read.end = read.end.max(to);
        read.start
    }
}

fn is_in_word(byte: u8, has_dots: bool) -> bool {
    is_key(byte) || has_dots && byte == b'.'
}

/// Whether a word begins as a certain key does.
pub(crate) fn begins(word: &str) -> bool {
    certain_prefixes().any(|prefix| word.starts_with(prefix))
}

pub(crate) fn is_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// The key at a word's start, if any.
fn key(bytes: &[u8], word: Range<usize>, form: &Form) -> Option<Range<usize>> {
    let (least, most, _) = form.certain?;
    let Range { start, end } = word;
    if start.checked_sub(1).is_some_and(|before| bytes[before].is_ascii_alphanumeric()) {
        return None;
    }
    let from = start + form.prefix.len();
    let rest = bytes.get(from..end)?;
    let is_capital = |byte: &&u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    let length = match form.alphabet {
        // One more than the maximum shows that it is too long.
        Capitals => rest.iter().take(most + 1).take_while(is_capital).count(),
        _ => rest.len(),
    };
    if !(least..=most).contains(&length) {
        return None;
    }
    let ends = bytes.get(from + length).is_none_or(|next| !next.is_ascii_alphanumeric());
    let value = &bytes[from..from + length];
    let mixed = value.iter().any(u8::is_ascii_digit) || value.iter().any(u8::is_ascii_uppercase);
    (ends && mixed).then_some(start..from + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_many_prefixes_is_read_once_each_way() {
        let text = "sk-".repeat(1000);
        let mut words = Words::default();
        for at in 0..text.len() {
            for turned in [false, true] {
                assert_eq!(certain_at(text.as_bytes(), at, turned, &mut words), None);
            }
        }
        assert!(words.read <= 2 * text.len(), "{}", words.read);
        // A key after such a word is found.
        let text = format!("{text} sk-{}1 ", "Ab".repeat(20));
        let key = 3001..3045;
        assert_eq!(
            certain_at(text.as_bytes(), 3001, false, &mut Words::default()),
            Some((key, "OPENAI KEY"))
        );
    }
}
