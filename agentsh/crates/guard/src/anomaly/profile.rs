//! What is usual for one server: its tools, when each was first and last seen, how it is called.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::sequence::Sequence;
use super::series::{Deviation, Series, count};

/// Standard deviations that are unusual.
const FAR: f64 = 4.0;
/// Bits that are surprising.
const SURPRISING: f64 = 8.0;
/// A tool is only looked at until then, in seconds since it was first called, or in calls.
const LEARNING_S: u64 = 24 * 3600;
const LEARNING_CALLS: u64 = 200;
/// Tools of one server.
const MOST_TOOLS: usize = 2_000;
const LONGEST_NAME: usize = 256;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    pub tools: BTreeMap<String, Tool>,
    sequence: Sequence,
}

/// One tool. Times are seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// Listed or called.
    pub first_seen: u64,
    pub last_seen: u64,
    /// None: never.
    pub first_called: Option<u64>,
    pub calls: u64,
    /// How often something about it was unusual.
    pub unusual: u64,
    request: Series,
    response: Series,
    rate: Series,
    minute: u64,
    in_minute: u64,
}

/// What is unusual about one call or answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    /// 0 to 1.
    pub composite: f64,
    /// Each in words. Empty: nothing is.
    pub what: Vec<String>,
}

impl Tool {
    /// Too little is known of it: it is only looked at.
    #[must_use]
    pub fn is_learned(&self, now: u64) -> bool {
        self.calls >= LEARNING_CALLS
            || self.first_called.is_some_and(|first| now.saturating_sub(first) >= LEARNING_S)
    }
}

impl Profile {
    /// A tool was listed.
    pub fn listed(&mut self, tool: &str, now: u64) {
        self.tool(tool, now);
    }

    /// Scores a call that was not counted yet. `before`: the tool that this session called last.
    #[must_use]
    pub fn call(&self, tool: &str, bytes: usize, before: Option<&str>, now: u64) -> Score {
        let Some(known) = self.tools.get(tool) else { return self.unknown(tool, before) };
        if !known.is_learned(now) {
            return Score::default();
        }
        let size = known.request.look(length(bytes));
        let minute = now / 60;
        let in_minute = if known.minute == minute { known.in_minute + 1 } else { 1 };
        // Only more calls than usual are news: the minute is not over.
        let mut rate = known.rate.look(calls(in_minute));
        rate.z = rate.z.max(0.0);
        rate.drifts = false;
        let over = known.rate.look(calls(known.in_minute));
        rate.drifts |= known.minute != minute && over.drifts;
        let bits = before.map_or(0.0, |before| self.sequence.surprise(before, tool, self.tools.len()));
        score("request", size, rate, bits, before)
    }

    /// A tool that was never called: only what came before says something.
    fn unknown(&self, tool: &str, before: Option<&str>) -> Score {
        let bits = before.map_or(0.0, |before| self.sequence.surprise(before, tool, self.tools.len() + 1));
        score("request", Deviation::default(), Deviation::default(), bits, before)
    }

    /// Scores an answer that was not counted yet.
    #[must_use]
    pub fn answer(&self, tool: &str, bytes: usize, now: u64) -> Score {
        let known = self.tools.get(tool).filter(|known| known.is_learned(now));
        let size = known.map(|known| known.response.look(length(bytes))).unwrap_or_default();
        score("answer", size, Deviation::default(), 0.0, None)
    }

    /// Counts a call.
    pub fn take_call(&mut self, tool: &str, bytes: usize, before: Option<&str>, now: u64) {
        if let Some(before) = before {
            self.sequence.take(before, tool);
        }
        let Some(known) = self.tool(tool, now) else { return };
        known.calls += 1;
        known.first_called.get_or_insert(now);
        known.request.take(length(bytes));
        let minute = now / 60;
        if known.minute == minute {
            known.in_minute += 1;
        } else {
            if known.in_minute > 0 {
                known.rate.take(calls(known.in_minute));
            }
            (known.minute, known.in_minute) = (minute, 1);
        }
    }

    /// Counts an answer.
    pub fn take_answer(&mut self, tool: &str, bytes: usize) {
        if let Some(known) = self.tools.get_mut(tool) {
            known.response.take(length(bytes));
        }
    }

    /// Something about it was unusual.
    pub fn note_unusual(&mut self, tool: &str) {
        if let Some(known) = self.tools.get_mut(tool) {
            known.unusual += 1;
        }
    }

