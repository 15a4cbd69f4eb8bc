//! `anomaly`: what becomes of calls that are not as they used to be.

use crate::describe::Lines;
use crate::keys::{KEY, Key, Kind};
use crate::model::Ruled;
use crate::narrow::Narrowing;
use crate::reader::{Fields, Reader};
use crate::section::{Section, lay};
use crate::sections::McpPolicy;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OnAnomaly {
    /// Nothing is looked for; what tools there are is remembered all the same.
    Off,
    Alert,
    /// A person is asked about what is very unusual, and what is extremely so is refused.
    Graded,
}

impl OnAnomaly {
    const WORDS: [(&'static str, Self); 3] =
        [("off", Self::Off), ("alert", Self::Alert), ("graded", Self::Graded)];
}

/// What is in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnomalyPolicy {
    pub on_detection: Option<Ruled<OnAnomaly>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Anomaly {
    on_detection: Option<Ruled<OnAnomaly>>,
}

const ANOMALY: &[Key] = &[Key {
    name: "on_detection",
    kind: Kind::Word(&["off", "alert", "graded"]),
    default: "alert",
    about: "What a call leads to that is much longer or more frequent than usual, or that hardly ever follows the one \
        before. `graded`: from a score of 0.7 a person is asked, from 0.9 it is refused. A tool is only learned for 24 hours or \
        200 calls.",
    example: "graded",
    ..KEY
}];

impl Section<McpPolicy> for Anomaly {
    const KEYS: &'static [Key] = &[Key {
        name: "anomaly",
        kind: Kind::Map(ANOMALY),
        about: "Calls that are not as they used to be.",
        example: "{on_detection: graded}",
        ..KEY
    }];

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let fields = fields.find("anomaly").and_then(|here| reader.map(&here, ANOMALY));
        let on_detection =
            fields.and_then(|fields| reader.word(fields.find("on_detection"), &OnAnomaly::WORDS));
        Self { on_detection }
    }

    fn merge(&self, below: &mut McpPolicy) {
        lay(&self.on_detection, &mut below.anomaly.on_detection);
    }

    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        let in_force = base.anomaly.on_detection.as_ref().map_or(OnAnomaly::Alert, |on| on.value);
        match &self.on_detection {
            Some(own) if own.value < in_force => {
                narrowing.refuse(&own.rule, "`anomaly.on_detection` is stricter without this file");
            }
            _ => self.merge(base),
        }
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        if let Some(on) = &policy.anomaly.on_detection {
            let word = OnAnomaly::WORDS.iter().find(|(_, value)| *value == on.value);
            lines.add(&format!("{name}.anomaly.on_detection"), word.map_or("", |(word, _)| word), &on.rule);
        }
    }
}
