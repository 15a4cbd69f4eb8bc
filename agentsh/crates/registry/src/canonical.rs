//! The canonical text under `kiji1`: what Python's `json.dumps(value, sort_keys=True, separators=(",", ":"))` writes.
//!
//! Names are sorted by code point (not by UTF-16 as in RFC 8785), everything outside printable ASCII is escaped,
//! integers keep all of their digits, and other numbers are 64-bit floats as Python's `repr` shows them.

use std::fmt::Write as _;

use crate::json::{Json, unescape};

/// The canonical text of a value. A lone surrogate has none: callers refuse it before.
#[must_use]
pub fn canonical(value: &Json<'_>) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

pub(crate) fn write(value: &Json<'_>, out: &mut String) {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(true) => out.push_str("true"),
        Json::Bool(false) => out.push_str("false"),
        Json::Number(raw) => write_number(raw, out),
        Json::String(raw) => write_text(&unescape(raw), out),
        Json::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Json::Object(members) => {
            // The bytes of UTF-8 sort as code points do.
            let mut sorted: Vec<_> = members.iter().map(|(raw, value)| (unescape(raw), value)).collect();
            sorted.sort_by(|left, right| left.0.cmp(&right.0));
            out.push('{');
            for (index, (name, value)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_text(&name, out);
                out.push(':');
                write(value, out);
            }
            out.push('}');
        }
    }
}

pub(crate) fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            ' '..='~' => out.push(character),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    let _infallible = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
}

fn write_number(raw: &str, out: &mut String) {
    if !raw.contains(['.', 'e', 'E']) {
        out.push_str(if raw == "-0" { "0" } else { raw });
        return;
    }
    // The reader took it as a number: this parses.
    let value: f64 = raw.parse().unwrap_or(f64::NAN);
    if value.is_infinite() {
        out.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
        return;
    }
    // The shortest digits that read back as the same float: `-d.ddde-7`.
    let shortest = format!("{value:e}");
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let digits = mantissa.replace('.', "");
    out.push_str(sign);
    if !(-4..16).contains(&exponent) {
        let (first, rest) = digits.split_at(1);
        let dot = if rest.is_empty() { "" } else { "." };
        let minus = if exponent < 0 { '-' } else { '+' };
        let _infallible = write!(out, "{first}{dot}{rest}e{minus}{:02}", exponent.unsigned_abs());
    } else if exponent < 0 {
        let zeros = "0".repeat(usize::try_from(-exponent - 1).unwrap_or(0));
        let _infallible = write!(out, "0.{zeros}{digits}");
    } else {
        let whole = usize::try_from(exponent + 1).unwrap_or(1);
        let padded = format!("{digits:0<whole$}");
        let (whole, fraction) = padded.split_at(whole);
        let _infallible = write!(out, "{whole}.{}", if fraction.is_empty() { "0" } else { fraction });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use proptest::prelude::*;

    use super::*;
    use crate::json::read;

    fn form(text: &str) -> String {
        canonical(&read(text.as_bytes()).unwrap())
    }

    #[test]
    fn numbers_are_as_python_prints_them() {
        for (spelled, expected) in [
            ("-0", "0"),
            ("-0.0", "-0.0"),
            ("0e5", "0.0"),
            ("1.0", "1.0"),
            ("1e2", "100.0"),
            ("0.10", "0.1"),
            ("0.0001", "0.0001"),
            ("0.00001", "1e-05"),
            ("1.25e-7", "1.25e-07"),
            ("1e15", "1000000000000000.0"),
            ("1E16", "1e+16"),
            ("-1.5e300", "-1.5e+300"),
            ("123456789.125", "123456789.125"),
            ("12345678901234567.0", "1.2345678901234568e+16"),
            ("5e-324", "5e-324"),
            ("1e400", "Infinity"),
            ("-1e400", "-Infinity"),
            ("1e-400", "0.0"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
        ] {
            assert_eq!(form(spelled), expected, "{spelled}");
        }
    }

    #[test]
    fn text_is_ascii_and_names_are_sorted_by_code_point() {
        assert_eq!(form("\"é\u{7f}😀\\/\\u0000\\n\""), r#""\u00e9\u007f\ud83d\ude00/\u0000\n""#);
        let sorted = r#"{"":0,"A":1,"a":{"b":2,"c":3},"ab":4,"\uff5e":5,"\ud83d\ude00":6}"#;
        assert_eq!(form("{\"😀\":6,\"\u{ff5e}\":5,\"ab\":4,\"a\":{\"c\":3,\"b\":2},\"A\":1,\"\":0}"), sorted);
        assert_eq!(
            form(r#"{"$serde_json::private::Number":"5"}"#),
            r#"{"$serde_json::private::Number":"5"}"#
        );
    }

    proptest! {
        #[test]
        fn a_float_reads_back_as_itself(number in any::<f64>().prop_filter("finite", |n| n.is_finite())) {
            let text = form(&format!("{number:e}"));
            prop_assert_eq!(text.parse::<f64>().unwrap(), number);
            prop_assert!(text.contains(['.', 'e']), "{}", text);
        }
    }
}
