//! The leak budget: an upper bound in bits for the information in a call, summed over the session, so that neither
//! nesting nor many calls can carry a text in small values. Answers that nobody offered (yes, no, the agent's own
//! numbers) may answer a question about private data and have a smaller budget.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};

use agentsh_base::json::{Json, unescape};
use agentsh_base::types::ServerId;

/// Bits that one call may say, and all calls of a session to one server.
const MAX_CALL_BITS: u32 = 48;
const MAX_SESSION_BITS: u32 = 1024;
/// The part of a session's bits for values that no server offered. Each costs at least four, and the number after the last one
/// costs one.
pub(super) const OF_ANSWERS: u32 = 16;
const ANSWER_BITS: u32 = 4;
const NEXT_ITEM_BITS: u32 = 1;
/// Maximum number of known words, or numbers, for each server (the latest), and their maximum length in bytes.
const MAX_WORDS: usize = 4096;
const MAX_WORD: usize = 64;
/// Bytes of one text in which words and numbers are looked for.
const MAX_TEXT: usize = 16 << 10;
/// Tools whose last call is known.
const MAX_TOOLS: usize = 1024;
/// Words that every reader knows.
const COMMON_WORDS: [&str; 9] = ["", "yes", "no", "true", "false", "on", "off", "asc", "desc"];
/// A character of an undeclared name, and of a number.
const CHARACTER_BITS: u32 = 6;
const DIGIT_BITS: u32 = 4;

/// The result for one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BudgetVerdict {
    /// The call is within the budget, and now counts.
    Within,
    /// Little by itself, but too much together with earlier calls.
    UsedUp,
    Much,
}

/// Words that a server declared and public words, as hashes, and the bits used so far.
#[derive(Debug, Default)]
pub(super) struct LeakBudget {
    random: RandomState,
    /// Names of parameters and values of lists in the tools of a server.
    declared: BTreeMap<ServerId, BTreeSet<u64>>,
    /// Words and numbers that public servers said, and numbers that each server said.
    public: BTreeMap<ServerId, RecentWords>,
    public_numbers: BTreeMap<ServerId, RecentWords>,
    numbers: BTreeMap<ServerId, RecentWords>,
    said: BTreeMap<ServerId, SpentBits>,
    /// The last call of each tool that passed.
    last: BTreeMap<(ServerId, u64), Counted>,
}

/// The words that one server said last, up to a limit.
#[derive(Debug, Default)]
struct RecentWords {
    /// For each word, when it was said.
    words: BTreeMap<u64, u64>,
    order: BTreeMap<u64, u64>,
    next: u64,
}

impl RecentWords {
    fn add(&mut self, word: u64) {
        if let Some(before) = self.words.insert(word, self.next) {
            self.order.remove(&before);
        }
        self.order.insert(self.next, word);
        self.next += 1;
        if self.words.len() > MAX_WORDS
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.words.remove(&oldest);
        }
    }
}

/// Bits that were sent to a server, and how many of them in answers.
#[derive(Clone, Copy, Debug, Default)]
struct SpentBits {
    all: u32,
    answers: u32,
}

/// The bits of one call.
#[derive(Debug, Default)]
struct Counted {
    bits: u32,
    /// A hash of its members and items, in order.
    shape: u64,
    answers: Vec<Answer>,
}

#[derive(Debug)]
struct Answer {
    value: u64,
    number: Option<i64>,
    bits: u32,
}

impl Counted {
    /// The bits for a reader who knows the call before it: repeating a value costs nothing.
    fn bits_after(&self, last: Option<&Self>) -> u32 {
        let all = self.answers.iter().map(|answer| answer.bits);
        let Some(last) = last.filter(|last| last.shape == self.shape) else { return all.sum() };
        let new = all.zip(self.answers.iter().zip(&last.answers)).map(|(bits, (own, last))| {
            if own.value == last.value {
                0
            } else if own.number.is_some() && own.number == last.number.and_then(|one| one.checked_add(1)) {
                NEXT_ITEM_BITS
            } else {
                bits
            }
        });
        new.sum()
    }
}

impl LeakBudget {
    /// Takes in a server's description of one of its tools.
    pub fn declare(&mut self, server: &ServerId, definition: &Json<'_>) {
        let Some(schema) = definition.member("inputSchema") else { return };
        let words = self.declared.entry(server.clone()).or_default();
        each_text(schema, true, &mut |word| {
            if word.len() <= MAX_WORD && words.len() < MAX_WORDS {
                words.insert(self.random.hash_one(word));
            }
        });
    }

