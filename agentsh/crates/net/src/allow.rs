//! The compiled allow list of one sandbox. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::reason::Reason;
use crate::policy::domain::Host;
use crate::policy::{HostPattern, NetworkPolicy, NetworkRule, RequestRule, Ruled};
use crate::types::RuleRef;

/// The compiled network rules of one sandbox.
#[derive(Clone, Debug, Default)]
pub struct Allowlist {
    policy: NetworkPolicy,
    /// A person may be asked about names without a rule.
    asks: bool,
}

/// The decision about one destination, with its rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub outcome: Permission,
    pub rule: RuleRef,
    pub reason: Reason,
    /// Any TCP protocol, without TLS or HTTP name checks.
    pub any_tcp: bool,
    /// TLS inspection.
    pub inspect: bool,
    /// Allowed requests; empty: every request.
    pub requests: Vec<Ruled<RequestRule>>,
    /// Non-public address blocks that the name may resolve to.
    pub permitted: Vec<IpNet>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    Allowed,
    /// Refused, unless a person approves.
    Asked,
    Refused,
}

impl Allowlist {
    #[must_use]
    pub fn new(policy: &NetworkPolicy) -> Self {
        Self { policy: policy.clone(), asks: false }
    }

    /// Allows questions about names without a rule, on ports 80 and 443.
    #[must_use]
    pub fn with_questions(mut self, asks: bool) -> Self {
        self.asks = asks;
        self
    }

    #[must_use]
    pub fn asks_about_unlisted(&self) -> bool {
        self.asks
    }

    /// Adds a rule, such as the model's address, before all others.
    #[must_use]
    pub fn with_rule(mut self, rule: Ruled<NetworkRule>) -> Self {
        self.policy.allow.insert(0, rule);
        self
    }

    /// All ports of rules, with those of the host's loopback.
    #[must_use]
    pub fn ports(&self) -> BTreeSet<u16> {
        let named = self.policy.allow.iter().flat_map(|rule| rule.value.ports().iter().copied());
        let of_the_web = crate::policy::domain::DEFAULT_PORTS.into_iter().filter(|_| self.asks);
        named.chain(self.loopback().map(|(port, _)| port)).chain(of_the_web).collect()
    }

    /// The most specific rule for this name on any port. Any spelling.
    #[must_use]
    pub fn name(&self, name: &str) -> Option<&Ruled<NetworkRule>> {
        match crate::policy::domain::normalise(name) {
            Ok(host @ Host::Name(_)) => self.policy.rule_for_host(&host),
            _ => None,
        }
    }

