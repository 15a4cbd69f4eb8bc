#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};
use proptest::prelude::*;

use super::*;
use crate::allow::Allowlist;
use crate::fake_ip_pool::{FakeIpPool, MAX_WILDCARD_NAMES};

fn allowlist(rules: &str) -> Allowlist {
    let policy = crate::policy::parse("p.yaml", &format!("agent: {{network: {{allow: [{rules}]}}}}"))
        .unwrap_or_else(|error| panic!("{}", error.render()));
    Allowlist::new(&policy.agent.network)
}

fn ours() -> Allowlist {
    allowlist("api.example.com, \"*.one.test\", \"**.deep.test:8443\", 10.0.0.0/8")
}

fn message(name: &str, rtype: RecordType) -> Message {
    let mut message = Message::new(0xbeef, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    let mut name = Name::from_ascii(name).unwrap();
    name.set_fqdn(true);
    message.add_query(Query::query(name, rtype));
    message
}

fn ask(name: &str, rtype: RecordType) -> (Message, Answer) {
    let mut pool = FakeIpPool::new(&ours());
    let answered = answer(&message(name, rtype).to_vec().unwrap(), Transport::Udp, &ours(), &mut pool);
    (Message::from_vec(answered.response.as_ref().unwrap()).unwrap(), answered)
}

fn reason(answered: &Answer) -> &'static str {
    match &answered.outcome {
        Outcome::Refused { reason, .. } => reason.code(),
        Outcome::Answered(..) => "answered",
        Outcome::Empty => "empty",
        Outcome::Malformed(why) => why.code(),
    }
}

#[test]
fn allowed_name_gets_an_ipv4_and_an_ipv6_address() {
    let (response, answered) = ask("api.example.com", RecordType::A);
    assert_eq!(response.metadata.id, 0xbeef);
    assert!(response.metadata.recursion_available && response.metadata.recursion_desired);
    let RData::A(v4) = response.answers[0].data else { panic!("{response}") };
    let (response, _) = ask("api.example.com", RecordType::AAAA);
    let RData::AAAA(v6) = response.answers[0].data else { panic!("{response}") };
    assert_eq!(answered.outcome, Outcome::Answered(v4.0, v6.0));
    assert!(FakeIpPool::contains(v4.0.into()) && FakeIpPool::contains(v6.0.into()));
    assert_eq!(answered.asked.unwrap().name, "api.example.com");
    assert_eq!(response.answers[0].ttl, TTL);
}

#[test]
fn names_outside_the_allow_list_do_not_exist() {
    for name in [
        "evil.test",
        "example.com",
        "xapi.example.com",
        "api.example.com.evil.test",
        "api.example.com.corp.internal",
        "api",
        "one.test",
        "a.b.one.test",
        "deep.test",
        "10.0.0.1",
        "1.0.0.10.in-addr.arpa",
        "com",
    ] {
        for rtype in [RecordType::A, RecordType::AAAA, RecordType::TXT, RecordType::HTTPS, RecordType::PTR] {
            let (response, answered) = ask(name, rtype);
            assert_eq!(response.metadata.response_code, ResponseCode::NXDomain, "{name}");
            assert!(response.answers.is_empty());
            assert!(matches!(answered.outcome, Outcome::Refused { .. }), "{name} {answered:?}");
        }
    }
    assert_eq!(reason(&ask("evil.test", RecordType::A).1), "name-not-allowed");
}

#[test]
fn dns_names_match_wildcards_and_ignore_case() {
    for (name, expected) in [("A.oNe.TEST", "answered"), ("a.b.deep.test", "answered")] {
        let (response, answered) = ask(name, RecordType::A);
        assert_eq!(reason(&answered), expected);
        let echoed = &response.queries[0].name;
        assert!(echoed.eq_case(&Name::from_ascii(format!("{name}.")).unwrap()), "{echoed}");
        assert_eq!(answered.asked.unwrap().name, name.to_ascii_lowercase());
    }
}

#[test]
fn other_record_types_have_empty_answers() {
    for rtype in [
        RecordType::HTTPS,
        RecordType::SVCB,
        RecordType::ANY,
        RecordType::TXT,
        RecordType::MX,
        RecordType::SRV,
        RecordType::PTR,
        RecordType::CNAME,
        RecordType::NS,
        RecordType::SOA,
        RecordType::AXFR,
        RecordType::Unknown(65_280),
    ] {
        let (response, answered) = ask("api.example.com", rtype);
        assert_eq!((response.metadata.response_code, response.answers.len()), (ResponseCode::NoError, 0));
        assert_eq!(answered.outcome, Outcome::Empty, "{rtype}");
    }
}

#[test]
fn service_names_are_judged_by_their_host() {
    let (response, answered) = ask("_http._tcp.api.example.com", RecordType::SRV);
    assert_eq!((response.metadata.response_code, answered.outcome), (ResponseCode::NoError, Outcome::Empty));
    let (_, refused) = ask("_http._tcp.evil.test", RecordType::SRV);
    assert_eq!((reason(&refused), refused.asked.unwrap().name.as_str()), ("name-not-allowed", "evil.test"));
    let (_, refused) = ask("_x.api.example.com", RecordType::A);
    assert_eq!(
        (reason(&refused), refused.asked.unwrap().name.as_str()),
        ("name-not-allowed", "_x.api.example.com")
    );
}