    /// None: there are too many, or its name is too long.
    fn tool(&mut self, name: &str, now: u64) -> Option<&mut Tool> {
        if !self.tools.contains_key(name) {
            if name.is_empty() || name.len() > LONGEST_NAME || self.tools.len() >= MOST_TOOLS {
                return None;
            }
            self.tools.insert(name.to_owned(), Tool { first_seen: now, ..Tool::default() });
        }
        let tool = self.tools.get_mut(name)?;
        tool.last_seen = tool.last_seen.max(now);
        Some(tool)
    }
}

/// Frequency and size count 35 of 100 each, the sequence 30; a drift adds half of its series.
fn score(which: &str, size: Deviation, rate: Deviation, bits: f64, before: Option<&str>) -> Score {
    let part = |value: f64, threshold: f64, drifts: bool| {
        ((value.abs() / (2.0 * threshold)).min(1.0) + if drifts { 0.5 } else { 0.0 }).min(1.0)
    };
    let composite = 0.35 * part(rate.z, FAR, rate.drifts)
        + 0.35 * part(size.z, FAR, size.drifts)
        + 0.30 * part(bits, SURPRISING, false);
    let mut what = Vec::new();
    if size.z.abs() > FAR {
        let word = if size.z > 0.0 { "longer" } else { "shorter" };
        what.push(format!("its {which} is {word} than usual ({:.1} standard deviations)", size.z.abs()));
    }
    if size.drifts {
        what.push(format!("the length of its {which}s has been drifting"));
    }
    if rate.z > FAR {
        what.push(format!("it is called more often than usual ({:.1} standard deviations)", rate.z));
    }
    if rate.drifts {
        what.push("how often it is called has been drifting".to_owned());
    }
    if bits > SURPRISING {
        what.push(format!("it hardly ever follows '{}' ({bits:.1} bits)", before.unwrap_or_default()));
    }
    Score { composite, what }
}

fn length(bytes: usize) -> f64 {
    count(bytes as u64).ln_1p()
}

/// Counts with the same spread wherever they lie.
fn calls(in_minute: u64) -> f64 {
    2.0 * (count(in_minute) + 0.375).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quiet server: `read`, then `list`, once every half minute.
    fn usual(calls: u64) -> (Profile, u64) {
        let (mut profile, mut now) = (Profile::default(), 1_000_000);
        let mut before = None;
        for number in 0..calls {
            let tool = if number % 2 == 0 { "read" } else { "list" };
            profile.take_call(tool, 80 + (number as usize * 37) % 40, before, now);
            profile.take_answer(tool, 500 + (number as usize * 91) % 300);
            before = Some(tool);
            now += 30;
        }
        (profile, now)
    }

    #[test]
    fn what_is_usual_is_no_news_and_nothing_is_while_it_is_learned() {
        let (profile, now) = usual(600);
        assert!(profile.call("read", 90, Some("list"), now).what.is_empty());
        assert!(profile.answer("read", 600, now).what.is_empty());
        let (profile, now) = usual(100);
        assert_eq!(profile.call("read", 1_000_000, Some("read"), now), Score::default());
    }

    #[test]
    fn long_often_and_out_of_order_add_up() {
        let (profile, now) = usual(600);
        let long = profile.call("read", 100_000, Some("list"), now);
        assert!(long.what[0].contains("longer") && long.composite < 0.5, "{long:?}");
        let odd = profile.call("delete", 90, Some("list"), now);
        assert!(odd.what[0].contains("hardly ever follows 'list'"), "{odd:?}");
        assert!(profile.answer("read", 900_000, now).what[0].contains("answer is longer"));
        let (mut profile, now) = usual(600);
        for _ in 0..60 {
            profile.take_call("read", 90, None, now);
        }
        let often = profile.call("read", 200_000, Some("read"), now);
        assert!(often.composite >= 0.9, "{often:?}");
        assert!(often.what.iter().any(|what| what.contains("more often")), "{often:?}");
    }

    #[test]
    fn a_profile_is_what_it_was_when_it_is_read_again_and_names_are_bounded() {
        let (mut profile, now) = usual(300);
        let text = serde_json::to_string(&profile).unwrap_or_default();
        // Numbers may lose their last bit on the way.
        let read: Profile = serde_json::from_str(&text).unwrap_or_default();
        let (one, other) = (profile.answer("read", 900_000, now), read.answer("read", 900_000, now));
        assert!(
            one == profile.answer("read", 900_000, now) && (one.composite - other.composite).abs() < 1e-9
        );
        assert_eq!(read.tools.keys().collect::<Vec<_>>(), profile.tools.keys().collect::<Vec<_>>());
        assert_eq!(read.tools["read"].calls, profile.tools["read"].calls);
        for number in 0..3_000 {
            profile.listed(&format!("t{number}"), now);
        }
        profile.listed(&"x".repeat(1_000), now);
        assert_eq!(profile.tools.len(), MOST_TOOLS);
    }
}
