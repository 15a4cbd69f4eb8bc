#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::time::Duration;

use super::super::hits::HitKind;
use super::super::judge::Judge;
use super::super::leaves::Leaves;
use super::super::memory::Config;
use super::super::origin::Origin;
use super::super::views::Views;
use super::*;
use crate::json;
use crate::types::ServerId;

/// Letters in an order of their own for each number.
fn letters(number: u64, length: usize) -> String {
    let mut state = number;
    let letter = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b"abcdefghijklmnopqrstuvwxyz  "[(state >> 33) as usize % 28])
    };
    (0..length).map(letter).collect()
}

#[test]
fn a_long_text_is_searched_to_its_end() {
    let mut judge = Judge::new(Config::default(), &[7; 32]);
    let origin = Origin {
        server: ServerId("files".to_owned()),
        tool: "read".to_owned(),
        call: "1".to_owned(),
        time: Duration::from_secs(1),
        private: true,
    };
    let secret = "nobody outside of this house may hear what the committee decided about the winter garden";
    let result = letters(1, 300_000) + secret + &letters(2, 1000);
    let result = format!("\"{result}\"");
    judge.remember(origin, &Leaves::of(&json::read(result.as_bytes()).unwrap()), &Views::NONE);
    let Judge { memory, all, .. } = &mut judge;
    let text = Folded::of(&(letters(3, 400_000) + secret));
    let hits = all.scan(memory, &text, &|_| true).list;
    assert!(hits.iter().any(|hit| hit.what == HitKind::Run), "{hits:?}");
    let hits = all.scan(memory, &Folded::of(&letters(4, 400_000)), &|_| true).list;
    assert_eq!(hits, []);
}
