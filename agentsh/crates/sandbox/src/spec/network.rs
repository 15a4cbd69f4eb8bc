//! The network rules of one sandbox: those of the policy, and those of features at their place among them.

use super::Contribution;
use crate::policy::NetworkPolicy;

/// The rules that are enforced. Contributions stand in the order of precedence; what is closed is closed whatever opens it.
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
