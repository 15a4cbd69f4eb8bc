//! Redacts a tool call's arguments for storage: bounded, and without secrets. Pure.

use serde_json::{Map, Value};

use agentsh_secrets::redact::{self, REDACTED};

/// Longest result of [`redact`], as JSON, in bytes.
pub const MAX_BYTES: usize = 4096;

/// Longest string that stays whole, in characters.
const MAX_CHARS: usize = 200;

/// Limits of a shown value.
#[derive(Clone, Copy, Debug)]
pub struct RedactionLimits {
    /// Limit of the whole value, as JSON.
    pub bytes: usize,
    /// Limit of each string.
    pub chars: usize,
}

/// The limits of stored values.
const STORED: RedactionLimits = RedactionLimits { bytes: MAX_BYTES, chars: MAX_CHARS };

/// Lists and objects deeper than this are left out.
const MAX_DEPTH: usize = 16;

/// Kept free in every open list or object for saying how much is left out, and its brackets.
const RESERVE: usize = 64;

/// Bytes of a string that are searched beyond the kept part: a secret that begins in the kept part must be seen whole.
const WINDOW: usize = 7392;

/// `value` with secrets replaced, strings cut at 200 characters and the whole at most [`MAX_BYTES`] of JSON.
/// The work is bounded too, whatever the size of `value`.
#[must_use]
pub fn redact(value: &Value) -> Value {
    redact_with_limits(value, STORED)
}

/// Like [`redact`], with other limits.
#[must_use]
pub fn redact_with_limits(value: &Value, bounds: RedactionLimits) -> Value {
    let mut room = RemainingBudget { left: bounds.bytes, chars: bounds.chars };
    part(value, None, 0, &mut room).unwrap_or_else(|| Value::String("[left out]".to_owned()))
}

/// Command-line arguments: as text, and what follows `--token` or the like is a secret too.
#[must_use]
pub fn arguments(arguments: &[String]) -> Vec<String> {
    redact_arguments(arguments, text)
}

/// Like [`arguments`], without limits.
#[must_use]
pub fn command(arguments: &[String]) -> Vec<String> {
    redact_arguments(arguments, redact_text)
}

fn redact_arguments(arguments: &[String], shown: fn(&str) -> String) -> Vec<String> {
    let mut after_secret_name = false;
    let all = arguments.iter().map(|argument| {
        let secret = after_secret_name && !argument.starts_with('-');
        after_secret_name = argument
            .strip_prefix('-')
            .is_some_and(|name| !name.contains('=') && redact::is_hidden_name(name.trim_start_matches('-')));
        if secret { REDACTED.to_owned() } else { shown(argument) }
    });
    all.collect()
}

/// One string: secrets replaced, at most 200 characters, then the number of omitted bytes, if that is shorter than they are.
#[must_use]
pub fn text(text: &str) -> String {
    truncate(text, MAX_CHARS)
}

/// One string with its secrets replaced, in full.
#[must_use]
pub fn redact_text(text: &str) -> String {
    redact::replace(text, false)
}

fn truncate(text: &str, chars: usize) -> String {
    let window = &text[..text.floor_char_boundary(4 * chars + WINDOW)];
    let mut shown = redact::replace(window, window.len() < text.len());
    let cut = shown.char_indices().nth(chars).map(|(at, _)| at);
    let left_out = text.len() - window.len() + cut.map_or(0, |at| shown.len() - at);
    let mark = format!("… [{left_out} bytes left out]");
    // What was read whole is not cut where the mark would be as long.
    if window.len() < text.len() || left_out > mark.len() {
        shown.truncate(cut.unwrap_or(shown.len()));
        shown.push_str(&mark);
    }
    shown
}

struct RemainingBudget {
    left: usize,
    chars: usize,
}

/// None: it exceeds the limit.
fn part(value: &Value, name: Option<&str>, depth: usize, room: &mut RemainingBudget) -> Option<Value> {
    let secret = name.is_some_and(redact::is_hidden_name);
    match value {
        Value::Null | Value::Bool(_) => scalar(value.clone(), room),
        // `max_tokens` and the like are no secrets; a number called `password` or `token` may be one.
        Value::Number(_)
            if secret && !name.is_some_and(|name| name.to_ascii_lowercase().ends_with("tokens")) =>
        {
            scalar(REDACTED.into(), room)
        }
        _ if secret && !value.is_number() => scalar(REDACTED.into(), room),
        Value::Number(number) => {
            let digits = number.to_string().len();
            if digits <= 40 {
                scalar(value.clone(), room)
            } else {
                scalar(format!("[number of {digits} digits]").into(), room)
            }
        }
        Value::String(string) => scalar(truncate(string, room.chars).into(), room),
        Value::Array(_) | Value::Object(_) if depth >= MAX_DEPTH => {
            scalar("[left out: too deep]".into(), room)
        }
        Value::Array(items) => list(items, depth, room),
        Value::Object(fields) => object(fields, depth, room),
    }
}

fn list(items: &[Value], depth: usize, room: &mut RemainingBudget) -> Option<Value> {
    take(room, RESERVE)?;
    let mut kept = Vec::new();
    for item in items {
        match part(item, None, depth + 1, room) {
            Some(item) => kept.push(item),
            None => {
                kept.push(format!("[{} more left out]", items.len() - kept.len()).into());
                break;
            }
        }
    }
    Some(Value::Array(kept))
}

