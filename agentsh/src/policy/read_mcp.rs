//! `sandbox.mcp` and `mcp_rules`.

use std::collections::BTreeMap;

use super::model::{ListMode, OnChange, Rate, Ruled, ToolRule};
use super::raw::{RawMcp, RawPinning, RawRates, RawServer};
use super::read::{PROCESS_KEYS, process};
use super::read_exfiltration;
use super::reader::{Here, List, Reader};
use super::yaml::Value;
use crate::types::ServerId;

const MODES: [(&str, ListMode); 4] = [
    ("allowlist", ListMode::Allowlist),
    ("denylist", ListMode::Denylist),
    ("none", ListMode::None),
    ("", ListMode::None),
];

const KEYS: [&str; 19] = [
    "enforce_policy",
    "fail_closed",
    "server_policy",
    "allowed_servers",
    "denied_servers",
    "tool_policy",
    "allowed_tools",
    "denied_tools",
    "version_pinning",
    "rate_limits",
    "cross_server",
    "detection",
    "output_inspection",
    "sampling",
    "allowed_transports",
    "exfiltration",
    "servers",
    "max_line_bytes",
    "request_timeout",
];

/// Longest line that `max_line_bytes` can ask for.
const MAX_LINE: u64 = 1 << 30;
const MIN_LINE: u64 = 1024;

pub fn section(reader: &mut Reader<'_>, here: &Here<'_>) -> RawMcp {
    let mut mcp = RawMcp::default();
    let Some(fields) = reader.fields(here, &KEYS) else { return mcp };
    mcp.enforce_policy = reader.boolean(fields.find("enforce_policy"));
    mcp.fail_closed = reader.boolean(fields.find("fail_closed"));
    mcp.server_policy = reader.word(fields.find("server_policy"), &MODES);
    mcp.allowed_servers = reader.list(fields.find("allowed_servers"), server_pattern);
    mcp.denied_servers = reader.list(fields.find("denied_servers"), server_pattern);
    mcp.tool_policy = reader.word(fields.find("tool_policy"), &MODES);
    mcp.allowed_tools = reader.list(fields.find("allowed_tools"), tool_rule);
    mcp.denied_tools = reader.list(fields.find("denied_tools"), tool_rule);
    mcp.pinning = fields.find("version_pinning").and_then(|here| pinning(reader, &here));
    mcp.rate_limits = fields.find("rate_limits").and_then(|here| rates(reader, &here));
    mcp.max_line_bytes = reader.number(fields.find("max_line_bytes"), MIN_LINE, MAX_LINE);
    mcp.request_timeout = fields.find("request_timeout").and_then(|here| timeout(reader, here));
    mcp.exfiltration = fields.find("exfiltration").and_then(|here| read_exfiltration::section(reader, &here));
    for (key, check) in super::read_later::SECTIONS {
        if let Some(here) = fields.find(key)
            && check(reader, &here)
        {
            mcp.not_enforced.push(reader.rule(&here));
        }
    }
    let servers = reader.list(fields.find("servers"), server);
    for Ruled { value: (id, raw, later), rule } in servers.map(|list| list.value).unwrap_or_default() {
        mcp.not_enforced.extend(later);
        add_server(reader, &mut mcp.servers, id, RawServer { rule, ..raw });
    }
    mcp
}

/// Adds `mcp_rules` to `sandbox.mcp`: lists are joined, and a key that says two things is a mistake.
pub fn merge(reader: &mut Reader<'_>, into: &mut RawMcp, from: RawMcp) {
    one(reader, &mut into.enforce_policy, from.enforce_policy);
    one(reader, &mut into.fail_closed, from.fail_closed);
    one(reader, &mut into.server_policy, from.server_policy);
    one(reader, &mut into.tool_policy, from.tool_policy);
    one(reader, &mut into.max_line_bytes, from.max_line_bytes);
    one(reader, &mut into.request_timeout, from.request_timeout);
    match (&into.exfiltration, from.exfiltration) {
        (Some(first), Some(second)) => {
            let help = format!("it stands in line {} already", first.rule.line);
            reader.problem_of_rule(&second.rule, "`exfiltration` is written twice", Some(help));
        }
        (None, from) => into.exfiltration = from,
        _ => {}
    }
    join(&mut into.allowed_servers, from.allowed_servers);
    join(&mut into.denied_servers, from.denied_servers);
    join(&mut into.allowed_tools, from.allowed_tools);
    join(&mut into.denied_tools, from.denied_tools);
    into.not_enforced.extend(from.not_enforced);
    match (&mut into.pinning, from.pinning) {
        (Some(into), Some(from)) => {
            one(reader, &mut into.enabled, from.enabled);
            one(reader, &mut into.on_change, from.on_change);
            one(reader, &mut into.auto_trust_first, from.auto_trust_first);
            one(reader, &mut into.pin_binary, from.pin_binary);
        }
        (into, from) => *into = into.take().or(from),
    }
    match (&mut into.rate_limits, from.rate_limits) {
        (Some(into), Some(from)) => {
            one(reader, &mut into.enabled, from.enabled);
            one(reader, &mut into.default_rpm, from.default_rpm);
            one(reader, &mut into.default_burst, from.default_burst);
            for (id, rate) in from.per_server {
                let mut slot = into.per_server.remove(&id);
                one(reader, &mut slot, Some(rate));
                into.per_server.extend(slot.map(|rate| (id, rate)));
            }
        }
        (into, from) => *into = into.take().or(from),
    }
    for (id, server) in from.servers {
        add_server(reader, &mut into.servers, id, server);
    }
}

