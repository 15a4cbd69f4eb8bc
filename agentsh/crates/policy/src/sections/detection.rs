//! `detection`, `output_inspection` and `sampling`, with their documented keys: the user's own patterns, actions by
//! severity, and what servers may request of a client.

use std::collections::BTreeMap;

use agentsh_base::words;
use serde::{Deserialize, Serialize};

use crate::describe::Lines;
use crate::keys::{KEY, Key, Kind, keys};
use crate::model::Ruled;
use crate::narrow::Narrowing;
use crate::reader::{Fields, Here, Reader};
use crate::section::{Section, merge_key};
use crate::sections::McpPolicy;
use crate::sections::content::OnFinding;
use crate::sections::rules::{Pattern, pattern};
use crate::types::{RuleRef, ServerId};

words! {
    /// The severity of a finding or an advisory.
    #[derive(PartialOrd, Ord, Deserialize, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Severity {
        Low = "low",
        Medium = "medium",
        High = "high",
        Critical = "critical",
    }
}

/// A pattern of the policy's own.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomPattern {
    pub name: String,
    pub pattern: Pattern,
    pub category: String,
    pub severity: Severity,
    /// Stands before what was found.
    pub description: Option<String>,
}

words! {
    /// The outcome of a server's request to the client.
    #[derive(PartialOrd, Ord)]
    pub enum OnRequest {
        /// The text passes without being searched.
        Allow = "allow",
        /// It goes through, and is recorded.
        Alert = "alert",
        Block = "block",
    }
}

const REQUESTS: [(&str, OnRequest); 3] =
    [("block", OnRequest::Block), ("alert", OnRequest::Alert), ("allow", OnRequest::Allow)];

/// The policy in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DetectionPolicy {
    /// The outcome for a definition with such a finding, if it was written.
    pub actions: BTreeMap<Severity, Ruled<OnFinding>>,
    pub patterns: Vec<Ruled<CustomPattern>>,
    /// Sections with `enabled: true`: with one of them the documented pattern set is used in addition to the built-in scan.
    pub documented: BTreeMap<&'static str, RuleRef>,
    /// For every sampling and elicitation request. Without it a scan decides: see `content.requests`.
    pub requests: Option<Ruled<OnRequest>>,
    pub requests_of: BTreeMap<ServerId, Ruled<OnRequest>>,
}

