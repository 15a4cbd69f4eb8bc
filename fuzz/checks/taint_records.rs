//! A stored record is what was written or an error; what is read again finds the same; whatever a right key signed,
//! nothing breaks and the memory stays bounded.

use std::time::Duration;

use serde_json::json;

use super::dlp::taint::judge::Judge;
use super::dlp::taint::persist::{ImportError, MAGIC};
use super::dlp::taint::{Config, Findings, Leaves, Origin, Views};
use super::types::ServerId;

const KEY: [u8; 32] = [7; 32];
const BUDGET: usize = 1 << 20;
/// Tables and filters of an empty memory.
const EMPTY: usize = 64 * 1024;
const THEN: Duration = Duration::from_secs(1_000_000);
const LATER: Duration = Duration::from_secs(1_000_060);

pub fn check(data: &[u8]) {
    match data.split_first() {
        Some((mode, bytes)) if mode % 3 == 0 => foreign(bytes),
        Some((mode, bytes)) if mode % 3 == 1 => signed(bytes),
        Some((_, bytes)) => written(&String::from_utf8_lossy(bytes)),
        None => {}
    }
}

fn judge(key: [u8; 32]) -> Judge {
    Judge::new(Config { memory: BUDGET, record: true, ..Config::default() }, &key)
}

/// Nobody without the key makes a record.
fn foreign(bytes: &[u8]) {
    let mut judge = judge(KEY);
    let begins = |signs: [&[u8]; 2]| signs.iter().any(|sign| bytes.starts_with(sign));
    let wanted = if begins([b"AGTAINT1", b"AGTAINT2"]) {
        Ok(None)
    } else if bytes.len() < 24 || !begins([MAGIC, b"AGTSENT1"]) {
        Err(ImportError::NotARecord)
    } else {
        Err(ImportError::WrongMac)
    };
    assert_eq!(judge.import(bytes, LATER), wanted);
    assert!(judge.memory.is_empty());
}

/// Any bodies, one after the other, all with the right key; each begins with its length in two bytes.
fn signed(mut bytes: &[u8]) {
    let mut judge = judge(KEY);
    let mut largest = 0;
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let (body, after) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        bytes = after;
        let record = judge.memory.seal_record([MAGIC.as_slice(), body].concat());
        largest = largest.max(record.len());
        let before = judge.memory.len();
        match judge.import(&record, LATER) {
            Ok(Some(id)) => {
                let origin = judge.memory.origin(id);
                assert!(origin.is_some_and(|origin| origin.time <= LATER), "{origin:?}");
                assert!(judge.memory.origins().last().is_some_and(|(last, _)| last == id));
            }
            Ok(None) | Err(_) => assert_eq!(judge.memory.len(), before),
        }
        // A tag of 8 bytes takes 15, and tables grow by half; a result that alone is too much is kept alone.
        assert!(judge.size() <= EMPTY + 4 * (BUDGET + 4 * largest), "{}", judge.size());
    }
    let text = String::from_utf8_lossy(data_of(bytes, largest)).into_owned();
    for finding in found(&mut judge, &text) {
        assert!(judge.memory.origin(finding.origin).is_some(), "{finding:?}");
    }
    judge.memory.expire(LATER + Duration::from_secs(86_400));
    assert!(judge.memory.is_empty());
}

/// The remaining input, or a text that was never remembered.
fn data_of(rest: &[u8], largest: usize) -> &[u8] {
    if rest.is_empty() || largest == 0 { b"the words of a call that nobody remembered" } else { rest }
}

/// A record of one memory gives the same results in another one with the same key.
fn written(text: &str) {
    let mut first = judge(KEY);
    let origin = Origin {
        server: ServerId("notes".to_owned()),
        tool: "read".to_owned(),
        call: "\"1\"".to_owned(),
        time: THEN,
        private: true,
    };
    let result = json!({ "content": [{ "type": "text", "text": text }] }).to_string();
    let Ok(result) = agentsh_base::json::read(result.as_bytes()) else { panic!("no JSON") };
    let leaves = Leaves::of_call("", &result);
    let stored = first.remember(origin.clone(), &leaves, &Views::NONE);
    let Some(record) = stored.record else { panic!("no record was made") };
    let mut second = judge(KEY);
    assert_eq!(second.import(&record, LATER), Ok(Some(stored.id)));
    assert_eq!(second.memory.origin(stored.id), Some(&origin));
    assert_eq!(found(&mut first, text), found(&mut second, text), "another memory found something else");

    for at in [0, 8, record.len() / 2, record.len() - 1] {
        let mut damaged = record.clone();
        damaged[at] ^= 1;
        assert!(second.import(&damaged, LATER).is_err(), "byte {at} may be another one");
    }
    assert!(second.import(&record[..record.len() - 1], LATER).is_err());
    assert_eq!(judge([8; 32]).import(&record, LATER), Err(ImportError::WrongMac));
    // A minute more than its lifetime: it may have been repeated.
    for over in [THEN - Duration::from_secs(1), THEN + Duration::from_secs(3660)] {
        assert_eq!(judge(KEY).import(&record, over), Ok(None));
    }
}

fn found(judge: &mut Judge, text: &str) -> Findings {
    let arguments = json!({ "text": text, "list": [text] }).to_string();
    let Ok(arguments) = agentsh_base::json::read(arguments.as_bytes()) else { panic!("no JSON") };
    let call = Leaves::of_call("send", &arguments);
    judge.judge(&call, LATER, &Views::NONE, &|_| true)
}
