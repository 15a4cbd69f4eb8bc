//! Which rule of `network` decides about one destination.
//!
//! The most precise rule does: a name before `*.`, `*.` before `**.`, a longer name before a shorter one, a small
//! block of addresses before a large one. Among equals the first one written does. So a rule with conditions for
//! one name holds although a wildcard beside it would allow more.

use super::domain::Host;
use super::model::{HostPattern, NetworkPolicy, NetworkRule, Ruled};

impl NetworkPolicy {
    /// The rule that decides about a host and a port; None when no rule names both. Loopback is not asked here.
    #[must_use]
    pub fn rule_for(&self, host: &Host, port: u16) -> Option<&Ruled<NetworkRule>> {
        deciding(&self.allow, |rule| rule.host.matches_host(host) && rule.ports().contains(&port))
    }

    /// The most precise rule that names the host, on whatever port.
    #[must_use]
    pub fn rule_for_host(&self, host: &Host) -> Option<&Ruled<NetworkRule>> {
        deciding(&self.allow, |rule| rule.host.matches_host(host))
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
