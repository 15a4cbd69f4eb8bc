//! `version_pinning`: what happens to a server or a tool that changed.

use super::prelude::*;
use crate::model::{IgnoredIn, OnChange};

const IGNORED: &[Key] = keys! {
    /// A server, or a pattern.
    "server": Kind::Text, default: "required", example: "clock";
    /// A tool, a prompt or a URI, or a pattern; empty for the instructions.
    "name": Kind::Text, default: "`*`", example: "now";
    /// Members of the definition, as names or JSON pointers.
    "members": Kind::Whole(&Kind::Text), default: "required", example: "[description]";
};

const POSTURES: [(&str, OnChange); 3] =
    [("quarantine", OnChange::Block), ("review_required", OnChange::Ask), ("observe", OnChange::Alert)];
const UNLISTED: [(&str, OnChange); 3] =
    [("block", OnChange::Block), ("alert", OnChange::Alert), ("allow", OnChange::Allow)];

word_values!(OnChange);

table! {
    /// What one file writes.
    struct PinningKeys with rule;

    /// Whether the bytes of servers and the definitions of tools are compared with what was trusted.
    enabled: One<bool> = Kind::Flag, default: "true", example: "true";
    /// What happens to a server or a tool that differs from its pin. `block` hides the tool, refuses its calls and asks
    /// a person whether it may be shown, `ask` shows it and waits for a person at every call; a program that changed is
    /// refused by both.
    on_change: One<OnChange> = Kind::Word(&["block", "ask", "alert", "allow"]), default: "block",
        example: "block";
    /// Another way to write `on_change`: `quarantine` is `block`, `review_required` is `ask`, `observe` is `alert`.
    posture: One<OnChange> = Kind::Word(&["quarantine", "review_required", "observe"]), default: "quarantine",
        example: "observe" => words POSTURES;
    /// What happens to a call of a tool that its server did not list. agentsh lists the tools
    /// before the first call if the client has not.
    unlisted: One<OnChange> = Kind::Word(&["block", "alert", "allow"]), default: "block", example: "alert"
        => words UNLISTED;
    /// Members of definitions that may change, as names or JSON pointers.
    ignore: One<Vec<String>> = Kind::Whole(&Kind::Text), default: "none", example: "[title, /annotations/title]"
        => show |members| members.join(", ") => whole |reader: &mut Reader<'_>, here| reader.whole(here, member);
    /// The same for single servers, such as one that puts the time or a session into a description. The registry's
    /// comparison leaves them out too.
    ignore_in: One<Vec<IgnoredIn>> = Kind::Whole(&Kind::Map(IGNORED)), default: "none",
        example: "[{server: clock, name: now, members: [description]}]"
        => show |ignored| shown(ignored) => whole |reader: &mut Reader<'_>, here| reader.whole(here, ignored_in);
    /// Whether what is seen for the first time is trusted.
    auto_trust_first: One<bool> = Kind::Flag, default: "true", example: "false";
    /// Whether the files of the program are pinned, and not the definitions of its tools alone.
    pin_binary: One<bool> = Kind::Flag, default: "true", example: "true";
}

impl Section<McpPolicy> for PinningKeys {
    const KEYS: &'static [Key] = keys! {
        /// Servers and tools that change after they were trusted.
        "version_pinning": Kind::Map(Self::TABLE);
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let here = fields.find("version_pinning");
        let mut own: Self = Table::read_at(reader, here.clone());
        let names = here.filter(|_| own.rule.is_some()).and_then(|here| reader.names(&here));
        if let Some(names) = names.filter(|names| names.find("on_change").is_some())
            && let Some(here) = names.find("posture")
        {
            reader.problem(&here, "`posture` and `on_change` set the same thing", "remove one of them");
        }
        own.on_change = own.on_change.or(own.posture.take());
        own
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
        Section::merge(self, base);
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
    let members = reader.whole(fields.find("members"), member);
    let (Some(server), Some(members)) = (server, members) else {
        let help = "write `{server: ID, members: [NAME]}`";
        return reader.fault(here, "this names no server and no members", help);
    };
    Some(IgnoredIn { server, name: name.unwrap_or_else(|| "*".to_owned()), members: members.value })
}

/// A JSON pointer: a bare name is a member of the definition itself.
fn member(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<String> {
    let text = reader.text(here)?;
    let is_pointer = text.starts_with('/');
    Some(if is_pointer { text } else { format!("/{}", text.replace('~', "~0").replace('/', "~1")) })
}
