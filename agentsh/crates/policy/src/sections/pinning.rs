//! `version_pinning`: what becomes of a server or a tool that changed.

use crate::describe::Lines;
use crate::keys::{KEY, Key, Kind};
use crate::model::{OnChange, Pinning, Ruled};
use crate::narrow::Narrowing;
use crate::reader::{Fields, Reader};
use crate::section::Section;
use crate::sections::McpPolicy;
use crate::types::RuleRef;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PinningKeys {
    pub rule: Option<RuleRef>,
    pub enabled: Option<Ruled<bool>>,
    pub on_change: Option<Ruled<OnChange>>,
    pub auto_trust_first: Option<Ruled<bool>>,
    pub pin_binary: Option<Ruled<bool>>,
}

const PINNING: &[Key] = &[
    Key {
        name: "enabled",
        kind: Kind::Flag,
        default: "true",
        about: "Whether the bytes of servers and the definitions of tools are compared with what was trusted.",
        example: "true",
        ..KEY
    },
    Key {
        name: "on_change",
        kind: Kind::Word(&["block", "alert", "allow"]),
        default: "block",
        about: "What becomes of a server or a tool that is not what was trusted.",
        example: "block",
        ..KEY
    },
    Key {
        name: "auto_trust_first",
        kind: Kind::Flag,
        default: "true",
        about: "Whether what is seen for the first time is trusted.",
        example: "false",
        ..KEY
    },
    Key {
        name: "pin_binary",
        kind: Kind::Flag,
        default: "true",
        about: "Whether the files of the program are pinned, and not the definitions of its tools alone.",
        example: "true",
        ..KEY
    },
];

impl Section<McpPolicy> for PinningKeys {
    const KEYS: &'static [Key] = &[Key {
        name: "version_pinning",
        kind: Kind::Map(PINNING),
        about: "Servers and tools that change behind one's back.",
        ..KEY
    }];

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let here = fields.find("version_pinning");
        let Some((here, fields)) = here.and_then(|here| Some((here.clone(), reader.map(&here, PINNING)?)))
        else {
            return Self::default();
        };
        let words = [("block", OnChange::Block), ("alert", OnChange::Alert), ("allow", OnChange::Allow)];
        Self {
            rule: Some(reader.rule(&here)),
            enabled: reader.boolean(fields.find("enabled")),
            on_change: reader.word(fields.find("on_change"), &words),
            auto_trust_first: reader.boolean(fields.find("auto_trust_first")),
            pin_binary: reader.boolean(fields.find("pin_binary")),
        }
    }

    /// A key that a section leaves out keeps what is below, at last the strict default.
    fn merge(&self, below: &mut McpPolicy) {
        let Pinning { enabled, on_change, auto_trust_first, pin_binary, rule, written } = &mut below.pinning;
        for (key, value, slot) in [
            ("enabled", &self.enabled, enabled),
            ("auto_trust_first", &self.auto_trust_first, auto_trust_first),
            ("pin_binary", &self.pin_binary, pin_binary),
        ] {
            if let Some(value) = value {
                *slot = value.value;
                written.insert(key, value.rule.clone());
            }
        }
        if let Some(value) = &self.on_change {
            *on_change = value.value;
            written.insert("on_change", value.rule.clone());
        }
        if let Some(own) = &self.rule {
            rule.clone_from(own);
        }
    }

    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        let strictness = |on_change: OnChange| match on_change {
            OnChange::Allow => 0,
            OnChange::Alert => 1,
            OnChange::Block => 2,
        };
        let in_force = &base.pinning;
        let laxer = [
            self.enabled.as_ref().filter(|own| in_force.enabled && !own.value).map(|own| &own.rule),
            self.on_change
                .as_ref()
                .filter(|own| strictness(own.value) < strictness(in_force.on_change))
                .map(|own| &own.rule),
            self.auto_trust_first
                .as_ref()
                .filter(|own| own.value && !in_force.auto_trust_first)
                .map(|own| &own.rule),
            self.pin_binary.as_ref().filter(|own| in_force.pin_binary && !own.value).map(|own| &own.rule),
        ];
        for rule in laxer.into_iter().flatten() {
            narrowing.refuse(rule, "pinning is stricter without this file");
        }
        self.merge(base);
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        let pinning = &policy.pinning;
        for (key, value) in [
            ("enabled", pinning.enabled.to_string()),
            ("on_change", pinning.on_change.as_str().to_owned()),
            ("auto_trust_first", pinning.auto_trust_first.to_string()),
            ("pin_binary", pinning.pin_binary.to_string()),
        ] {
            let default = || RuleRef::default_rule(&format!("sandbox.mcp.version_pinning.{key}"));
            let rule = pinning.written.get(key).cloned().unwrap_or_else(default);
            lines.add(&format!("{name}.version_pinning.{key}"), value, &rule);
        }
    }
}

impl OnChange {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Alert => "alert",
            Self::Allow => "allow",
        }
    }
}
