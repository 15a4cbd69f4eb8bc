//! Keys whose makers publish their form, PEM blocks and tokens that are signed JSON.

use super::Secret;

/// What a key is made of behind its prefix.
enum Rest {
    /// Letters, digits, `_` and `-`; at least and at most so many.
    Any(usize, usize),
    /// Capitals and digits, exactly so many.
    Capitals(usize),
}

const FORMS: [(&str, Rest, &str); 41] = [
    ("sk-ant-", Rest::Any(20, 200), "ANTHROPIC KEY"),
    ("sk-proj-", Rest::Any(20, 250), "OPENAI KEY"),
    ("sk-svcacct-", Rest::Any(20, 250), "OPENAI KEY"),
    ("sk-admin-", Rest::Any(20, 250), "OPENAI KEY"),
    ("sk-or-v1-", Rest::Any(20, 100), "API KEY"),
    ("sk-", Rest::Any(32, 250), "OPENAI KEY"),
    ("sk_live_", Rest::Any(16, 250), "STRIPE KEY"),
    ("sk_test_", Rest::Any(16, 250), "STRIPE KEY"),
    ("rk_live_", Rest::Any(16, 250), "STRIPE KEY"),
    ("rk_test_", Rest::Any(16, 250), "STRIPE KEY"),
    ("whsec_", Rest::Any(20, 250), "STRIPE KEY"),
    ("ghp_", Rest::Any(36, 255), "GITHUB TOKEN"),
    ("gho_", Rest::Any(36, 255), "GITHUB TOKEN"),
    ("ghu_", Rest::Any(36, 255), "GITHUB TOKEN"),
    ("ghs_", Rest::Any(36, 255), "GITHUB TOKEN"),
    ("ghr_", Rest::Any(36, 255), "GITHUB TOKEN"),
    ("github_pat_", Rest::Any(22, 255), "GITHUB TOKEN"),
    ("glpat-", Rest::Any(20, 100), "GITLAB TOKEN"),
    ("gldt-", Rest::Any(20, 100), "GITLAB TOKEN"),
    ("glrt-", Rest::Any(20, 100), "GITLAB TOKEN"),
    ("xoxb-", Rest::Any(20, 250), "SLACK TOKEN"),
    ("xoxp-", Rest::Any(20, 250), "SLACK TOKEN"),
    ("xoxa-", Rest::Any(20, 250), "SLACK TOKEN"),
    ("xoxr-", Rest::Any(20, 250), "SLACK TOKEN"),
    ("xoxs-", Rest::Any(20, 250), "SLACK TOKEN"),
    ("xoxe-", Rest::Any(20, 250), "SLACK TOKEN"),
    ("xapp-", Rest::Any(20, 250), "SLACK TOKEN"),
    ("AKIA", Rest::Capitals(16), "AWS KEY"),
    ("ASIA", Rest::Capitals(16), "AWS KEY"),
    ("ABIA", Rest::Capitals(16), "AWS KEY"),
    ("ACCA", Rest::Capitals(16), "AWS KEY"),
    ("AIza", Rest::Any(35, 35), "GCP KEY"),
    ("ya29.", Rest::Any(20, 250), "GCP KEY"),
    ("GOCSPX-", Rest::Any(20, 60), "GCP KEY"),
    ("npm_", Rest::Any(36, 100), "NPM TOKEN"),
    ("pypi-AgE", Rest::Any(40, 300), "PYPI TOKEN"),
    ("hf_", Rest::Any(30, 60), "API KEY"),
    ("dop_v1_", Rest::Any(60, 80), "API KEY"),
    ("shpat_", Rest::Any(28, 60), "API KEY"),
    ("SG.", Rest::Any(20, 100), "API KEY"),
    ("hvs.", Rest::Any(24, 150), "API KEY"),
];

pub(super) fn vendors(text: &str, found: &mut Vec<Secret>) {
    let bytes = text.as_bytes();
    let Some(automaton) = automaton() else { return };
    let mut from = 0;
    for place in automaton.find_iter(bytes) {
        let at = place.pattern().as_usize();
        if place.start() < from {
            continue;
        }
        let place = match at {
            0 => jwt(bytes, place.start()).map(|place| (place, "JWT")),
            1 => webhook(bytes, place.start()).map(|place| (place, "SLACK WEBHOOK")),
            2 => service_account(text, place.start()).map(|place| (place, "SERVICE ACCOUNT")),
            _ => FORMS.get((at - EXTRA.len()) % FORMS.len()).and_then(|form| {
                let place = if at - EXTRA.len() < FORMS.len() {
                    key(bytes, place.start(), form)
                } else {
                    backwards(bytes, place.end(), form)
                };
                place.map(|place| (place, form.2))
            }),
        };
        if let Some((place, kind)) = place {
            from = place.end;
            found.push(Secret { kind, place });
        }
    }
}

const EXTRA: [&str; 3] = ["eyJ", "https://hooks.slack.com/services/", "\"service_account\""];

