//! Rules from `policies/patterns/*.yaml`. A concept is a list of words and phrases with one meaning; a rule is a few
//! concepts near each other, with a reason and examples that tests run.

mod lexicon;
mod matcher;
mod pairs;
mod raw;
#[cfg(test)]
#[path = "written_tests.rs"]
mod written;

use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

use lexicon::Hit;
pub use lexicon::Lexicon;
use matcher::State;
pub use matcher::{Match, Matcher};
pub use pairs::{ALARM_POINTS, Pairs, Reader, WINDOW};
use raw::Compiled;
pub use raw::Rule;

use crate::finding::Category;

/// Where a text is: the same words weigh differently in a description, which models obey, in a result, and in
/// arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    Definition,
    Output,
    Outbound,
}

/// Compiled rules.
#[derive(Debug, Default)]
pub struct Patterns {
    pub rules: Vec<Rule>,
    pub lexicon: Lexicon,
    pub matcher: Matcher,
    pub pairs: Pairs,
    /// States of finished passes, and where the next text begins in them.
    spare: Mutex<Vec<(State, Reader, usize)>>,
}

impl Patterns {
    fn new(Compiled { concepts, rules }: Compiled) -> Result<Self, String> {
        let mut lexicon = Lexicon::default();
        for (name, phrases) in &concepts {
            lexicon.add(name, phrases);
        }
        let matcher = Matcher::new(&rules, &mut lexicon)?;
        let pairs = Pairs::new(concepts.keys(), &lexicon);
        Ok(Self { rules, lexicon, matcher, pairs, spare: Mutex::default() })
    }

    /// The built-in rules, compiled on first use; a test compiles them.
    #[must_use]
    pub fn builtin() -> &'static Self {
        static BUILTIN: OnceLock<Patterns> = OnceLock::new();
        BUILTIN.get_or_init(|| {
            let compiled = serde_json::from_str(include_str!("../../patterns.json"));
            compiled.ok().and_then(|compiled| Self::new(compiled).ok()).unwrap_or_default()
        })
    }

    /// Every match in one text, which is a view of what is scanned, and where roles come together.
    pub fn matches(&self, text: &str, found: &mut Vec<Match>, roles: &mut dyn FnMut(Range<usize>)) {
        let spare = || self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let mut reading = spare().pop().unwrap_or_default();
        let (state, reader, base) = &mut reading;
        self.lexicon.for_each_phrase(text, &mut |hit| {
            let place = hit.start..hit.end;
            let hit = Hit { start: hit.start + *base, end: hit.end + *base, ..hit };
            self.matcher.step(state, hit, text, *base, found);
            if self.pairs.is_role(hit)
                && !is_identifier(text.as_bytes(), &place)
                && let Some(place) = self.pairs.step(reader, hit)
            {
                roles(place.start - *base..place.end - *base);
            }
        });
        // No rule and no pair reaches over that.
        *base += text.len() + 2 * agentsh_secrets::views::CONTEXT_BYTES;
        spare().push(reading);
    }

    /// Role pairs in a text and its views, with places, for `cargo xtask calibrate`.
    #[must_use]
    pub fn roles(&self, text: &str) -> Vec<Vec<(usize, pairs::Pair)>> {
        let read = |text: &str| {
            let (mut reader, mut found) = (Reader::default(), Vec::new());
            self.lexicon.for_each_phrase(text, &mut |hit| {
                self.pairs.pairs(&mut reader, hit, &mut |pair| found.push((hit.start, pair)));
            });
            found
        };
        let mut all = vec![read(text)];
        agentsh_secrets::views::visit(text, &mut |view, _| all.push(read(&view.text)));
        all.retain(|pairs| !pairs.is_empty());
        all
    }

    #[must_use]
    pub fn weight(&self, rule: usize, channel: Channel) -> u32 {
        self.rules.get(rule).map_or(0, |rule| match channel {
            Channel::Definition => rule.definition,
            Channel::Output => rule.output,
            Channel::Outbound => rule.outbound,
        })
    }

    /// Whether source code contains it harmlessly.
    #[must_use]
    pub fn is_of_source(&self, rule: usize) -> bool {
        self.rules.get(rule).is_some_and(|rule| rule.of_source)
    }

    #[must_use]
    pub fn category(&self, rule: usize) -> Option<Category> {
        self.rules.get(rule).map(|rule| rule.category)
    }
}

