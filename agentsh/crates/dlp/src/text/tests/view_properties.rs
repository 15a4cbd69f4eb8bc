#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

use proptest::prelude::*;

use super::view_tests::{base32, base64, hex};
use super::{Limits, visit};

/// Encodings whose output is text, and which a text may pass through in any order.
fn encode(kind: u8, text: &str) -> String {
    let each = |written: fn(u8) -> String| text.bytes().map(written).collect::<String>();
    match kind {
        0 => base64(text.as_bytes()),
        1 => hex(text.as_bytes()),
        2 => base32(text.as_bytes()),
        3 => each(|byte| format!("%{byte:02X}")),
        4 => each(|byte| format!("\\u{byte:04x}")),
        5 => each(|byte| format!("&#{byte};")),
        _ => text.bytes().map(|byte| byte.to_string()).collect::<Vec<_>>().join(","),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Chains of up to three encodings lead back to the text.
    #[test]
    fn a_chain_of_encodings_is_undone(
        secret in "[A-Za-z]{4,8}( [a-z]{3,9}){3,6} [A-Z0-9]{6}",
        kinds in proptest::collection::vec(0_u8..7, 1..=3),
        around in prop_oneof![Just(("", "")), Just(("see: ", " thanks")), Just(("\"", "\""))],
    ) {
        let encoded = kinds.iter().fold(secret.clone(), |text, kind| encode(*kind, &text));
        let mut seen = false;
        let text = format!("{}{encoded}{}", around.0, around.1);
        let _ = visit(&text, &Limits::default(), &mut |view| seen |= view.text.contains(&secret));
        prop_assert!(seen, "{kinds:?}: {text}");
    }

    #[test]
    fn views_of_any_text_are_bounded(text in prop_oneof!["\\PC{0,400}", "[ -~]{0,400}", "[0-9a-fx%\\\\u&#;=., \n]{0,400}"]) {
        let limits = Limits { output_floor: 100, ..Limits::default() };
        let mut output = 0;
        let outcome = visit(&text, &limits, &mut |view| {
            assert!(text.get(view.at.clone()).is_some());
            assert!(view.how.len() <= limits.depth);
            if !view.how.is_empty() {
                output += view.text.len();
            }
        });
        prop_assert_eq!(output, outcome.output);
        prop_assert!(output <= text.len() * limits.output_per_byte + limits.output_floor);
    }
}

/// Decoding one repeated pattern must not use up the budget that the text needs.
#[test]
fn repetitive_decoded_text_is_not_decoded_further() {
    let deepest = |text: &str| {
        let mut deepest = 0;
        let _ = visit(&base64(text.as_bytes()), &Limits::default(), &mut |view| {
            deepest = deepest.max(view.how.len())
        });
        deepest
    };
    assert_eq!(deepest(&"2#\"".repeat(200)), 1);
    assert!(deepest(&format!("{}{}", "2#\"".repeat(200), base64(b"something that is hidden"))) > 1);
}

#[test]
fn view_work_grows_linearly_with_the_text() {
    let nested = |length: usize| {
        let mut text = "All the words of this text stand here more than once. ".repeat(length / 160);
        for _ in 0..4 {
            text = base64(text.as_bytes());
        }
        text
    };
    let noise = |length: usize| {
        let mut state = 7_u64;
        let bytes: Vec<u8> = (0..length)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                state.to_be_bytes()[0]
            })
            .collect();
        bytes
    };
    let texts: [&dyn Fn(usize) -> String; 9] = [
        &|length| hex(&noise(length / 2)),
        &|length| base64(&noise(length * 3 / 4)),
        &|length| "a@".repeat(length / 2),
        &|length| "%25".repeat(length / 3),
        &|length| format!("%{}", "25".repeat(length / 2)),
        &|length| nested(length),
        &|length| "A".repeat(length),
        &|length| "&#1;\\".repeat(length / 5),
        &|length| "1, ".repeat(length / 3),
    ];
    for (index, text) in texts.iter().enumerate() {
        let work = |length: usize| {
            let text = text(length);
            let outcome = visit(&text, &Limits::default(), &mut |_| {});
            outcome.work / u64::try_from(text.len()).unwrap()
        };
        let (small, large) = (work(6_000), work(12_000));
        assert!(large <= small + small / 2 + 16, "text {index}: {small} and {large} units for each byte");
    }
}
