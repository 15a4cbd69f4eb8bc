//! Which servers run and which tools may be called.

use super::prelude::*;
use crate::mcp::is_own;
use crate::model::{ListMode, ToolRule};
use crate::table::Field;

const MODES: [(&str, ListMode); 4] = [
    ("allowlist", ListMode::Allowlist),
    ("denylist", ListMode::Denylist),
    ("none", ListMode::None),
    ("", ListMode::None),
];
const MODE: Kind = Kind::Word(&["allowlist", "denylist", "none", ""]);

const SERVER: &[Key] = keys! {
    /// A name, or a pattern with `*` and `?`.
    "id": Kind::Text, default: "required";
};

const TOOL: &[Key] = keys! {
    /// A server, or a pattern.
    "server": Kind::Text, default: "required";
    /// A tool, or a pattern.
    "tool": Kind::Text, default: "required";
    /// Only the tool whose definition has this hash, as `agentsh mcp pins list` shows it.
    "content_hash": Kind::Text, default: "any definition";
};

table! {
    /// What one file writes.
    struct Lists;

    /// Without it the lists below refuse nothing, and what they would refuse is recorded as an alert.
    enforce_policy: One<bool> = Kind::Flag, default: "false; the built-in policies of agents say true",
        example: "true";
    /// Refuses every tool that no entry of `allowed_tools` names.
    fail_closed: One<bool> = Kind::Flag, default: "false", example: "false";
    /// Which of the two lists of servers decides.
    server_policy: One<ListMode> = MODE, default: "none", example: "allowlist" => words MODES;
    /// With `server_policy: allowlist` no other server runs.
    allowed_servers: Entries<String> = Kind::List(&Kind::Map(SERVER)), default: "empty",
        example: "[{id: github}, {id: \"db-*\"}]" => read server_pattern;
    /// These servers do not run. Has no effect with `server_policy: none`.
    denied_servers: Entries<String> = Kind::List(&Kind::Map(SERVER)), default: "empty",
        merge: "adds, and wins over `allowed_servers`", example: "[{id: \"untrusted-*\"}]"
        => read server_pattern;
    /// Which of the two lists of tools decides.
    tool_policy: One<ListMode> = MODE, default: "none", example: "denylist" => words MODES;
    /// With `tool_policy: allowlist` no other tool is shown or called. An entry of the server `agent` allows what
    /// the model's provider does for the agent (`web_fetch`, `mcp`), with every `tool_policy`.
    allowed_tools: Entries<ToolRule> = Kind::List(&Kind::Map(TOOL)), default: "empty",
        example: "[{server: github, tool: \"get_*\"}]" => read tool_rule => show ToString::to_string;
    /// These tools are not shown and not called; upper and lower case, full-width letters and invisible characters do
    /// not count. Has no effect with `tool_policy: none`.
    denied_tools: Entries<ToolRule> = Kind::List(&Kind::Map(TOOL)), default: "empty",
        merge: "adds, and wins over `allowed_tools`", example: "[{server: \"*\", tool: \"delete_*\"}]"
        => read tool_rule => show ToString::to_string;
}

impl Section<McpPolicy> for Lists {
    const KEYS: &'static [Key] = Self::TABLE;

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        Table::read(reader, None, fields)
    }

    fn merge(&self, below: &mut McpPolicy) {
        if let Some(enforce) = &self.enforce_policy {
            below.enforce = enforce.value;
            below.note("enforce_policy", &enforce.rule);
        }
        if let Some(closed) = &self.fail_closed {
            below.fail_closed = closed.value;
            below.note("fail_closed", &closed.rule);
        }
        if let Some(mode) = &self.server_policy {
            below.server_policy = mode.value;
            below.server_policy_rule = Some(mode.rule.clone());
        }
        if let Some(mode) = &self.tool_policy {
            below.tool_policy = mode.value;
            below.tool_policy_rule = Some(mode.rule.clone());
        }
        Field::merge(&self.allowed_servers, &mut below.allowed_servers);
        Field::merge(&self.denied_servers, &mut below.denied_servers);
        Field::merge(&self.allowed_tools, &mut below.allowed_tools);
        Field::merge(&self.denied_tools, &mut below.denied_tools);
    }

    /// The project's lists stay lists of their own, which a call has to pass as well: see [`McpPolicy::narrowed_by`].
    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        for (name, wanted, in_force) in [
            ("enforce_policy", &self.enforce_policy, base.enforce),
            ("fail_closed", &self.fail_closed, base.fail_closed),
        ] {
            if let Some(wanted) = wanted.as_ref().filter(|wanted| in_force && !wanted.value) {
                narrowing.refuse(&wanted.rule, format!("this file would switch off `{name}`"));
            }
        }
        let mut own = McpPolicy { narrowed_by: base.narrowed_by.take(), ..McpPolicy::default() };
        Section::merge(self, &mut own);
        own.enforce |= base.enforce;
        // `fail_closed` alone asks that some rule knows the tool: the rules in force are meant then.
        if own.fail_closed && own.allowed_tools.is_empty() {
            own.allowed_tools.clone_from(&base.allowed_tools);
        }
        base.narrowed_by = Some(Box::new(own));
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        show(policy, name, lines);
        let mut layer = policy.narrowed_by.as_deref();
        while let Some(lists) = layer {
            if lists.server_policy != ListMode::None
                || lists.tool_policy != ListMode::None
                || lists.fail_closed
            {
                show(lists, &format!("{name}.project"), lines);
            }
            layer = lists.narrowed_by.as_deref();
        }
    }

    fn warn(policy: &McpPolicy, warnings: &mut Vec<Ruled<String>>) {
        let mut warn =
            |rule: &RuleRef, text: String| warnings.push(Ruled { value: text, rule: rule.clone() });
        let modes = [
            (policy.server_policy, &policy.server_policy_rule),
            (policy.tool_policy, &policy.tool_policy_rule),
        ];
        let asks =
            modes.into_iter().filter(|(mode, _)| *mode != ListMode::None).find_map(|(_, rule)| rule.as_ref());
        if !policy.written.contains_key("enforce_policy")
            && let Some(rule) = asks
        {
            let text = "without `enforce_policy: true` the lists refuse nothing: they only record alerts";
            warn(rule, text.to_owned());
        }
        if policy.fail_closed && !policy.enforce {
            let text = "`fail_closed` has no effect without `enforce_policy: true`".to_owned();
            warn(&policy.place_of("fail_closed"), text);
        }
        let first = |list: &[Ruled<String>]| list.first().map(|entry| entry.rule.clone());
        let first_tool = |list: &[Ruled<ToolRule>]| list.first().map(|entry| entry.rule.clone());
        // Entries about the agent itself apply in every mode.
        let of_server = policy.allowed_tools.iter().find(|entry| !is_own(&entry.value));
        let first_of_server = of_server.map(|entry| entry.rule.clone());
        for (key, mode, allowed, denied) in [
            ("server", policy.server_policy, first(&policy.allowed_servers), first(&policy.denied_servers)),
            ("tool", policy.tool_policy, first_of_server, first_tool(&policy.denied_tools)),
        ] {
            let is_read = mode == ListMode::Allowlist || (key == "tool" && policy.fail_closed);
            if let Some(rule) = allowed.filter(|_| !is_read) {
                warn(&rule, format!("this list has no effect without `{key}_policy: allowlist`"));
            }
            if let Some(rule) = denied.filter(|_| mode == ListMode::None) {
                warn(&rule, format!("this list has no effect without `{key}_policy: denylist`"));
            }
        }
    }
}

