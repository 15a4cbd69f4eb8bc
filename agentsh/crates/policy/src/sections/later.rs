//! Documented sections whose engines are not built: checked like everything else, so that a documented file loads
//! unchanged and a mistyped one does not, and reported as not enforced.

use crate::describe::Lines;
use crate::diagnostic::one_of;
use crate::keys::{KEY, Key, Kind};
use crate::narrow::Narrowing;
use crate::reader::{Fields, Here, Reader};
use crate::section::Section;
use crate::sections::McpPolicy;
use crate::types::RuleRef;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Later {
    /// Unless they are switched off anyway.
    pub asked: Vec<RuleRef>,
}

/// Checks one section; true when it asks for something.
type Check = fn(&mut Reader<'_>, &Here<'_>) -> bool;

const SECTIONS: [(&str, Check); 4] = [
    ("detection", detection),
    ("output_inspection", output_inspection),
    ("sampling", sampling),
    ("allowed_transports", allowed_transports),
];

const ACTION: Kind = Kind::Word(&["block", "alert", "allow"]);
const PATTERN: &[Key] = &[
    Key { name: "name", kind: Kind::Text, default: "none", about: "What it is called.", ..KEY },
    Key { name: "pattern", kind: Kind::Text, default: "none", about: "A regular expression.", ..KEY },
    Key { name: "category", kind: Kind::Text, default: "none", about: "What it is about.", ..KEY },
    Key {
        name: "severity",
        kind: Kind::Word(&["low", "medium", "high", "critical"]),
        default: "none",
        about: "How bad it is.",
        ..KEY
    },
    Key { name: "description", kind: Kind::Text, default: "none", about: "For people.", ..KEY },
];
const DETECTION: &[Key] = &[
    Key {
        name: "enabled",
        kind: Kind::Flag,
        default: "true",
        about: "Whether it is asked for.",
        example: "true",
        ..KEY
    },
    Key {
        name: "custom_patterns",
        kind: Kind::Whole(&Kind::Map(PATTERN)),
        default: "none",
        about: "Patterns of one's own.",
        example: "[{name: internal, pattern: \"corp\\\\.example\"}]",
        ..KEY
    },
];
const OUTPUT_INSPECTION: &[Key] = &[
    Key {
        name: "enabled",
        kind: Kind::Flag,
        default: "true",
        about: "Whether it is asked for.",
        example: "true",
        ..KEY
    },
    Key {
        name: "on_detection",
        kind: ACTION,
        default: "none",
        about: "What becomes of a result.",
        example: "block",
        ..KEY
    },
];
const SAMPLING: &[Key] = &[
    Key {
        name: "policy",
        kind: ACTION,
        default: "none",
        about: "Requests of servers to the model.",
        example: "block",
        ..KEY
    },
    Key {
        name: "per_server",
        kind: Kind::Names(&ACTION),
        default: "none",
        about: "The same for one server.",
        example: "{search: block}",
        ..KEY
    },
];

impl Section<McpPolicy> for Later {
    const KEYS: &'static [Key] = &[
        Key {
            name: "detection",
            kind: Kind::Map(DETECTION),
            default: "none",
            about: "Findings in definitions of tools. Read and checked; this version does not enforce it.",
            ..KEY
        },
        Key {
            name: "output_inspection",
            kind: Kind::Map(OUTPUT_INSPECTION),
            default: "none",
            about: "Findings in results. Read and checked; this version does not enforce it.",
            ..KEY
        },
        Key {
            name: "sampling",
            kind: Kind::Map(SAMPLING),
            default: "none",
            about: "Requests of servers to the model. Read and checked; this version does not enforce it.",
            ..KEY
        },
        Key {
            name: "allowed_transports",
            kind: Kind::Whole(&Kind::Word(&["stdio", "http", "sse"])),
            default: "all",
            about: "Ways to reach servers. Read and checked; this version does not enforce it.",
            example: "[stdio]",
            ..KEY
        },
    ];

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let mut asked = Vec::new();
        for (key, check) in SECTIONS {
            if let Some(here) = fields.find(key)
                && check(reader, &here)
            {
                asked.push(reader.rule(&here));
            }
        }
        Self { asked }
    }

    fn merge(&self, below: &mut McpPolicy) {
        below.not_enforced.extend(self.asked.iter().cloned());
    }

    fn narrow(&self, base: &mut McpPolicy, _: &mut Narrowing<'_>) {
        self.merge(base);
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        for rule in &policy.not_enforced {
            lines.add(&format!("{name}.not_enforced"), &rule.id, rule);
        }
    }
}

const ACTIONS: [(&str, ()); 3] = [("block", ()), ("alert", ()), ("allow", ())];

fn detection(reader: &mut Reader<'_>, here: &Here<'_>) -> bool {
    let Some(fields) = reader.map(here, DETECTION) else { return true };
    reader.list(fields.find("custom_patterns"), |reader, here| {
        let rule = reader.map(here, PATTERN)?;
        for key in ["name", "pattern"] {
            if rule.find(key).is_none() {
                reader.problem(here, format!("this pattern has no `{key}`"), None);
            }
        }
        for key in ["name", "pattern", "category", "description"] {
            if let Some(here) = rule.find(key) {
                reader.text(&here);
            }
        }
        let severities = [("low", ()), ("medium", ()), ("high", ()), ("critical", ())];
        reader.word(rule.find("severity"), &severities);
        Some(())
    });
    asks(reader.boolean(fields.find("enabled")))
}

fn output_inspection(reader: &mut Reader<'_>, here: &Here<'_>) -> bool {
    let Some(fields) = reader.map(here, OUTPUT_INSPECTION) else { return true };
    reader.word(fields.find("on_detection"), &ACTIONS);
    asks(reader.boolean(fields.find("enabled")))
}

fn sampling(reader: &mut Reader<'_>, here: &Here<'_>) -> bool {
    let Some(fields) = reader.map(here, SAMPLING) else { return true };
    reader.word(fields.find("policy"), &ACTIONS);
    if let Some(here) = fields.find("per_server")
        && let Some(names) = reader.names(&here)
    {
        for (_, here) in names.all() {
            reader.word(Some(here), &ACTIONS);
        }
    }
    true
}

fn allowed_transports(reader: &mut Reader<'_>, here: &Here<'_>) -> bool {
    let words = ["stdio", "http", "sse"];
    let list = reader.list(Some(here.clone()), |reader, here| {
        let word = reader.text(here)?;
        if !words.contains(&word.as_str()) {
            reader.problem(here, "unknown transport", Some(format!("write {}", one_of(&words))));
        }
        Some(word)
    });
    list.is_none_or(|list| !list.value.is_empty())
}

/// A section asks for something unless it is switched off.
fn asks(enabled: Option<crate::model::Ruled<bool>>) -> bool {
    enabled.is_none_or(|enabled| enabled.value)
}
