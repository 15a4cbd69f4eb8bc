//! How much a call can say at most: what is one of a few possible values carries no text away. Counted in bits over the
//! whole of it, and over the session, so that no nesting and no number of calls makes a text of small values.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};

use crate::json::{Json, unescape};
use crate::types::ServerId;

/// Bits that one call may say, and all calls of a session to one server.
const OF_CALL: u32 = 48;
const OF_SESSION: u32 = 1024;
/// Words that are known for each server, and longest one in bytes.
const MOST_WORDS: usize = 4096;
const LONGEST_WORD: usize = 64;
/// Words that every reader knows.
const PLAIN: [&str; 9] = ["", "yes", "no", "true", "false", "on", "off", "asc", "desc"];
/// A character of a name that nobody declared, and of a number.
const OF_CHARACTER: u32 = 6;
const OF_DIGIT: u32 = 4;

/// What a server declared and what everybody may read, as hashes, and what was said so far.
#[derive(Debug, Default)]
pub(super) struct Little {
    random: RandomState,
    /// Names of parameters and values of lists in the tools of a server.
    declared: BTreeMap<ServerId, BTreeSet<u64>>,
    /// Words that public servers said.
    public: BTreeSet<u64>,
    said: BTreeMap<ServerId, u32>,
}

impl Little {
    /// Hears what a server says of one of its tools.
    pub fn declare(&mut self, server: &ServerId, definition: &Json<'_>) {
        let Some(schema) = definition.member("inputSchema") else { return };
        let words = self.declared.entry(server.clone()).or_default();
        each_word(schema, true, &mut |word| {
            if words.len() < MOST_WORDS {
                words.insert(self.random.hash_one(word));
            }
        });
    }

    /// Hears what a public server says.
    pub fn publish(&mut self, said: &Json<'_>) {
        each_word(said, false, &mut |word| {
            if self.public.len() < MOST_WORDS {
                self.public.insert(self.random.hash_one(word));
            }
        });
    }

    /// Whether a call says so little that it may go; then it counts.
    pub fn passes<'v>(
        &mut self,
        server: &ServerId,
        arguments: &Json<'_>,
        values: impl Iterator<Item = &'v str>,
    ) -> bool {
        let values: BTreeSet<&str> = values.collect();
        let Some(bits) = self.bits(server, arguments, &values).filter(|bits| *bits <= OF_CALL) else {
            return false;
        };
        let said = self.said.entry(server.clone()).or_default();
        let after = said.saturating_add(bits);
        if after <= OF_SESSION {
            *said = after;
        }
        after <= OF_SESSION
    }

    /// None: it is not one of a few.
    fn bits(&self, server: &ServerId, value: &Json<'_>, values: &BTreeSet<&str>) -> Option<u32> {
        let declared = self.declared.get(server);
        let (mut bits, mut open) = (0_u32, vec![value]);
        while let Some(value) = open.pop() {
            let more = match value {
                Json::Null | Json::Bool(_) => 1,
                Json::Number(raw) => OF_DIGIT.checked_mul(u32::try_from(raw.len()).ok()?)?,
                Json::String(raw) => self.of_word(&unescape(raw), declared, values)?,
                Json::Array(items) => {
                    open.extend(items);
                    1 + u32::try_from(items.len()).ok()?
                }
                Json::Object(members) => {
                    open.extend(members.iter().map(|(_, value)| value));
                    members.iter().try_fold(1, |sum, (raw, _)| {
                        let name = unescape(raw);
                        let is_declared = declared.is_some_and(|words| self.has(words, &name));
                        let long = u32::try_from(name.len()).ok()?.checked_mul(OF_CHARACTER)?;
                        Some(sum + if is_declared { 2 } else { long })
                    })?
                }
            };
            bits = bits.checked_add(more)?;
            if bits > OF_CALL {
                return None;
            }
        }
        Some(bits)
    }

    fn of_word(&self, word: &str, declared: Option<&BTreeSet<u64>>, values: &BTreeSet<&str>) -> Option<u32> {
        if PLAIN.contains(&word) || values.contains(word) {
            return Some(bits_of(PLAIN.len() + values.len()));
        }
        let declared = declared.into_iter().chain([&self.public]);
        declared.filter(|words| self.has(words, word)).map(|words| bits_of(words.len())).min()
    }

    fn has(&self, words: &BTreeSet<u64>, word: &str) -> bool {
        word.len() <= LONGEST_WORD && words.contains(&self.random.hash_one(word))
    }
}

/// What it takes to choose one of so many.
fn bits_of(count: usize) -> u32 {
    usize::BITS - count.leading_zeros()
}

/// Every short text; with the names of members where it is a schema.
fn each_word(value: &Json<'_>, names: bool, see: &mut impl FnMut(&str)) {
    match value {
        Json::String(raw) if raw.len() <= LONGEST_WORD => see(&unescape(raw)),
        Json::Array(items) => items.iter().for_each(|item| each_word(item, names, see)),
        Json::Object(members) => {
            for (name, value) in members {
                if names && name.len() <= LONGEST_WORD {
                    see(&unescape(name));
                }
                each_word(value, names, see);
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::json::read;

    fn server() -> ServerId {
        ServerId("net".to_owned())
    }

    fn passes(little: &mut Little, text: &str) -> bool {
        little.passes(&server(), &read(text.as_bytes()).unwrap(), ["open", "closed"].into_iter())
    }

    #[test]
    fn few_values_pass_and_no_nesting_makes_many_of_them() {
        let mut little = Little::default();
        for text in ["null", "{}", r#"{"a":2,"b":40}"#, r#"{"on":true}"#, r#"{"is":"open"}"#, "[1,0,1]"] {
            assert!(passes(&mut little, text), "{text}");
        }
        let deep = format!("{}{}{}", "[".repeat(100), "true", "]".repeat(100));
        let wide = format!("[{}]", vec!["[true,false,true,true]"; 64].join(","));
        let names = r#"{"correct":{"horse":true},"battery":null}"#;
        for text in [&deep, &wide, names, r#"{"a":123456789012345}"#, r#"{"a":"hello"}"#, "1e99999999999999"]
        {
            assert!(!passes(&mut little, text), "{text}");
        }
    }

    #[test]
    fn all_calls_together_say_little_too() {
        let mut little = Little::default();
        let passed = (0..1000).filter(|_| passes(&mut little, "12345678")).count();
        assert_eq!(passed, 32, "1024 bits of 32 each");
        assert!(!passes(&mut little, "true"));
    }

    #[test]
    fn words_that_are_declared_or_public_are_one_of_a_few() {
        let mut little = Little::default();
        let text = r#"{"repository_identifier":"acme/widgets","state":"merged"}"#;
        assert!(!passes(&mut little, text));
        let schema =
            r#"{"inputSchema":{"properties":{"repository_identifier":{},"state":{"enum":["merged"]}}}}"#;
        little.declare(&server(), &read(schema.as_bytes()).unwrap());
        assert!(!passes(&mut little, text));
        little.publish(&read(br#"{"items":[{"id":"acme/widgets"}]}"#).unwrap());
        assert!(passes(&mut little, text));
        let other = ServerId("other".to_owned());
        assert!(!little.passes(&other, &read(text.as_bytes()).unwrap(), std::iter::empty()));
    }
}
