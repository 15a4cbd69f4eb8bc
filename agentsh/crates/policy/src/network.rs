//! Which rule of `network` decides about one destination.
//!
//! The most precise rule does: a name before `*.`, `*.` before `**.`, a longer name before a shorter one, a small
//! block of addresses before a large one. Among equals the first one written does. So a rule with conditions for
//! one name holds although a wildcard beside it would allow more.

use super::domain::Host;
use crate::types::RuleRef;

use super::model::{HostPattern, NetworkPolicy, NetworkRule, Ruled};

impl NetworkPolicy {
    /// The rule that decides about a host and a port; None when no rule names both. Loopback is not asked here.
    #[must_use]
    pub fn rule_for(&self, host: &Host, port: u16) -> Option<&Ruled<NetworkRule>> {
        if self.shut_by(host, port).is_some() {
            return None;
        }
        deciding(&self.allow, |rule| rule.host.matches_host(host) && rule.ports().contains(&port))
    }

    /// The rule that shuts a host and a port, whatever other rules say.
    #[must_use]
    pub fn shut_by(&self, host: &Host, port: u16) -> Option<&RuleRef> {
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
