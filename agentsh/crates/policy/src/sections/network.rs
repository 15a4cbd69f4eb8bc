//! `network`: hosts, their ports and conditions, and ports of this machine.

use std::net::IpAddr;

use ipnet::IpNet;

use super::prelude::*;
use crate::domain::{self, HostError};
use crate::model::{HostPattern, NetworkPolicy, NetworkRule, ProxyChoice, RequestRule};

const PORT: Kind = Kind::Number(1, 65_535);

/// The keys of a rule that is a map.
const RULE: &[Key] = keys! {
    /// The name, pattern or block of addresses.
    "host": Kind::Text, default: "required";
    /// One port.
    "port": PORT, default: "443 and 80";
    /// Several ports.
    "ports": Kind::Whole(&PORT), default: "443 and 80";
    /// `tcp` allows any protocol over TCP, without the name checks. It needs ports.
    "protocol": Kind::Word(&["tcp"]), default: "TLS and HTTP, checked by name";
    /// TLS ends at agentsh, so that single requests can be judged.
    "inspect": Kind::Flag, default: "false";
    /// The requests that are let through, as `METHOD /path`. Only with `inspect`.
    "allow": Kind::Whole(&Kind::Text), default: "every request";
    /// Blocks of addresses that are not public and that this name may nevertheless resolve to.
    "addresses": Kind::Whole(&Kind::Text), default: "none";
};

/// Whether a person is asked.
const UNKNOWN: [(&str, bool); 2] = [("ask", true), ("deny", false)];

table! {
    /// What one file writes.
    struct Network;

    /// Hosts that may be reached: `example.com`, `*.example.com` (one more label), `**.example.com` (any depth), an
    /// address or a block of addresses, each with a port if it is not 443 or 80.
    pub allow: Entries<NetworkRule> = Kind::List(&Kind::Either(&[Kind::Text, Kind::Map(RULE)])),
        default: "the agent: its model's addresses; a server: what its profile lists",
        merge: "adds, unless written as `{replace: [...]}`; of two rules for one host and port the higher layer's decides",
        example: "[api.example.com, \"*.githubusercontent.com\", {host: db.example.com, port: 5432, protocol: tcp}]"
        => read network_rule => show ToString::to_string;
    /// Ports of this machine's own loopback that are open.
    pub loopback: Entries<u16> = Kind::List(&PORT), default: "none", example: "[5432]"
        => read port => show ToString::to_string;
    /// The HTTP proxy by which allowed connections leave this machine: `environment` (HTTPS_PROXY and NO_PROXY of the
    /// user), `off`, or its URL. Names are checked as always; the proxy resolves them.
    pub proxy: One<ProxyChoice> = Kind::Text, default: "environment", example: "environment"
        => read proxy => show ToString::to_string;
    /// What happens to a connection to a host that no rule names, on port 443 or 80: a person is asked (`agentsh
    /// approvals`) and it waits at most 30 s, or it is refused. Servers never ask.
    pub unknown: One<bool> = Kind::Word(&["ask", "deny"]),
        default: "ask, for the agent, where a person can answer and the policy does not list what may run",
        example: "deny" => words UNKNOWN;
}

