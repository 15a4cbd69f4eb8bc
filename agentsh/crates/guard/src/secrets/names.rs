//! Names of secrets, in several languages, and what stands behind them.

use super::tokens::MAX_WORD;

/// Names whose value is a secret, once they are lower-case letters only; of other scripts as they are written.
const SECRET_NAMES: [&str; 31] = [
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "signingkey",
    "encryptionkey",
    "authorization",
    "credential",
    "credentials",
    "clientsecret",
    "bearer",
    "passcode",
    "passwort",
    "kennwort",
    "wachtwoord",
    "contraseña",
    "senha",
    "parola",
    "lösenord",
    "hasło",
    "пароль",
    "Пароль",
    "密码",
    "密碼",
    "パスワード",
    "비밀번호",
];
/// Names that are common ends of other words.
const WHOLE_NAMES: [&str; 4] = ["pass", "pw", "psw", "passe"];
/// What may stand between a name and its value.
const COPULAS: [&str; 9] = ["is", "ist", "lautet", "est", "es", "to", "was", "é", "è"];

/// Longest name that is read as one.
const MAX_NAME: usize = 60;
/// Bytes in front of a value in which its name may stand, and words.
const BEFORE: usize = 80;
const MAX_WORDS: usize = 8;

/// The last two letters of all names: nearly every other word is told from them by that.
static ENDS: [u32; 32] = {
    let mut ends = [0; 32];
    let mut at = 0;
    while at < SECRET_NAMES.len() + WHOLE_NAMES.len() {
        let name = if at < SECRET_NAMES.len() {
            SECRET_NAMES[at].as_bytes()
        } else {
            WHOLE_NAMES[at - SECRET_NAMES.len()].as_bytes()
        };
        ends[(name[name.len() - 2] & 31) as usize] |= 1 << (name[name.len() - 1] & 31);
        at += 1;
    }
    ends
};

/// Whether the value of something with this name is a secret.
pub(super) fn is_secret_name(word: &str) -> bool {
    let is_behind = |c: char| matches!(c, ':' | '=' | '：' | '是' | '为' | '為' | 'は' | '「' | '“');
    let word = word.trim_end_matches(|c: char| is_behind(c) || c.is_whitespace());
    let is_letter = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte >= 0x80;
    let mut last = word.as_bytes().iter().rev().filter(is_letter);
    let (Some(last), Some(before)) = (last.next(), last.next()) else { return false };
    if word.len() > MAX_NAME || ENDS[usize::from(before & 31)] >> (last & 31) & 1 == 0 {
        return false;
    }
    let (mut plain, mut length) = ([0; MAX_NAME], 0);
    for byte in word.as_bytes().iter().filter(is_letter) {
        plain[length] = byte.to_ascii_lowercase();
        length += 1;
    }
    let part = word.rsplit(|c: char| !c.is_alphanumeric()).find(|part| !part.is_empty()).unwrap_or("");
    SECRET_NAMES.iter().any(|name| plain[..length].ends_with(name.as_bytes()))
        || WHOLE_NAMES.iter().any(|name| part.eq_ignore_ascii_case(name))
}

/// Whether the first word says that what comes is the value of what stood before: `is`.
pub(super) fn is_copula(ahead: &[u8]) -> bool {
    matches!(ahead, [b'i' | b'e', b's', ..] | [b'l', b'a', ..] | [b't', b'o', ..] | [b'w', b'a', ..])
        && COPULAS.iter().any(|word| {
            ahead.starts_with(word.as_bytes())
                && matches!(ahead.get(word.len()), None | Some(b' ' | b':' | b'"'))
        })
}

/// What stands after the name of a secret and is not the name of something else.
pub(super) fn is_value(value: &str) -> bool {
    let classes = usize::from(value.bytes().any(|byte| byte.is_ascii_digit()))
        + usize::from(value.bytes().any(|byte| byte.is_ascii_uppercase()))
        + usize::from(value.bytes().any(|byte| byte.is_ascii_lowercase()))
        + usize::from(value.bytes().any(|byte| byte.is_ascii_punctuation() && byte != b'.' && byte != b'_'));
    (8..=MAX_WORD).contains(&value.len()) && classes >= 2 && value.bytes().any(|byte| byte.is_ascii_digit())
        || (value.len() >= 12 && classes >= 3)
}

/// Whether the words in front of what looks like a password say that it is one: `the passphrase of the lobby is x`,
/// `user / x`.
pub(super) fn is_told(text: &str, start: usize, value: &str) -> bool {
    if !(8..=64).contains(&value.len()) || !looks_chosen(value) {
        return false;
    }
    let before = &text[text.floor_char_boundary(start.saturating_sub(BEFORE))..start];
    let before = before.trim_end_matches(['"', '\'', '`', '*', '(', '[', ' ']);
    if let Some(user) = before.strip_suffix(" /") {
        let is_signed = value.bytes().any(|byte| b"!#$%^&*?~+".contains(&byte));
        return is_signed && user.ends_with(|c: char| c.is_ascii_alphanumeric());
    }
    let mut words = before.rsplit(|c: char| c.is_whitespace() || matches!(c, '"' | '`' | '\''));
    let Some(last) = words.next() else { return false };
    let is_end = |word: &&str| word.ends_with(['.', '!', '?', ';', ',']);
    is_secret_name(last)
        || COPULAS.contains(&last.trim_end_matches(':'))
            && words.take(MAX_WORDS).take_while(|word| !is_end(word)).any(is_secret_name)
}

/// Small letters, capitals, digits, and a sign between them.
fn looks_chosen(value: &str) -> bool {
    let bytes = value.as_bytes();
    let has = |class: fn(&u8) -> bool| bytes.iter().any(class);
    has(u8::is_ascii_digit)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && bytes[1..bytes.len() - 1].iter().any(|byte| {
            byte.is_ascii_punctuation() && !matches!(byte, b'.' | b'_' | b'/' | b':' | b'\\' | b'@')
        })
}
