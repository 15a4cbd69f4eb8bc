//! Names of secrets in several languages, and the values that follow them.

/// In bytes. Longer words are judged by parts.
pub(crate) const MAX_WORD: usize = 4096;

/// Names of secrets, in lower-case letters; other scripts as written.
const SECRET_NAMES: [&str; 25] = [
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "authorization",
    "credential",
    "credentials",
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
/// Names of two words, joined or with a sign between.
const COMPOUNDS: [(&str, &str); 9] = [
    ("api", "key"),
    ("access", "key"),
    ("private", "key"),
    ("signing", "key"),
    ("encryption", "key"),
    ("secret", "key"),
    ("account", "key"),
    ("auth", "key"),
    ("client", "secret"),
];
/// Parts of names whose values the journal also hides.
const HIDDEN_PARTS: [&str; 2] = ["cookie", "connectionstring"];
/// Words of names whose values the journal also hides; as parts of words they mean nothing (`keyboard`, `author`).
const HIDDEN_WORDS: [&str; 10] = ["key", "keys", "auth", "pwd", "pass", "pin", "otp", "bearer", "jwt", "cvv"];

/// Names that are common word endings.
const WHOLE_NAMES: [&str; 4] = ["pass", "pw", "psw", "passe"];
/// Words between a name and its value.
const COPULAS: [&str; 9] = ["is", "ist", "lautet", "est", "es", "to", "was", "é", "è"];

/// Longest text that counts as a name.
const MAX_NAME: usize = 60;
/// Bytes and words before a value in which its name may be.
const NAME_WINDOW_BYTES: usize = 80;
const MAX_WORDS: usize = 8;

/// The last two letters of all names, which rule out nearly every other word.
static LAST_LETTER_PAIRS: [u32; 32] = {
    let mut ends = [0; 32];
    let mut at = 0;
    while at < SECRET_NAMES.len() + WHOLE_NAMES.len() + COMPOUNDS.len() {
        let name = if at < SECRET_NAMES.len() {
            SECRET_NAMES[at].as_bytes()
        } else if at < SECRET_NAMES.len() + WHOLE_NAMES.len() {
            WHOLE_NAMES[at - SECRET_NAMES.len()].as_bytes()
        } else {
            COMPOUNDS[at - SECRET_NAMES.len() - WHOLE_NAMES.len()].1.as_bytes()
        };
        ends[(name[name.len() - 2] & 31) as usize] |= 1 << (name[name.len() - 1] & 31);
        at += 1;
    }
    ends
};

/// Whether a text may end with a secret's name and one of these endings; few false positives.
pub(crate) fn may_end_name(text: &[u8], tails: &[&str]) -> bool {
    let Some(last) = text.last().map(u8::to_ascii_lowercase) else { return false };
    tails.iter().filter(|tail| tail.bytes().last().is_none_or(|byte| byte == last)).any(|tail| {
        let Some(length) = text.len().checked_sub(tail.len()) else { return false };
        let (name, end) = text.split_at(length);
        let is_end =
            |[before, last]: &[u8; 2]| LAST_LETTER_PAIRS[usize::from(before & 31)] >> (last & 31) & 1 == 1;
        name.last_chunk().is_some_and(is_end) && end.eq_ignore_ascii_case(tail.as_bytes())
    })
}

/// Whether the value of something with this name is a secret.
pub(crate) fn is_secret_name(word: &str) -> bool {
    let is_behind = |c: char| matches!(c, ':' | '=' | '：' | '是' | '为' | '為' | 'は' | '「' | '“');
    let word = word.trim_end_matches(|c: char| is_behind(c) || c.is_whitespace());
    let is_letter = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte >= 0x80;
    let mut last = word.as_bytes().iter().rev().filter(is_letter);
    let (Some(last), Some(before)) = (last.next(), last.next()) else { return false };
    if word.len() > MAX_NAME || LAST_LETTER_PAIRS[usize::from(before & 31)] >> (last & 31) & 1 == 0 {
        return false;
    }
    let (mut plain, mut length) = ([0; MAX_NAME], 0);
    for byte in word.as_bytes().iter().filter(is_letter) {
        plain[length] = byte.to_ascii_lowercase();
        length += 1;
    }
    let part = word.rsplit(|c: char| !c.is_alphanumeric()).find(|part| !part.is_empty()).unwrap_or("");
    let plain = &plain[..length];
    let ends = |(first, second): &(&str, &str)| {
        plain.strip_suffix(second.as_bytes()).is_some_and(|rest| rest.ends_with(first.as_bytes()))
    };
    SECRET_NAMES.iter().any(|name| plain.ends_with(name.as_bytes()))
        || COMPOUNDS.iter().any(ends)
        || WHOLE_NAMES.iter().any(|name| part.eq_ignore_ascii_case(name))
}

/// Whether the journal hides the value of this field, variable or option: `apiKey`, `X-API-KEY`, `db_password`,
/// `--token`.
#[must_use]
pub fn is_hidden_name(name: &str) -> bool {
    const MAX_LENGTH: usize = 200;
    if name.len() > MAX_LENGTH {
        return true;
    }
    let plain: String = name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    let has = |part: &&str| plain.contains(*part);
    let joined = |(first, second): &(&str, &str)| {
        plain.match_indices(second).any(|(at, _)| plain[..at].ends_with(first))
    };
    SECRET_NAMES.iter().any(has)
        || HIDDEN_PARTS.iter().any(has)
        || COMPOUNDS.iter().any(joined)
        || split_name(name).iter().any(|word| HIDDEN_WORDS.contains(&word.as_str()))
}

/// The words of a name: at separators and inner capitals.
fn split_name(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_small = false;
    for character in name.chars() {
        if !character.is_ascii_alphanumeric() || (character.is_ascii_uppercase() && after_small) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| character.is_ascii_alphanumeric()) {
            word.push(character.to_ascii_lowercase());
        }
        after_small = character.is_ascii_lowercase();
    }
    words
}

