//! A tool's definition in canonical form, independent of its spelling, and its hash.
//!
//! Members are sorted by their unescaped names in UTF-16 order, strings escape only what they must, and a number is
//! written as ECMAScript writes it, but with all of its digits: two definitions that differ in the 30th digit differ.
//!
//! For comparison there is a second form, in which what JSON Schema defines as sets has one order (decision 805). No
//! hash that is shown or sent is made of it.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use crate::json::{Json, unescape, write_text};

/// `sha256:` and 64 hex digits over the canonical form.
#[must_use]
pub fn hash(definition: &Json<'_>) -> String {
    hash_of(&canonical(definition))
}

pub(crate) fn hash_of(form: &[u8]) -> String {
    format!("sha256:{}", agentsh_base::hex(&Sha256::digest(form)))
}

/// The canonical form.
#[must_use]
pub fn canonical(value: &Json<'_>) -> Vec<u8> {
    form(value, ValueKind::Data)
}

/// A canonical form of a definition's member: the order inside its sets does not matter.
#[must_use]
pub fn canonical_member(member: &str, value: &Json<'_>) -> Vec<u8> {
    form(
        value,
        if matches!(member, "inputSchema" | "outputSchema") { ValueKind::Schema } else { ValueKind::Data },
    )
}

/// The kind of a value in a definition, which decides whether order matters in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueKind {
    /// Anything else: order counts.
    Data,
    /// A schema, or schemas in their order.
    Schema,
    /// Schemas by names that the author chose.
    Schemas,
    /// Sets by such names.
    Sets,
    Set,
    /// Only a list of names is a set here.
    Default,
}

impl ValueKind {
    fn of_member(self, name: &str) -> Self {
        match (self, name) {
            (Self::Schemas, _) => Self::Schema,
            (Self::Sets, _) => Self::Set,
            (
                Self::Schema,
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
            ) => Self::Schemas,
            (
                Self::Schema,
                "items"
                | "prefixItems"
                | "additionalItems"
                | "unevaluatedItems"
                | "contains"
                | "additionalProperties"
                | "unevaluatedProperties"
                | "propertyNames"
                | "allOf"
                | "anyOf"
                | "oneOf"
                | "not"
                | "if"
                | "then"
                | "else",
            ) => Self::Schema,
            (Self::Schema, "dependentRequired") => Self::Sets,
            (Self::Schema, "required" | "enum" | "type") => Self::Set,
            (Self::Schema, "default") => Self::Default,
            _ => Self::Data,
        }
    }
}

fn form(value: &Json<'_>, kind: ValueKind) -> Vec<u8> {
    let mut out = Vec::new();
    write_form(value, kind, &mut out);
    out
}

fn write_form(value: &Json<'_>, kind: ValueKind, out: &mut Vec<u8>) {
    match value {
        Json::Null | Json::Bool(_) => value.write(out),
        Json::Number(raw) => out.extend_from_slice(canonical_number(raw).as_bytes()),
        Json::String(raw) if kind == ValueKind::Default && raw.split(',').all(is_name) => {
            let mut names: Vec<&str> = raw.split(',').collect();
            names.sort_unstable();
            write_canonical_text(&names.join(","), out);
        }
        Json::String(raw) => write_canonical_text(raw, out),
        Json::Array(items) => {
            let inner = if kind == ValueKind::Schema { kind } else { ValueKind::Data };
            let mut items: Vec<Vec<u8>> = items.iter().map(|item| form(item, inner)).collect();
            let names =
                |item: &Vec<u8>| str::from_utf8(item).is_ok_and(|text| is_name(text.trim_matches('"')));
            if kind == ValueKind::Set || kind == ValueKind::Default && items.iter().all(names) {
                items.sort_unstable();
            }
            out.push(b'[');
            out.extend(items.join(&b','));
            out.push(b']');
        }
        Json::Object(members) => {
            let mut sorted: Vec<(Cow<'_, str>, &str, &Json<'_>)> =
                members.iter().map(|(raw, value)| (unescape(raw), *raw, value)).collect();
            sorted.sort_by(|left, right| left.0.encode_utf16().cmp(right.0.encode_utf16()));
            out.push(b'{');
            for (index, (name, raw, value)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_canonical_text(raw, out);
                out.push(b':');
                write_form(value, kind.of_member(&name), out);
            }
            out.push(b'}');
        }
    }
}

/// A word or a number as programs write names: nothing that reads as a sentence.
fn is_name(text: &str) -> bool {
    let is_part = |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'_' | b'-' | b'.');
    !text.is_empty() && text.len() <= 64 && text.bytes().all(is_part)
}

/// A lone surrogate has no normal form: such text keeps its spelling, so that two of them never look alike.
fn write_canonical_text(raw: &str, out: &mut Vec<u8>) {
    if crate::json::has_lone_surrogate(raw) {
        Json::String(raw).write(out);
    } else {
        write_text(&unescape(raw), out);
    }
}

