//! What the journal keeps of a value is bounded JSON without the secrets in it, wherever they are.

use super::store::redact::{RedactionLimits, MAX_BYTES, arguments, redact, text, redact_text, redact_with_limits};

/// Drawn, and in no word list.
const TOKEN: &str = "ghp_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7aB3dE6gH9";
/// A part long enough not to occur by chance.
const PART: &str = "aB3dE6gH9jK2";

pub fn check(data: &[u8]) {
    let Some((cut, bytes)) = data.split_first() else { return };
    let read = String::from_utf8_lossy(bytes);
    let cut = read.floor_char_boundary(usize::from(*cut) * read.len() / 255);
    let (front, back) = read.split_at(cut);
    let secret = format!("{front} {TOKEN} {back}");
    for shown in [text(&secret), redact_text(&secret), arguments(std::slice::from_ref(&secret)).join(" ")] {
        assert!(!shown.contains(PART), "{shown}");
    }
    let value = serde_json::from_slice(bytes).unwrap_or_else(|_| serde_json::Value::String(read.to_string()));
    let wide = RedactionLimits { bytes: 2 * MAX_BYTES, chars: 1000 };
    for (shown, most) in [(redact(&value), MAX_BYTES), (redact_with_limits(&value, wide), wide.bytes)] {
        let shown = shown.to_string();
        assert!(shown.len() <= most, "{} bytes are kept", shown.len());
        serde_json::from_str::<serde_json::Value>(&shown).unwrap();
    }
    let beside = serde_json::json!({ front: secret, "token": back, "list": [value, TOKEN] });
    assert!(!redact(&beside).to_string().contains(PART), "{beside}");
}
