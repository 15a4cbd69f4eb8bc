//! `detection`, `output_inspection` and `sampling`, with their documented keys: the user's own patterns, actions by
//! severity, and what servers may request of a client.

use serde::{Deserialize, Serialize};

use super::content::OnFinding;
use super::prelude::*;
use super::rules::{Pattern, pattern};

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

/// The words for the outcome of a server's request.
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
    sampling: Sampling,
}

impl DetectionPolicy {
    /// The outcome for the requests of a server. None: a scan decides.
    #[must_use]
    pub fn requests_of(&self, server: &ServerId) -> Option<&Ruled<OnRequest>> {
        self.sampling.per_server.get(&server.0).or(self.sampling.policy.as_ref())
    }
}

/// What one file writes.
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
const ACTIONS: [(&str, OnFinding); 4] = [
    ("off", OnFinding::Off),
    ("alert", OnFinding::Alert),
    ("hide", OnFinding::Block),
    ("block", OnFinding::Block),
];
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
            for (name, level) in Severity::WORDS {
                if let Some(action) = reader.word(names.find(name), &ACTIONS) {
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
            if enabled.value != (below.content.definitions() != OnFinding::Off) {
                let value = if enabled.value { OnFinding::Alert } else { OnFinding::Off };
                below.content.definitions = Some(Ruled { value, rule: enabled.rule.clone() });
            }
        }
        below.detection.actions.extend(self.actions.clone());
        if let Some(patterns) = &self.patterns {
            below.detection.patterns.clone_from(patterns);
        }
    }

    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        let is_on = base.content.definitions() != OnFinding::Off;
        narrowing.refuse_if(&self.enabled, |enabled| !enabled && is_on, LAXER);
        for (level, action) in &self.actions {
            let in_force =
                base.detection.actions.get(level).map_or(base.content.definitions(), |rule| rule.value);
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

const ON_DETECTION: [(&str, OnFinding); 4] = [
    ("block", OnFinding::Block),
    ("advise", OnFinding::Advise),
    ("alert", OnFinding::Alert),
    ("allow", OnFinding::Off),
];

table! {
    /// What one file writes.
    struct OutputInspection;

    /// `true` also searches for the documented pattern set; `false` is another way to write `content: {results: off}`.
    enabled: One<bool> = Kind::Flag, default: "true", example: "true";
    /// What happens to a result in which something was found; another way to write `content.results`.
    on_detection: One<OnFinding> = Kind::Word(&["block", "advise", "alert", "allow"]),
        default: "`content.results`",
        example: "block" => words ON_DETECTION;
}

impl Section<McpPolicy> for OutputInspection {
    const KEYS: &'static [Key] = keys! {
        /// Findings in results.
        "output_inspection": Kind::Map(Self::TABLE), default: "none";
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let mut own: Self = Table::read_at(reader, fields.find("output_inspection"));
        if let Some(off) = own.enabled.as_ref().filter(|enabled| !enabled.value) {
            own.on_detection = Some(Ruled { value: OnFinding::Off, rule: off.rule.clone() });
        }
        own
    }

    fn merge(&self, below: &mut McpPolicy) {
        if let Some(enabled) = self.enabled.as_ref().filter(|enabled| enabled.value) {
            below.detection.documented.insert("output_inspection", enabled.rule.clone());
        }
        merge_key(&self.on_detection, &mut below.content.results);
    }

    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        narrowing.refuse_if(&self.on_detection, |own| *own < base.content.results(), LAXER);
        Section::merge(self, base);
    }

    /// The policy in force is shown as `content.results`.
    fn describe(_: &McpPolicy, _: &str, _: &mut Lines) {}
}

const REQUEST: Kind = Kind::Word(&["block", "alert", "allow"]);
table! {
    /// What one file writes.
    struct Sampling;

    /// What happens to every request of a server for its client's model or user.
    policy: One<OnRequest> = REQUEST, default: "a scan decides: see `content.requests`", example: "block"
        => words REQUESTS;
    /// The same for one server.
    per_server: Named<OnRequest> = Kind::Names(&REQUEST), default: "none", example: "{search: block}"
        => words REQUESTS;
}

impl Section<McpPolicy> for Sampling {
    const KEYS: &'static [Key] = keys! {
        /// Sampling and elicitation: what servers ask of the client, its model and its user.
        "sampling": Kind::Map(Self::TABLE), default: "none";
    };

    in_table! { McpPolicy (detection.sampling): read merge describe }

    /// A project may forbid what a scan would decide about, and nothing else.
    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        let (before, message) = (&base.detection, "this file would let servers ask for more");
        let is_laxer = |own: &OnRequest, before: Option<&Ruled<OnRequest>>| {
            *own < before.map_or(OnRequest::Block, |before| before.value)
        };
        narrowing.refuse_if(&self.policy, |own| is_laxer(own, before.sampling.policy.as_ref()), message);
        for (server, own) in &self.per_server {
            if is_laxer(&own.value, before.requests_of(&ServerId(server.clone()))) {
                narrowing.refuse(&own.rule, message);
            }
        }
        Section::merge(self, base);
    }
}
