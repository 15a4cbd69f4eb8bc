//! `version_pinning`: what happens to a server or a tool that changed.

use crate::describe::Lines;
use crate::keys::{Key, Kind, keys};
use crate::model::{IgnoredIn, OnChange, Ruled};
use crate::narrow::Narrowing;
use crate::reader::{Fields, Here, List, Reader};
use crate::section::{Section, set_key};
use crate::sections::McpPolicy;
use crate::types::RuleRef;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PinningKeys {
    pub rule: Option<RuleRef>,
    pub enabled: Option<Ruled<bool>>,
    pub on_change: Option<Ruled<OnChange>>,
    pub auto_trust_first: Option<Ruled<bool>>,
    pub pin_binary: Option<Ruled<bool>>,
    pub unlisted: Option<Ruled<OnChange>>,
    pub ignore: Option<Ruled<Vec<String>>>,
    pub ignore_in: Option<Ruled<Vec<IgnoredIn>>>,
}

const IGNORED: &[Key] = keys! {
    /// A server, or a pattern.
    "server": Kind::Text, default: "required", example: "clock";
    /// A tool, a prompt or a URI, or a pattern; empty for the instructions.
    "name": Kind::Text, default: "`*`", example: "now";
    /// Members of the definition, as names or JSON pointers.
    "members": Kind::Whole(&Kind::Text), default: "required", example: "[description]";
};

const PINNING: &[Key] = keys! {
    /// Whether the bytes of servers and the definitions of tools are compared with what was trusted.
    "enabled": Kind::Flag, default: "true", example: "true";
    /// What happens to a server or a tool that differs from its pin. `block` hides the tool, refuses its calls and asks
    /// a person whether it may be shown, `ask` shows it and waits for a person at every call; a program that changed is
    /// refused by both.
    "on_change": Kind::Word(&["block", "ask", "alert", "allow"]), default: "block", example: "block";
    /// Another way to write `on_change`: `quarantine` is `block`, `review_required` is `ask`, `observe` is `alert`.
    "posture": Kind::Word(&["quarantine", "review_required", "observe"]), default: "quarantine",
        example: "observe";
    /// What happens to a call of a tool that its server did not list. agentsh lists the tools
    /// before the first call if the client has not.
    "unlisted": Kind::Word(&["block", "alert", "allow"]), default: "block", example: "alert";
    /// Members of definitions that may change, as names or JSON pointers.
    "ignore": Kind::Whole(&Kind::Text), default: "none", example: "[title, /annotations/title]";
    /// The same for single servers, such as one that puts the time or a session into a description. The registry's
    /// comparison leaves them out too.
    "ignore_in": Kind::Whole(&Kind::Map(IGNORED)), default: "none",
        example: "[{server: clock, name: now, members: [description]}]";
    /// Whether what is seen for the first time is trusted.
    "auto_trust_first": Kind::Flag, default: "true", example: "false";
    /// Whether the files of the program are pinned, and not the definitions of its tools alone.
    "pin_binary": Kind::Flag, default: "true", example: "true";
};

