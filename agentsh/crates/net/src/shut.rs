//! Places that no rule opens, looked for behind addresses: who names nobody goes wherever an address leads.

use std::net::{IpAddr, Ipv4Addr};

use super::allow::is_local;
use super::egress_context::EgressContext;
use super::resolve::ResolveError;
use crate::policy::Ruled;
use crate::policy::domain::Host;
use crate::types::RuleRef;

/// A shut place on the way of a connection.
pub(super) struct Behind {
    pub rule: RuleRef,
    /// For people.
    pub why: String,
}

/// The shut place that one of the addresses leads to on this port. What a name leads to is looked up each time; where that
/// cannot be told, nobody gets through.
pub(super) async fn behind<R>(egress: &EgressContext<R>, addresses: &[IpAddr], port: u16) -> Option<Behind> {
    for Ruled { value: (host, _), rule } in egress.network.shut.iter().filter(|shut| shut.value.1 == port) {
        let (shown, places) = match host {
            Host::Address(address) => (address.to_string(), Ok(vec![*address])),
            Host::Name(name) if is_local(host) => (name.clone(), Ok(vec![Ipv4Addr::LOCALHOST.into()])),
            Host::Name(name) => (name.clone(), egress.resolver.lookup(name).await),
        };
        let why = match places {
            Ok(places) if meet(addresses, &places) => {
                format!("it leads to '{shown}', which is shut to sandboxes whatever rules say")
            }
            Ok(_) | Err(ResolveError::NotFound) => continue,
            Err(error) => {
                format!(
                    "it may lead to '{shown}', which is shut to sandboxes and whose addresses are not known: {error}"
                )
            }
        };
        return Some(Behind { rule: rule.clone(), why });
    }
    None
}

fn meet(some: &[IpAddr], others: &[IpAddr]) -> bool {
    let is_here = |address: IpAddr| address.is_loopback() || address.is_unspecified();
    some.iter().any(|one| {
        others.iter().any(|other| {
            let (one, other) = (one.to_canonical(), other.to_canonical());
            one == other || (is_here(one) && is_here(other))
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn one_machine_has_several_spellings() {
        let all =
            |texts: &[&str]| -> Vec<IpAddr> { texts.iter().map(|text| text.parse().unwrap()).collect() };
        for (some, others, do_meet) in [
            (&["10.1.2.3"][..], &["10.1.2.3"][..], true),
            (&["::ffff:10.1.2.3"], &["10.1.2.4", "10.1.2.3"], true),
            (&["127.0.0.1", "::1"], &["127.0.1.1"], true),
            (&["::1"], &["127.0.0.1"], true),
            (&["10.1.2.3"], &["10.1.2.4"], false),
            (&["10.1.2.3"], &["127.0.0.1"], false),
            (&["10.1.2.3"], &[], false),
        ] {
            assert_eq!(meet(&all(some), &all(others)), do_meet, "{some:?} {others:?}");
        }
    }
}
