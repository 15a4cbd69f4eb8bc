//! Requirements for a receipt, in a small file.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use super::statement::{Binding, Predicate};

/// A key that is not written requires nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirements {
    /// Layers that have to be enforced in every sandbox that ran something.
    #[serde(default)]
    layers: Vec<String>,
    /// Hosts that may have been reached: `example.com`, `*.example.com` for every name below it, each with `:PORT` or for all.
    #[serde(default, deserialize_with = "written")]
    hosts: Option<Vec<String>>,
    /// Tools that no call may have reached: `SERVER/TOOL`, `*` for either.
    #[serde(default)]
    tools_denied: Vec<String>,
    #[serde(default, deserialize_with = "written")]
    pins: Option<Pins>,
    #[serde(default, deserialize_with = "written")]
    approvals: Option<Approvals>,
    #[serde(default, deserialize_with = "written")]
    commits: Option<Commits>,
}

/// A key without a value differs from a missing key.
fn written<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Pins {
    /// Every server ran as it was pinned before the session.
    #[serde(rename = "known")]
    Known,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Approvals {
    #[serde(rename = "no-always")]
    NoAlways,
    #[serde(rename = "none")]
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Commits {
    /// The record says that they are the session's, not only the signer.
    #[serde(rename = "recorded")]
    Recorded,
}

impl Requirements {
    /// # Errors
    /// What is wrong with the text: a key that is not known, too.
    pub fn read(text: &str) -> Result<Self, String> {
        let read: Self = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        let is_name =
            |name: &str| name == "*" || !name.is_empty() && name.trim() == name && !name.contains('*');
        let is_pattern = |rule: &&String| {
            let (server, tool) = rule.split_once('/').unwrap_or(("*", rule));
            is_name(server) && is_name(tool)
        };
        match read.tools_denied.iter().find(|rule| !is_pattern(rule)) {
            Some(rule) => {
                Err(format!("tools_denied: '{rule}' is not SERVER/TOOL, with `*` for all of either"))
            }
            None => Ok(read),
        }
    }

    /// A sentence for each requirement that is not met.
    #[must_use]
    pub fn unmet_requirements(&self, of: &Predicate) -> Vec<String> {
        let mut unmet = Vec::new();
        for layer in &self.layers {
            // Every sandbox ran a program: one without a word about the layer lacks it.
            let mut states: BTreeMap<Option<&str>, &str> =
                of.programs.iter().map(|program| (program.server.as_deref(), "not on record")).collect();
            if states.is_empty() {
                states.insert(None, "not on record");
            }
            for one in of.layers.iter().filter(|one| one.layer == *layer) {
                let state = states.entry(one.server.as_deref()).or_insert("enforced");
                // A sandbox that was started twice counts as what it was at its weaker start.
                if *state == "not on record" || one.state != "enforced" {
                    *state = &one.state;
                }
            }
            for (server, state) in states.into_iter().filter(|(_, state)| *state != "enforced") {
                let whose = server.map_or("the agent".to_owned(), |server| format!("server '{server}'"));
                unmet.push(format!("layers: '{layer}' is {state} for {whose}"));
            }
        }
        if let Some(allowed) = &self.hosts {
            let is_allowed = |name: &str, port: u16| allowed.iter().any(|rule| covers(rule, name, port));
            for host in of.hosts.iter().filter(|host| !is_allowed(&host.name, host.port)) {
                unmet.push(format!("hosts: {}:{} is not allowed and was reached", host.name, host.port));
            }
        }
        for tool in of.tools.iter().filter(|tool| tool.calls > tool.refused) {
            let same = |pattern: &str, name: &str| pattern == "*" || pattern == name;
            let is_denied = |rule: &String| {
                let (server, name) = rule.split_once('/').unwrap_or(("*", rule));
                same(server, &tool.server) && same(name, &tool.tool)
            };
            if self.tools_denied.iter().any(is_denied) {
                unmet.push(format!("tools_denied: {}/{} was called", tool.server, tool.tool));
            }
        }
        if self.pins.is_some() {
            let other = of.servers.iter().filter(|server| server.pin != "known");
            unmet.extend(other.map(|server| format!("pins: server '{}' is {}", server.id, server.pin)));
        }
        for yes in of.approvals.iter().filter(|one| one.word == "approved") {
            let is_always = yes.scope.as_deref() == Some("always");
            if self.approvals == Some(Approvals::None) || self.approvals.is_some() && is_always {
                let scope = yes.scope.as_deref().unwrap_or("once");
                unmet.push(format!("approvals: {}/{} was approved: {scope}", yes.server, yes.name));
            }
        }
        if self.commits.is_some() && of.binding != Binding::Record {
            unmet.push("commits: the record does not say that they are the session's".to_owned());
        }
        unmet
    }
}

fn covers(rule: &str, name: &str, port: u16) -> bool {
    let (host, wanted) = match rule.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>())) {
        Some((host, Ok(port))) if !host.ends_with(':') => (host, Some(port)),
        _ => (rule, None),
    };
    let is_host = match host.strip_prefix("*.") {
        Some(above) => name.strip_suffix(above).is_some_and(|below| below.len() > 1 && below.ends_with('.')),
        None => host == name,
    };
    is_host && wanted.is_none_or(|wanted| wanted == port)
}