impl Section<McpPolicy> for PinningKeys {
    const KEYS: &'static [Key] = keys! {
        /// Servers and tools that change after they were trusted.
        "version_pinning": Kind::Map(PINNING);
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let Some(here) = fields.find("version_pinning") else { return Self::default() };
        let Some(fields) = reader.map(&here, PINNING) else { return Self::default() };
        let postures = [
            ("quarantine", OnChange::Block),
            ("review_required", OnChange::Ask),
            ("observe", OnChange::Alert),
        ];
        let unlisted = [OnChange::Block, OnChange::Alert, OnChange::Allow].map(|word| (word.as_str(), word));
        let posture = reader.word(fields.find("posture"), &postures);
        if let Some(here) = fields.find("posture").filter(|_| fields.find("on_change").is_some()) {
            reader.problem(&here, "`posture` and `on_change` set the same thing", "remove one of them");
        }
        Self {
            rule: Some(reader.rule(&here)),
            enabled: reader.boolean(fields.find("enabled")),
            on_change: reader.word(fields.find("on_change"), OnChange::WORDS).or(posture),
            unlisted: reader.word(fields.find("unlisted"), &unlisted),
            ignore: ignored(reader, fields.find("ignore")),
            ignore_in: whole(reader.list(fields.find("ignore_in"), ignored_in)),
            auto_trust_first: reader.boolean(fields.find("auto_trust_first")),
            pin_binary: reader.boolean(fields.find("pin_binary")),
        }
    }

    /// A key that a section omits keeps the value of the layers below, or the strict default.
    fn merge(&self, below: &mut McpPolicy) {
        let pinning = &mut below.pinning;
        let written = &mut pinning.written;
        set_key("enabled", &self.enabled, &mut pinning.enabled, written);
        set_key("auto_trust_first", &self.auto_trust_first, &mut pinning.auto_trust_first, written);
        set_key("pin_binary", &self.pin_binary, &mut pinning.pin_binary, written);
        set_key("on_change", &self.on_change, &mut pinning.on_change, written);
        set_key("unlisted", &self.unlisted, &mut pinning.unlisted, written);
        set_key("ignore", &self.ignore, &mut pinning.ignore, written);
        set_key("ignore_in", &self.ignore_in, &mut pinning.ignore_in, written);
        if let Some(own) = &self.rule {
            pinning.rule.clone_from(own);
        }
    }

    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        let (before, message) = (&base.pinning, "this file would loosen `version_pinning`");
        narrowing.refuse_if(&self.enabled, |own| before.enabled && !own, message);
        narrowing.refuse_if(&self.on_change, |own| *own > before.on_change, message);
        narrowing.refuse_if(&self.unlisted, |own| *own > before.unlisted, message);
        narrowing.refuse_if(&self.ignore, |own| *own != before.ignore, message);
        narrowing.refuse_if(&self.ignore_in, |own| *own != before.ignore_in, message);
        narrowing.refuse_if(&self.auto_trust_first, |own| *own && !before.auto_trust_first, message);
        narrowing.refuse_if(&self.pin_binary, |own| before.pin_binary && !own, message);
        self.merge(base);
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        let pinning = &policy.pinning;
        for (key, value) in [
            ("enabled", pinning.enabled.to_string()),
            ("on_change", pinning.on_change.as_str().to_owned()),
            ("auto_trust_first", pinning.auto_trust_first.to_string()),
            ("pin_binary", pinning.pin_binary.to_string()),
            ("unlisted", pinning.unlisted.as_str().to_owned()),
            ("ignore", if pinning.ignore.is_empty() { "none".to_owned() } else { pinning.ignore.join(", ") }),
            ("ignore_in", shown(&pinning.ignore_in)),
        ] {
            let default = || RuleRef::default_rule(&format!("sandbox.mcp.version_pinning.{key}"));
            let rule = pinning.written.get(key).cloned().unwrap_or_else(default);
            lines.add(&format!("{name}.version_pinning.{key}"), value, &rule);
        }
    }
}

fn shown(ignored: &[IgnoredIn]) -> String {
    if ignored.is_empty() {
        return "none".to_owned();
    }
    let one = |one: &IgnoredIn| format!("{}/{}: {}", one.server, one.name, one.members.join(" "));
    ignored.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn ignored_in(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<IgnoredIn> {
    let fields = reader.map(here, IGNORED)?;
    let server = fields.find("server").and_then(|here| reader.text(&here));
    let name = fields.find("name").and_then(|here| reader.text(&here));
    let members = ignored(reader, fields.find("members"));
    let (Some(server), Some(members)) = (server, members) else {
        let help = "write `{server: ID, members: [NAME]}`";
        return reader.fault(here, "this names no server and no members", help);
    };
    Some(IgnoredIn { server, name: name.unwrap_or_else(|| "*".to_owned()), members: members.value })
}

fn whole<T>(list: List<T>) -> Option<Ruled<Vec<T>>> {
    let list = list?;
    Some(Ruled { value: list.value.into_iter().map(|entry| entry.value).collect(), rule: list.rule })
}

/// Members as JSON pointers: a bare name is a member of the definition itself.
fn ignored(reader: &mut Reader<'_>, here: Option<Here<'_>>) -> Option<Ruled<Vec<String>>> {
    let list = reader.list(here, |reader, here| {
        let text = reader.text(here)?;
        Some(if text.starts_with('/') {
            text
        } else {
            format!("/{}", text.replace('~', "~0").replace('/', "~1"))
        })
    })?;
    whole(Some(list))
}