    /// Notes what a server says. Its own numbers are not new to it, and those of a public server are known to all.
    pub fn note_received(&mut self, server: &ServerId, said: &Json<'_>, is_public: bool) {
        let Self { random, public, public_numbers, numbers, .. } = self;
        let numbers = if is_public { public_numbers } else { numbers };
        let numbers = numbers.entry(server.clone()).or_default();
        let mut public = is_public.then(|| public.entry(server.clone()).or_default());
        let mut add = |text: &str, is_whole: bool| {
            if is_number(text) {
                numbers.add(random.hash_one(text));
            }
            if let Some(public) = &mut public
                && (is_whole || is_id(text))
                && text.len() <= MAX_WORD
            {
                public.add(random.hash_one(text));
            }
        };
        each_text(said, false, &mut |text| {
            add(text, true);
            let end = text.floor_char_boundary(MAX_TEXT);
            let parts = text[..end].split(|one: char| !one.is_alphanumeric() && !"-_./#:@".contains(one));
            let parts = parts.map(|part| part.trim_matches(['-', '.', '/', '#', ':', '@']));
            parts.filter(|part| !part.is_empty() && *part != text).for_each(|part| add(part, false));
        });
    }

    /// Whether a call is within the budget; then it counts.
    pub fn charge_call<'v>(
        &mut self,
        server: &ServerId,
        tool: &str,
        arguments: &Json<'_>,
        values: impl Iterator<Item = &'v str>,
    ) -> BudgetVerdict {
        let values: BTreeSet<&str> = values.collect();
        let Some(counted) = self.count(server, arguments, &values) else { return BudgetVerdict::Much };
        let key = (server.clone(), self.random.hash_one(tool));
        let answers = counted.bits_after(self.last.get(&key));
        let said = self.said.entry(server.clone()).or_default();
        let all = said.all.saturating_add(counted.bits);
        if all > MAX_SESSION_BITS || said.answers + answers > OF_ANSWERS {
            return BudgetVerdict::UsedUp;
        }
        *said = SpentBits { all, answers: said.answers + answers };
        if self.last.len() < MAX_TOOLS || self.last.contains_key(&key) {
            self.last.insert(key, counted);
        }
        BudgetVerdict::Within
    }

    /// None: it is not one of a small set of values.
    fn count(&self, server: &ServerId, value: &Json<'_>, values: &BTreeSet<&str>) -> Option<Counted> {
        let declared = self.declared.get(server);
        let (mut counted, mut open) = (Counted::default(), vec![value]);
        while let Some(value) = open.pop() {
            let bits = match value {
                Json::Null | Json::Bool(_) => counted.answer(&self.random, &value.to_compact(), 1),
                Json::Number(raw) => match self.of_number(server, raw) {
                    Some(offered) => offered,
                    None => {
                        let digits = u32::try_from(raw.len()).ok()?;
                        counted.answer(&self.random, raw, DIGIT_BITS.checked_mul(digits)?)
                    }
                },
                Json::String(raw) => match &*unescape(raw) {
                    word if values.contains(word) => bits_of(COMMON_WORDS.len() + values.len()),
                    word if COMMON_WORDS.contains(&word) => {
                        counted.answer(&self.random, word, bits_of(COMMON_WORDS.len() + values.len()))
                    }
                    word => self.of_word(word, declared)?,
                },
                Json::Array(items) => {
                    open.extend(items);
                    counted.turn(&self.random, &items.len());
                    counted.form();
                    1 + u32::try_from(items.len()).ok()?
                }
                Json::Object(members) => {
                    open.extend(members.iter().map(|(_, value)| value));
                    counted.turn(&self.random, "members");
                    members.iter().try_fold(1, |sum, (raw, _)| {
                        let name = unescape(raw);
                        counted.turn(&self.random, &*name);
                        let is_declared = declared.is_some_and(|words| self.is_known_word(words, &name));
                        let long = u32::try_from(name.len()).ok()?.checked_mul(CHARACTER_BITS)?;
                        if !is_declared {
                            counted.form();
                        }
                        Some(sum + if is_declared { 2 } else { long })
                    })?
                }
            };
            counted.bits = counted.bits.checked_add(bits)?;
            if counted.bits > MAX_CALL_BITS {
                return None;
            }
        }
        Some(counted)
    }

    fn of_word(&self, word: &str, declared: Option<&BTreeSet<u64>>) -> Option<u32> {
        let declared =
            declared.filter(|words| self.is_known_word(words, word)).map(|words| bits_of(words.len()));
        declared.into_iter().chain(self.of_known(self.public.values(), word)).min()
    }

    /// The bits to choose a number that the server itself or a public server said. None if neither said it.
    fn of_number(&self, server: &ServerId, raw: &str) -> Option<u32> {
        let own = self.of_known(self.numbers.get(server).into_iter(), raw);
        own.into_iter().chain(self.of_known(self.public_numbers.values(), raw)).min()
    }

    /// The bits to choose one of the words that these know.
    fn of_known<'k>(&self, known: impl Iterator<Item = &'k RecentWords> + Clone, word: &str) -> Option<u32> {
        let hash = (word.len() <= MAX_WORD).then(|| self.random.hash_one(word))?;
        let is_known = known.clone().any(|known| known.words.contains_key(&hash));
        is_known.then(|| bits_of(known.map(|known| known.words.len()).sum()))
    }

    fn is_known_word(&self, words: &BTreeSet<u64>, word: &str) -> bool {
        word.len() <= MAX_WORD && words.contains(&self.random.hash_one(word))
    }
}