fn one<T: PartialEq>(reader: &mut Reader<'_>, into: &mut Option<Ruled<T>>, from: Option<Ruled<T>>) {
    match (&into, from) {
        (Some(first), Some(second)) if first.value != second.value => {
            let help =
                format!("`{}` in line {} says something else; keep one", first.rule.id, first.rule.line);
            let message = format!("`{}` contradicts an earlier key", second.rule.id);
            reader.problem_of_rule(&second.rule, message, Some(help));
        }
        (None, from) => *into = from,
        _ => {}
    }
}

fn join<T>(into: &mut List<T>, from: List<T>) {
    match (into.as_mut(), from) {
        (Some(list), Some(more)) => list.value.extend(more.value),
        (None, from) => *into = from,
        _ => {}
    }
}

fn add_server(
    reader: &mut Reader<'_>,
    servers: &mut BTreeMap<ServerId, RawServer>,
    id: ServerId,
    server: RawServer,
) {
    if let Some(first) = servers.get(&id) {
        let help = format!("the first one stands in line {}", first.rule.line);
        reader.problem_of_rule(&server.rule, format!("there are two servers `{id}`"), Some(help));
        return;
    }
    servers.insert(id, server);
}

fn server_pattern(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<String> {
    let fields = reader.fields(here, &["id"])?;
    match fields.find("id") {
        Some(id) => reader.text(&id),
        None => {
            reader.problem(here, "this entry names no server", Some("write `- id: NAME`".to_owned()));
            None
        }
    }
}

fn tool_rule(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<ToolRule> {
    let fields = reader.fields(here, &["server", "tool", "content_hash"])?;
    let (Some(server), Some(tool)) = (fields.find("server"), fields.find("tool")) else {
        let help = "write both `server` and `tool`; `\"*\"` means every one".to_owned();
        reader.problem(here, "this rule does not say which tool of which server", Some(help));
        return None;
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
    let help = "write `sha256:` and 64 hexadecimal digits, as `agentsh mcp pins list` shows them".to_owned();
    reader.problem(here, "this is not a hash", Some(help));
    None
}

fn pinning(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<RawPinning> {
    let fields = reader.fields(here, &["enabled", "on_change", "auto_trust_first", "pin_binary"])?;
    let words = [("block", OnChange::Block), ("alert", OnChange::Alert), ("allow", OnChange::Allow)];
    Some(RawPinning {
        rule: reader.rule(here),
        enabled: reader.boolean(fields.find("enabled")),
        on_change: reader.word(fields.find("on_change"), &words),
        auto_trust_first: reader.boolean(fields.find("auto_trust_first")),
        pin_binary: reader.boolean(fields.find("pin_binary")),
    })
}

fn rates(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<RawRates> {
    let fields = reader.fields(here, &["enabled", "default_rpm", "default_burst", "per_server"])?;
    let most = u64::from(u32::MAX);
    let mut per_server = BTreeMap::new();
    if let Some(here) = fields.find("per_server")
        && let Some(names) = reader.names(&here)
    {
        for (id, here) in names.all() {
            let Some(entry) = reader.fields(&here, &["calls_per_minute", "burst"]) else { continue };
            let calls = reader.number(entry.find("calls_per_minute"), 1, most);
            let burst = reader.number(entry.find("burst"), 1, most);
            let rate = rate(calls.as_ref(), burst.as_ref());
            per_server.insert(ServerId(id.to_owned()), reader.ruled(&here, rate));
        }
    }
    Some(RawRates {
        rule: reader.rule(here),
        enabled: reader.boolean(fields.find("enabled")),
        default_rpm: reader.number(fields.find("default_rpm"), 1, most),
        default_burst: reader.number(fields.find("default_burst"), 1, most),
        per_server,
    })
}

/// A rate with the documented defaults for what is missing.
pub fn rate(calls: Option<&Ruled<u64>>, burst: Option<&Ruled<u64>>) -> Rate {
    let or = |value: Option<&Ruled<u64>>, default: u32| {
        value.map_or(default, |ruled| u32::try_from(ruled.value).unwrap_or(u32::MAX))
    };
    Rate { calls_per_minute: or(calls, 100), burst: or(burst, 10) }
}

fn timeout(reader: &mut Reader<'_>, here: Here<'_>) -> Option<Ruled<u64>> {
    let duration = reader.duration(Some(here))?;
    if duration.value < 1_000 {
        reader.problem_of_rule(&duration.rule, "a request needs at least `1s`", None);
        return None;
    }
    Some(duration)
}

type ServerEntry = (ServerId, RawServer, Vec<crate::types::RuleRef>);

fn server(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<ServerEntry> {
    let mut keys = PROCESS_KEYS.to_vec();
    keys.extend([
        "id",
        "type",
        "command",
        "args",
        "url",
        "tls_fingerprint",
        "env",
        "install_scripts",
        "flow",
    ]);
    let fields = reader.fields(here, &keys)?;
    let Some(id) = fields.find("id") else {
        reader.problem(here, "this server has no id", Some("add `id: NAME`".to_owned()));
        return None;
    };
    let id_text = reader.text(&id);
    if let Some(text) = &id_text
        && text.contains(['*', '?', '/'])
    {
        let help = "patterns belong into `allowed_servers` and `denied_servers`".to_owned();
        reader.problem(&id, "a server has one plain name", Some(help));
    }
    let single = |reader: &mut Reader<'_>, key: &str| {
        let here = fields.find(key)?;
        let text = reader.text(&here)?;
        Some(reader.ruled(&here, text))
    };
    let command = single(reader, "command");
    let url = single(reader, "url");
    let args = reader.list(fields.find("args"), |reader, here| reader.any_text(here));
    let transport = reader.word(fields.find("type"), &[("stdio", false), ("http", true), ("sse", true)]);
    if let (Some(_), Some(url)) = (&command, &url) {
        reader.problem_of_rule(&url.rule, "a server has a command or a url, not both", None);
    }
    if let (Some(transport), Some(command)) = (&transport, &command)
        && transport.value
    {
        let message = "a server with a command speaks `stdio`";
        reader.problem_of_rule(&command.rule, message, Some("remove `type`".to_owned()));
    }
    if let (None, Some(args)) = (&command, &args) {
        reader.problem_of_rule(&args.rule, "arguments without a command", Some("add `command:`".to_owned()));
    }
    let env = fields.find("env").and_then(|here| environment(reader, &here));
    let mut later = Vec::new();
    later.extend(url.as_ref().map(|url| url.rule.clone()));
    if let Some(here) = fields.find("tls_fingerprint") {
        reader.text(&here);
        later.push(reader.rule(&here));
    }
    let install_scripts = reader.word(fields.find("install_scripts"), &super::read::SCRIPTS);
    let (source, sink) = read_exfiltration::flow(reader, fields.find("flow"));
    let process = process(reader, &fields);
    let rule = reader.rule(here);
    let server = RawServer { rule, command, args, url, env, install_scripts, source, sink, process };
    Some((ServerId(id_text?), server, later))
}

fn environment(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<Ruled<BTreeMap<String, String>>> {
    let names = reader.names(here)?;
    let mut map = BTreeMap::new();
    for (name, entry) in names.all() {
        if name.is_empty() || name.contains(['=', '\0']) {
            reader.problem(&entry, "this is not the name of a variable", None);
        }
        // A number or a truth value is what a person means by its letters.
        let text = match &entry.node.value {
            Value::Integer(value) => Some(value.to_string()),
            Value::Bool(value) => Some(value.to_string()),
            _ => reader.any_text(&entry),
        };
        if let Some(text) = text {
            map.insert(name.to_owned(), text);
        }
    }
    Some(reader.ruled(here, map))
}