impl DetectionPolicy {
    /// The outcome for the requests of a server. None: a scan decides.
    #[must_use]
    pub fn requests_of(&self, server: &ServerId) -> Option<&Ruled<OnRequest>> {
        self.requests_of.get(server).or(self.requests.as_ref())
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Detection {
    enabled: Option<Ruled<bool>>,
    actions: BTreeMap<Severity, Ruled<OnFinding>>,
    patterns: Option<Vec<Ruled<CustomPattern>>>,
}

const SEVERITY: Kind = Kind::Word(&["low", "medium", "high", "critical"]);
const ACTION: Key = Key {
    kind: Kind::Word(&["off", "alert", "hide", "block"]),
    default: "what `content.definitions` says",
    about: "What happens to a tool whose definition has a finding of this severity; `hide` and `block` leave it out and refuse its calls.",
    ..KEY
};
const PATTERN: &[Key] = keys! {
    /// Its name.
    "name": Kind::Text, default: "required";
    /// A regular expression (of the crate `regex`: linear time, without look-around).
    "pattern": Kind::Text, default: "required";
    /// Its category.
    "category": Kind::Text, default: "custom";
    /// Its severity.
    "severity": SEVERITY, default: "high";
    /// Shown in refusals and events.
    "description": Kind::Text, default: "none";
};
const LEVEL_KEYS: &[Key] = &[
    Key { name: "low", ..ACTION },
    Key { name: "medium", ..ACTION },
    Key { name: "high", ..ACTION },
    Key { name: "critical", example: "hide", ..ACTION },
];
const DETECTION: &[Key] = keys! {
    /// `true` also searches for the documented pattern set, in definitions and in results; `false` is another way to
    /// write `content: {definitions: off}`.
    "enabled": Kind::Flag, default: "true", example: "true";
    /// What happens to a tool, by the severity of its worst finding.
    "actions": Kind::Map(LEVEL_KEYS), default: "none";
    /// Your own patterns, searched for in definitions and in results. A match has the severity of its pattern: `high`
    /// and `critical` count like a finding that would block.
    "custom_patterns": Kind::Whole(&Kind::Map(PATTERN)), default: "none",
        example: "[{name: internal, pattern: \"corp\\\\.example\", severity: low}]";
};

impl Section<McpPolicy> for Detection {
    const KEYS: &'static [Key] = keys! {
        /// Findings in definitions of tools, prompts and resources.
        "detection": Kind::Map(DETECTION), default: "none";
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let Some(fields) = reader.within(fields, "detection", DETECTION) else { return Self::default() };
        let mut actions = BTreeMap::new();
        if let Some(here) = fields.find("actions")
            && let Some(names) = reader.map(&here, LEVEL_KEYS)
        {
            let words = [
                ("off", OnFinding::Off),
                ("alert", OnFinding::Alert),
                ("hide", OnFinding::Block),
                ("block", OnFinding::Block),
            ];
            for (name, level) in Severity::WORDS {
                if let Some(action) = reader.word(names.find(name), &words) {
                    actions.insert(*level, action);
                }
            }
        }
        Self {
            enabled: reader.boolean(fields.find("enabled")),
            actions,
            patterns: reader.list(fields.find("custom_patterns"), custom).map(|list| list.value),
        }
    }

    fn merge(&self, below: &mut McpPolicy) {
        if let Some(enabled) = &self.enabled {
            match enabled.value {
                true => below.detection.documented.insert("detection", enabled.rule.clone()),
                false => below.detection.documented.remove("detection"),
            };
            let in_force = &mut below.content;
            if enabled.value != (in_force.definitions != OnFinding::Off) {
                in_force.definitions = if enabled.value { OnFinding::Alert } else { OnFinding::Off };
                in_force.written.insert("definitions", enabled.rule.clone());
            }
        }
        below.detection.actions.extend(self.actions.clone());
        if let Some(patterns) = &self.patterns {
            below.detection.patterns.clone_from(patterns);
        }
    }

    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        let is_on = base.content.definitions != OnFinding::Off;
        narrowing.refuse_if(&self.enabled, |enabled| !enabled && is_on, LAXER);
        for (level, action) in &self.actions {
            let in_force =
                base.detection.actions.get(level).map_or(base.content.definitions, |rule| rule.value);
            if action.value < in_force {
                narrowing.refuse(&action.rule, LAXER);
            }
        }
        let mut patterns = base.detection.patterns.clone();
        patterns.extend(self.patterns.iter().flatten().cloned());
        self.merge(base);
        base.detection.patterns = patterns;
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        for (section, rule) in &policy.detection.documented {
            lines.add(&format!("{name}.{section}.enabled"), "true", rule);
        }
        for (level, action) in &policy.detection.actions {
            let level = level.as_str();
            lines.add(&format!("{name}.detection.actions.{level}"), action.value.as_str(), &action.rule);
        }
        for Ruled { value, rule } in &policy.detection.patterns {
            let text = format!("{} /{}/", value.name, value.pattern.0.as_str());
            lines.add(&format!("{name}.detection.custom_patterns"), text, rule);
        }
    }
}

const LAXER: &str = "less is looked for with this file than without it";

