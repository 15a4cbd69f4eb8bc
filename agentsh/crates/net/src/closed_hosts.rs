//! Closed hosts, compared by address: another name for one must not reach it.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use rustix::io::Errno;

use super::allow::is_local;
use super::egress_context::EgressContext;
use super::resolve::ResolveError;
use crate::policy::Ruled;
use crate::policy::domain::Host;
use crate::types::RuleRef;

/// A closed host behind a connection's addresses.
pub(super) struct ClosedHost {
    pub rule: RuleRef,
    /// For people.
    pub why: String,
}

/// The closed host that a connection leads to. `addresses` are those to be dialled; none if a proxy resolves the name.
/// Closed names are resolved each time; if that fails, the connection counts as leading there.
pub(super) async fn find_closed_host<R>(
    egress: &EgressContext<R>,
    (name, port): (&str, u16),
    addresses: Option<&[IpAddr]>,
) -> Option<ClosedHost> {
    let mut shut = egress.network.shut.iter().filter(|shut| shut.value.1 == port).peekable();
    let looked_up;
    let addresses = match (addresses, shut.peek()?) {
        (Some(addresses), _) => addresses,
        (None, first) => match egress.resolver.lookup(name).await {
            Ok(addresses) => {
                looked_up = addresses;
                &looked_up
            }
            Err(error) => {
                let why = format!(
                    "a proxy resolves it, so agentsh cannot tell whether it leads to an address that is closed \
                     to sandboxes: {error}"
                );
                return Some(ClosedHost { rule: first.rule.clone(), why });
            }
        },
    };
    for Ruled { value: (host, _), rule } in shut {
        let (shown, places) = match host {
            Host::Address(address) => (address.to_string(), Ok(vec![*address])),
            Host::Name(name) if is_local(host) => (name.clone(), Ok(vec![Ipv4Addr::LOCALHOST.into()])),
            Host::Name(name) => (name.clone(), egress.resolver.lookup(name).await),
        };
        let why = match places {
            Ok(places) if are_same_machine(addresses, &places, is_own) => {
                format!("it leads to '{shown}', which is closed to every sandbox, and no rule can allow it")
            }
            Ok(_) | Err(ResolveError::NotFound) => continue,
            Err(error) => {
                format!(
                    "it may lead to '{shown}', which is closed to sandboxes and cannot be resolved: \
                     {error}"
                )
            }
        };
        return Some(ClosedHost { rule: rule.clone(), why });
    }
    None
}

/// Whether two address lists are the same machine; `is_own` knows this machine's addresses.
fn are_same_machine(some: &[IpAddr], others: &[IpAddr], is_own: impl Fn(IpAddr) -> bool) -> bool {
    let is_here = |address: IpAddr| address.is_loopback() || address.is_unspecified() || is_own(address);
    some.iter().any(|one| {
        others.iter().any(|other| {
            let (one, other) = (one.to_canonical(), other.to_canonical());
            one == other || (is_here(one) && is_here(other))
        })
    })
}

/// Whether the kernel routes an address to this machine, also if no interface lists it.
fn is_own(address: IpAddr) -> bool {
    match UdpSocket::bind((address, 0)) {
        Ok(_) => true,
        // If unknown, refuse.
        Err(error) => {
            matches!(Errno::from_io_error(&error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn closed_host_is_recognised_in_several_spellings() {
        let all =
            |texts: &[&str]| -> Vec<IpAddr> { texts.iter().map(|text| text.parse().unwrap()).collect() };
        let own = all(&["192.0.2.7", "2001:db8::7"]);
        let is_own = |address: IpAddr| own.contains(&address);
        for (some, others, do_meet) in [
            (&["10.1.2.3"][..], &["10.1.2.3"][..], true),
            (&["::ffff:10.1.2.3"], &["10.1.2.4", "10.1.2.3"], true),
            (&["127.0.0.1", "::1"], &["127.0.1.1"], true),
            (&["::1"], &["127.0.0.1"], true),
            (&["10.1.2.3"], &["10.1.2.4"], false),
            (&["10.1.2.3"], &["127.0.0.1"], false),
            (&["10.1.2.3"], &[], false),
            (&["192.0.2.7"], &["127.0.0.1"], true),
            (&["::1"], &["192.0.2.7"], true),
            (&["192.0.2.7"], &["2001:db8::7"], true),
            (&["192.0.2.7"], &["10.1.2.3"], false),
        ] {
            assert_eq!(are_same_machine(&all(some), &all(others), is_own), do_meet, "{some:?} {others:?}");
        }
    }

    #[test]
    fn the_kernel_knows_the_addresses_of_this_machine() {
        assert!(is_own(Ipv4Addr::LOCALHOST.into()) && !is_own(Ipv4Addr::new(192, 0, 2, 1).into()));
    }
}
