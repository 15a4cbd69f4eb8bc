//! Merges the network rules of the policy and of features.

use super::Contribution;
use crate::policy::NetworkPolicy;

/// The enforced rules, with contributions in order of precedence; closed hosts stay closed.
pub(super) fn rules(policy: &NetworkPolicy, parts: &[&Contribution]) -> NetworkPolicy {
    let mut rules = policy.clone();
    for part in parts {
        part.hosts.iter().cloned().for_each(|host| rules.insert(host));
        part.loopback.iter().cloned().for_each(|port| rules.open_loopback(port));
    }
    for closed in parts.iter().flat_map(|part| &part.closed) {
        let (host, port) = &closed.value;
        rules.close(host, *port, closed.rule.clone());
    }
    rules
}
