//! The part of a project's policy that is about MCP: lists, rates and the wire.

use std::collections::BTreeMap;

use super::model::{McpPolicy, Rate, RateLimits, Ruled};
use super::narrow::Narrowing;
use super::raw::{RawMcp, RawRates};
use super::resolve;
use crate::types::ServerId;

/// Everything of `sandbox.mcp` but servers and lists.
pub fn narrow(narrowing: &mut Narrowing<'_>, base: &mut McpPolicy, raw: &RawMcp) {
    for (name, wanted, in_force) in [
        ("enforce_policy", &raw.enforce_policy, base.enforce),
        ("fail_closed", &raw.fail_closed, base.fail_closed),
    ] {
        if let Some(wanted) = wanted.as_ref().filter(|wanted| in_force && !wanted.value) {
            narrowing.refuse(&wanted.rule, format!("`{name}` is on without this file"));
        }
    }
    if let Some(pinning) = &raw.pinning {
        narrowing.pinning(&mut base.pinning, pinning);
    }
    if let Some(rates) = &raw.rate_limits {
        rate_limits(narrowing, &mut base.rate_limits, rates);
    }
    if let Some(section) = &raw.exfiltration {
        narrowing.refuse(&section.rule, "a policy inside the project cannot say what is looked for");
    }
    if let Some(bytes) = &raw.max_line_bytes {
        if bytes.value > base.max_line_bytes {
            narrowing.refuse(&bytes.rule, "`max_line_bytes` is lower without this file");
        }
        base.max_line_bytes = bytes.value;
        base.written.insert("max_line_bytes".to_owned(), bytes.rule.clone());
    }
    if let Some(timeout) = &raw.request_timeout {
        let seconds = timeout.value.div_ceil(1_000);
        if base.request_timeout_s.is_some_and(|in_force| seconds > in_force) {
            narrowing.refuse(&timeout.rule, "`request_timeout` is shorter without this file");
        }
        base.request_timeout_s = Some(seconds);
        base.written.insert("request_timeout".to_owned(), timeout.rule.clone());
    }
}

/// The project's lists, which a call has to pass besides the ones of `base`.
pub fn layer(base: &McpPolicy, own: McpPolicy) -> McpPolicy {
    // `fail_closed` alone asks that some rule knows the tool: the rules in force are meant then.
    let borrows = own.fail_closed && own.allowed_tools.is_empty();
    McpPolicy {
        enforce: own.enforce || base.enforce,
        fail_closed: own.fail_closed,
        server_policy: own.server_policy,
        server_policy_rule: own.server_policy_rule,
        allowed_servers: own.allowed_servers,
        denied_servers: own.denied_servers,
        tool_policy: own.tool_policy,
        tool_policy_rule: own.tool_policy_rule,
        allowed_tools: if borrows { base.allowed_tools.clone() } else { own.allowed_tools },
        denied_tools: own.denied_tools,
        written: own.written,
        ..McpPolicy::default()
    }
}

/// Both rates hold: the lower of each number is in force.
fn rate_limits(narrowing: &mut Narrowing<'_>, base: &mut RateLimits, raw: &RawRates) {
    if let Some(enabled) = raw.enabled.as_ref().filter(|enabled| !enabled.value)
        && *base != RateLimits::default()
    {
        narrowing.refuse(&enabled.rule, "calls are limited without this file");
    }
    let written = [raw.default_rpm.as_ref(), raw.default_burst.as_ref()];
    let own = resolve::rates(raw.clone());
    if let (Some(wanted), Some(in_force)) = (&own.default, &base.default) {
        let [rpm, burst] = written;
        let higher = rpm.is_some_and(|_| wanted.value.calls_per_minute > in_force.value.calls_per_minute)
            || burst.is_some_and(|_| wanted.value.burst > in_force.value.burst);
        if higher {
            narrowing.refuse(&wanted.rule, "the limit of calls is lower without this file");
        }
    }
    for (id, wanted) in &own.per_server {
        if let Some(in_force) = rate_of(base, id)
            && (wanted.value.calls_per_minute > in_force.value.calls_per_minute
                || wanted.value.burst > in_force.value.burst)
        {
            narrowing
                .refuse(&wanted.rule, format!("the limit of calls to `{id}` is lower without this file"));
        }
    }
    let ids: Vec<ServerId> = base.per_server.keys().chain(own.per_server.keys()).cloned().collect();
    let mut per_server = BTreeMap::new();
    for id in ids {
        if let Some(rate) = lower(rate_of(base, &id), rate_of(&own, &id)) {
            per_server.insert(id, rate);
        }
    }
    *base = RateLimits { default: lower(base.default.as_ref(), own.default.as_ref()), per_server };
}

fn rate_of<'r>(limits: &'r RateLimits, id: &ServerId) -> Option<&'r Ruled<Rate>> {
    limits.per_server.get(id).or(limits.default.as_ref())
}

fn lower(base: Option<&Ruled<Rate>>, own: Option<&Ruled<Rate>>) -> Option<Ruled<Rate>> {
    let (Some(base), Some(own)) = (base, own) else { return base.or(own).cloned() };
    let value = Rate {
        calls_per_minute: base.value.calls_per_minute.min(own.value.calls_per_minute),
        burst: base.value.burst.min(own.value.burst),
    };
    let rule = if value == base.value { base.rule.clone() } else { own.rule.clone() };
    Some(Ruled { value, rule })
}
