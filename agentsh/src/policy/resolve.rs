//! A checked file to a [`Policy`]: puts the defaults in, and warns about what has no effect.

use std::borrow::Cow;

use super::builtin_paths::{HOME_MASKS, HOME_READ_ONLY, NESTED_READ_ONLY, PROJECT_READ_ONLY};
use super::diagnostic::{PolicyError, Source};
use super::model::{
    EnvPolicy, ExecPolicy, ExfiltrationPolicy, FilesystemPolicy, ListMode, McpPolicy, NetworkPolicy, Pinning,
    Policy, ProcessPolicy, RateLimits, Ruled, ServerPolicy,
};
use super::path;
use super::raw::{RawExfiltration, RawMcp, RawPinning, RawPolicy, RawProcess, RawRates, RawServer};
use super::read;
use super::read_mcp::rate;
use super::reader::List;
use crate::types::RuleRef;

/// Longest line on the wire that is read when no policy says otherwise.
pub const DEFAULT_MAX_LINE_BYTES: u64 = 16 << 20;

/// Reads a policy from text. `name` is the file as messages show it, or `built-in:NAME`.
///
/// The policy's own `tests:` are not run here: see [`super::tests::run`].
///
/// # Errors
/// [`PolicyError::Invalid`] with every mistake that could be found.
pub fn parse(name: &str, text: &str) -> Result<Policy, PolicyError> {
    let raw = read::read(Source { name, text }).map_err(PolicyError::Invalid)?;
    Ok(resolve(name, raw))
}

pub(super) fn resolve(name: &str, raw: RawPolicy) -> Policy {
    let mut warnings = raw.warnings;
    warnings.extend(mcp_warnings(&raw.mcp));
    let servers = raw.mcp.servers.values().map(|server| &server.process);
    for process in [&raw.agent].into_iter().chain(servers) {
        warnings.extend(unmask_warnings(process));
    }
    Policy {
        source: name.to_owned(),
        agent: process(raw.agent, "agent", Grant::Write),
        agent_mcp_config: raw.agent_mcp_config,
        mcp: mcp(raw.mcp),
        tests: raw.tests,
        warnings,
    }
}

/// The lists and switches of `sandbox.mcp`; what is missing has its default.
pub(super) fn mcp(raw: RawMcp) -> McpPolicy {
    let rule = |ruled: &Option<Ruled<ListMode>>| ruled.as_ref().map(|mode| mode.rule.clone());
    let places = [
        ("enforce_policy", raw.enforce_policy.as_ref().map(|ruled| &ruled.rule)),
        ("fail_closed", raw.fail_closed.as_ref().map(|ruled| &ruled.rule)),
        ("max_line_bytes", raw.max_line_bytes.as_ref().map(|ruled| &ruled.rule)),
        ("request_timeout", raw.request_timeout.as_ref().map(|ruled| &ruled.rule)),
    ];
    let written =
        places.into_iter().filter_map(|(key, rule)| Some((key.to_owned(), rule?.clone()))).collect();
    McpPolicy {
        enforce: is_true(&raw.enforce_policy),
        fail_closed: is_true(&raw.fail_closed),
        server_policy_rule: rule(&raw.server_policy),
        server_policy: raw.server_policy.map_or(ListMode::None, |mode| mode.value),
        allowed_servers: entries(raw.allowed_servers),
        denied_servers: entries(raw.denied_servers),
        tool_policy_rule: rule(&raw.tool_policy),
        tool_policy: raw.tool_policy.map_or(ListMode::None, |mode| mode.value),
        allowed_tools: entries(raw.allowed_tools),
        denied_tools: entries(raw.denied_tools),
        pinning: raw.pinning.map_or_else(Pinning::default, pinning),
        rate_limits: raw.rate_limits.map_or_else(RateLimits::default, rates),
        not_enforced: raw.not_enforced,
        max_line_bytes: raw.max_line_bytes.map_or(DEFAULT_MAX_LINE_BYTES, |bytes| bytes.value),
        request_timeout_s: raw.request_timeout.map(|ms| ms.value.div_ceil(1_000)),
        exfiltration: raw.exfiltration.map_or_else(ExfiltrationPolicy::default, exfiltration),
        servers: raw.servers.into_iter().map(|(id, raw)| (id, server(raw))).collect(),
        written,
        narrowed_by: None,
    }
}

