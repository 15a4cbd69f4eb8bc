//! Which rule of `network` decides about one destination.
//!
//! The most precise rule does: a name before `*.`, `*.` before `**.`, a longer name before a shorter one, a small
//! block of addresses before a large one. Among equals the first one written does. So a rule with conditions for
//! one name holds although a wildcard next to it would allow more.

use super::domain::Host;
use crate::types::RuleRef;

use super::domain;
use super::model::{HostPattern, NetworkPolicy, NetworkRule, Ruled};

/// The position of a rule among the network rules. Of two equally precise rules, the first decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precedence {
    /// Before all others.
    First,
    /// Before all others, with the addresses and requests of the rule that decided until now.
    FirstJoined,
    /// Only where no rule decides yet.
    IfUnruled,
    Last,
}

/// A rule that something else than a `network` section gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRule {
    pub rule: Ruled<NetworkRule>,
    pub precedence: Precedence,
}

impl NetworkPolicy {
    /// Puts a rule at its place.
    pub fn insert(&mut self, HostRule { rule, precedence }: HostRule) {
        let mut rule = rule;
        match precedence {
            Precedence::Last => self.allow.push(rule),
            Precedence::First => self.allow.insert(0, rule),
            Precedence::IfUnruled => {
                if !self.is_ruled(&rule.value) {
                    self.allow.push(rule);
                }
            }
            Precedence::FirstJoined => {
                let first = rule.value.ports().first().copied();
                let known = rule.value.host.single().zip(first);
                if let Some(known) = known.and_then(|(host, port)| self.rule_for(&host, port)) {
                    rule.value.addresses.splice(0..0, known.value.addresses.clone());
                    match known.value.requests.is_empty() {
                        true => rule.value.requests.clear(),
                        false => rule.value.requests.extend(known.value.requests.clone()),
                    }
                }
                self.allow.insert(0, rule);
            }
        }
    }

    /// Whether rules decide already about every port that this one opens.
    fn is_ruled(&self, rule: &NetworkRule) -> bool {
        let host = rule.host.single();
        host.is_some_and(|host| rule.ports().iter().all(|port| self.rule_for(&host, *port).is_some()))
    }

    /// Opens a port of the host's loopback.
    pub fn open_loopback(&mut self, port: Ruled<u16>) {
        if !self.loopback.iter().any(|open| open.value == port.value) {
            self.loopback.push(port);
        }
    }

    /// Closes a host and port, even if other rules open it. A text that is no host closes nothing.
    pub fn close(&mut self, host: &str, port: u16, rule: RuleRef) {
        let Ok(host) = domain::normalise(host) else { return };
        if host.is_local() {
            self.loopback.retain(|open| open.value != port);
        }
        self.shut.push(Ruled { value: (host, port), rule });
    }
}

impl HostPattern {
    /// The host of a pattern that matches one host; None if it matches several.
    fn single(&self) -> Option<Host> {
        match self {
            Self::Exact(name) => Some(Host::Name(name.clone())),
            Self::Net(address, 32) if address.is_ipv4() => Some(Host::Address(*address)),
            Self::Net(address, 128) => Some(Host::Address(*address)),
            _ => None,
        }
    }
}

impl NetworkPolicy {
    /// The rule that decides about a host and a port; None when no rule names both. Loopback is not asked here.
    #[must_use]
    pub fn rule_for(&self, host: &Host, port: u16) -> Option<&Ruled<NetworkRule>> {
        if self.closed_by(host, port).is_some() {
            return None;
        }
        deciding(&self.allow, |rule| rule.host.matches_host(host) && rule.ports().contains(&port))
    }

    /// The rule that shuts a host and a port, whatever other rules say.
    #[must_use]
    pub fn closed_by(&self, host: &Host, port: u16) -> Option<&RuleRef> {
        // This machine is one place by all its names.
        let is_it = |place: &Host| place == host || (place.is_local() && host.is_local());
        let shut = self.shut.iter().find(|shut| is_it(&shut.value.0) && shut.value.1 == port);
        shut.map(|shut| &shut.rule)
    }

    /// The most precise rule that names the host, on whatever port.
    #[must_use]
    pub fn rule_for_host(&self, host: &Host) -> Option<&Ruled<NetworkRule>> {
        deciding(&self.allow, |rule| rule.host.matches_host(host))
    }
}

impl NetworkPolicy {
    /// Whether everything that `inner` opens is open, under the rules that decide about it here.
    pub(super) fn permits(&self, inner: &NetworkRule) -> bool {
        inner.ports().iter().all(|port| {
            let outer =
                deciding(&self.allow, |rule| rule.host.covers(&inner.host) && rule.ports().contains(port));
            outer.is_some_and(|outer| outer.value.permits_conditions_of(inner))
        })
    }

    /// Puts `list`, every entry of which is permitted, in place of the rules. A rule that is more precise than an
    /// entry and stricter stays: without it the entry would open more.
    pub(super) fn narrow(&mut self, list: &[Ruled<NetworkRule>]) {
        let is_lost = |rule: &NetworkRule| {
            let is_inside = |entry: &&Ruled<NetworkRule>| {
                entry.value.host != rule.host
                    && entry.value.host.covers(&rule.host)
                    && entry.value.ports().iter().any(|port| rule.ports().contains(port))
            };
            list.iter().filter(is_inside).any(|entry| !rule.permits_conditions_of(&entry.value))
        };
        let is_listed = |rule: &NetworkRule, port: &u16| {
            list.iter().any(|entry| entry.value.host == rule.host && entry.value.ports().contains(port))
        };
        let mut kept = Vec::new();
        for rule in self.allow.iter().filter(|rule| is_lost(&rule.value)) {
            let mut rule = rule.clone();
            let ports = rule.value.ports().iter().filter(|port| !is_listed(&rule.value, port));
            rule.value.ports = ports.copied().collect();
            if !rule.value.ports.is_empty() {
                kept.push(rule);
            }
        }
        self.allow = list.iter().cloned().chain(kept).collect();
    }
}

/// The most precise of the rules that `means` picks.
pub(super) fn deciding(
    rules: &[Ruled<NetworkRule>],
    means: impl Fn(&NetworkRule) -> bool,
) -> Option<&Ruled<NetworkRule>> {
    let mut best: Option<&Ruled<NetworkRule>> = None;
    for rule in rules.iter().filter(|rule| means(&rule.value)) {
        if best.is_none_or(|best| precision(&rule.value.host) > precision(&best.value.host)) {
            best = Some(rule);
        }
    }
    best
}

/// Comparable between patterns that mean the same host.
fn precision(pattern: &HostPattern) -> (u8, usize) {
    match pattern {
        HostPattern::AnyDepth(apex) => (0, apex.len()),
        HostPattern::OneLabel(apex) => (1, apex.len()),
        HostPattern::Exact(name) => (2, name.len()),
        HostPattern::Net(_, prefix) => (3, usize::from(*prefix)),
    }
}
