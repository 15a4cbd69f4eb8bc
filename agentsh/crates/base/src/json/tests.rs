#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn code(text: &[u8]) -> &'static str {
    read(text).map_or_else(|error| error.kind.code(), |_| "ok")
}

#[test]
fn json_round_trip_keeps_every_byte() {
    for text in [
        r#"{"a":-0,"b":1e400,"c":123456789012345678901234567890,"d":1.0,"e":0.8,"f":1E+2}"#,
        r#"{"$serde_json::private::Number":"5"}"#,
        r#"{"$serde_json::private::RawValue":"[]"}"#,
        r#"{"z":1,"a":2,"":3,"__proto__":null}"#,
        r#""\u00e9\/\ud83d\ude00 é 😀 \ud800""#,
        r#"[[],{},"",true,false,null]"#,
    ] {
        assert_eq!(read(text.as_bytes()).unwrap().to_compact(), text);
    }
}

#[test]
fn only_insignificant_white_space_is_lost() {
    assert_eq!(read(b" { \"a b\" :\t[ 1 , 2 ] }\r\n").unwrap().to_compact(), r#"{"a b":[1,2]}"#);
}

#[test]
fn hostile_texts_have_stable_codes() {
    let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    for (text, expected) in [
        (b"".as_slice(), "invalid-json"),
        (b" ", "invalid-json"),
        (b"\xef\xbb\xbf{}", "invalid-json"),
        (b"{}{}", "invalid-json"),
        (b"{} x", "invalid-json"),
        (b"NaN", "invalid-json"),
        (b"-Infinity", "invalid-json"),
        (b"[1,]", "invalid-json"),
        (b"[,1]", "invalid-json"),
        (b"{\"a\":1,}", "invalid-json"),
        (b"{a:1}", "invalid-json"),
        (b"{'a':1}", "invalid-json"),
        (b"01", "invalid-json"),
        (b"-", "invalid-json"),
        (b"1.", "invalid-json"),
        (b".5", "invalid-json"),
        (b"+1", "invalid-json"),
        (b"1e", "invalid-json"),
        (b"0x10", "invalid-json"),
        (b"\"a", "invalid-json"),
        (b"\"\\x41\"", "invalid-json"),
        (b"\"\\u12g4\"", "invalid-json"),
        (b"\"a\nb\"", "invalid-json"),
        (b"\"12345678\x01\"", "invalid-json"),
        (b"\"a\0\"", "invalid-json"),
        (b"tru", "invalid-json"),
        (b"nul", "invalid-json"),
        (b"// c\n1", "invalid-json"),
        (b"\"\xff\"", "invalid-utf8"),
        (b"\"\xc0\xaf\"", "invalid-utf8"),
        (b"\"\xed\xa0\x80\"", "invalid-utf8"),
        (br#"{"a":1,"a":2}"#, "duplicate-key"),
        (br#"{"a":1,"\u0061":2}"#, "duplicate-key"),
        (br#"{"x":{"a":1,"b":2,"a":3}}"#, "duplicate-key"),
        (br#"{"\ud800":1,"\ud801":2}"#, "duplicate-key"),
        (br#"{"a":1,"A":2}"#, "ok"),
    ] {
        assert_eq!(code(text), expected, "{}", String::from_utf8_lossy(text));
    }
    assert_eq!(code(deep(128).as_bytes()), "ok");
    assert_eq!(code(deep(129).as_bytes()), "too-deep");
    assert_eq!(code("[".repeat(1_000_000).as_bytes()), "too-deep");
    assert_eq!(code(format!("[{}0]", "0,".repeat(MAX_VALUES)).as_bytes()), "too-many-values");
}

#[test]
fn a_duplicate_is_found_in_a_large_object_and_named_by_its_place() {
    let mut text: String = (0..500).map(|index| format!("\"k{index}\":{index},")).collect();
    text.insert(0, '{');
    let offset = text.len() + 1;
    text.push_str(r#""\u006b7":0}"#);
    assert_eq!(read(text.as_bytes()), Err(JsonError { kind: JsonErrorKind::DuplicateKey, offset }));
}

#[test]
fn surrogates_pair_up_or_are_replaced() {
    assert_eq!(unescape(r"\ud83d\ude00x"), "😀x");
    assert_eq!(unescape(r"a\ud83db"), "a\u{fffd}b");
    assert_eq!(unescape(r"\ude00\ud83d"), "\u{fffd}\u{fffd}");
    assert_eq!(unescape(r"\ud83d\u0041"), "\u{fffd}A");
    assert!(has_lone_surrogate(r"x\ud83d\u0041"));
    assert!(!has_lone_surrogate(r"\ud83d\ude00\n"));
}

#[test]
fn names_that_differ_only_in_case_folding_are_recognised() {
    for name in ["name", "Name", "NAME", "nAmE"] {
        assert!(folds_to(name, "name"), "{name}");
    }
    assert!(folds_to("param\u{17f}", "params"));
    assert!(!folds_to("names", "name"));
    assert!(!folds_to("nam", "name"));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 20, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..20).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..20)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Texts close to JSON, most of them wrong in one place.
fn nearly_json() -> impl Strategy<Value = Vec<u8>> {
    (any_json(), any::<prop::sample::Index>(), any::<u8>(), 0..4_u8).prop_map(|(value, at, byte, what)| {
        let mut text = value.to_string().into_bytes();
        let at = at.index(text.len());
        match what {
            0 => text[at] = byte,
            1 => text.insert(at, byte),
            2 => drop(text.remove(at)),
            _ => text.truncate(at),
        }
        text
    })
}

proptest! {
    #[test]
    fn values_are_read_as_serde_json_reads_them(value in any_json()) {
        let text = value.to_string();
        let tree = read(text.as_bytes()).unwrap();
        prop_assert_eq!(tree.to_value(), value);
        prop_assert_eq!(tree.to_compact(), text);
    }

    #[test]
    fn accepts_what_serde_json_accepts_and_nothing_else(text in nearly_json()) {
        // Known differences: serde_json takes duplicate keys, refuses numbers that overflow a float, lone surrogates
        // and the 128th level.
        let ours = read(&text);
        match serde_json::from_slice::<Value>(&text) {
            Ok(_) => prop_assert!(
                matches!(ours, Ok(_) | Err(JsonError { kind: JsonErrorKind::DuplicateKey, .. })),
                "{:?} {}", ours, String::from_utf8_lossy(&text)
            ),
            Err(error) => if let Ok(tree) = ours {
                let message = error.to_string();
                prop_assert!(
                    message.contains("number out of range")
                        || message.contains("surrogate")
                        || message.contains("hex escape")
                        || message.contains("recursion"),
                    "{} {}", message, tree.to_compact()
                );
            },
        }
    }

    #[test]
    fn json_reader_takes_any_bytes_and_reads_back_its_output(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(tree) = read(&bytes) {
            let again = tree.to_compact();
            prop_assert_eq!(read(again.as_bytes()).unwrap(), tree);
        }
    }

    #[test]
    fn unescaping_undoes_escaping(text in any::<String>()) {
        let mut written = Vec::new();
        write_text(&text, &mut written);
        let tree = read(&written).unwrap();
        prop_assert_eq!(tree.as_text().unwrap(), text.as_str());
    }
}
