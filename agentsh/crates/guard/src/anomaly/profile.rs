//! The baseline of one server: its tools, when each was first and last seen, how it is called.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::listed_tool::ListedTool;
use super::sequence::Sequence;
use super::series::{Deviation, Series, Tuning, count};

/// Bits of surprise that count, and those of an event that never happened in some hundred calls.
const SURPRISE_BITS: f64 = 8.0;
const MIN_CONFIDENT_SCORE: f64 = 10.0;
/// After this many calls a tool is compared with itself, however short the learning time was.
const LEARNING_CALLS: u64 = 200;
/// Minimum score at which length and frequency are reported for a tool without a profile: more than one deviation is needed.
const MIN_COMBINED_SCORE: f64 = 0.5;
/// The share of the three weights that must be known for a full score.
const LEAST_WEIGHT: f64 = 0.65;
const RARELY_FOLLOWS: &str = "it rarely follows";
/// Tools of one server.
const MAX_TOOLS: usize = 2_000;
const MAX_NAME: usize = 256;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    pub tools: BTreeMap<String, Tool>,
    sequence: Sequence,
    /// All of its tools together. A tool with few calls is compared with this.
    #[serde(default)]
    all: Tool,
}

/// The profile of one tool. Times are seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// Listed or called.
    pub first_seen: u64,
    pub last_seen: u64,
    /// None: no listing showed it to a client.
    #[serde(default)]
    pub listed: Option<ListedTool>,
    /// When that was.
    #[serde(default)]
    pub listed_at: u64,
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

/// How unusual one call or answer is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    /// 0 to 1.
    pub composite: f64,
    /// Each in words. Empty: nothing is.
    pub what: Vec<String>,
}

impl Tool {
    /// Whether enough calls or time have passed to judge it; until then it is only observed.
    #[must_use]
    pub fn is_learned(&self, now: u64, learning_s: u64) -> bool {
        self.calls >= LEARNING_CALLS || self.is_past(now, learning_s)
    }

    fn is_past(&self, now: u64, learning_s: u64) -> bool {
        self.first_called.is_some_and(|first| now.saturating_sub(first) >= learning_s)
    }

    /// Calls in the minute of one that is not counted yet, with it.
    fn in_minute(&self, now: u64) -> u64 {
        if self.minute == now / 60 { self.in_minute + 1 } else { 1 }
    }

    fn count(&mut self, bytes: usize, now: u64, tuning: &Tuning) {
        self.calls += 1;
        self.first_called.get_or_insert(now);
        self.request.take(length(bytes), tuning);
        let minute = now / 60;
        if self.minute == minute {
            self.in_minute += 1;
            return;
        }
        if self.in_minute > 0 {
            self.rate.take(calls(self.in_minute), tuning);
        }
        (self.minute, self.in_minute) = (minute, 1);
    }
}

impl Profile {
    /// A tool was listed.
    pub fn record_listed(&mut self, tool: &str, listed: ListedTool, now: u64) {
        if let Some(known) = self.tool(tool, now) {
            (known.listed, known.listed_at) = (Some(listed), now);
        }
    }

    /// Whether enough time has passed since the server was first called that something may be asked or refused.
    #[must_use]
    pub fn is_past_learning(&self, now: u64, tuning: &Tuning) -> bool {
        // A profile of an earlier version knows its tools alone.
        self.all.is_past(now, tuning.learning_s)
            || self.tools.values().any(|tool| tool.is_past(now, tuning.learning_s))
    }

    /// Scores a call that was not counted yet. `before`: the tool that this session called last.
    #[must_use]
    pub fn call(&self, tool: &str, bytes: usize, before: Option<&str>, now: u64, tuning: &Tuning) -> Score {
        let known = self.tools.get(tool);
        let is_own = |known: &&Tool| known.is_learned(now, tuning.learning_s) && known.request.is_known();
        let own = known.filter(is_own);
        let with = own.unwrap_or(&self.all);
        if !with.is_learned(now, tuning.learning_s) {
            return Score::default();
        }
        // Only more calls than usual are news: the minute is not over.
        let in_minute = known.map_or(1, |known| known.in_minute(now));
        let mut rate = with.rate.deviation_of(calls(in_minute), tuning);
        rate.z = rate.z.max(0.0);
        let over = with.rate.deviation_of(calls(with.in_minute), tuning);
        rate.drifts = own.is_some() && with.minute != now / 60 && over.drifts;
        let counts = (known.map_or(0, |known| known.calls), self.all.calls);
        let bits =
            before.and_then(|before| self.sequence.surprise_bits(before, tool, self.tools.len(), counts));
        let mut size = with.request.deviation_of(length(bytes), tuning);
        if own.is_none() {
            // Each tool has its own length: only calls longer than those of all tools are unusual.
            (size.z, size.drifts) = (size.z.max(0.0), false);
        }
        let size = with.request.is_known().then_some(size);
        let rate = with.rate.is_known().then_some(rate);
        let mut score = score("request", size, rate, bits.zip(before), tuning);
        if own.is_none() && score.composite < MIN_COMBINED_SCORE {
            // Only the order of calls says something about an unknown tool, and nothing while it is learned.
            let tells_order = known.is_none_or(|known| known.is_learned(now, tuning.learning_s));
            score.what.retain(|what| tells_order && what.starts_with(RARELY_FOLLOWS));
        }
        score
    }

