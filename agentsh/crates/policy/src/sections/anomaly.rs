//! `anomaly`: which calls are unusual, and what happens to them.

use super::prelude::*;

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

word_values!(OnAnomaly);

impl AnomalyPolicy {
    #[must_use]
    pub fn on_detection(&self) -> OnAnomaly {
        in_force(&self.on_detection, OnAnomaly::Alert)
    }

    #[must_use]
    pub fn rule(&self) -> RuleRef {
        let default = || RuleRef::default_rule("sandbox.mcp.anomaly.on_detection");
        self.on_detection.as_ref().map_or_else(default, |on| on.rule.clone())
    }

    /// Weight of the newest value in the moving mean, from 0.0 to 1.0.
    #[must_use]
    pub fn alpha(&self) -> f64 {
        share(in_force(&self.alpha, 50))
    }

    /// Standard deviations from which a value is unusual.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "at most 100")]
    pub fn sigma(&self) -> f64 {
        in_force(&self.sigma, 4) as f64
    }

    /// Sum of deviations from which a series drifts (lambda of Page and Hinkley), in standard deviations.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "at most 1000")]
    pub fn drift(&self) -> f64 {
        in_force(&self.drift, 15) as f64
    }

    /// How long after its first call a server, or a tool, is only learned, in seconds.
    #[must_use]
    pub fn learning_s(&self) -> u64 {
        in_force(&self.learning, LEARNING_MS).div_ceil(1000)
    }

    /// The score from which a person is asked, from 0.0 to 1.0.
    #[must_use]
    pub fn ask_from(&self) -> f64 {
        share(in_force(&self.ask_from, 700))
    }

    /// The score from which a call is refused, from 0.0 to 1.0.
    #[must_use]
    pub fn block_from(&self) -> f64 {
        share(in_force(&self.block_from, 900))
    }
}

table! {
    /// The policy in force, each key with its place if it was written.
    struct AnomalyPolicy;

    /// What happens to a call that is much longer or more frequent than usual, or that rarely follows the previous one.
    /// `graded` asks a person from the score `ask_from` on, and refuses from `block_from` on.
    pub on_detection: One<OnAnomaly> = Kind::Word(&["off", "alert", "graded"]), also: &["mode"],
        default: "alert",
        example: "graded";
    /// Learning time after a server's first call, in which nothing is asked or refused. A tool is compared with its
    /// whole server at first, and with itself after this time or 200 calls.
    learning: One<u64> = Kind::Duration, default: "24h", example: "72h"
        => show |learning| format!("{} s", learning.div_ceil(1000));
    /// The score from which `graded` asks. Frequency and length count 35 of 100 each, the order 30; unknown values do
    /// not count.
    ask_from: One<u64> = Kind::Share, default: "0.7", example: "0.6";
    /// The score from which `graded` refuses.
    block_from: One<u64> = Kind::Share, default: "0.9", example: "0.8";
    /// Weight of the newest value in the moving mean.
    alpha: One<u64> = Kind::Share, default: "0.05", example: "0.1" => read alpha;
    /// Standard deviations from which a length or a frequency is unusual.
    sigma: One<u64> = Kind::Number(1, 100), default: "4", example: "3";
    /// Sum of deviations from which a series has drifted, in standard deviations.
    drift: One<u64> = Kind::Number(1, 1000), default: "15", example: "10";
}

impl Section<McpPolicy> for AnomalyPolicy {
    const KEYS: &'static [Key] = keys! {
        /// Unusual calls.
        "anomaly": Kind::Map(Self::TABLE), example: "{on_detection: graded}";
    };

    in_table! { McpPolicy (anomaly): read merge describe }

    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        let (before, message) = (&base.anomaly, "this file would loosen `anomaly`");
        narrowing.refuse_if(&self.on_detection, |on| *on < before.on_detection(), message);
        // How fast something is learned is neither stricter nor laxer.
        narrowing.refuse_if(&self.alpha, |_| (self.alpha() - before.alpha()).abs() > 1e-9, message);
        narrowing.refuse_if(&self.sigma, |_| self.sigma() > before.sigma(), message);
        narrowing.refuse_if(&self.drift, |_| self.drift() > before.drift(), message);
        narrowing.refuse_if(&self.learning, |_| self.learning_s() > before.learning_s(), message);
        narrowing.refuse_if(&self.ask_from, |_| self.ask_from() > before.ask_from(), message);
        narrowing.refuse_if(&self.block_from, |_| self.block_from() > before.block_from(), message);
        Section::merge(self, base);
    }
}

fn alpha(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<u64> {
    let alpha = reader.thousandths(here)?;
    if alpha == 0 {
        return reader.fault(here, "with a weight of 0 nothing is ever learned", None);
    }
    Some(alpha)
}
