//! `anomaly`: which calls are unusual, and what happens to them.

use agentsh_base::words;

use crate::describe::Lines;
use crate::keys::{Key, Kind, keys};
use crate::model::Ruled;
use crate::narrow::Narrowing;
use crate::reader::{Fields, Reader};
use crate::section::{Section, merge_keys};
use crate::sections::McpPolicy;
use crate::types::RuleRef;

words! {
    #[derive(PartialOrd, Ord)]
    pub enum OnAnomaly {
        /// Nothing is searched for, but tools are still remembered.
        Off = "off",
        Alert = "alert",
        /// A person is asked about what is very unusual, and what is extremely so is refused.
        Graded = "graded",
    }
}

/// How long a server is only learned unless a policy says otherwise, in milliseconds: 24 hours, as the page of ThornGuard has it.
const LEARNING_MS: u64 = 24 * 3_600_000;

/// The policy in force, and the content of one file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnomalyPolicy {
    pub on_detection: Option<Ruled<OnAnomaly>>,
    alpha: Option<Ruled<u64>>,
    sigma: Option<Ruled<u64>>,
    drift: Option<Ruled<u64>>,
    learning: Option<Ruled<u64>>,
    ask_from: Option<Ruled<u64>>,
    block_from: Option<Ruled<u64>>,
}

impl AnomalyPolicy {
    #[must_use]
    pub fn on_detection(&self) -> OnAnomaly {
        self.on_detection.as_ref().map_or(OnAnomaly::Alert, |on| on.value)
    }

    #[must_use]
    pub fn rule(&self) -> RuleRef {
        let default = || RuleRef::default_rule("sandbox.mcp.anomaly.on_detection");
        self.on_detection.as_ref().map_or_else(default, |on| on.rule.clone())
    }

    /// Weight of the newest value in the moving mean, from 0.0 to 1.0.
    #[must_use]
    pub fn alpha(&self) -> f64 {
        thousandths(self.alpha.as_ref(), 50)
    }

    /// Standard deviations from which a value is unusual.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "at most 100")]
    pub fn sigma(&self) -> f64 {
        self.sigma.as_ref().map_or(4, |sigma| sigma.value) as f64
    }

    /// Sum of deviations from which a series drifts (lambda of Page and Hinkley), in standard deviations.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "at most 1000")]
    pub fn drift(&self) -> f64 {
        self.drift.as_ref().map_or(15, |drift| drift.value) as f64
    }

    /// How long after its first call a server, or a tool, is only learned, in seconds.
    #[must_use]
    pub fn learning_s(&self) -> u64 {
        self.learning.as_ref().map_or(LEARNING_MS, |learning| learning.value).div_ceil(1000)
    }

    /// The score from which a person is asked, from 0.0 to 1.0.
    #[must_use]
    pub fn ask_from(&self) -> f64 {
        thousandths(self.ask_from.as_ref(), 700)
    }

    /// The score from which a call is refused, from 0.0 to 1.0.
    #[must_use]
    pub fn block_from(&self) -> f64 {
        thousandths(self.block_from.as_ref(), 900)
    }
}

