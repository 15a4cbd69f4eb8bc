#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::time::Duration;

use super::super::judge::Judge;
use super::super::leaves::Leaves;
use super::super::memory::{Config, Stored};
use super::super::symbols::Folded;
use super::super::views::Views;
use super::*;
use crate::json;
use crate::types::ServerId;

/// Words in an order of their own for each number.
fn words(number: u64, length: usize) -> String {
    let mut state = number;
    let mut text = String::with_capacity(length + 8);
    while text.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push(char::from(b"abcdefghijklmnopqrstuvwxyz  "[(state >> 33) as usize % 28]));
    }
    text
}

fn memory(bytes: usize) -> Judge {
    Judge::new(Config { memory: bytes, ..Config::default() }, &[7; 32])
}

fn store(memory: &mut Judge, server: &str, private: bool, text: &str) -> Stored {
    let origin = Origin {
        server: ServerId(server.to_owned()),
        tool: "read".to_owned(),
        call: "1".to_owned(),
        time: Duration::from_secs(1),
        private,
    };
    let said = serde_json::Value::from(text).to_string();
    memory.remember(origin, &Leaves::of(&json::read(said.as_bytes()).unwrap()), &Views::NONE)
}

fn remember(memory: &mut Judge, server: &str, private: bool, text: &str) -> Option<Evicted> {
    store(memory, server, private, text).evicted
}

fn servers_of(judge: &Judge, text: &str) -> Vec<String> {
    let memory = &judge.memory;
    let hits = judge.all.clone().scan(memory, &Folded::of(text), &|_| true).list;
    let mut found: Vec<String> =
        hits.iter().map(|hit| memory.origin(hit.origin).unwrap().server.0.clone()).collect();
    found.dedup();
    found
}

const KEY: &str = "sk-4Rt9LmQ2xVb7Ny3Kp8Wd6HsZc1Jf5";

#[test]
fn server_that_fills_the_memory_evicts_only_its_own_results() {
    let mut memory = memory(1 << 20);
    let prose = words(1, 2000);
    remember(&mut memory, "notes", true, &prose);
    remember(&mut memory, "notes", true, &format!("Deploy with key {KEY} today."));
    let mut evicted = 0;
    for number in 0..50_u64 {
        let flood = words(100 + number, 1 << 17);
        let gone = remember(&mut memory, "flood", true, &flood);
        evicted +=
            gone.iter().map(|gone| gone.by_server.get(&ServerId("flood".to_owned())).unwrap()).sum::<u64>();
        assert!(gone.is_none_or(|gone| gone.by_server.len() == 1));
    }
    assert!(evicted > 30, "{evicted}");
    assert_eq!(servers_of(&memory, &prose[100..400]), ["notes"]);
    assert_eq!(servers_of(&memory, &format!("it is {KEY}")), ["notes"]);
    assert!(memory.size() < 6 << 20, "{}", memory.size());
}

#[test]
fn public_server_does_not_evict_results_of_a_private_one() {
    let mut memory = memory(1 << 20);
    let prose: Vec<String> = (0..20).map(|number| words(number, 20_000)).collect();
    prose.iter().for_each(|text| drop(remember(&mut memory, "notes", true, text)));
    let first = prose.iter().position(|text| !servers_of(&memory, &text[..200]).is_empty()).unwrap();
    for number in 100..200 {
        remember(&mut memory, "web", false, &words(number, 20_000));
    }
    for text in &prose[first..] {
        assert_eq!(servers_of(&memory, &text[..200]), ["notes"]);
    }
    // The other way it does.
    let before = memory.memory.origins().filter(|(_, origin)| !origin.private).count();
    for number in 300..305 {
        remember(&mut memory, "mail", true, &words(number, 20_000));
    }
    assert!(memory.memory.origins().filter(|(_, origin)| !origin.private).count() < before.max(1));
}

#[test]
fn secrets_are_kept_when_their_result_is_evicted() {
    let mut memory = memory(1 << 20);
    let secrets: Vec<String> =
        (0..40_u64).map(|number| words(number, 40).replace([' '], "7") + "Q9").collect();
    for (number, secret) in secrets.iter().enumerate() {
        let text = format!(
            "{} password = {secret} \n {}",
            words(1000 + number as u64, 9_000),
            words(2000 + number as u64, 9_000)
        );
        remember(&mut memory, "notes", true, &text);
        remember(&mut memory, "mail", true, &words(5000 + number as u64, 9_000));
    }
    assert_eq!(servers_of(&memory, &words(1000, 9_000)), [""; 0], "the text is forgotten");
    for secret in &secrets {
        assert_eq!(servers_of(&memory, &format!("so {secret} it is")), ["notes"], "{secret}");
    }
    // Until their time is over.
    memory.memory.expire(Duration::from_secs(4000));
    assert!(memory.memory.is_empty() && memory.memory.entries.is_empty());
    assert_eq!(memory.memory.room.used, 0);
}

#[test]
fn overlong_result_is_remembered_up_to_the_limit() {
    let mut memory = memory(12 << 20);
    let text = words(3, (8 << 20) + 5000);
    let stored = store(&mut memory, "big", true, &text);
    assert!(stored.truncated);
    assert_eq!(servers_of(&memory, &text[5000..5300]), ["big"]);
}
