//! `llm`: the channel between the agent and its model.

use crate::describe::Lines;
use crate::keys::{KEY, Key, Kind};
use crate::model::Ruled;
use crate::narrow::Narrowing;
use crate::reader::{Fields, Reader};
use crate::section::{Section, lay};
use crate::sections::Policy;

/// What is in force, each key with its place where it was written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LlmPolicy {
    /// None: where the model is spoken to without TLS.
    pub enabled: Option<Ruled<bool>>,
    pub canary: Option<Ruled<bool>>,
    pub replacement: Option<Ruled<String>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Llm {
    written: LlmPolicy,
}

const LLM: &[Key] = &[
    Key {
        name: "enabled",
        kind: Kind::Flag,
        default: "for a model that is spoken to without TLS",
        about: "Whether the tool calls in a model's answers are judged before the agent sees them. `true` also ends the TLS \
            of the model's own hosts at the session's authority, which the agent has to trust; `false` never.",
        example: "true",
        ..KEY
    },
    Key {
        name: "canary",
        kind: Kind::Flag,
        default: "false",
        about: "Whether an answer is withheld that holds the first telling sentence (30 to 240 bytes) of the system prompt.",
        example: "true",
        ..KEY
    },
    Key {
        name: "replacement",
        kind: Kind::Text,
        default: "`[Response withheld: the model attempted to reveal protected instructions.]`",
        about: "What the agent gets in place of such an answer.",
        example: "\"I can't share my system instructions.\"",
        ..KEY
    },
];

impl Section<Policy> for Llm {
    const KEYS: &'static [Key] = &[Key {
        name: "llm",
        kind: Kind::Map(LLM),
        about: "What is judged between the agent and its model.",
        example: "{enabled: true, canary: true}",
        ..KEY
    }];

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let fields = fields.find("llm").and_then(|here| reader.map(&here, LLM));
        let Some(fields) = fields else { return Self::default() };
        Self {
            written: LlmPolicy {
                enabled: reader.boolean(fields.find("enabled")),
                canary: reader.boolean(fields.find("canary")),
                replacement: fields.find("replacement").and_then(|here| {
                    let text = reader.text(&here)?;
                    Some(reader.ruled(&here, text))
                }),
            },
        }
    }

    fn merge(&self, below: &mut Policy) {
        lay(&self.written.enabled, &mut below.llm.enabled);
        lay(&self.written.canary, &mut below.llm.canary);
        lay(&self.written.replacement, &mut below.llm.replacement);
    }

    /// What is judged without the file stays judged.
    fn narrow(&self, base: &mut Policy, narrowing: &mut Narrowing<'_>) {
        let LlmPolicy { enabled, canary, replacement } = &self.written;
        for (wanted, in_force) in [(enabled, &mut base.llm.enabled), (canary, &mut base.llm.canary)] {
            match wanted {
                Some(wanted) if wanted.value => *in_force = Some(wanted.clone()),
                Some(wanted) => {
                    narrowing.refuse(&wanted.rule, "the model's answers are judged without this file")
                }
                None => {}
            }
        }
        if let Some(replacement) = replacement {
            narrowing.refuse(&replacement.rule, "the text belongs to the user");
        }
    }

    fn describe(policy: &Policy, _: &str, lines: &mut Lines) {
        let LlmPolicy { enabled, canary, replacement } = &policy.llm;
        for (name, flag) in [("llm.enabled", enabled), ("llm.canary", canary)] {
            if let Some(flag) = flag {
                lines.add(name, flag.value.to_string(), &flag.rule);
            }
        }
        if let Some(replacement) = replacement {
            lines.add("llm.replacement", format!("{:?}", replacement.value), &replacement.rule);
        }
    }
}
