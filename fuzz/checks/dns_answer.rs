//! An answer is a bounded response to its question; only allowed names get an address.

use std::sync::LazyLock;

use super::net::allow::Allowlist;
use super::net::dns::{MAX_QUERY, Outcome, Transport, answer};
use super::net::fake_ip_pool::FakeIpPool;
use super::policy;

static ALLOW: LazyLock<Allowlist> = LazyLock::new(|| {
    let rules = "agent: {network: {allow: [api.example.com, \"*.one.test\", \"**.deep.test\"]}}";
    match policy::parse("fuzz.yaml", rules) {
        Ok(policy) => Allowlist::new(&policy.agent.network),
        Err(error) => panic!("{}", error.render()),
    }
});

pub fn check(data: &[u8]) {
    let Some((over, query)) = data.split_first() else { return };
    let over = if over % 2 == 1 { Transport::Tcp } else { Transport::Udp };
    let mut pool = FakeIpPool::new(&ALLOW);
    let answered = answer(query, over, &ALLOW, &mut pool);
    if let Some(response) = &answered.response {
        assert!(response.len() <= 2 * MAX_QUERY && (over == Transport::Tcp || response.len() <= 1232));
        assert_eq!(response.get(..2), query.get(..2), "another id");
        assert!(response.get(2).is_some_and(|flags| flags & 0x80 != 0), "not a response");
        assert!(query.get(2).is_some_and(|flags| flags & 0x80 == 0), "a response was answered");
    }
    if let (Outcome::Answered(v4, v6), Some(asked)) = (&answered.outcome, &answered.asked) {
        if v4.is_loopback() {
            assert!(asked.name == "localhost" || asked.name.ends_with(".localhost"));
        } else {
            assert!(ALLOW.name(&asked.name).is_some(), "an address for a name that is not allowed");
            assert_eq!(pool.name_of((*v4).into()), Some(asked.name.as_str()));
            assert_eq!(pool.name_of((*v6).into()), Some(asked.name.as_str()));
        }
    }
}