fn custom(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<CustomPattern> {
    let fields = reader.map(here, PATTERN)?;
    for key in ["name", "pattern"] {
        if fields.find(key).is_none() {
            reader.problem(here, format!("this pattern has no `{key}`"), None);
        }
    }
    let mut text = |name: &str| fields.find(name).and_then(|here| reader.text(&here));
    let (name, category, description) = (text("name"), text("category"), text("description"));
    let severity = reader.word(fields.find("severity"), Severity::WORDS);
    let pattern = fields.find("pattern").and_then(|here| pattern(reader, &here));
    Some(CustomPattern {
        name: name?,
        pattern: pattern?,
        category: category.unwrap_or_else(|| "custom".to_owned()),
        severity: severity.map_or(Severity::High, |severity| severity.value),
        description,
    })
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutputInspection {
    enabled: Option<Ruled<bool>>,
    written: Option<Ruled<OnFinding>>,
}

const OUTPUT_INSPECTION: &[Key] = keys! {
    /// `true` also searches for the documented pattern set; `false` is another way to write `content: {results: off}`.
    "enabled": Kind::Flag, default: "true", example: "true";
    /// What happens to a result in which something was found; another way to write `content.results`.
    "on_detection": Kind::Word(&["block", "advise", "alert", "allow"]), default: "`content.results`",
        example: "block";
};

impl Section<McpPolicy> for OutputInspection {
    const KEYS: &'static [Key] = keys! {
        /// Findings in results.
        "output_inspection": Kind::Map(OUTPUT_INSPECTION), default: "none";
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let here = fields.find("output_inspection");
        let Some(fields) = here.and_then(|here| reader.map(&here, OUTPUT_INSPECTION)) else {
            return Self::default();
        };
        let words = [
            ("block", OnFinding::Block),
            ("advise", OnFinding::Advise),
            ("alert", OnFinding::Alert),
            ("allow", OnFinding::Off),
        ];
        let enabled = reader.boolean(fields.find("enabled"));
        let off = enabled.clone().filter(|enabled| !enabled.value);
        let action = reader.word(fields.find("on_detection"), &words);
        Self { written: off.map(|off| Ruled { value: OnFinding::Off, rule: off.rule }).or(action), enabled }
    }

    fn merge(&self, below: &mut McpPolicy) {
        if let Some(enabled) = self.enabled.as_ref().filter(|enabled| enabled.value) {
            below.detection.documented.insert("output_inspection", enabled.rule.clone());
        }
        if let Some(written) = &self.written {
            below.content.results = written.value;
            below.content.written.insert("results", written.rule.clone());
        }
    }

    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        narrowing.refuse_if(&self.written, |written| *written < base.content.results, LAXER);
        self.merge(base);
    }

    /// The policy in force is shown as `content.results`.
    fn describe(_: &McpPolicy, _: &str, _: &mut Lines) {}
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampling {
    policy: Option<Ruled<OnRequest>>,
    per_server: BTreeMap<ServerId, Ruled<OnRequest>>,
}

const REQUEST: Kind = Kind::Word(&["block", "alert", "allow"]);
const SAMPLING: &[Key] = keys! {
    /// What happens to every request of a server for its client's model or user.
    "policy": REQUEST, default: "a scan decides: see `content.requests`", example: "block";
    /// The same for one server.
    "per_server": Kind::Names(&REQUEST), default: "none", example: "{search: block}";
};

impl Section<McpPolicy> for Sampling {
    const KEYS: &'static [Key] = keys! {
        /// Sampling and elicitation: what servers ask of the client, its model and its user.
        "sampling": Kind::Map(SAMPLING), default: "none";
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let Some(fields) = reader.within(fields, "sampling", SAMPLING) else { return Self::default() };
        let per_server =
            reader.named(fields.find("per_server"), |reader, here| reader.word(Some(here), &REQUESTS));
        let per_server = per_server.into_iter().map(|(name, word)| (ServerId(name), word)).collect();
        Self { policy: reader.word(fields.find("policy"), &REQUESTS), per_server }
    }

    fn merge(&self, below: &mut McpPolicy) {
        merge_key(&self.policy, &mut below.detection.requests);
        below.detection.requests_of.extend(self.per_server.clone());
    }

    /// A project may forbid what a scan would decide about, and nothing else.
    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        let all = base.detection.requests.clone();
        let is_laxer = |own: &Ruled<OnRequest>, in_force: Option<&Ruled<OnRequest>>| match in_force {
            Some(in_force) => own.value < in_force.value,
            None => own.value < OnRequest::Block,
        };
        let mut refuse = |rule: &RuleRef| narrowing.refuse(rule, "this file would let servers ask for more");
        if let Some(own) = self.policy.as_ref().filter(|own| is_laxer(own, all.as_ref())) {
            refuse(&own.rule);
        }
        for (server, own) in &self.per_server {
            if is_laxer(own, base.detection.requests_of.get(server).or(all.as_ref())) {
                refuse(&own.rule);
            }
        }
        self.merge(base);
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        lines.list(&format!("{name}.sampling.policy"), &policy.detection.requests, |all| all.as_str());
        for (server, own) in &policy.detection.requests_of {
            lines.add(&format!("{name}.sampling.per_server.{server}"), own.value.as_str(), &own.rule);
        }
    }
}
