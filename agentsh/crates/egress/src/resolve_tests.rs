#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hickory_proto::op::{Message, Metadata, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA};
use hickory_proto::rr::{RData, Record};
use hickory_resolver::config::{ConnectionConfig, NameServerConfig};
use tokio::net::UdpSocket;

use super::*;

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn blocks(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}

#[test]
fn only_public_addresses_are_left_and_the_families_take_turns() {
    let found = addresses(&["1.1.1.1", "1.0.0.1", "10.0.0.1", "2606:4700::1", "::1", "1.1.1.1"]);
    assert_eq!(permitted_addresses(found, &[]).unwrap(), addresses(&["2606:4700::1", "1.1.1.1", "1.0.0.1"]));
}

#[test]
fn private_address_needs_a_block_of_the_policy() {
    let found = addresses(&["169.254.169.254", "10.1.2.3"]);
    let why = permitted_addresses(found.clone(), &blocks(&["192.168.0.0/16"])).unwrap_err();
    assert!(
        why.to_string().starts_with("the name resolves to 169.254.169.254, which is not public (cloud"),
        "{why}"
    );
    assert_eq!(permitted_addresses(found, &blocks(&["10.0.0.0/8"])).unwrap(), addresses(&["10.1.2.3"]));
    assert!(permitted_addresses(addresses(&["::ffff:10.1.2.3"]), &[]).is_err());
    assert_eq!(
        permitted_addresses(addresses(&["::ffff:10.1.2.3"]), &blocks(&["10.0.0.0/8"])).unwrap(),
        addresses(&["10.1.2.3"])
    );
    assert_eq!(permitted_addresses(Vec::new(), &[]).unwrap_err(), ResolveError::NotFound);
}

#[test]
fn the_hosts_file_is_asked_first_and_read_again() {
    let place = tempfile::tempdir().unwrap();
    let hosts = place.path().join("hosts");
    std::fs::write(&hosts, "9.9.9.9 Pinned.test\n2620:fe::fe pinned.test\n10.0.0.9 inner.test\n").unwrap();
    let resolver = Resolver::of_files(&hosts, &place.path().join("none"));
    run(async {
        let found = resolver.resolve("pinned.test", &[]).await.unwrap();
        assert_eq!(found, addresses(&["2620:fe::fe", "9.9.9.9"]));
        assert!(matches!(resolver.resolve("inner.test", &[]).await, Err(ResolveError::NotPublic { .. })));
        assert!(resolver.resolve("inner.test", &blocks(&["10.0.0.0/8"])).await.is_ok());
        std::fs::write(&hosts, "9.9.9.10 pinned.test\n").unwrap();
        assert_eq!(resolver.resolve("pinned.test", &[]).await.unwrap(), addresses(&["9.9.9.10"]));
    });
}

/// Answers A and AAAA of `name.test.` with one record each, anything else with NXDOMAIN, and counts the questions.
async fn name_server(ttl: u32, v4: &'static str, v6: &'static str) -> (SocketAddr, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (socket.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut buffer = [0; 1500];
        loop {
            let (length, peer) = socket.recv_from(&mut buffer).await.unwrap();
            counter.fetch_add(1, Ordering::Relaxed);
            let query = Message::from_vec(&buffer[..length]).unwrap();
            let question = query.queries[0].clone();
            let mut response = Message::response(query.metadata.id, query.metadata.op_code);
            response.metadata = Metadata::response_from_request(&query.metadata);
            let data = match question.query_type() {
                RecordType::A => RData::A(A(v4.parse().unwrap())),
                _ => RData::AAAA(AAAA(v6.parse().unwrap())),
            };
            if question.name().to_ascii().eq_ignore_ascii_case("name.test.") {
                response.add_answer(Record::from_rdata(question.name().clone(), ttl, data));
            } else {
                response.metadata.response_code = ResponseCode::NXDomain;
            }
            response.add_query(question);
            socket.send_to(&response.to_vec().unwrap(), peer).await.unwrap();
        }
    });
    (address, asked)
}

/// A resolver with that one server, and a search domain that must not be used.
fn resolver_with(server: SocketAddr) -> Resolver {
    let nowhere = Path::new("/nonexistent");
    let resolver = Resolver::of_files(nowhere, nowhere);
    let mut connection = ConnectionConfig::udp();
    connection.port = server.port();
    let search = vec![Name::from_ascii("test.").unwrap()];
    let servers = vec![NameServerConfig::new(server.ip(), true, vec![connection])];
    let config = ResolverConfig::from_parts(None, search, servers);
    *resolver.servers.lock().unwrap() = Some((None, built(config, ResolverOpts::default()).unwrap()));
    resolver
}

#[test]
fn a_server_is_asked_once_per_time_to_live() {
    run(async {
        let (server, asked) = name_server(60, "9.9.9.9", "2620:fe::9").await;
        let resolver = resolver_with(server);
        for _ in 0..3 {
            let found = resolver.resolve("name.test", &[]).await.unwrap();
            assert_eq!(found, addresses(&["2620:fe::9", "9.9.9.9"]));
        }
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        // With the search domain this would be name.test.
        assert_eq!(resolver.resolve("name", &[]).await, Err(ResolveError::NotFound));
        assert_eq!(resolver.resolve("other.test", &[]).await, Err(ResolveError::NotFound));
        assert!(resolver.resolve("a b", &[]).await.is_err());
    });
    run(async {
        let (server, asked) = name_server(0, "9.9.9.9", "2620:fe::9").await;
        let resolver = resolver_with(server);
        for _ in 0..2 {
            resolver.resolve("name.test", &[]).await.unwrap();
        }
        assert_eq!(asked.load(Ordering::Relaxed), 4);
    });
}

#[test]
fn name_that_resolves_to_an_internal_address_is_refused() {
    run(async {
        let (server, _) = name_server(60, "127.0.0.1", "::1").await;
        let error = resolver_with(server).resolve("name.test", &[]).await.unwrap_err();
        assert!(matches!(error, ResolveError::NotPublic { why: "loopback, RFC 4291", .. }), "{error}");
    });
}