fn object(fields: &Map<String, Value>, depth: usize, room: &mut RemainingBudget) -> Option<Value> {
    take(room, RESERVE)?;
    let pair_is_secret = fields.len() <= 8 && names_a_secret(fields);
    let mut kept = Map::new();
    for (at, (name, value)) in fields.iter().enumerate() {
        let shown_name = text(name);
        let secret = pair_is_secret && name.eq_ignore_ascii_case("value");
        let before = room.left;
        let shown = take(room, json_length(&shown_name) + 1).and_then(|()| {
            if secret { scalar(REDACTED.into(), room) } else { part(value, Some(name), depth + 1, room) }
        });
        match shown {
            Some(value) => {
                kept.insert(shown_name, value);
            }
            None => {
                room.left = before;
                kept.insert("[left out]".to_owned(), (fields.len() - at).into());
                break;
            }
        }
    }
    Some(Value::Object(kept))
}

/// `{"name": "Authorization", "value": …}`, as lists of headers and variables are written.
fn names_a_secret(fields: &Map<String, Value>) -> bool {
    fields.iter().any(|(name, value)| {
        ["name", "key", "header", "variable"].iter().any(|title| name.eq_ignore_ascii_case(title))
            && value.as_str().is_some_and(|value| value.len() <= 100 && redact::is_hidden_name(value))
    })
}

fn scalar(value: Value, room: &mut RemainingBudget) -> Option<Value> {
    let length = match &value {
        Value::String(string) => json_length(string),
        other => other.to_string().len(),
    };
    take(room, length + 1)?;
    Some(value)
}

fn take(room: &mut RemainingBudget, bytes: usize) -> Option<()> {
    room.left = room.left.checked_sub(bytes)?;
    Some(())
}

/// The length of a string with its quotes and escapes.
fn json_length(text: &str) -> usize {
    let escaped = text.chars().map(|character| match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        control if u32::from(control) < 0x20 => 6,
        other => other.len_utf8(),
    });
    escaped.sum::<usize>() + 2
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn values_under_secret_names_are_replaced() {
        let shown = redact(&json!({
            "apiKey": "short", "db_password": 123_456, "Authorization": ["Basic x"], "cookie": {"a": "b"},
            "max_tokens": 100, "keyboard": "us", "path": "/etc/hosts", "secret": null,
            "headers": [{"name": "X-Api-Key", "value": "abc"}, {"name": "Accept", "value": "*/*"}],
        }));
        assert_eq!(
            shown,
            json!({
                "apiKey": REDACTED, "db_password": REDACTED, "Authorization": REDACTED, "cookie": REDACTED,
                "max_tokens": 100, "keyboard": "us", "path": "/etc/hosts", "secret": null,
                "headers": [{"name": "X-Api-Key", "value": REDACTED}, {"name": "Accept", "value": "*/*"}],
            })
        );
    }

    #[test]
    fn long_strings_are_cut_between_characters() {
        let shown = text(&"é ".repeat(300));
        assert_eq!(shown, format!("{}… [600 bytes left out]", "é ".repeat(100)));
        assert!(text(&"a b".repeat(5_000_000)).ends_with("… [14999800 bytes left out]"));
        let short = "a b ".repeat(54);
        assert_eq!(text(&short), short);
    }

    #[test]
    fn secret_across_a_cut_is_fully_redacted() {
        let token = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7";
        let end = 4 * MAX_CHARS + WINDOW;
        for filler in (180..200).chain(end - 30..end) {
            let shown = text(&format!("{}{token}", "- ".repeat(filler / 2)));
            assert!(!shown.contains("aB3dE6"), "{filler}: {shown}");
        }
    }

    #[test]
    fn shortened_values_say_what_was_left_out() {
        let shown = redact(&Value::Array(vec!["word ".repeat(30).into(); 100]));
        let last = shown.as_array().unwrap().last().unwrap();
        assert!(last.as_str().unwrap().ends_with("more left out]"), "{last}");
        let fields: Map<String, Value> = (0..5000).map(|n| (format!("n{n}"), n.into())).collect();
        assert!(redact(&Value::Object(fields)).get("[left out]").is_some());
        let mut deep = json!("bottom");
        for _ in 0..100 {
            deep = json!([deep]);
        }
        assert!(redact(&deep).to_string().contains("too deep"));
    }

    #[test]
    fn arguments_hide_what_follows_a_secret_name() {
        let words = ["--token", "abc", "--port", "80", "--password=x", "-v", "--api-key"].map(str::to_owned);
        assert_eq!(
            arguments(&words),
            ["--token", REDACTED, "--port", "80", "--password=[redacted]", "-v", "--api-key"]
        );
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            "[\\x00-\\x1f\"\\\\]{0,400}".prop_map(Value::from),
            "[A-Za-z0-9_+/=.:@ -]{0,300}".prop_map(Value::from),
        ];
        leaf.prop_recursive(20, 200, 30, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..30).prop_map(Value::Array),
                prop::collection::vec((any::<String>(), inner), 0..30)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn redacted_text_is_bounded(value in any_value()) {
            prop_assert!(redact(&value).to_string().len() <= MAX_BYTES);
            let wide = RedactionLimits { bytes: 2 * MAX_BYTES, chars: 1000 };
            prop_assert!(redact_with_limits(&value, wide).to_string().len() <= wide.bytes);
        }

        #[test]
        fn a_marked_token_never_survives(before in "[ -~]{0,60}", after in "[ -~]{0,60}") {
            let token = "ghp_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7aB3dE6gH9";
            let shown = text(&format!("{before} {token} {after}"));
            prop_assert!(!shown.contains("aB3dE6gH9jK2"), "{}", shown);
        }

        #[test]
        fn redaction_takes_any_text_without_a_panic(string in any::<String>()) {
            let _ = text(&string);
        }
    }
}