#[test]
fn localhost_resolves_to_loopback() {
    for name in ["localhost", "LocalHost", "app.localhost"] {
        let (response, _) = ask(name, RecordType::A);
        assert_eq!(response.answers[0].data, RData::A(A(Ipv4Addr::LOCALHOST)));
        let (response, _) = ask(name, RecordType::AAAA);
        assert_eq!(response.answers[0].data, RData::AAAA(AAAA(Ipv6Addr::LOCALHOST)));
    }
    assert_eq!(reason(&ask("localhost.evil.test", RecordType::A).1), "name-not-allowed");
    assert_eq!(reason(&ask("notlocalhost", RecordType::A).1), "name-not-allowed");
}

#[test]
fn addresses_of_the_pool_have_their_name() {
    let allow = ours();
    let mut pool = FakeIpPool::new(&allow);
    let (v4, v6) = pool.address_of("api.example.com").unwrap();
    let nibbles: Vec<String> =
        v6.octets().iter().rev().flat_map(|o| [o & 15, o >> 4]).map(|n| format!("{n:x}")).collect();
    let octets: Vec<String> = v4.octets().iter().rev().map(u8::to_string).collect();
    for name in [format!("{}.in-addr.arpa", octets.join(".")), format!("{}.ip6.arpa", nibbles.join("."))] {
        let query = message(&name, RecordType::PTR).to_vec().unwrap();
        let response = answer(&query, Transport::Udp, &allow, &mut pool).response.unwrap();
        let response = Message::from_vec(&response).unwrap();
        assert_eq!(response.answers[0].data.to_string(), "api.example.com.");
    }
    let query = message("19.198.in-addr.arpa", RecordType::PTR).to_vec().unwrap();
    assert_eq!(reason(&answer(&query, Transport::Udp, &allow, &mut pool)), "name-not-allowed");
}

#[test]
fn names_that_are_no_host_names_are_refused() {
    for labels in [
        &[b"a\0b".as_slice(), b"one", b"test"],
        &[b"a.b", b"one", b"test"],
        &[b"a b", b"one", b"test"],
        &[b"\xffa", b"one", b"test"],
        &[b"*", b"one", b"test"],
        &[b"a\"", b"one", b"test"],
    ] {
        let mut query = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in labels {
            query.push(u8::try_from(label.len()).unwrap());
            query.extend_from_slice(label);
        }
        query.extend_from_slice(&[0, 0, 1, 0, 1]);
        let answered = answer(&query, Transport::Udp, &ours(), &mut FakeIpPool::default());
        assert_eq!(reason(&answered), "name-not-valid", "{answered:?}");
        let response = answered.response.unwrap();
        // The question comes back byte for byte.
        assert_eq!(&response[12..], &query[12..]);
        assert_eq!(response[3] & 0x0f, 3);
        assert!(answered.asked.unwrap().name.bytes().all(|byte| (0x21..0x7f).contains(&byte)));
    }
    let (_, root) = ask(".", RecordType::NS);
    assert_eq!((reason(&root), root.asked.unwrap().name.as_str()), ("name-not-valid", "."));
}

#[test]
fn malformed_dns_query_is_refused_with_its_code() {
    let plain = message("api.example.com", RecordType::A).to_vec().unwrap();
    let edit = |at: usize, value: u8| {
        let mut bytes = plain.clone();
        bytes[at] = value;
        bytes
    };
    let code = |bytes: &[u8]| {
        let answered = answer(bytes, Transport::Udp, &ours(), &mut FakeIpPool::default());
        (answered.response.map(|response| response[3] & 0x0f), reason_of(&answered.outcome))
    };
    fn reason_of(outcome: &Outcome) -> &'static str {
        match outcome {
            Outcome::Malformed(why) => why.code(),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(code(&[]), (None, "too-short"));
    assert_eq!(code(&plain[..11]), (None, "too-short"));
    assert_eq!(code(&edit(2, 0x81)), (None, "not-a-query"));
    for op_code in [1, 2, 4, 5, 6, 9, 15] {
        assert_eq!(code(&edit(2, op_code << 3)), (Some(4), "operation-not-known"));
    }
    assert_eq!(code(&edit(5, 0)), (Some(1), "not-one-question"));
    assert_eq!(code(&edit(5, 2)), (Some(1), "not-one-question"));
    assert_eq!(code(&edit(4, 1)), (Some(1), "not-one-question"));
    assert_eq!(code(&plain[..14]), (Some(1), "not-readable"));
    assert_eq!(code(&plain[..plain.len() - 1]), (Some(1), "not-readable"));
    // A pointer to itself.
    let mut looping = plain[..12].to_vec();
    looping.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1]);
    assert_eq!(code(&looping), (Some(1), "not-readable"));
    let mut long = plain.clone();
    long.resize(MAX_QUERY + 1, 0);
    assert_eq!(code(&long), (Some(1), "too-long"));
}