fn show(mcp: &McpPolicy, name: &str, lines: &mut Lines) {
    let default = |key: &str| RuleRef::default_rule(&format!("sandbox.mcp.{key}"));
    lines.add(&format!("{name}.enforce_policy"), mcp.enforce.to_string(), &mcp.place_of("enforce_policy"));
    lines.add(&format!("{name}.fail_closed"), mcp.fail_closed.to_string(), &mcp.place_of("fail_closed"));
    let rule = mcp.server_policy_rule.clone().unwrap_or_else(|| default("server_policy"));
    lines.add(&format!("{name}.server_policy"), mcp.server_policy.as_str(), &rule);
    lines.list(&format!("{name}.allowed_servers"), &mcp.allowed_servers, Clone::clone);
    lines.list(&format!("{name}.denied_servers"), &mcp.denied_servers, Clone::clone);
    let rule = mcp.tool_policy_rule.clone().unwrap_or_else(|| default("tool_policy"));
    lines.add(&format!("{name}.tool_policy"), mcp.tool_policy.as_str(), &rule);
    lines.list(&format!("{name}.allowed_tools"), &mcp.allowed_tools, ToString::to_string);
    lines.list(&format!("{name}.denied_tools"), &mcp.denied_tools, ToString::to_string);
}

impl std::fmt::Display for ToolRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.server, self.tool)?;
        match &self.content_hash {
            Some(hash) => write!(f, " with {hash}"),
            None => Ok(()),
        }
    }
}

fn server_pattern(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<String> {
    let fields = reader.fields(here, &["id"])?;
    match fields.find("id") {
        Some(id) => reader.text(&id),
        None => reader.fault(here, "this entry names no server", "write `- id: NAME`"),
    }
}

fn tool_rule(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<ToolRule> {
    let fields = reader.fields(here, &["server", "tool", "content_hash"])?;
    let (Some(server), Some(tool)) = (fields.find("server"), fields.find("tool")) else {
        let help = "write both `server` and `tool`; `\"*\"` means every one";
        return reader.fault(here, "this rule needs a server and a tool", help);
    };
    let server = reader.text(&server);
    let tool = reader.text(&tool);
    let content_hash = match fields.find("content_hash") {
        Some(here) => content_hash(reader, &here)?,
        None => None,
    };
    Some(ToolRule { server: server?, tool: tool?, content_hash })
}

/// Outer None: a mistake. Inner None: no hash asked for.
fn content_hash(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<Option<String>> {
    let text = reader.any_text(here)?;
    if text.is_empty() {
        return Some(None);
    }
    let digits = text.strip_prefix("sha256:");
    let full = digits.unwrap_or(&text);
    if full.len() == 64 && full.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Some(Some(format!("sha256:{}", full.to_ascii_lowercase())));
    }
    if digits.is_some() {
        let rule = reader.rule(here);
        reader.warn(rule, "this hash is not 64 hexadecimal digits long: the rule can never match");
        return Some(Some(text));
    }
    let help = "write `sha256:` and 64 hexadecimal digits, as `agentsh mcp pins list` shows them";
    reader.fault(here, "this is not a hash", help)
}
