//! Random-looking identifiers that are not secret: checksums, resource names, message ids.

use crate::checks;

/// Kubernetes' random suffixes: no vowels and no ambiguous characters.
const KUBERNETES_SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Stripe's objects; its keys begin differently.
const OBJECTS: [&str; 14] =
    ["acct", "ch", "cs", "cus", "evt", "in", "ii", "pi", "pm", "price", "prod", "re", "seti", "sub"];
/// Words that make an id secret.
const SECRET: [&str; 8] = ["session", "token", "secret", "auth", "key", "cookie", "login", "sid"];
/// Bytes before a word in which its name may be.
const NAME_WINDOW_BYTES: usize = 48;

/// Whether a word, with its context, is a name.
pub(super) fn is_id(text: &str, start: usize, word: &str) -> bool {
    // All forms but the last have one of these signs.
    if !word.bytes().any(|byte| matches!(byte, b'-' | b':' | b'@' | b'_')) {
        return is_sortable(word);
    }
    is_checksum(word)
        || is_resource(word)
        || is_pod(word)
        || is_message(text, start, word)
        || is_object(word)
        || is_sortable(word)
}

/// `sha512-...` in lock files, `sha256:...` of images.
fn is_checksum(word: &str) -> bool {
    let word = word.rsplit_once('@').map_or(word, |(_, digest)| digest);
    let lengths = |bits: usize| (bits / 4, bits.div_ceil(24) * 4);
    let of = |bits: usize, rest: &str| {
        let (hex, base64) = lengths(bits);
        let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
        rest.len() == hex && checks::is_hex(rest) || rest.len() == base64 && rest.bytes().all(is_base64)
    };
    [("sha1", 160), ("sha256", 256), ("sha384", 384), ("sha512", 512)].iter().any(|(name, bits)| {
        word.strip_prefix(name)
            .and_then(|rest| rest.strip_prefix(['-', ':']))
            .is_some_and(|rest| of(*bits, rest))
    })
}

/// `arn:aws:iam::123456789012:role/Deploy`, `i-0a1b2c3d4e5f67890`.
fn is_resource(word: &str) -> bool {
    let is_arn = word.starts_with("arn:aws") && word.matches(':').count() >= 5;
    let is_numbered = word.split_once('-').is_some_and(|(kind, number)| {
        (1..=10).contains(&kind.len())
            && kind.bytes().all(|byte| byte.is_ascii_lowercase())
            && matches!(number.len(), 8 | 17)
            && checks::is_hex(number)
    });
    is_arn || is_numbered
}

/// `web-7d4b9c6f5-x2k8q`.
fn is_pod(word: &str) -> bool {
    let drawn = |part: &str| part.bytes().all(|byte| KUBERNETES_SUFFIX_ALPHABET.contains(&byte));
    let mut parts = word.rsplitn(3, '-');
    let (Some(own), Some(set), Some(name)) = (parts.next(), parts.next(), parts.next()) else { return false };
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    own.len() == 5 && (8..=10).contains(&set.len()) && drawn(own) && drawn(set) && name.bytes().all(is_name)
}

/// A mail message id, `<...@...>`.
fn is_message(text: &str, start: usize, word: &str) -> bool {
    let host = word.split_once('@').map(|(_, host)| host);
    host.is_some_and(|host| host.contains('.') && !host.contains('@'))
        && text[..start].ends_with('<')
        && text[start + word.len()..].starts_with('>')
}

fn is_object(word: &str) -> bool {
    word.split_once('_').is_some_and(|(kind, id)| {
        OBJECTS.contains(&kind)
            && (14..=32).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// A ULID: a time and a random number.
fn is_sortable(word: &str) -> bool {
    let is_crockford =
        |byte: u8| byte.is_ascii_digit() || byte.is_ascii_uppercase() && !b"ILOU".contains(&byte);
    word.len() == 26 && matches!(word.as_bytes()[0], b'0'..=b'7') && word.bytes().all(is_crockford)
}

/// Whether the context calls the next word an id: `doc id `, `"fileId": "`, `page_id=`.
pub(super) fn is_called_id(before: &str) -> bool {
    let near = &before[before.floor_char_boundary(before.len().saturating_sub(NAME_WINDOW_BYTES))..];
    let near = near.trim_end_matches(|c: char| c.is_whitespace() || "\"'`:=#<(".contains(c));
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let (rest, name) = near.rsplit_once(|c| !is_name(c)).unwrap_or(("", near));
    let lower = name.to_ascii_lowercase();
    let is_id = matches!(lower.as_str(), "id" | "ids" | "uid")
        || name.ends_with("Id")
        || lower.ends_with("_id")
        || lower.ends_with("-id");
    let alone = lower.len() <= 3;
    let word_before = rest.rsplit(|c: char| !is_name(c)).next().unwrap_or_default().to_ascii_lowercase();
    let is_secret = |word: &str| SECRET.iter().any(|secret| word.contains(secret));
    is_id && !is_secret(&lower) && !(alone && is_secret(&word_before))
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, find};

    fn kinds(text: &str) -> Vec<Kind> {
        find(text, 16).iter().map(|entity| entity.kind).collect()
    }

    #[test]
    fn names_of_resources_are_no_secrets() {
        for text in [
            "integrity sha512-Tj7hRk2Lq9ZxVb4NmYc8Wd3FgPs6AeUo1IiKl0JtHrBvXzQwEyMnCpDfGhSaLk5TuRiOe2Ww9Qq8Zz7Xx6Cc4A==",
            "image shop/cart@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "role arn:aws:iam::123456789012:role/BuildRole may",
            "pod cart-6c8f9d7b54-q7x2m is not ready",
            "Message-ID: <CAKx7Zq9+1Rw=4v@mail.example.com>",
            "paid by cus_Nf8sK2pQ7rT4uV today",
            "order 01HV3Z9K7QW2E4R6T8Y0A1S3D5 is open",
            "doc id 1Qw3Er5Ty7Ui9Op2As4Df6Gh8Jk1Lz3Xc5Vb7Nm9Qa2s",
            r#"{"fileId": "1Qw3Er5Ty7Ui9Op2As4Df6Gh8Jk1Lz3Xc5Vb7Nm9Qa2s"}"#,
        ] {
            let found = kinds(text);
            assert!(
                found.contains(&Kind::Id) && found.iter().all(|kind| kind.is_reference()),
                "{text}: {found:?}"
            );
        }
    }

    #[test]
    fn session_ids_and_api_keys_stay_secrets() {
        for text in [
            "session id 1Qw3Er5Ty7Ui9Op2As4Df6Gh8Jk1Lz3X",
            r#"{"sessionId": "1Qw3Er5Ty7Ui9Op2As4Df6Gh8Jk1Lz3X"}"#,
            "the word is 1Qw3Er5Ty7Ui9Op2As4Df6Gh8Jk1Lz3X",
            "use sk_live_4eC39HqLyjWDarjtT1zdp7dc now",
        ] {
            assert!(kinds(text).iter().any(|kind| kind.is_secret()), "{text}: {:?}", kinds(text));
        }
    }
}