pub(super) fn rates(raw: RawRates) -> RateLimits {
    if !is_true(&raw.enabled) {
        return RateLimits::default();
    }
    let written = raw.default_rpm.as_ref().or(raw.default_burst.as_ref());
    let rule = written.map_or_else(|| raw.rule.clone(), |ruled| ruled.rule.clone());
    let value = rate(raw.default_rpm.as_ref(), raw.default_burst.as_ref());
    RateLimits { default: Some(Ruled { value, rule }), per_server: raw.per_server }
}

impl ProcessPolicy {
    /// What a server may touch that no policy mentions.
    #[must_use]
    pub fn server_default() -> Self {
        process(RawProcess::default(), "sandbox.mcp.servers", Grant::Read)
    }
}

/// What a profile gives: where it says nothing, the defaults of a server.
pub(super) fn profile_process(raw: RawProcess) -> ProcessPolicy {
    process(raw, "sandbox.mcp.servers", Grant::Read)
}

/// What a process may do with the project when its `filesystem` does not say.
#[derive(Clone, Copy)]
enum Grant {
    Read,
    Write,
}

fn process(raw: RawProcess, section: &str, project: Grant) -> ProcessPolicy {
    let default = |key: &str| {
        let rule = RuleRef::default_rule(&format!("{section}.filesystem.{key}"));
        vec![Ruled { value: ".".to_owned(), rule }]
    };
    let (read, write) = match project {
        Grant::Read => (raw.read.map_or_else(|| default("read"), |list| list.value), entries(raw.write)),
        Grant::Write => (entries(raw.read), raw.write.map_or_else(|| default("write"), |list| list.value)),
    };
    ProcessPolicy {
        network: NetworkPolicy { allow: entries(raw.network_allow), loopback: entries(raw.loopback) },
        filesystem: FilesystemPolicy { read, write, deny: entries(raw.deny), unmask: entries(raw.unmask) },
        env: EnvPolicy {
            allow: entries(raw.env_allow),
            deny: entries(raw.env_deny),
            inherit_all: is_true(&raw.env_inherit),
            inherit_rule: raw.env_inherit.map(|ruled| ruled.rule),
            never: Vec::new(),
        },
        limits: raw.limits,
        exec: ExecPolicy { allow: entries(raw.exec_allow) },
    }
}

fn server(raw: RawServer) -> ServerPolicy {
    ServerPolicy {
        rule: raw.rule,
        command: raw.command.map(|command| command.value),
        args: entries(raw.args).into_iter().map(|arg| arg.value).collect(),
        env: raw.env.map(|env| env.value).unwrap_or_default(),
        install_scripts: raw.install_scripts,
        source: raw.source,
        sink: raw.sink,
        written: raw.process.written(),
        project: None,
        process: process(raw.process, "sandbox.mcp.servers", Grant::Read),
    }
}

/// A section that is there asks for it, unless it says otherwise.
fn exfiltration(raw: RawExfiltration) -> ExfiltrationPolicy {
    let default = ExfiltrationPolicy::default();
    ExfiltrationPolicy {
        enabled: raw.enabled.is_none_or(|ruled| ruled.value),
        on_detection: raw.on_detection.map_or(default.on_detection, |ruled| ruled.value),
        marker: raw.marker.map_or(default.marker, |ruled| ruled.value),
        allowed_domains: raw.allowed_domains,
        rule: raw.rule,
    }
}

/// A section that is there says what it says; a key that it leaves out keeps the strict default.
fn pinning(raw: RawPinning) -> Pinning {
    let default = Pinning::default();
    Pinning {
        enabled: raw.enabled.map_or(default.enabled, |ruled| ruled.value),
        on_change: raw.on_change.map_or(default.on_change, |ruled| ruled.value),
        auto_trust_first: raw.auto_trust_first.map_or(default.auto_trust_first, |ruled| ruled.value),
        pin_binary: raw.pin_binary.map_or(default.pin_binary, |ruled| ruled.value),
        rule: raw.rule,
    }
}