impl Section<ProcessPolicy> for Network {
    const KEYS: &'static [Key] = keys! {
        /// Where connections may go. There is no deny list: what no rule allows is refused.
        "network": Kind::Map(Self::TABLE);
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let own: Self = Table::read_at(reader, fields.find("network"));
        contradictions(reader, &own.allow);
        own
    }

    /// The first of equal rules decides, so those of the higher layer come first.
    fn merge(&self, below: &mut ProcessPolicy) {
        let network = &mut below.network;
        if self.allow.is_written() {
            let kept = if self.allow.replaces() { Vec::new() } else { std::mem::take(&mut network.allow) };
            network.allow = self.allow.iter().cloned().chain(kept).collect();
        }
        if self.loopback.replaces() {
            network.loopback.clear();
        }
        network.loopback.extend_from_slice(&self.loopback);
        merge_keys!(self => network; proxy, unknown);
    }

    fn narrow(&self, base: &mut ProcessPolicy, narrowing: &mut Narrowing<'_>) {
        let base = &mut base.network;
        let message = "only the user decides how connections leave this machine";
        narrowing.refuse_all(rules_of!(self; proxy), message);
        let message = "only the user decides when questions are asked";
        narrowing.set(&self.unknown, &mut base.unknown, |asks| *asks, message);
        if self.allow.is_written() {
            for entry in &self.allow {
                let possible = narrowing.possible.iter().any(|profile| profile.network.permits(&entry.value));
                if !possible && !base.permits(&entry.value) {
                    narrowing.refuse(&entry.rule, format!("this file would allow `{}`", entry.value));
                }
            }
            let permitted: Vec<_> =
                self.allow.iter().filter(|entry| base.permits(&entry.value)).cloned().collect();
            base.narrow(&permitted);
        }
        if self.loopback.is_written() {
            let covered = |base: &NetworkPolicy, entry: &Ruled<u16>| {
                base.loopback.iter().any(|outer| outer.value == entry.value)
            };
            for entry in &self.loopback {
                let possible = narrowing.possible.iter().any(|profile| covered(&profile.network, entry));
                if !possible && !covered(base, entry) {
                    let message = format!("this file would open port {} of this machine", entry.value);
                    narrowing.refuse(&entry.rule, message);
                }
            }
            base.loopback = self.loopback.iter().filter(|entry| covered(base, entry)).cloned().collect();
        }
    }

    fn describe(policy: &ProcessPolicy, name: &str, lines: &mut Lines) {
        let network = &policy.network;
        let shown = Self {
            allow: network.allow.clone().into(),
            loopback: network.loopback.clone().into(),
            proxy: network.proxy.clone(),
            unknown: network.unknown.clone(),
        };
        Table::describe(&shown, &format!("{name}.network"), lines);
    }
}