/// The names in all their spellings, for a search.
pub(crate) fn spellings() -> Vec<String> {
    let compounds = COMPOUNDS
        .iter()
        .flat_map(|(first, second)| ["", "_", "-"].map(|between| format!("{first}{between}{second}")));
    SECRET_NAMES.iter().map(|name| (*name).to_owned()).chain(compounds).collect()
}

/// Whether the first word links a name with its value: `is`.
pub(crate) fn is_copula(ahead: &[u8]) -> bool {
    matches!(ahead, [b'i' | b'e', b's', ..] | [b'l', b'a', ..] | [b't', b'o', ..] | [b'w', b'a', ..])
        && COPULAS.iter().any(|word| {
            ahead.starts_with(word.as_bytes())
                && matches!(ahead.get(word.len()), None | Some(b' ' | b':' | b'"'))
        })
}

/// Whether it is a value, and not the name of something else.
pub(crate) fn is_value(value: &str) -> bool {
    let classes = usize::from(value.bytes().any(|byte| byte.is_ascii_digit()))
        + usize::from(value.bytes().any(|byte| byte.is_ascii_uppercase()))
        + usize::from(value.bytes().any(|byte| byte.is_ascii_lowercase()))
        + usize::from(value.bytes().any(|byte| byte.is_ascii_punctuation() && byte != b'.' && byte != b'_'));
    (8..=MAX_WORD).contains(&value.len()) && classes >= 2 && value.bytes().any(|byte| byte.is_ascii_digit())
        || (value.len() >= 12 && classes >= 3)
        || is_unpronounceable(value)
}

/// Sixteen letters or more that are no words: more than six consonants in a row, or case that changes as in no name.
fn is_unpronounceable(value: &str) -> bool {
    let bytes = value.as_bytes();
    if !(16..=MAX_WORD).contains(&bytes.len()) || !bytes.iter().all(u8::is_ascii_alphabetic) {
        return false;
    }
    let is_vowel = |byte: &u8| b"aeiouy".contains(&byte.to_ascii_lowercase());
    let consonants = bytes.split(is_vowel).map(<[u8]>::len).max().unwrap_or_default();
    let turns =
        bytes.windows(2).filter(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase()).count();
    consonants > 6 || turns * 4 > bytes.len()
}

/// Whether the words before say that this is a password: `the passphrase of the lobby is x`, `user / x`.
pub(crate) fn is_told(text: &str, start: usize, value: &str) -> bool {
    if !(8..=64).contains(&value.len()) || !looks_chosen(value) {
        return false;
    }
    let before = &text[text.floor_char_boundary(start.saturating_sub(NAME_WINDOW_BYTES))..start];
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

/// Small letters, capitals, digits, and an inner sign.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_field_names_are_recognised() {
        for name in [
            "password",
            "X-Api-Key",
            "apiKey",
            "GITHUB_TOKEN",
            "key",
            "--auth",
            "Set-Cookie",
            "privateKey",
            "contraseña",
            "clientSecret",
        ] {
            assert!(is_hidden_name(name), "{name}");
        }
        for name in ["keyboard", "author", "path", "monkey", "passage", "spinner", "content", ""] {
            assert!(!is_hidden_name(name), "{name}");
        }
    }

    #[test]
    fn letters_that_are_no_words_are_values() {
        for value in ["ipTgadDZFlRJmCGmUXiA", "kqjwvhxzbtnrplmf", "QWRTPSDFGHJKLZXCVBNM"] {
            assert!(is_value(value), "{value}");
        }
        for word in [
            "internationalization",
            "getStringValueForKeyOf",
            "PersonalAccessToken",
            "HTTPSCONNECTIONPOOL",
            "correcthorsebattery",
        ] {
            assert!(!is_value(word), "{word}");
        }
    }

    #[test]
    fn secret_names_of_prose_also_hide_fields() {
        for name in spellings() {
            assert!(is_secret_name(&name) && is_hidden_name(&name), "{name}");
        }
    }
}