impl Counted {
    /// Notes a value that no server offered, and returns its bits.
    fn answer(&mut self, random: &RandomState, value: &str, bits: u32) -> u32 {
        let (value, number) = (random.hash_one(value), value.parse().ok());
        self.answers.push(Answer { value, number, bits: bits.max(ANSWER_BITS) });
        self.turn(random, "answer");
        bits
    }

    /// Notes an undeclared name, or the length of a list: a different one in the next call carries bits.
    fn form(&mut self) {
        self.answers.push(Answer { value: 0, number: None, bits: NEXT_ITEM_BITS });
    }

    fn turn(&mut self, random: &RandomState, by: &(impl std::hash::Hash + ?Sized)) {
        self.shape = random.hash_one((self.shape, random.hash_one(by)));
    }
}

/// At least two digits: one digit reveals as little as yes or no.
fn is_number(text: &str) -> bool {
    (2..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a word looks like an id: with a digit in it, or of several parts.
fn is_id(text: &str) -> bool {
    text.len() >= 2 && text.contains(|one: char| one.is_ascii_digit() || "-_/#@:".contains(one))
}

/// The bits to choose one of `count`.
fn bits_of(count: usize) -> u32 {
    usize::BITS - count.leading_zeros()
}

/// Every text and number; with the names of members where it is a schema.
fn each_text(value: &Json<'_>, names: bool, see: &mut impl FnMut(&str)) {
    match value {
        Json::Number(raw) => see(raw),
        Json::String(raw) => see(&unescape(raw)),
        Json::Array(items) => items.iter().for_each(|item| each_text(item, names, see)),
        Json::Object(members) => {
            for (name, value) in members {
                if names {
                    see(&unescape(name));
                }
                each_text(value, names, see);
            }
        }
        Json::Null | Json::Bool(_) => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use agentsh_base::json::read;

    fn server() -> ServerId {
        ServerId("net".to_owned())
    }

    fn says(little: &mut LeakBudget, text: &str) -> BudgetVerdict {
        let values = ["open", "closed"].into_iter();
        little.charge_call(&server(), "send", &read(text.as_bytes()).unwrap(), values)
    }

    fn passes(little: &mut LeakBudget, text: &str) -> bool {
        says(little, text) == BudgetVerdict::Within
    }

    fn hear(little: &mut LeakBudget, by: &str, said: &str, is_public: bool) {
        little.note_received(&ServerId(by.to_owned()), &read(said.as_bytes()).unwrap(), is_public);
    }

    #[test]
    fn leak_budget_passes_few_values_and_counts_nested_ones() {
        for text in ["null", "{}", r#"{"a":2,"b":40}"#, r#"{"on":true}"#, r#"{"is":"open"}"#, "[1,0,1]"] {
            assert!(passes(&mut LeakBudget::default(), text), "{text}");
        }
        let deep = format!("{}{}{}", "[".repeat(100), "true", "]".repeat(100));
        let wide = format!("[{}]", vec!["[true,false,true,true]"; 64].join(","));
        let names = r#"{"correct":{"horse":true},"battery":null}"#;
        for text in [&deep, &wide, names, r#"{"a":123456789012345}"#, r#"{"a":"hello"}"#, "1e99999999999999"]
        {
            assert_eq!(says(&mut LeakBudget::default(), text), BudgetVerdict::Much, "{text}");
        }
    }

    #[test]
    fn leak_budget_counts_yes_and_no_answers() {
        for answers in [["true", "false"], [r#""yes""#, r#""no""#], ["1", "0"], ["[1]", "[]"], ["{}", "[]"]] {
            let mut little = LeakBudget::default();
            let refused = |at: usize| !passes(&mut little, &format!(r#"{{"a":{}}}"#, answers[at % 2]));
            let refused = (0..64).map(refused).filter(|refused| *refused).count();
            assert!(refused >= 24, "{answers:?}: {refused}");
        }
        let mut little = LeakBudget::default();
        let passed: Vec<bool> = ["yes", "no", "yes", "no", "yes", "yes", "no", "yes"]
            .iter()
            .map(|answer| passes(&mut little, &format!(r#"{{"answer":"{answer}"}}"#)))
            .collect();
        assert_eq!(
            passed,
            [true, true, true, false, true, true, false, true],
            "what stands there already says nothing"
        );
        assert_eq!(says(&mut little, "12345"), BudgetVerdict::UsedUp);
        // Words that the user declared count as one of a few, not as answers.
        let named = (0..64).filter(|at| passes(&mut little, ["\"open\"", "\"closed\""][at % 2])).count();
        assert_eq!(named, 64);
    }

    #[test]
    fn leak_budget_ignores_repeats_and_page_numbers() {
        let mut little = LeakBudget::default();
        assert!((0..20).all(|_| passes(&mut little, r#"{"size":50}"#)));
        let mut little = LeakBudget::default();
        let pages = (2..40).take_while(|page| passes(&mut little, &format!(r#"{{"page":{page}}}"#))).count();
        assert!((4..16).contains(&pages), "{pages}");
    }

    #[test]
    fn leak_budget_charges_little_for_numbers_already_seen() {
        let mut little = LeakBudget::default();
        assert_eq!(says(&mut little, "4711"), BudgetVerdict::Within);
        assert_eq!(says(&mut little, "4712345"), BudgetVerdict::UsedUp);
        hear(
            &mut little,
            "net",
            r#"[{"type":"text","text":"[{\"number\": 4712345, \"title\": \"x\"}]"}]"#,
            false,
        );
        hear(&mut little, "web", r#"{"run":99123456}"#, true);
        hear(&mut little, "files", r#"{"pin":77123456}"#, false);
        for number in ["4712345", "99123456"] {
            assert!((0..20).all(|_| passes(&mut little, number)), "{number}");
        }
        assert_eq!(says(&mut little, "77123456"), BudgetVerdict::UsedUp);
    }

    #[test]
    fn leak_budget_keeps_the_latest_words_of_each_server() {
        let mut little = LeakBudget::default();
        let many = |from: usize| {
            let said: Vec<String> = (from..from + 1100).map(|number| number.to_string()).collect();
            format!("[{}]", said.join(","))
        };
        for round in 0..8 {
            hear(&mut little, "net", &many(10_000 + round * 1100), false);
            hear(&mut little, "web", &many(50_000 + round * 1100), true);
            hear(&mut little, "web", &format!(r#"["web-{round}","4444"]"#), true);
        }
        hear(&mut little, "net", "[7700123]", false);
        hear(&mut little, "wiki", r#"[8800123,"acme/widgets"]"#, true);
        let words = ["7700123", "8800123", r#""acme/widgets""#, r#""web-7""#, "4444"];
        for word in words {
            assert!((0..10).all(|_| passes(&mut little, word)), "{word}");
        }
        assert!(
            little
                .numbers
                .values()
                .chain(little.public.values())
                .all(|known| { known.words.len() <= MAX_WORDS && known.words.len() == known.order.len() })
        );
        assert_eq!(says(&mut little, "10001"), BudgetVerdict::UsedUp, "what came first is forgotten first");
    }

    #[test]
    fn leak_budget_bounds_the_sum_over_all_calls() {
        let mut little = LeakBudget::default();
        let said: Vec<String> = (10..99).map(|number| number.to_string()).collect();
        hear(&mut little, "net", &format!("[{}]", said.join(",")), false);
        let passed = (0..1000).filter(|at| passes(&mut little, &said[at % said.len()])).count();
        assert_eq!(passed, 146, "1024 bits of 7 each");
        assert_eq!(says(&mut little, "10"), BudgetVerdict::UsedUp);
    }

    #[test]
    fn leak_budget_charges_little_for_declared_or_public_words() {
        let mut little = LeakBudget::default();
        let text = r#"{"repository_identifier":"acme/widgets","state":"merged"}"#;
        assert!(!passes(&mut little, text));
        let schema =
            r#"{"inputSchema":{"properties":{"repository_identifier":{},"state":{"enum":["merged"]}}}}"#;
        little.declare(&server(), &read(schema.as_bytes()).unwrap());
        assert!(!passes(&mut little, text));
        hear(&mut little, "web", r#"{"text":"They moved to acme/widgets, and nobody cared."}"#, true);
        assert!(passes(&mut little, text));
        assert!(!passes(&mut little, r#"{"state":"nobody"}"#), "a word of a text is not an id");
        let other = ServerId("other".to_owned());
        let arguments = read(text.as_bytes()).unwrap();
        assert_eq!(little.charge_call(&other, "send", &arguments, std::iter::empty()), BudgetVerdict::Much);
    }
}