fn mcp_warnings(raw: &RawMcp) -> Vec<Ruled<String>> {
    let mut warnings = Vec::new();
    let mut warn = |rule: &RuleRef, text: String| warnings.push(Ruled { value: text, rule: rule.clone() });
    let mode_rules = [raw.server_policy.as_ref(), raw.tool_policy.as_ref()];
    let asks = mode_rules.into_iter().flatten().find(|mode| mode.value != ListMode::None);
    if raw.enforce_policy.is_none()
        && let Some(asks) = asks
    {
        let text = "without `enforce_policy: true` the lists refuse nothing: they only record alerts";
        warn(&asks.rule, text.to_owned());
    }
    if is_true(&raw.fail_closed) && !is_true(&raw.enforce_policy) {
        let rule = raw.fail_closed.as_ref().map(|ruled| &ruled.rule);
        let text = "`fail_closed` has no effect without `enforce_policy: true`".to_owned();
        rule.into_iter().for_each(|rule| warn(rule, text.clone()));
    }
    let is_fail_closed = is_true(&raw.fail_closed);
    for (key, mode, allowed, denied) in [
        ("server", &raw.server_policy, list_rule(&raw.allowed_servers), list_rule(&raw.denied_servers)),
        ("tool", &raw.tool_policy, list_rule(&raw.allowed_tools), list_rule(&raw.denied_tools)),
    ] {
        let mode = mode.as_ref().map_or(ListMode::None, |mode| mode.value);
        let unused_allow = mode != ListMode::Allowlist && !(key == "tool" && is_fail_closed);
        for (rule, unused, needs) in
            [(allowed, unused_allow, "allowlist"), (denied, mode != ListMode::Denylist, "denylist")]
        {
            if let Some(rule) = rule.filter(|_| unused) {
                warn(rule, format!("this list has no effect without `{key}_policy: {needs}`"));
            }
        }
    }
    if let Some(rates) = &raw.rate_limits
        && rates.enabled.is_none()
    {
        warn(&rates.rule, "these limits have no effect without `enabled: true`".to_owned());
    }
    warnings
}

/// An `unmask` that names nothing built in is most likely misspelt.
fn unmask_warnings(raw: &RawProcess) -> Vec<Ruled<String>> {
    let entries = raw.unmask.iter().flat_map(|list| &list.value);
    let useless = entries.filter(|entry| !lifts_something(&path::written(&entry.value)));
    useless
        .map(|entry| Ruled {
            value: format!("`{}` is not masked or read-only: this lifts nothing", entry.value),
            rule: entry.rule.clone(),
        })
        .collect()
}

fn lifts_something(entry: &[Cow<'_, str>]) -> bool {
    let Some((root, rest)) = entry.split_first() else { return false };
    let split = |table_path: &'static str| table_path.split('/').collect::<Vec<_>>();
    let masked = |table_path| path::covers(&split(table_path), rest);
    // What is read-only is one mount, and only as a whole it can be lifted.
    let is = |table_path| split(table_path) == rest;
    let nested = NESTED_READ_ONLY.iter().any(|(table_path, _)| {
        let table: Vec<&str> = ["**"].into_iter().chain(table_path.split('/')).collect();
        path::is(&table, rest)
    });
    match root.as_ref() {
        "~" => {
            nested
                || HOME_MASKS.iter().any(|(path, _)| masked(path))
                || HOME_READ_ONLY.iter().any(|(path, _)| is(path))
        }
        "." => nested || PROJECT_READ_ONLY.iter().any(|entry| is(entry.path)),
        // An absolute path may lie in the home or in the project: only the plan knows.
        _ => true,
    }
}

pub(super) fn is_true(ruled: &Option<Ruled<bool>>) -> bool {
    ruled.as_ref().is_some_and(|ruled| ruled.value)
}

fn entries<T>(list: List<T>) -> Vec<Ruled<T>> {
    list.map(|list| list.value).unwrap_or_default()
}

fn list_rule<T>(list: &List<T>) -> Option<&RuleRef> {
    list.as_ref().filter(|list| !list.value.is_empty()).map(|list| &list.rule)
}
