#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

use std::sync::Arc;

use proptest::prelude::*;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::*;

/// A hello as a real client writes it.
fn real(name: &str, tls12_only: bool, alpn: &[&str]) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions: &[_] = if tls12_only {
        &[&rustls::version::TLS12]
    } else {
        &[&rustls::version::TLS13, &rustls::version::TLS12]
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let mut connection =
        ClientConnection::new(Arc::new(config), name.to_owned().try_into().unwrap()).unwrap();
    let mut bytes = Vec::new();
    while connection.wants_write() {
        connection.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// The same handshake message, cut into records of `size` bytes.
fn in_records(hello: &[u8], size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in hello[RECORD_HEADER..].chunks(size) {
        bytes.extend_from_slice(&[22, 3, 1]);
        bytes.extend_from_slice(&u16::try_from(piece.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(piece);
    }
    bytes
}

fn block(width: usize, content: &[u8]) -> Vec<u8> {
    let mut bytes = content.len().to_be_bytes()[8 - width..].to_vec();
    bytes.extend_from_slice(content);
    bytes
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [kind.to_be_bytes().to_vec(), block(2, content)].concat()
}

fn host_name(name: &[u8]) -> Vec<u8> {
    extension(SERVER_NAME, &block(2, &[vec![0], block(2, name)].concat()))
}

/// A whole record around these extensions.
fn made(extensions: &[u8]) -> Vec<u8> {
    let body = [
        vec![3, 3],
        vec![7; 32],
        block(1, &[9; 32]),
        block(2, &[0x13, 1, 0x13, 2]),
        block(1, &[0]),
        block(2, extensions),
    ]
    .concat();
    let message = [vec![CLIENT_HELLO], block(3, &body)].concat();
    [vec![22, 3, 1], block(2, &message)].concat()
}

fn name_of(hello: &Hello) -> &str {
    match hello {
        Hello::Name { name, .. } => name,
        other => panic!("{other:?}"),
    }
}

#[test]
fn server_name_of_real_hellos_is_read() {
    for tls12_only in [false, true] {
        let bytes = real("API.Example.com", tls12_only, &["h2", "http/1.1"]);
        let Hello::Name { name, ech, alpn } = read(&bytes) else { panic!("{:?}", read(&bytes)) };
        assert_eq!((name.as_str(), ech), ("api.example.com", false));
        assert_eq!(alpn, [b"h2".to_vec(), b"http/1.1".to_vec()]);
        // What follows the hello does not matter: early data of TLS 1.3.
        let more = [bytes.clone(), vec![23, 3, 3, 0, 1, 0]].concat();
        assert_eq!(read(&more), read(&bytes));
    }
    assert_eq!(read(&real("127.0.0.1", false, &[])), Hello::NoName { ech: false });
}

#[test]
fn prefix_of_a_hello_needs_more_bytes() {
    let bytes = in_records(&real("a.example.com", false, &["h2"]), 50);
    for end in 0..bytes.len() {
        assert_eq!(read(&bytes[..end]), Hello::NeedMore, "{end}");
    }
    let mut reader = Reader::default();
    for byte in &bytes[..bytes.len() - 1] {
        assert_eq!(reader.feed(&[*byte]), Hello::NeedMore);
    }
    let done = reader.feed(&bytes[bytes.len() - 1..]);
    assert_eq!(name_of(&done), "a.example.com");
    assert_eq!(reader.feed(b"whatever"), done);
}

#[test]
fn hello_in_records_of_any_size_is_read() {
    let bytes = real("a.example.com", true, &[]);
    for size in [1, 2, 3, 4, 5, 7, 64, 200] {
        assert_eq!(name_of(&read(&in_records(&bytes, size))), "a.example.com", "{size}");
    }
}

#[test]
fn bytes_of_other_protocols_are_not_tls() {
    for bytes in [
        b"GET / HTTP/1.1\r\n".as_slice(),
        b"SSH-2.0-x",
        b"\x16\x02",
        b"\x80\x2e\x01\x03\x01",
        b"\0",
        b"\x17\x03",
    ] {
        assert_eq!(read(bytes), Hello::NotTls, "{bytes:?}");
    }
}

#[test]
fn malformed_hellos_are_refused() {
    let good = made(&host_name(b"a.example.com"));
    assert_eq!(name_of(&read(&good)), "a.example.com");
    let edit = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    let list = |content: Vec<u8>| made(&extension(SERVER_NAME, &block(2, &content)));
    let entry = |kind: u8, name: &[u8]| [vec![kind], block(2, name)].concat();
    for (bytes, why) in [
        (edit(2, 9), "version-not-known"),
        (edit(3, 0xff), "record-length"),
        (vec![22, 3, 1, 0, 0], "record-length"),
        (edit(5, 2), "not-a-hello"),
        (edit(6, 1), "hello-too-long"),
        (edit(9, 2), "version-not-known"),
        // A session id of 255 bytes.
        (edit(43, 255), "hello-lengths"),
        // An odd number of bytes of cipher suites.
        (edit(77, 3), "hello-lengths"),
        (made(&[host_name(b"a.example.com"), host_name(b"b.example.com")].concat()), "extension-twice"),
        (made(&[extension(5, b""), extension(5, b"")].concat()), "extension-twice"),
        (list([entry(0, b"a.example.com"), entry(0, b"evil.test")].concat()), "several-names"),
        (list([entry(1, b"a.example.com")].concat()), "several-names"),
        (list(Vec::new()), "hello-lengths"),
        (made(&extension(SERVER_NAME, &[block(2, &entry(0, b"a.test")), vec![0]].concat())), "hello-lengths"),
        (made(&extension(SERVER_NAME, b"")), "hello-lengths"),
        (made(&host_name(b"")), "name-not-valid"),
        (made(&host_name(b"a.example.com.")), "name-not-valid"),
        (made(&host_name(b"a..example.com")), "name-not-valid"),
        (made(&host_name(b"a.example.com\0.evil.test")), "name-not-valid"),
        (made(&host_name(b"a.example.com:443")), "name-not-valid"),
        (made(&host_name("ä.example.com".as_bytes())), "name-not-valid"),
        (made(&host_name(&b"a.".repeat(130))), "name-not-valid"),
        (made(&host_name(&[b'a'; 64])), "name-not-valid"),
        (made(&host_name(b"10.0.0.1")), "name-is-an-address"),
        (made(&host_name(b"::1")), "name-not-valid"),
        (made(&extension(ALPN, b"\0\0")), "hello-lengths"),
        (made(&extension(ALPN, &block(2, b"\0"))), "hello-lengths"),
        (made(&[host_name(b"a.test"), vec![0]].concat()), "hello-lengths"),
        (
            made(&(1..400u16).flat_map(|kind| extension(kind + 100, b"")).collect::<Vec<u8>>()),
            "too-many-extensions",
        ),
    ] {
        assert!(matches!(read(&bytes), Hello::Bad(reason) if reason.code() == why), "{bytes:?}");
    }
}

#[test]
fn second_message_in_the_record_of_a_hello_is_refused() {
    let good = made(&host_name(b"a.example.com"));
    let message = &good[RECORD_HEADER..];
    let both = [vec![22, 3, 1], block(2, &[message, message].concat())].concat();
    assert_eq!(read(&both), Hello::Bad(Reason::HelloFollowed));
    // The same before all of the record has come.
    assert_eq!(read(&both[..good.len()]), Hello::Bad(Reason::HelloFollowed));
    // Another kind of record in the middle.
    let cut = [vec![22, 3, 1], block(2, &message[..20]), vec![21, 3, 1, 0, 2, 1, 0]].concat();
    assert_eq!(read(&cut), Hello::Bad(Reason::HelloInterrupted));
}

#[test]
fn encrypted_client_hello_is_detected() {
    for kind in [ENCRYPTED_CLIENT_HELLO, ENCRYPTED_SERVER_NAME] {
        let bytes = made(&[host_name(b"front.example.com"), extension(kind, &[0; 40])].concat());
        assert!(matches!(read(&bytes), Hello::Name { ech: true, .. }));
        assert_eq!(read(&made(&extension(kind, &[0; 40]))), Hello::NoName { ech: true });
    }
}

#[test]
fn long_hellos_are_read_up_to_a_limit() {
    let long = made(&[extension(21, &vec![0; 15_000]), host_name(b"a.example.com")].concat());
    assert_eq!(name_of(&read(&in_records(&long, 1000))), "a.example.com");
    // Records of one byte: six bytes on the wire for each one of the hello.
    assert_eq!(read(&in_records(&long, 1)), Hello::Bad(Reason::HelloTooLong));
    let endless = [vec![22, 3, 1], block(2, &[vec![1, 0, 0xff, 0xf0], vec![3; 16_000]].concat())].concat();
    let mut reader = Reader::default();
    let mut fed = 0;
    while reader.feed(&endless[if fed == 0 { 0 } else { 5 }..]) == Hello::NeedMore {
        fed += endless.len();
        assert!(fed <= MAX_HELLO + endless.len());
    }
    assert!(reader.message.len() <= MAX_HELLO);
}

proptest! {
    #[test]
    fn hello_is_read_equally_for_any_split(
        cuts in proptest::collection::vec(1usize..40, 0..40), size in 1usize..300, ech in any::<bool>(),
    ) {
        let mut extensions = host_name(b"split.example.com");
        if ech {
            extensions.extend(extension(ENCRYPTED_CLIENT_HELLO, &[1; 9]));
        }
        let bytes = in_records(&made(&extensions), size);
        let mut reader = Reader::default();
        let mut rest = bytes.as_slice();
        for cut in cuts {
            let (now, later) = rest.split_at(cut.min(rest.len()));
            reader.feed(now);
            rest = later;
        }
        prop_assert_eq!(reader.feed(rest), read(&bytes));
    }

    #[test]
    fn hello_reader_takes_any_bytes_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 0usize..300) {
        check(&bytes, cut);
        check(&[vec![22, 3, 1], block(2, &bytes)].concat(), cut);
        check(&[vec![22, 3, 1], block(2, &[vec![1], block(3, &bytes)].concat())].concat(), cut);
        check(&made(&bytes), cut);
    }

    #[test]
    fn mutated_hello_is_read_without_a_panic(at in 0usize..200, value in any::<u8>(), cut in 0usize..200) {
        let mut bytes = made(&[host_name(b"a.example.com"), extension(ALPN, &block(2, b"\x02h2"))].concat());
        let at = at % bytes.len();
        bytes[at] = value;
        check(&bytes, cut);
    }
}

fn check(bytes: &[u8], cut: usize) {
    let mut reader = Reader::default();
    let (first, second) = bytes.split_at(cut.min(bytes.len()));
    let early = reader.feed(first);
    let late = reader.feed(second);
    assert!(early == Hello::NeedMore || early == late);
    assert_eq!(late, read(bytes));
}