    /// Scores an answer that was not counted yet.
    #[must_use]
    pub fn answer(&self, tool: &str, bytes: usize, now: u64, tuning: &Tuning) -> Score {
        let known = self.tools.get(tool).filter(|known| known.is_learned(now, tuning.learning_s));
        let size = known.filter(|known| known.response.is_known());
        let size = size.map(|known| known.response.deviation_of(length(bytes), tuning));
        score("answer", size, None, None, tuning)
    }

    /// Counts a call.
    pub fn take_call(&mut self, tool: &str, bytes: usize, before: Option<&str>, now: u64, tuning: &Tuning) {
        if let Some(before) = before {
            self.sequence.take(before, tool);
        }
        self.all.count(bytes, now, tuning);
        if let Some(known) = self.tool(tool, now) {
            known.count(bytes, now, tuning);
        }
    }

    /// Counts an answer.
    pub fn take_answer(&mut self, tool: &str, bytes: usize, tuning: &Tuning) {
        if let Some(known) = self.tools.get_mut(tool) {
            known.response.take(length(bytes), tuning);
        }
    }

    /// Something about it was unusual.
    pub fn note_unusual(&mut self, tool: &str) {
        if let Some(known) = self.tools.get_mut(tool) {
            known.unusual += 1;
        }
    }

    /// The server still offers a known tool, which is hidden.
    pub fn record_offered(&mut self, tool: &str, now: u64) {
        if let Some(known) = self.tools.get_mut(tool) {
            known.last_seen = known.last_seen.max(now);
        }
    }

    /// None: there are too many, or its name is too long.
    fn tool(&mut self, name: &str, now: u64) -> Option<&mut Tool> {
        if !self.tools.contains_key(name) {
            if name.is_empty() || name.len() > MAX_NAME || self.tools.len() >= MAX_TOOLS {
                return None;
            }
            self.tools.insert(name.to_owned(), Tool { first_seen: now, ..Tool::default() });
        }
        let tool = self.tools.get_mut(name)?;
        tool.last_seen = tool.last_seen.max(now);
        Some(tool)
    }
}

/// Frequency and size count 35 of 100 each, the sequence 30, and what is not known nothing; a drift adds half of its series.
fn score(
    which: &str,
    size: Option<Deviation>,
    rate: Option<Deviation>,
    order: Option<(f64, &str)>,
    tuning: &Tuning,
) -> Score {
    let part = |value: f64, threshold: f64, drifts: bool| {
        ((value.abs() / (2.0 * threshold)).min(1.0) + if drifts { 0.5 } else { 0.0 }).min(1.0)
    };
    let parts = [
        rate.map(|rate| (0.35, part(rate.z, tuning.sigma, rate.drifts))),
        size.map(|size| (0.35, part(size.z, tuning.sigma, size.drifts))),
        order.map(|(bits, _)| (0.30, (bits / MIN_CONFIDENT_SCORE).min(1.0))),
    ];
    let weight: f64 = parts.iter().flatten().map(|(weight, _)| weight).sum();
    let sum: f64 = parts.iter().flatten().map(|(weight, part)| weight * part).sum();
    // Numbers lose their last bit: all of it is 1.
    let composite = (sum / weight.max(LEAST_WEIGHT) * 1000.0).round() / 1000.0;
    let (size, rate) = (size.unwrap_or_default(), rate.unwrap_or_default());
    let mut what = Vec::new();
    if size.z.abs() > tuning.sigma {
        let word = if size.z > 0.0 { "longer" } else { "shorter" };
        what.push(format!("its {which} is {word} than usual ({:.1} standard deviations)", size.z.abs()));
    }
    if size.drifts {
        what.push(format!("the length of its {which}s has been drifting"));
    }
    if rate.z > tuning.sigma {
        what.push(format!("it is called more often than usual ({:.1} standard deviations)", rate.z));
    }
    if rate.drifts {
        what.push("how often it is called has been drifting".to_owned());
    }
    if let Some((bits, before)) = order.filter(|(bits, _)| *bits > SURPRISE_BITS) {
        what.push(format!("{RARELY_FOLLOWS} '{before}' ({bits:.1} bits)"));
    }
    Score { composite, what }
}