/// Whether a phrase is a name in source code: a part of one (`user_message`, `chat.messages`), called, assigned or a key.
fn is_identifier(text: &[u8], place: &Range<usize>) -> bool {
    let before = |back: usize| place.start.checked_sub(back).and_then(|at| text.get(at)).copied();
    let is_word = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let after = text.get(place.end..).unwrap_or_default();
    matches!(before(1), Some(b'_' | b'$'))
        || before(1) == Some(b'.') && is_word(before(2))
        || before(1) == Some(b'-') && before(2) == Some(b'-')
        || matches!(after.first(), Some(b'_' | b'(' | b'='))
        || matches!(after.first(), Some(b'.')) && is_word(after.get(1).copied())
        || after.starts_with(b"\":")
        || after.starts_with(b"':")
        || text.get(place.clone()).is_some_and(|phrase| phrase.contains(&b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentsh_secrets::views;

    fn rules_in(patterns: &Patterns, text: &str) -> Vec<String> {
        let mut found = Vec::new();
        patterns.matches(&views::folded_view(text).text, &mut found, &mut |_| ());
        found.iter().map(|found| patterns.rules[found.rule].id.clone()).collect()
    }

    #[test]
    fn rule_examples_are_classified_correctly() {
        let patterns = Patterns::new(written::read()).unwrap_or_else(|error| panic!("{error}"));
        assert!(patterns.rules.len() > 40, "{}", patterns.rules.len());
        let mut wrong = Vec::new();
        for rule in &patterns.rules {
            assert!(!rule.why.is_empty() && !rule.yes.is_empty() && !rule.no.is_empty(), "{}", rule.id);
            for example in &rule.yes {
                if !rules_in(&patterns, example).contains(&rule.id) {
                    wrong.push(format!("{} misses: {example}", rule.id));
                }
            }
            for example in &rule.no {
                if rules_in(&patterns, example).contains(&rule.id) {
                    wrong.push(format!("{} matches: {example}", rule.id));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn names_in_source_code_have_no_role() {
        let place = |text: &str| text.find("message").map(|at| at..at + 7);
        for (text, expected) in [
            ("user_message", true),
            ("chat.messages", true),
            ("message(text)", true),
            ("message=text", true),
            ("{\"message\": \"hello\"}", true),
            ("--message TEXT", true),
            ("Send the message.", false),
            ("the message: read it", false),
            ("\"message\"", false),
        ] {
            let place = place(text).unwrap_or_default();
            assert_eq!(is_identifier(text.as_bytes(), &place), expected, "{text}");
        }
    }

    /// Views contain only this much text around a change.
    #[test]
    fn rules_reach_no_further_than_a_view() {
        let reach = Patterns::builtin().matcher.longest_match();
        assert!(reach > 0 && reach.max(WINDOW) <= views::CONTEXT_BYTES, "{reach}");
    }

    #[test]
    fn built_in_rules_are_the_written_ones() {
        let written = written::read();
        let ids: std::collections::BTreeSet<&str> =
            written.rules.iter().map(|rule| rule.id.as_str()).collect();
        assert_eq!(ids.len(), written.rules.len(), "two rules have one id");
        let written = serde_json::to_string(&written).unwrap_or_default() + "\n";
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/patterns.json");
        if std::env::var_os("AGENTSH_WRITE_SNAPSHOTS").is_some() {
            std::fs::write(file, &written).unwrap_or_else(|error| panic!("{error}"));
        }
        let built_in = std::fs::read_to_string(file).unwrap_or_default();
        assert!(built_in == written, "run this test with AGENTSH_WRITE_SNAPSHOTS=1");
        assert!(!Patterns::builtin().rules.is_empty());
    }
}