#[expect(clippy::cast_precision_loss, reason = "0 to 1000")]
fn thousandths(written: Option<&Ruled<u64>>, default: u64) -> f64 {
    written.map_or(default, |share| share.value) as f64 / 1000.0
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Anomaly {
    written: AnomalyPolicy,
}

const ANOMALY: &[Key] = keys! {
    /// What happens to a call that is much longer or more frequent than usual, or that rarely follows the previous one.
    /// `graded` asks a person from the score `ask_from` on, and refuses from `block_from` on.
    "on_detection": Kind::Word(&["off", "alert", "graded"]), also: &["mode"], default: "alert",
        example: "graded";
    /// Learning time after a server's first call, in which nothing is asked or refused. A tool is compared with its
    /// whole server at first, and with itself after this time or 200 calls.
    "learning": Kind::Duration, default: "24h", example: "72h";
    /// The score from which `graded` asks. Frequency and length count 35 of 100 each, the order 30; unknown values do
    /// not count.
    "ask_from": Kind::Share, default: "0.7", example: "0.6";
    /// The score from which `graded` refuses.
    "block_from": Kind::Share, default: "0.9", example: "0.8";
    /// Weight of the newest value in the moving mean.
    "alpha": Kind::Share, default: "0.05", example: "0.1";
    /// Standard deviations from which a length or a frequency is unusual.
    "sigma": Kind::Number(1, 100), default: "4", example: "3";
    /// Sum of deviations from which a series has drifted, in standard deviations.
    "drift": Kind::Number(1, 1000), default: "15", example: "10";
};

impl Section<McpPolicy> for Anomaly {
    const KEYS: &'static [Key] = keys! {
        /// Unusual calls.
        "anomaly": Kind::Map(ANOMALY), example: "{on_detection: graded}";
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let Some(fields) = reader.within(fields, "anomaly", ANOMALY) else { return Self::default() };
        let mode = fields.find("mode");
        if let Some(here) = mode.as_ref().filter(|_| fields.find("on_detection").is_some()) {
            reader.problem(here, "`mode` is an alias of `on_detection`, which is also set here", None);
        }
        let written = AnomalyPolicy {
            on_detection: reader.word(fields.find("on_detection").or(mode), OnAnomaly::WORDS),
            alpha: reader.share(fields.find("alpha")),
            sigma: reader.number(fields.find("sigma"), 1, 100),
            drift: reader.number(fields.find("drift"), 1, 1000),
            learning: reader.duration(fields.find("learning")),
            ask_from: reader.share(fields.find("ask_from")),
            block_from: reader.share(fields.find("block_from")),
        };
        if let (Some(alpha), Some(here)) = (&written.alpha, fields.find("alpha"))
            && alpha.value == 0
        {
            reader.problem(&here, "with a weight of 0 nothing is ever learned", None);
        }
        Self { written }
    }

    fn merge(&self, below: &mut McpPolicy) {
        let (own, below) = (&self.written, &mut below.anomaly);
        merge_keys!(own => below; on_detection, alpha, sigma, drift, learning, ask_from, block_from);
    }

    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        let (own, before) = (&self.written, &base.anomaly);
        let rule = |written: &Option<Ruled<u64>>, is_laxer: bool| {
            written.as_ref().filter(|_| is_laxer).map(|written| written.rule.clone())
        };
        let laxer = [
            own.on_detection.as_ref().filter(|on| on.value < before.on_detection()).map(|on| on.rule.clone()),
            // How fast something is learned is neither stricter nor laxer.
            rule(&own.alpha, (own.alpha() - before.alpha()).abs() > 1e-9),
            rule(&own.sigma, own.sigma() > before.sigma()),
            rule(&own.drift, own.drift() > before.drift()),
            rule(&own.learning, own.learning_s() > before.learning_s()),
            rule(&own.ask_from, own.ask_from() > before.ask_from()),
            rule(&own.block_from, own.block_from() > before.block_from()),
        ];
        if laxer.iter().all(Option::is_none) {
            return self.merge(base);
        }
        for rule in laxer.into_iter().flatten() {
            narrowing.refuse(&rule, "this file would loosen `anomaly`");
        }
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        let own = &policy.anomaly;
        let key = |key: &str| format!("{name}.anomaly.{key}");
        lines.list(&key("on_detection"), &own.on_detection, |on| on.as_str());
        for (word, written, shown) in [
            ("learning", &own.learning, format!("{} s", own.learning_s())),
            ("ask_from", &own.ask_from, own.ask_from().to_string()),
            ("block_from", &own.block_from, own.block_from().to_string()),
            ("alpha", &own.alpha, own.alpha().to_string()),
            ("sigma", &own.sigma, own.sigma().to_string()),
            ("drift", &own.drift, own.drift().to_string()),
        ] {
            lines.list(&key(word), written, |_| shown.clone());
        }
    }
}