fn proxy(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<ProxyChoice> {
    let text = reader.text(here)?;
    match text.as_str() {
        "off" => Some(ProxyChoice::Off),
        "environment" => Some(ProxyChoice::Environment),
        url if url.starts_with("http://") && url.len() > 7 => Some(ProxyChoice::Url(text)),
        _ => {
            let help = "write `environment`, `off`, or `http://HOST:PORT`";
            reader.fault(here, "this is not a proxy that can be used", help)
        }
    }
}

fn network_rule(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<NetworkRule> {
    match &here.node.value {
        Value::Text(_) => {
            let text = reader.text(here)?;
            let parsed = domain::parse_rule(&text);
            host_result(reader, here, parsed)
        }
        Value::Map(_) => {
            let keys: Vec<&str> = RULE.iter().map(|key| key.name).collect();
            network_map(reader, here, &keys)
        }
        other => reader.wrong_type(here, "a host such as `example.com`, or a map with `host`", other),
    }
}

/// A host with its ports and conditions, in a map that may have these keys.
pub fn network_map(reader: &mut Reader<'_>, here: &Here<'_>, keys: &[&str]) -> Option<NetworkRule> {
    let fields = reader.fields(here, keys)?;
    let any_tcp = reader.word(fields.find("protocol"), &[("tcp", true)]).is_some_and(|word| word.value);
    let mut ports = Vec::new();
    if let Some(one) = fields.find("port") {
        ports.push(port(reader, &one)?);
    }
    if let Some(many) = reader.list(fields.find("ports"), |reader, here| port(reader, here)) {
        ports.extend(many.value.iter().map(|port| port.value));
    }
    let Some(host) = fields.find("host") else {
        return reader.fault(here, "this rule names no host", "add `host: example.com`");
    };
    let text = reader.text(&host)?;
    let parsed = domain::parse_pattern(&text);
    let pattern = host_result(reader, &host, parsed)?;
    if any_tcp && ports.is_empty() {
        let help = "without TLS and HTTP name checks a rule has to name its ports: add `port: 5432`";
        return reader.fault(here, "this rule opens any TCP on no particular port", help);
    }
    ports.sort_unstable();
    ports.dedup();
    let rule = NetworkRule {
        any_tcp,
        inspect: reader.boolean(fields.find("inspect")).is_some_and(|written| written.value),
        requests: reader.list(fields.find("allow"), request).map(|list| list.value).unwrap_or_default(),
        addresses: reader.list(fields.find("addresses"), block).map(|list| list.value).unwrap_or_default(),
        ..NetworkRule::plain(pattern, ports)
    };
    conditions_fit(reader, &fields, &rule).then_some(rule)
}

fn host_result<T>(reader: &mut Reader<'_>, here: &Here<'_>, parsed: Result<T, HostError>) -> Option<T> {
    match parsed {
        Ok(value) => Some(value),
        Err(error) => {
            let help = "write `example.com`, `*.example.com` (one more label), `**.example.com` (any depth), \
                        or an address block; a port may follow as `:443`";
            let is_unclear =
                matches!(error, HostError::Invalid(_) | HostError::Wildcard(_) | HostError::TooWide(_));
            reader.fault(here, error.to_string(), is_unclear.then(|| help.to_owned()))
        }
    }
}

pub fn port(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<u16> {
    match &here.node.value {
        Value::Integer(value) => match u16::try_from(*value) {
            Ok(port) if port > 0 => Some(port),
            _ => reader.fault(here, format!("{value} is not a port; ports are 1 to 65535"), None),
        },
        other => reader.wrong_type(here, "a port number", other),
    }
}

pub fn request(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<RequestRule> {
    let text = reader.text(here)?;
    match RequestRule::parse(&text) {
        Ok(rule) => Some(rule),
        Err(why) => reader.fault(here, why, None),
    }
}

pub(super) fn block(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<IpNet> {
    let text = reader.text(here)?;
    let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
    let Some(block) = text.parse::<IpNet>().ok().or_else(address) else {
        let help = "write `10.0.0.0/8`, `fd00::/8` or one address";
        return reader.fault(here, "this is not an address block", help);
    };
    if block.trunc() != block {
        let help = format!("did you mean `{}`?", block.trunc());
        return reader.fault(here, "this block has bits set behind its prefix length", help);
    }
    Some(block)
}

/// Whether the conditions of one rule go together.
fn conditions_fit(reader: &mut Reader<'_>, fields: &Fields<'_>, rule: &NetworkRule) -> bool {
    let mut fits = true;
    let mut odd = |key: &str, message: &str, help: &str| {
        if let Some(here) = fields.find(key) {
            reader.problem(&here, message, help);
            fits = false;
        }
    };
    let is_net = matches!(rule.host, HostPattern::Net(..));
    if !rule.inspect {
        odd("allow", "agentsh can check only requests that it can read", "add `inspect: true`");
    } else if rule.requests.is_empty() {
        odd("allow", "an empty list would let no request through", "remove the key, or the whole rule");
    }
    if rule.inspect && rule.any_tcp {
        odd("inspect", "there is nothing to inspect in any TCP", "remove `protocol: tcp` or `inspect`");
    }
    if rule.inspect && is_net {
        odd("inspect", "requests are inspected by name", "write the name as `host`");
    }
    if is_net {
        odd(
            "addresses",
            "`addresses` has no effect where `host` is an address",
            "remove `addresses`, or write a name as `host`",
        );
    }
    fits
}

/// Of two rules for the same host and port only the first decides: with other conditions the second would have no effect.
fn contradictions(reader: &mut Reader<'_>, rules: &[Ruled<NetworkRule>]) {
    for (at, later) in rules.iter().enumerate() {
        let is_same = |earlier: &&Ruled<NetworkRule>| {
            earlier.value.host == later.value.host
                && earlier.value.ports().iter().any(|port| later.value.ports().contains(port))
                && !earlier.value.has_conditions_of(&later.value)
        };
        if let Some(earlier) = rules.iter().take(at).find(is_same) {
            let message = format!("`{}` is given twice, with different conditions", later.value.host);
            let help =
                format!("the rule in line {} takes precedence; merge the two rules", earlier.rule.line);
            reader.problem_of_rule(&later.rule, message, help);
        }
    }
}