    /// Names in the policy without wildcards, in their order.
    pub fn exact_names(&self) -> impl Iterator<Item = &str> {
        self.policy.allow.iter().filter_map(|rule| match &rule.value.host {
            HostPattern::Exact(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Decides about a host and port.
    #[must_use]
    pub fn decide(&self, host: &Host, port: u16) -> Decision {
        if is_local(host) {
            if let Some(rule) = self.policy.closed_by(host, port) {
                return decision(Permission::Refused, rule.clone(), Reason::LoopbackPortNotOpen);
            }
            return match self.loopback().find(|(open, _)| *open == port) {
                Some((_, rule)) => decision(Permission::Allowed, rule.clone(), Reason::LoopbackPortOpen),
                None => refusal("network.loopback", Reason::LoopbackPortNotOpen),
            };
        }
        if let Some(rule) = self.policy.closed_by(host, port) {
            return decision(Permission::Refused, rule.clone(), Reason::PortNotAllowed);
        }
        let (yes, no) = match host {
            Host::Name(_) => (Reason::NameAllowed, Reason::NameNotAllowed),
            Host::Address(_) => (Reason::AddressAllowed, Reason::AddressNotAllowed),
        };
        if let Some(Ruled { value, rule }) = self.policy.rule_for(host, port) {
            return Decision {
                any_tcp: value.any_tcp,
                inspect: value.inspect,
                requests: value.requests.clone(),
                permitted: value.addresses.iter().map(|block| block.value).collect(),
                ..decision(Permission::Allowed, rule.clone(), yes)
            };
        }
        match self.policy.rule_for_host(host) {
            Some(near) => decision(Permission::Refused, near.rule.clone(), Reason::PortNotAllowed),
            None if self.asks
                && matches!(host, Host::Name(_))
                && crate::policy::domain::DEFAULT_PORTS.contains(&port) =>
            {
                decision(Permission::Asked, RuleRef::default_rule("network.unknown"), no)
            }
            None => refusal("network.allow", no),
        }
    }

    /// Allowed address blocks: network, prefix length, ports.
    pub fn nets(&self) -> impl Iterator<Item = (IpAddr, u8, &[u16])> {
        self.policy.allow.iter().filter_map(|rule| match rule.value.host {
            HostPattern::Net(address, prefix) => Some((address, prefix, rule.value.ports())),
            _ => None,
        })
    }

    /// Ports of the host's own loopback.
    pub fn loopback(&self) -> impl Iterator<Item = (u16, &RuleRef)> {
        self.policy.loopback.iter().map(|port| (port.value, &port.rule))
    }
}

/// Whether a host is this machine.
#[must_use]
pub fn is_local(host: &Host) -> bool {
    host.is_local()
}

fn decision(outcome: Permission, rule: RuleRef, reason: Reason) -> Decision {
    Decision {
        outcome,
        rule,
        reason,
        any_tcp: false,
        inspect: false,
        requests: Vec::new(),
        permitted: Vec::new(),
    }
}

fn refusal(id: &str, reason: Reason) -> Decision {
    decision(Permission::Refused, RuleRef::default_rule(id), reason)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]
    use super::*;
    use crate::policy::domain::normalise;
    use proptest::prelude::*;

    fn allowlist(network: &str) -> Allowlist {
        let policy = crate::policy::parse("p.yaml", &format!("agent: {{network: {{{network}}}}}"));
        Allowlist::new(&policy.unwrap_or_else(|error| panic!("{}", error.render())).agent.network)
    }

    const NETWORK: &str = r#"allow: [api.example.com, "*.one.test:8443", {host: db.test, port: 5432, protocol: tcp,
        addresses: [10.0.0.0/8]}, 192.0.2.0/24, {host: in.test, inspect: true, allow: ["GET /x"]}], loopback: [6379]"#;

    fn ask(host: &str, port: u16) -> Decision {
        allowlist(NETWORK).decide(&normalise(host).unwrap(), port)
    }

    #[test]
    fn closed_local_port_is_closed_by_every_name_of_localhost() {
        let policy = crate::policy::parse("p.yaml", "agent: {network: {loopback: [6379, 22]}}").unwrap();
        let mut network = policy.agent.network;
        let rule = RuleRef::default_rule("fleet");
        network.shut.push(Ruled { value: (normalise("localhost").unwrap(), 6379), rule: rule.clone() });
        let allow = Allowlist::new(&network);
        for host in ["localhost", "x.localhost", "127.0.0.1", "::1"] {
            let decision = allow.decide(&normalise(host).unwrap(), 6379);
            assert_eq!((decision.outcome, decision.rule), (Permission::Refused, rule.clone()), "{host}");
            assert_eq!(allow.decide(&normalise(host).unwrap(), 22).outcome, Permission::Allowed, "{host}");
        }
    }

    #[test]
    fn network_decisions_name_their_reason() {
        for (host, port, reason) in [
            ("api.example.com", 443, "name-allowed"),
            ("API.example.com.", 80, "name-allowed"),
            ("api.example.com", 22, "port-not-allowed"),
            ("a.one.test", 8443, "name-allowed"),
            ("a.one.test", 443, "port-not-allowed"),
            ("one.test", 8443, "name-not-allowed"),
            ("192.0.2.9", 443, "address-allowed"),
            ("::ffff:192.0.2.9", 443, "address-allowed"),
            ("192.0.2.9", 53, "port-not-allowed"),
            ("192.0.3.1", 443, "address-not-allowed"),
            ("0.0.0.0", 6379, "address-not-allowed"),
            ("::", 6379, "address-not-allowed"),
            ("127.0.0.1", 6379, "loopback-port-open"),
            ("::1", 6379, "loopback-port-open"),
            ("localhost", 6379, "loopback-port-open"),
            ("x.localhost", 22, "loopback-port-not-open"),
            ("127.8.8.8", 443, "loopback-port-not-open"),
        ] {
            let decision = ask(host, port);
            assert_eq!(decision.reason.code(), reason, "{host}:{port}");
            let is_allowed = reason.ends_with("-allowed") && !reason.contains("-not-")
                || reason.ends_with("-open") && !reason.contains("-not-");
            assert_eq!(decision.outcome == Permission::Allowed, is_allowed);
        }
    }

    fn a_host() -> impl Strategy<Value = String> {
        let label =
            prop::sample::select(vec!["a", "b", "api", "test", "localhost", "xn--bcher-kva", "*", "**", ""]);
        let name = prop::collection::vec(label, 1..4).prop_map(|labels| labels.join("."));
        let address = prop::sample::select(vec![
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "::ffff:127.0.0.1",
            "10.0.0.0/8",
            "10.1.0.0/16",
            "10.1.2.3",
            "::ffff:10.1.2.3",
            "0.0.0.0",
            "2001:db8::/32",
            "2001:db8::1",
            "198.19.0.1",
        ]);
        prop_oneof![3 => name, 1 => address.prop_map(str::to_owned)]
    }

    fn a_port() -> impl Strategy<Value = u16> {
        prop::sample::select(vec![22_u16, 80, 443, 8080])
    }

    proptest! {
        /// What `policy explain` says is what happens, by the same rule.
        #[test]
        fn network_decisions_agree_with_policy_explain(
            rules in prop::collection::vec((a_host(), prop::option::of(a_port())), 0..8),
            loopback in prop::collection::vec(a_port(), 0..3),
            questions in prop::collection::vec((a_host(), a_port()), 1..12),
        ) {
            let mut policy = NetworkPolicy::default();
            for (number, (host, port)) in rules.into_iter().enumerate() {
                let Ok(pattern) = crate::policy::domain::parse_pattern(&host) else { continue };
                let ports = port.map_or_else(|| vec![80, 443], |port| vec![port]);
                let rule = RuleRef { id: format!("allow[{number}]"), file: "p.yaml".to_owned(), line: 1 };
                policy.allow.push(Ruled { value: NetworkRule::plain(pattern, ports), rule });
            }
            for port in loopback {
                let rule = RuleRef { id: format!("loopback {port}"), file: "p.yaml".to_owned(), line: 2 };
                policy.loopback.push(Ruled { value: port, rule });
            }
            let allow = Allowlist::new(&policy);
            for (host, port) in questions {
                let said = crate::policy::ask_connect(&policy, None, &host, port);
                let Ok(normal) = normalise(&host) else {
                    prop_assert!(!said.allow);
                    continue;
                };
                let done = allow.decide(&normal, port);
                prop_assert_eq!(done.outcome == Permission::Allowed, said.allow, "{} {}", host, port);
                // Without a rule each names the section in its own way.
                let (done_by, said_by) = (done.rule, said.rule);
                prop_assert!(done_by == said_by || done_by.line == 0 && said_by.line == 0, "{} {}", done_by, said_by);
                if done.outcome == Permission::Allowed {
                    prop_assert!(allow.ports().contains(&port));
                }
            }
        }
    }

    #[test]
    fn network_decisions_carry_request_conditions() {
        let database = ask("db.test", 5432);
        assert!(database.any_tcp && !database.inspect);
        assert_eq!(database.permitted[0].to_string(), "10.0.0.0/8");
        assert_eq!(database.rule.id, "agent.network.allow[2]");
        let inspected = ask("in.test", 443);
        assert!(inspected.inspect && inspected.requests[0].value.matches("GET", "/x"));
        // A refusal gives nothing away.
        assert!(!ask("db.test", 22).any_tcp && ask("db.test", 22).permitted.is_empty());
    }

    #[test]
    fn allow_list_yields_ports_names_and_networks() {
        let allow = allowlist(NETWORK);
        assert_eq!(allow.ports().into_iter().collect::<Vec<_>>(), [80, 443, 5432, 6379, 8443]);
        assert_eq!(allow.exact_names().collect::<Vec<_>>(), ["api.example.com", "db.test", "in.test"]);
        assert_eq!(
            allow.nets().map(|(address, prefix, _)| (address.to_string(), prefix)).next(),
            Some(("192.0.2.0".to_owned(), 24))
        );
        assert_eq!(allow.loopback().map(|(port, _)| port).collect::<Vec<_>>(), [6379]);
        assert!(
            allow.name("A.ONE.test.").is_some()
                && allow.name("192.0.2.9").is_none()
                && allow.name("").is_none()
        );
        let more = Ruled {
            value: crate::policy::domain::parse_rule("model.test:8080").unwrap(),
            rule: RuleRef::default_rule("agent.model"),
        };
        let mut allow = Allowlist::default().with_rule(more);
        allow.policy.loopback.push(Ruled { value: 9, rule: RuleRef::default_rule("x") });
        assert_eq!(allow.decide(&normalise("model.test").unwrap(), 8080).rule.id, "agent.model");
        assert_eq!(allow.ports().into_iter().collect::<Vec<_>>(), [9, 8080]);
    }
}