/// The forms, and their prefixes read backwards.
fn automaton() -> Option<&'static aho_corasick::AhoCorasick> {
    static AUTOMATON: std::sync::OnceLock<Option<aho_corasick::AhoCorasick>> = std::sync::OnceLock::new();
    AUTOMATON
        .get_or_init(|| {
            let extra = EXTRA.iter().map(|prefix| (*prefix).to_owned());
            let forms = FORMS.iter().map(|form| form.0.to_owned());
            let turned = FORMS.iter().map(|form| form.0.chars().rev().collect());
            aho_corasick::AhoCorasick::builder()
                .match_kind(aho_corasick::MatchKind::LeftmostLongest)
                .build(extra.chain(forms).chain(turned).collect::<Vec<String>>())
                .ok()
        })
        .as_ref()
}

fn is_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

fn key(bytes: &[u8], start: usize, form: &(&str, Rest, &str)) -> Option<std::ops::Range<usize>> {
    if start.checked_sub(1).is_some_and(|before| bytes[before].is_ascii_alphanumeric()) {
        return None;
    }
    let from = start + form.0.len();
    let fits = |byte: &&u8| match form.1 {
        Rest::Any(..) => is_key(**byte) || form.0.ends_with('.') && **byte == b'.',
        Rest::Capitals(_) => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
    };
    let length = bytes[from..].iter().take(400).take_while(fits).count();
    let (least, most) = match form.1 {
        Rest::Any(least, most) => (least, most),
        Rest::Capitals(exactly) => (exactly, exactly),
    };
    let ends = bytes.get(from + length).is_none_or(|next| !next.is_ascii_alphanumeric());
    let value = &bytes[from..from + length];
    let mixed = value.iter().any(u8::is_ascii_digit) || value.iter().any(u8::is_ascii_uppercase);
    (length >= least && length <= most && ends && mixed).then_some(start..from + length)
}

/// A key that is written backwards ends with its prefix.
fn backwards(bytes: &[u8], end: usize, form: &(&str, Rest, &str)) -> Option<std::ops::Range<usize>> {
    let before = bytes[..end].iter().rev().take(400).take_while(|byte| is_key(**byte)).count();
    let turned: Vec<u8> = bytes[end - before..end].iter().rev().copied().collect();
    let place = key(&turned, 0, form)?;
    (place.end == turned.len() && bytes.get(end).is_none_or(|next| !is_key(*next)))
        .then_some(end - before..end)
}

fn jwt(bytes: &[u8], start: usize) -> Option<std::ops::Range<usize>> {
    if start.checked_sub(1).is_some_and(|before| is_key(bytes[before])) {
        return None;
    }
    const LONGEST: usize = 16_384;
    let part = |at: usize| bytes[at..].iter().take(LONGEST).take_while(|byte| is_key(**byte)).count();
    let header = part(start);
    let payload_at = start + header + 1;
    if bytes.get(start + header) != Some(&b'.') {
        return None;
    }
    let payload = part(payload_at);
    if payload < 8 || bytes.get(payload_at + payload) != Some(&b'.') {
        return None;
    }
    let end = payload_at + payload + 1 + part(payload_at + payload + 1);
    let decoded = crate::views::base64(&bytes[start..start + header]);
    let is_header = decoded.starts_with(b"{") && memchr::memmem::find(&decoded, b"\"alg\"").is_some();
    is_header.then_some(start..end)
}

fn webhook(bytes: &[u8], start: usize) -> Option<std::ops::Range<usize>> {
    let from = start + EXTRA[1].len();
    let length = bytes[from..].iter().take(200).take_while(|b| is_key(**b) || **b == b'/').count();
    (length >= 30).then_some(start..from + length)
}

/// The whole object, from its brace to the one that closes it.
fn service_account(text: &str, at: usize) -> Option<std::ops::Range<usize>> {
    const BEFORE: usize = 400;
    const LONGEST: usize = 16_384;
    let bytes = text.as_bytes();
    let from = text.floor_char_boundary(at.saturating_sub(BEFORE));
    let start = from + memchr::memrchr(b'{', &bytes[from..at])?;
    let limit = text.floor_char_boundary((start + LONGEST).min(text.len()));
    let block = &text[start..limit];
    if !block.contains("PRIVATE KEY") {
        return None;
    }
    let end = memchr::memchr(b'}', &bytes[at..limit]).map_or(limit, |length| at + length + 1);
    Some(start..end)
}

/// Longest title of a PEM block, in bytes.
const TITLE: usize = 60;

/// From the line that begins it to the one that ends it, or to the end of the text.
pub(super) fn private_keys(text: &str, found: &mut Vec<Secret>) {
    let bytes = text.as_bytes();
    let mut from = 0;
    while let Some(length) = memchr::memmem::find(&bytes[from..], b"-----BEGIN ") {
        let start = from + length;
        from = start + 11;
        let limit = text.floor_char_boundary((from + TITLE).min(text.len()));
        let Some(title) = text[from..limit].find("-----") else { continue };
        if !text[from..from + title].contains("PRIVATE KEY") {
            continue;
        }
        let body = from + title + 5;
        let end = memchr::memmem::find(&bytes[body..], b"-----END ").map_or(text.len(), |length| {
            let tail = body + length + 9;
            let limit = text.floor_char_boundary((tail + TITLE).min(text.len()));
            text[tail..limit].find("-----").map_or(limit, |length| tail + length + 5)
        });
        found.push(Secret { kind: "PRIVATE KEY", place: start..end });
        from = end;
    }
}
