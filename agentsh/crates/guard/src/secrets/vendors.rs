//! Forms of keys that their makers publish.

use super::entities::Kind;

/// A key begins with `prefix` and goes on for at least `rest` letters, digits, `-` or `_`.
struct Form {
    prefix: &'static str,
    rest: usize,
}

const fn form(prefix: &'static str, rest: usize) -> Form {
    Form { prefix, rest }
}

/// Longer prefixes first where one begins with another.
const FORMS: [Form; 66] = [
    form("sk-ant-", 24),
    form("sk-proj-", 24),
    form("sk-svcacct-", 24),
    form("sk-or-v1-", 24),
    form("sk-lf-", 24),
    form("sk_live_", 16),
    form("sk_test_", 16),
    form("rk_live_", 16),
    form("rk_test_", 16),
    form("pk_live_", 16),
    form("whsec_", 20),
    form("sk-", 20),
    form("github_pat_", 22),
    form("ghp_", 20),
    form("gho_", 20),
    form("ghu_", 20),
    form("ghs_", 20),
    form("ghr_", 20),
    form("glpat-", 16),
    form("gldt-", 16),
    form("glrt-", 16),
    form("glsa_", 28),
    form("xoxb-", 20),
    form("xoxp-", 20),
    form("xoxa-", 20),
    form("xoxr-", 20),
    form("xoxs-", 20),
    form("xapp-", 20),
    form("AKIA", 16),
    form("ASIA", 16),
    form("ABIA", 16),
    form("ACCA", 16),
    form("AIza", 32),
    form("ya29.", 20),
    form("GOCSPX-", 20),
    form("npm_", 30),
    form("pypi-", 40),
    form("hf_", 28),
    form("dop_v1_", 40),
    form("doo_v1_", 40),
    form("dor_v1_", 40),
    form("shpat_", 28),
    form("shpss_", 28),
    form("shpca_", 28),
    form("sq0atp-", 20),
    form("sq0csp-", 30),
    form("EAAA", 40),
    form("SG.", 40),
    form("SK", 32),
    form("AC", 32),
    form("key-", 32),
    form("lin_api_", 30),
    form("ntn_", 30),
    form("secret_", 40),
    form("figd_", 30),
    form("PMAK-", 40),
    form("dapi", 32),
    form("dckr_pat_", 20),
    form("hvs.", 24),
    form("hvb.", 24),
    form("nvapi-", 40),
    form("gsk_", 40),
    form("r8_", 36),
    form("pplx-", 40),
    form("tskey-", 16),
    form("age-secret-key-1", 40),
];

/// Whether a form, or a JWT, begins with this byte.
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

/// Whether a whole word is a key of a known form, and how many bytes of it are the prefix that all such keys share.
pub(super) fn known(word: &str) -> Option<(Kind, usize)> {
    if word.len() < 18 {
        return None;
    }
    let first = word.as_bytes().first()?;
    if !STARTS[usize::from(*first)] {
        return None;
    }
    let fits = |form: &Form| {
        form.prefix.as_bytes().first().is_some_and(|byte| byte.eq_ignore_ascii_case(first))
            && word.len() >= form.prefix.len() + form.rest
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
    match form.prefix {
        "AKIA" | "ASIA" | "ABIA" | "ACCA" => {
            rest.len() == 16 && all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
        }
        "SK" | "AC" | "key-" | "dapi" => rest.len() < 40 && all(u8::is_ascii_hexdigit),
        _ => all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')),
    }
}

/// Three Base64 parts, of which the first is a JSON object.
fn is_jwt(word: &str) -> bool {
    word.starts_with("eyJ") && word.len() > 40 && word.bytes().filter(|&byte| byte == b'.').count() == 2
}
