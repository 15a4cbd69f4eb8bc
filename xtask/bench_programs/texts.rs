//! Texts of any length, for arguments and results.

const WORDS: [&str; 40] = [
    "apple", "bridge", "candle", "dolphin", "elephant", "feather", "glacier", "harbor", "island", "jacket",
    "kettle", "lantern", "mirror", "needle", "ocean", "pepper", "quilt", "rabbit", "saddle", "teapot",
    "umbrella", "violin", "walnut", "yogurt", "zebra", "anchor", "basket", "copper", "donkey", "ember",
    "falcon", "guitar", "hammer", "icicle", "jungle", "kernel", "ladder", "magnet", "nectar", "otter",
];

const OTHERS: [&str; 40] = [
    "system", "report", "quarter", "revenue", "customer", "contract", "server", "latency", "review",
    "budget", "design", "planning", "member", "project", "release", "update", "north", "region", "invoice",
    "supply", "chain", "metric", "table", "window", "garden", "river", "mountain", "yellow", "seven",
    "orange", "public", "private", "memo", "draft", "signal", "vector", "matrix", "engine", "policy",
    "ledger",
];

/// `words`, `hex`, `mail`, `percent` or `base64`, which is nested. Nothing in it needs an escape in JSON.
pub fn of(kind: &str, bytes: usize) -> String {
    let mut text = match kind {
        "words" => words(1, bytes),
        "hex" => "0123456789abcdef".repeat(bytes / 16 + 1),
        "mail" => "a@".repeat(bytes / 2 + 1),
        "percent" => "%25".repeat(bytes / 3 + 1),
        "base64" => {
            let mut text = words(2, bytes / 3);
            while text.len() < bytes {
                text = base64(text.as_bytes());
            }
            text
        }
        other => panic!("unknown kind {other}"),
    };
    text.truncate(bytes);
    text
}

/// Words in an order of their own for each number.
pub fn words(number: usize, bytes: usize) -> String {
    of_words(&WORDS, number, bytes)
}

/// Like [`words`], of words that are not there.
pub fn note(number: usize, bytes: usize) -> String {
    of_words(&OTHERS, number, bytes)
}

fn of_words(words: &[&str], number: usize, bytes: usize) -> String {
    let mut state = number as u64 ^ 0x9e37_79b9_7f4a_7c15;
    let mut text = String::with_capacity(bytes + 10);
    while text.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(words[(state >> 33) as usize % words.len()]);
        text.push(' ');
    }
    text.truncate(bytes);
    text
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len() * 4 / 3 + 4);
    for chunk in bytes.chunks(3) {
        let word = (0..3).fold(0, |word, at| word << 8 | usize::from(chunk.get(at).copied().unwrap_or(0)));
        for place in 0..4 {
            let letter = LETTERS[word >> (18 - 6 * place) & 63];
            text.push(if place <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}