#[test]
fn dns_classes_and_edns_options_are_handled() {
    let mut chaos = message("version.bind", RecordType::TXT);
    chaos.queries[0].set_query_class(DNSClass::CH);
    let answered = answer(&chaos.to_vec().unwrap(), Transport::Udp, &ours(), &mut FakeIpPool::default());
    assert_eq!(reason(&answered), "class-not-allowed");
    let response = Message::from_vec(&answered.response.unwrap()).unwrap();
    assert_eq!(response.metadata.response_code, ResponseCode::Refused);

    let with_edns = |version: u8, payload: u16| {
        let mut query = message("api.example.com", RecordType::A);
        let mut edns = Edns::new();
        edns.set_version(version).set_max_payload(payload).set_dnssec_ok(true);
        query.set_edns(edns);
        let answered = answer(&query.to_vec().unwrap(), Transport::Udp, &ours(), &mut FakeIpPool::default());
        Message::from_vec(&answered.response.unwrap()).unwrap()
    };
    let response = with_edns(0, 4096);
    let edns = response.edns.as_ref().unwrap();
    assert_eq!((edns.version(), edns.max_payload(), response.answers.len()), (0, 1232, 1));
    assert_eq!(with_edns(0, 1).answers.len(), 1);
    let response = with_edns(1, 4096);
    // BADVERS: one of the two names of code 16.
    assert_eq!(u16::from(response.metadata.response_code), 16);
    assert!(response.answers.is_empty());
    let (response, _) = ask("api.example.com", RecordType::A);
    assert!(response.edns.is_none());
}

#[test]
fn flood_of_wildcard_names_is_limited_and_exact_names_still_resolve() {
    let allow = ours();
    let mut pool = FakeIpPool::new(&allow);
    for number in 0..MAX_WILDCARD_NAMES {
        assert!(pool.address_of(&format!("n{number}.one.test")).is_some());
    }
    let query = message("one-more.one.test", RecordType::A).to_vec().unwrap();
    let answered = answer(&query, Transport::Udp, &allow, &mut pool);
    assert_eq!(reason(&answered), "name-pool-full");
    let query = message("api.example.com", RecordType::A).to_vec().unwrap();
    assert_eq!(reason(&answer(&query, Transport::Udp, &allow, &mut pool)), "answered");
    assert_eq!(pool.address_of("n17.one.test"), pool.address_of("n17.one.test"));
}

#[test]
fn address_pair_belongs_to_one_name() {
    let mut pool = FakeIpPool::new(&ours());
    let (first, first6) = pool.address_of("api.example.com").unwrap();
    let (second, _) = pool.address_of("a.one.test").unwrap();
    assert_ne!(first, second);
    assert_eq!(pool.name_of(IpAddr::V4(first)), Some("api.example.com"));
    assert_eq!(pool.name_of(IpAddr::V6(first6)), Some("api.example.com"));
    assert_eq!(pool.name_of(IpAddr::V6(second.to_ipv6_mapped())), Some("a.one.test"));
    for nobody in ["198.19.0.0", "198.19.0.99", "198.18.255.255", "198.20.0.1", "::", "fd61:6773:6800::ffff"]
    {
        assert_eq!(pool.name_of(nobody.parse().unwrap()), None, "{nobody}");
    }
}

proptest! {
    #[test]
    fn dns_answers_any_bytes_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        check(&bytes);
    }

    #[test]
    fn dns_answers_any_question_without_a_panic(head in any::<[u8; 12]>(), mut tail in proptest::collection::vec(any::<u8>(), 0..60)) {
        let mut bytes = head.to_vec();
        bytes[2] &= 0x07;
        bytes[4..6].copy_from_slice(&[0, 1]);
        bytes[6..12].fill(0);
        bytes.append(&mut tail);
        check(&bytes);
    }

    #[test]
    fn dns_answers_a_mutated_question_without_a_panic(at in 0usize..40, value in any::<u8>()) {
        let mut bytes = message("api.example.com", RecordType::A).to_vec().unwrap();
        let at = at % bytes.len();
        bytes[at] = value;
        check(&bytes);
    }
}

/// Properties of every answer.
fn check(bytes: &[u8]) {
    let allow = ours();
    let mut pool = FakeIpPool::new(&allow);
    let answered = answer(bytes, Transport::Udp, &allow, &mut pool);
    let Some(response) = &answered.response else { return };
    assert!(response.len() <= 1232);
    assert_eq!(response[..2], bytes[..2]);
    assert_ne!(response[2] & 0x80, 0);
    let message = Message::from_vec(response).unwrap();
    if !message.answers.is_empty() {
        let asked = answered.asked.unwrap();
        assert!(
            allow.name(&asked.name).is_some()
                || asked.name.ends_with("localhost")
                || asked.rtype == RecordType::PTR
        );
    }
}
