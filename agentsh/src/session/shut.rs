//! A place that a sandbox must not reach, whatever its rules say.

use crate::policy::domain;
use crate::policy::{NetworkPolicy, Ruled};
use crate::types::RuleRef;

/// Rules that lead to one place no more.
#[must_use]
pub fn without(mut rules: NetworkPolicy, (host, port): (String, u16), rule: &RuleRef) -> NetworkPolicy {
    let Ok(host) = domain::normalise(&host) else { return rules };
    if crate::net::allow::is_local(&host) {
        rules.loopback.retain(|open| open.value != port);
    }
    rules.shut.push(Ruled { value: (host, port), rule: rule.clone() });
    rules
}