fn canonical_number(raw: &str) -> Cow<'_, str> {
    let (sign, unsigned) = raw.strip_prefix('-').map_or(("", raw), |rest| ("-", rest));
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole, fraction].concat();
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return Cow::Borrowed("0");
    }
    // The value is 0.DIGITS times ten to the power of `point`.
    let leading_zeros = digits.len() - significant.len();
    let point = exponent
        .parse::<i64>()
        .ok()
        .and_then(|exponent| exponent.checked_add(i64::try_from(whole.len()).ok()?))
        .and_then(|point| point.checked_sub(i64::try_from(leading_zeros).ok()?));
    let Some(point) = point else { return Cow::Borrowed(raw) };
    let significant = significant.trim_end_matches('0');
    let count = i64::try_from(significant.len()).unwrap_or(i64::MAX);
    let zeros = |count: i64| "0".repeat(usize::try_from(count).unwrap_or(0));
    let shown = if (count..=count.max(21)).contains(&point) {
        format!("{sign}{significant}{}", zeros(point - count))
    } else if point > 0 && point < count {
        let (whole, fraction) = significant.split_at(usize::try_from(point).unwrap_or(0));
        format!("{sign}{whole}.{fraction}")
    } else if (-5..=0).contains(&point) {
        format!("{sign}0.{}{significant}", zeros(-point))
    } else {
        let (first, rest) = significant.split_at(1);
        let dot = if rest.is_empty() { "" } else { "." };
        let power = point - 1;
        let plus = if power > 0 { "+" } else { "" };
        format!("{sign}{first}{dot}{rest}e{plus}{power}")
    };
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use proptest::prelude::*;

    use super::*;
    use crate::json::read;

    fn form(text: &str) -> String {
        String::from_utf8(canonical(&read(text.as_bytes()).unwrap())).unwrap()
    }

    #[test]
    fn interface_hash_ignores_the_spelling_of_numbers() {
        for (spelled, expected) in [
            ("0", "0"),
            ("-0", "0"),
            ("-0.0e5", "0"),
            ("1.0", "1"),
            ("1e2", "100"),
            ("100E-2", "1"),
            ("0.10", "0.1"),
            ("-12.50", "-12.5"),
            ("1e20", "100000000000000000000"),
            ("1e21", "1e+21"),
            ("1.5e300", "1.5e+300"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1e-7"),
            ("1.25e-7", "1.25e-7"),
            ("123456789012345678901234567891", "123456789012345678901234567891"),
            ("1e400", "1e+400"),
            ("1e99999999999999999999", "1e99999999999999999999"),
        ] {
            assert_eq!(form(spelled), expected, "{spelled}");
        }
    }

    #[test]
    fn names_are_sorted_by_utf16_and_spelling_does_not_count() {
        assert_eq!(form(r#"{ "b": 1, "a": "\u0041\/" }"#), r#"{"a":"A/","b":1}"#);
        // U+FB33 sorts after the surrogates of U+1F600.
        assert_eq!(form("{\"\u{fb33}\":1,\"\u{1f600}\":2}"), "{\"\u{1f600}\":2,\"\u{fb33}\":1}");
        assert_eq!(form(r#""\u001f\u2028\n""#), "\"\\u001f\u{2028}\\n\"");
    }

    #[test]
    fn interface_hash_does_not_interpret_serde_json_private_keys() {
        assert_ne!(form(r#"{"$serde_json::private::Number":"5"}"#), form("5"));
    }

    #[test]
    fn one_changed_character_changes_the_hash_and_order_does_not() {
        let one = hash(&read(br#"{"name":"t","inputSchema":{"type":"object","x":1}}"#).unwrap());
        let same = hash(&read(br#"{"inputSchema":{"x":1.0,"type":"object"},"name":"t"}"#).unwrap());
        let other = hash(&read(br#"{"name":"t","inputSchema":{"type":"object","x":2}}"#).unwrap());
        assert_eq!(one, same);
        assert_ne!(one, other);
        assert_eq!(one.len(), 71);
        assert_eq!(
            hash(&Json::Null),
            "sha256:74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"
        );
    }

    #[test]
    fn lone_surrogates_have_distinct_hash_forms() {
        assert_ne!(form(r#""\ud800""#), form(r#""\ud801""#));
        assert_ne!(form(r#""\ud800""#), form("\"\u{fffd}\""));
    }

    #[test]
    fn sets_of_a_schema_have_no_order_and_everything_else_has() {
        let same = |member: &str, one: &str, other: &str| {
            let [one, other] =
                [one, other].map(|text| canonical_member(member, &read(text.as_bytes()).unwrap()));
            one == other
        };
        for (one, other) in [
            (r#"{"required":["a","b"]}"#, r#"{"required":["b","a"]}"#),
            (
                r#"{"properties":{"x":{"enum":["a b",1,null]}}}"#,
                r#"{"properties":{"x":{"enum":[1,null,"a b"]}}}"#,
            ),
            (r#"{"items":[{"type":["null","string"]}]}"#, r#"{"items":[{"type":["string","null"]}]}"#),
            (
                r#"{"$defs":{"required":{"anyOf":[{"enum":[1,2]}]}}}"#,
                r#"{"$defs":{"required":{"anyOf":[{"enum":[2,1]}]}}}"#,
            ),
            (r#"{"dependentRequired":{"a":["b","c"]}}"#, r#"{"dependentRequired":{"a":["c","b"]}}"#),
            (
                r#"{"properties":{"x":{"default":"id,name"}}}"#,
                r#"{"properties":{"x":{"default":"name,id"}}}"#,
            ),
            (r#"{"properties":{"x":{"default":["id",1]}}}"#, r#"{"properties":{"x":{"default":[1,"id"]}}}"#),
        ] {
            assert!(same("inputSchema", one, other) && same("outputSchema", one, other), "{one} {other}");
            assert!(!same("annotations", one, other), "{one} {other}");
        }
        for (one, other) in [
            // One member more or fewer, another one, or the same one twice.
            (r#"{"enum":["a","b"]}"#, r#"{"enum":["a","b","c"]}"#),
            (r#"{"enum":["a","b"]}"#, r#"{"enum":["a","b","b"]}"#),
            (r#"{"enum":[1,2]}"#, r#"{"enum":["1",2]}"#),
            (r#"{"default":"a,b"}"#, r#"{"default":["a","b"]}"#),
            (r#"{"default":"a,b"}"#, r#"{"default":"a,b,c"}"#),
            // A text, and a list of texts.
            (r#"{"default":"go on,stop it"}"#, r#"{"default":"stop it,go on"}"#),
            (r#"{"default":["go on","stop"]}"#, r#"{"default":["stop","go on"]}"#),
            // Members of these names where they are no words of a schema.
            (r#"{"properties":{"enum":["a","b"]}}"#, r#"{"properties":{"enum":["b","a"]}}"#),
            (r#"{"default":{"enum":["a","b"]}}"#, r#"{"default":{"enum":["b","a"]}}"#),
            (r#"{"x":{"required":["a","b"]}}"#, r#"{"x":{"required":["b","a"]}}"#),
            (r#"{"enum":[{"enum":["a","b"]}]}"#, r#"{"enum":[{"enum":["b","a"]}]}"#),
            // Alternatives that are tried in order.
            (r#"{"anyOf":[{"type":"null"},{}]}"#, r#"{"anyOf":[{},{"type":"null"}]}"#),
            (r#"{"examples":["a","b"]}"#, r#"{"examples":["b","a"]}"#),
            (r#"{"prefixItems":[{},true]}"#, r#"{"prefixItems":[true,{}]}"#),
        ] {
            assert!(!same("inputSchema", one, other), "{one} {other}");
        }
    }

    fn any_value() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                prop::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// The members from the last to the first, with white space between all tokens.
    fn turned(value: &Json<'_>) -> String {
        match value {
            Json::Array(items) => {
                format!("[ {}\n]", items.iter().map(turned).collect::<Vec<_>>().join(" ,\t"))
            }
            Json::Object(members) => {
                let member = |(raw, value): &(&str, Json<'_>)| format!("\"{raw}\" : {}", turned(value));
                format!("{{\r\n{} }}", members.iter().rev().map(member).collect::<Vec<_>>().join(" , "))
            }
            other => other.to_compact(),
        }
    }

    proptest! {
        #[test]
        fn hash_ignores_the_order_of_members_and_white_space(value in any_value()) {
            let (plain, pretty) = (value.to_string(), serde_json::to_string_pretty(&value).unwrap());
            let plain = read(plain.as_bytes()).unwrap();
            let turned = turned(&plain);
            prop_assert_eq!(hash(&read(turned.as_bytes()).unwrap()), hash(&plain));
            prop_assert_eq!(hash(&read(pretty.as_bytes()).unwrap()), hash(&plain));
        }

        #[test]
        fn a_float_reads_back_as_itself(number in any::<f64>().prop_filter("finite", |n| n.is_finite())) {
            let text = serde_json::to_string(&number).unwrap();
            prop_assert_eq!(form(&text).parse::<f64>().unwrap(), number);
        }

        #[test]
        fn canonical_form_is_idempotent(text in r#"-?[1-9][0-9]{0,30}(\.[0-9]{1,30})?(e[+-]?[0-9]{1,3})?"#) {
            let once = form(&text);
            prop_assert_eq!(form(&once), once);
        }
    }
}
