//! `network`: hosts, their ports and conditions, and ports of this machine.

use std::net::IpAddr;

use ipnet::IpNet;

use super::domain::{self, HostError};
use super::model::{HostPattern, NetworkRule, RequestRule, Ruled};
use super::raw::RawProcess;
use super::reader::{Fields, Here, Reader};
use super::yaml::Value;

pub fn section(reader: &mut Reader<'_>, here: &Here<'_>, process: &mut RawProcess) {
    let Some(network) = reader.fields(here, &["allow", "loopback"]) else { return };
    process.network_allow = reader.list(network.find("allow"), network_rule);
    process.loopback = reader.list(network.find("loopback"), |reader, here| port(reader, here));
    if let Some(list) = &process.network_allow {
        contradictions(reader, &list.value);
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
            let keys = ["host", "port", "ports", "protocol", "inspect", "allow", "addresses"];
            network_map(reader, here, &keys)
        }
        other => {
            reader.wrong_type(here, "a host such as `example.com`, or a map with `host`", other);
            None
        }
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
        reader.problem(here, "this rule names no host", Some("add `host: example.com`".to_owned()));
        return None;
    };
    let text = reader.text(&host)?;
    let parsed = domain::parse_pattern(&text);
    let pattern = host_result(reader, &host, parsed)?;
    if any_tcp && ports.is_empty() {
        let help =
            "without TLS and HTTP name checks a rule has to name its ports: add `port: 5432`".to_owned();
        reader.problem(here, "this rule opens any TCP on no particular port", Some(help));
        return None;
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
            reader.problem(here, error.to_string(), is_unclear.then(|| help.to_owned()));
            None
        }
    }
}

pub fn port(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<u16> {
    match &here.node.value {
        Value::Integer(value) => match u16::try_from(*value) {
            Ok(port) if port > 0 => Some(port),
            _ => {
                reader.problem(here, format!("{value} is not a port; ports are 1 to 65535"), None);
                None
            }
        },
        other => {
            reader.wrong_type(here, "a port number", other);
            None
        }
    }
}

fn request(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<RequestRule> {
    let text = reader.text(here)?;
    match RequestRule::parse(&text) {
        Ok(rule) => Some(rule),
        Err(why) => {
            reader.problem(here, why, None);
            None
        }
    }
}

fn block(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<IpNet> {
    let text = reader.text(here)?;
    let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
    let Some(block) = text.parse::<IpNet>().ok().or_else(address) else {
        let help = "write `10.0.0.0/8`, `fd00::/8` or one address".to_owned();
        reader.problem(here, "this is not an address block", Some(help));
        return None;
    };
    if block.trunc() != block {
        let help = format!("did you mean `{}`?", block.trunc());
        reader.problem(here, "this block has bits set behind its prefix length", Some(help));
        return None;
    }
    Some(block)
}

/// Whether the conditions of one rule go together.
fn conditions_fit(reader: &mut Reader<'_>, fields: &Fields<'_>, rule: &NetworkRule) -> bool {
    let mut fits = true;
    let mut odd = |key: &str, message: &str, help: &str| {
        if let Some(here) = fields.find(key) {
            reader.problem(&here, message, Some(help.to_owned()));
            fits = false;
        }
    };
    let is_net = matches!(rule.host, HostPattern::Net(..));
    if !rule.inspect {
        odd("allow", "single requests can only be judged where TLS ends at agentsh", "add `inspect: true`");
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
        odd("addresses", "an address is its own permission", "remove `addresses`, or write a name as `host`");
    }
    fits
}

/// Of two rules for the same host and port only the first decides: with other conditions the second would be lost.
fn contradictions(reader: &mut Reader<'_>, rules: &[Ruled<NetworkRule>]) {
    for (at, later) in rules.iter().enumerate() {
        let is_same = |earlier: &&Ruled<NetworkRule>| {
            earlier.value.host == later.value.host
                && earlier.value.ports().iter().any(|port| later.value.ports().contains(port))
                && !earlier.value.has_conditions_of(&later.value)
        };
        if let Some(earlier) = rules.iter().take(at).find(is_same) {
            let message = format!("`{}` stands here twice, with other conditions", later.value.host);
            let help = format!("the rule in line {} decides; make one rule of the two", earlier.rule.line);
            reader.problem_of_rule(&later.rule, message, Some(help));
        }
    }
}