fn length(bytes: usize) -> f64 {
    count(bytes as u64).ln_1p()
}

/// Counts, transformed to equal variance.
fn calls(in_minute: u64) -> f64 {
    2.0 * (count(in_minute) + 0.375).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning() -> Tuning {
        Tuning::of_policy(&crate::policy::AnomalyPolicy::default())
    }

    /// A quiet server: `read`, then `list`, once every half minute.
    fn usual(calls: u64) -> (Profile, u64) {
        let (mut profile, mut now) = (Profile::default(), 1_000_000);
        let mut before = None;
        for number in 0..calls {
            let tool = if number % 2 == 0 { "read" } else { "list" };
            profile.take_call(tool, 80 + (number as usize * 37) % 40, before, now, &tuning());
            profile.take_answer(tool, 500 + (number as usize * 91) % 300, &tuning());
            before = Some(tool);
            now += 30;
        }
        (profile, now)
    }

    #[test]
    fn usual_call_and_call_during_learning_are_no_finding() {
        let (profile, now) = usual(600);
        assert!(profile.call("read", 90, Some("list"), now, &tuning()).what.is_empty());
        assert!(profile.answer("read", 600, now, &tuning()).what.is_empty());
        let (profile, now) = usual(100);
        assert_eq!(profile.call("read", 1_000_000, Some("read"), now, &tuning()), Score::default());
    }

    #[test]
    fn anomaly_score_adds_length_rate_and_order() {
        let (profile, now) = usual(600);
        let long = profile.call("read", 100_000, Some("list"), now, &tuning());
        assert!(long.what[0].contains("longer") && long.composite < 0.5, "{long:?}");
        let odd = profile.call("delete", 90, Some("list"), now, &tuning());
        assert!(odd.what[0].contains("rarely follows 'list'"), "{odd:?}");
        assert!(profile.answer("read", 900_000, now, &tuning()).what[0].contains("answer is longer"));
        let (mut profile, now) = usual(600);
        for _ in 0..60 {
            profile.take_call("read", 90, None, now, &tuning());
        }
        let often = profile.call("read", 200_000, Some("read"), now, &tuning());
        assert!(often.composite >= 0.9, "{often:?}");
        assert!(often.what.iter().any(|what| what.contains("more often")), "{often:?}");
    }

    #[test]
    fn burst_of_an_unknown_tool_is_compared_with_its_whole_server() {
        for (calls, enough) in [(600, 0.9), (250, 0.9)] {
            // Thirty minutes that calls were counted in, and less than that.
            let (mut profile, mut now) = usual(calls);
            if calls == 250 {
                profile.all.rate = Series::default();
            }
            let (mut before, mut highest) = ("list", 0.0_f64);
            for number in 0..40 {
                let score = profile.call("delete", 300_000, Some(before), now, &tuning());
                assert!(number > 0 || score.what.len() > 1, "{score:?}");
                highest = highest.max(score.composite);
                profile.take_call("delete", 300_000, Some(before), now, &tuning());
                (before, now) = ("delete", now + 1);
            }
            assert!(highest >= enough, "{calls}: {highest}");
        }
        // One new tool that is a little longer than the others is not an anomaly.
        let (profile, now) = usual(600);
        let one = profile.call("stat", 110, Some("list"), now, &tuning());
        assert!(one.what.len() == 1 && one.composite < 0.5, "{one:?}");
    }

    #[test]
    fn anomaly_profile_round_trips_and_its_names_are_bounded() {
        let (mut profile, now) = usual(300);
        let text = serde_json::to_string(&profile).unwrap_or_default();
        // Numbers may lose their last bit on the way.
        let read: Profile = serde_json::from_str(&text).unwrap_or_default();
        let (one, other) =
            (profile.answer("read", 900_000, now, &tuning()), read.answer("read", 900_000, now, &tuning()));
        assert!(
            one == profile.answer("read", 900_000, now, &tuning())
                && (one.composite - other.composite).abs() < 1e-9
        );
        assert_eq!(read.tools.keys().collect::<Vec<_>>(), profile.tools.keys().collect::<Vec<_>>());
        assert_eq!(read.tools["read"].calls, profile.tools["read"].calls);
        let definition = crate::json::read(br#"{"name":"t","annotations":{"title":"T","x":1}}"#);
        let definition = definition.unwrap_or(crate::json::Json::Null);
        let listed = ListedTool::of(&definition, "sha256:0", crate::policy::risk::Names::Words);
        assert_eq!(listed.title.as_deref(), Some("T"));
        for number in 0..3_000 {
            profile.record_listed(&format!("t{number}"), listed.clone(), now);
        }
        profile.record_listed(&"x".repeat(1_000), listed, now);
        assert_eq!(profile.tools.len(), MAX_TOOLS);
    }
}
