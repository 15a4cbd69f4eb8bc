#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

use proptest::prelude::*;

use super::*;
use crate::types::RuleRef;

const NAME: &str = "api.example.com";

/// Bytes that were released, and the code of the refusal.
fn run(reader: &mut Reader, bytes: &[u8]) -> (usize, Option<&'static str>) {
    match reader.feed(bytes) {
        Ok(verdict) => (verdict.forward, reader.refusal().map(|refusal| refusal.reason.code())),
        Err(refusal) => (0, Some(refusal.reason.code())),
    }
}

fn all(bytes: &[u8]) -> (usize, Option<&'static str>) {
    run(&mut Reader::new(NAME, 80), bytes)
}

fn passes(text: &str) {
    assert_eq!(all(text.as_bytes()), (text.len(), None), "{text:?}");
}

fn refused(text: &str, code: &str) {
    assert_eq!(all(text.as_bytes()), (0, Some(code)), "{text:?}");
}

fn get(extra: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: api.example.com\r\n{extra}\r\n")
}

#[test]
fn ordinary_http_requests_are_allowed() {
    passes(&get(""));
    passes(&get("").repeat(3));
    passes("GET /a?b=http://evil.test HTTP/1.0\r\nhost:API.Example.Com:80\r\n\r\n");
    passes("GET http://api.example.com HTTP/1.1\r\nHost: api.example.com\r\n\r\n");
    passes("GET HTTP://API.example.com:80/x HTTP/1.1\r\nHost: api.example.com\r\n\r\n");
    passes("OPTIONS * HTTP/1.1\r\nHost: api.example.com\r\n\r\n");
    passes(&get("Content-Length: 0\r\nX-Odd: \u{e4}\t;\r\nEmpty:\r\n"));
    passes(&format!(
        "POST / HTTP/1.1\r\nHost:\tapi.example.com \r\nContent-Length: 5\r\n\r\nhello{}",
        get("")
    ));
    let chunked = "Transfer-Encoding: Chunked\r\n";
    passes(&format!("{}5\r\nhello\r\n0a\r\n0123456789\r\n0\r\n\r\n{}", get(chunked), get("")));
    // A body may look like anything.
    passes(&format!("{}GET / HTTP/1.1\r\nHost: e\r\n\r\n", get("Content-Length: 27\r\n")));
}

#[test]
fn offer_of_http2_without_tls_is_taken_out() {
    for (connection, left) in [("Upgrade, HTTP2-Settings", ""), ("close, upgrade", "Connection: close\r\n")] {
        let text =
            get(&format!("Connection: {connection}\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\nA: b\r\n"));
        let mut reader = Reader::new(NAME, 80);
        let edits = reader.feed(text.as_bytes()).unwrap().puts;
        let mut written = text.clone();
        for edit in edits.iter().rev() {
            let value = std::str::from_utf8(&edit.value).unwrap();
            written.replace_range(edit.at..edit.at + edit.length, value);
        }
        assert_eq!(written, get(&format!("{left}A: b\r\n")));
    }
}

#[test]
fn a_head_is_held_until_it_is_judged() {
    let text = get("A: b\r\n");
    let mut reader = Reader::new(NAME, 80);
    for byte in &text.as_bytes()[..text.len() - 1] {
        assert_eq!(run(&mut reader, &[*byte]), (0, None));
    }
    let verdict = reader.feed(b"\n").unwrap();
    assert_eq!(verdict.forward, text.len());
    assert_eq!(verdict.requests, [Request { method: "GET".to_owned(), path: "/".to_owned() }]);
}

#[test]
fn every_request_of_a_connection_is_judged() {
    let good = get("");
    let evil = good.replace("api.example.com", "evil.test");
    let mut reader = Reader::new(NAME, 80);
    assert_eq!(run(&mut reader, good.as_bytes()), (good.len(), None));
    assert_eq!(run(&mut reader, evil.as_bytes()), (0, Some("host-mismatch")));
    assert_eq!(run(&mut reader, good.as_bytes()), (0, Some("host-mismatch")));
    // In one piece: the first one is released, nothing of the second is.
    assert_eq!(all(format!("{good}{evil}{good}").as_bytes()), (good.len(), Some("host-mismatch")));
    let post = "POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 3\r\n\r\nabc";
    assert_eq!(all(format!("{post}{evil}").as_bytes()), (post.len(), Some("host-mismatch")));
    let chunked = format!("{}3\r\nabc\r\n0\r\n\r\n", get("Transfer-Encoding: chunked\r\n"));
    assert_eq!(all(format!("{chunked}{evil}").as_bytes()), (chunked.len(), Some("host-mismatch")));
}

#[test]
fn http_host_header_must_match_the_name() {
    let with = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    for host in [
        "evil.test",
        "",
        "api.example.com:81",
        "api.example.com:",
        "api.example.com:+80",
        "api.example.com:80:80",
        "x@api.example.com",
        "api.example.com evil.test",
        "api.example.com, evil.test",
        "api.example.com/",
        "[api.example.com]",
        "xapi.example.com",
        "\u{ff41}pi.example.com",
        "127.0.0.1",
    ] {
        refused(&with(host), "host-mismatch");
    }
    refused("GET / HTTP/1.1\r\n\r\n", "host-missing");
    refused("GET / HTTP/1.0\r\nX: y\r\n\r\n", "host-missing");
    refused(&get("Host: api.example.com\r\n"), "host-twice");
    refused(&get("hOST: evil.test\r\n"), "host-twice");
    let mut reader = Reader::new(NAME, 8080);
    assert_eq!(run(&mut reader, with("api.example.com:8080").as_bytes()).1, None);
    assert_eq!(run(&mut reader, with("api.example.com:80").as_bytes()).1, Some("host-mismatch"));
    // As curl writes the root of names.
    let mut reader = Reader::new(NAME, 80);
    assert_eq!(run(&mut reader, with("api.example.com.").as_bytes()).1, None);
    for (name, host, expected) in [
        ("10.0.0.1", "10.0.0.1:80", None),
        ("10.0.0.1", "10.0.0.2", Some("host-mismatch")),
        ("10.0.0.1", "10.1", Some("host-mismatch")),
        ("fd00::1", "[fd00::1]:80", None),
        ("fd00::1", "[FD00:0::1]", None),
        ("fd00::1", "fd00::1", Some("host-mismatch")),
        ("fd00::1", "[fd00::1]x", Some("host-mismatch")),
        ("fd00::1", "[fd00::1", Some("host-mismatch")),
    ] {
        assert_eq!(run(&mut Reader::new(name, 80), with(host).as_bytes()).1, expected, "{name} {host}");
    }
}

#[test]
fn http_request_target_must_match_the_name() {
    let with = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: api.example.com\r\n\r\n");
    refused(&with("http://evil.test/"), "target-mismatch");
    refused(&with("http://api.example.com@evil.test/"), "target-mismatch");
    refused(&with("http://evil.test?@api.example.com/"), "target-mismatch");
    refused(&with("https://api.example.com/"), "target-not-valid");
    refused(&with("api.example.com:80"), "target-not-valid");
    refused(&with("*"), "target-not-valid");
    refused(&with("/#x"), "target-not-valid");
    refused(&with("http://api.example.com?x"), "target-not-valid");
    refused(&with("/a b"), "request-line-not-valid");
    refused(&with("/\u{e4}"), "request-line-not-valid");
    refused("CONNECT evil.test:443 HTTP/1.1\r\nHost: api.example.com\r\n\r\n", "connect-not-allowed");
    refused("GET  / HTTP/1.1\r\n\r\n", "request-line-not-valid");
    refused("GET / HTTP/1.1 \r\n\r\n", "request-line-not-valid");
    refused("GET /\r\n\r\n", "request-line-not-valid");
    refused("GET / HTTP/1.2\r\nHost: api.example.com\r\n\r\n", "http-version-not-known");
    refused("GET / http/1.1\r\nHost: api.example.com\r\n\r\n", "http-version-not-known");
    refused("GET\t/\tHTTP/1.1\r\n\r\n", "not-http");
}

#[test]
fn request_that_servers_read_differently_is_refused() {
    for (extra, code) in [
        ("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "length-and-chunked"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", "length-and-chunked"),
        ("Content-Length: 3\r\nContent-Length: 3\r\n", "content-length-twice"),
        ("Content-Length: 3, 3\r\n", "content-length-not-valid"),
        ("Content-Length: +3\r\n", "content-length-not-valid"),
        ("Content-Length: -1\r\n", "content-length-not-valid"),
        ("Content-Length: 0x3\r\n", "content-length-not-valid"),
        ("Content-Length: 3 3\r\n", "content-length-not-valid"),
        ("Content-Length:\r\n", "content-length-not-valid"),
        ("Content-Length: 99999999999999999999\r\n", "content-length-not-valid"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "chunked-twice"),
        ("Transfer-Encoding: chunked, chunked\r\n", "chunked-twice"),
        ("Transfer-Encoding: gzip, chunked\r\n", "transfer-encoding-not-known"),
        ("Transfer-Encoding: xchunked\r\n", "transfer-encoding-not-known"),
        ("Transfer-Encoding: \"chunked\"\r\n", "transfer-encoding-not-known"),
        ("Transfer-Encoding:\r\n", "transfer-encoding-not-known"),
        ("Transfer_Encoding: chunked\r\n", "header-look-alike"),
        ("Content_Length: 3\r\n", "header-look-alike"),
        ("Transfer-Encoding : chunked\r\n", "space-before-colon"),
        ("Content-Length\t: 3\r\n", "space-before-colon"),
        (" folded: x\r\n", "folded-header"),
        ("A: b\r\n\tc\r\n", "folded-header"),
        ("A\r\n", "header-not-valid"),
        (": x\r\n", "header-not-valid"),
        ("A b: x\r\n", "header-not-valid"),
        ("A\u{e4}: x\r\n", "header-not-valid"),
        ("A: \u{1}\r\n", "header-not-valid"),
        ("A: \u{7f}\r\n", "header-not-valid"),
        ("A: b\nB: c\r\n", "bare-lf"),
        ("A: b\rB: c\r\n", "bare-cr"),
        ("A: b\r\r\n", "bare-cr"),
        ("A: b\0\r\n", "nul-in-head"),
        ("HTTP2-Settings: AAMAAABk\r\n", "upgrade-not-allowed"),
        ("Upgrade: websocket, h2c\r\n", "upgrade-not-allowed"),
        ("Upgrade: websocket\r\nUpgrade: websocket\r\n", "upgrade-not-allowed"),
        ("Upgrade: websocket\r\nContent-Length: 4\r\n", "upgrade-not-allowed"),
    ] {
        refused(&get(extra), code);
    }
    refused(
        "GET / HTTP/1.0\r\nHost: api.example.com\r\nTransfer-Encoding: chunked\r\n\r\n",
        "chunked-in-http-1-0",
    );
    refused("\r\nGET / HTTP/1.1\r\n\r\n", "not-http");
    refused("\n", "bare-lf");
    refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "http2-prior-knowledge");
    refused("SSH-2.0-OpenSSH_9.9 x\r\n\r\n", "request-line-not-valid");
    refused("\x16\x03\x01", "not-http");
    refused(&"A".repeat(40), "not-http");
    refused(&get(&"A: b\r\n".repeat(501)), "too-many-headers");
    refused(&get(&format!("A: {}\r\n", "b".repeat(MAX_HEAD))), "head-too-long");
}

#[test]
fn malformed_http_chunks_are_refused() {
    let head = get("Transfer-Encoding: chunked\r\n");
    for (body, released, code) in [
        ("3;a=b\r\n", 1, "chunk-extension"),
        ("3 \r\n", 1, "chunk-extension"),
        ("\r\n", 0, "chunk-not-valid"),
        ("x\r\n", 0, "chunk-not-valid"),
        ("0x3\r\n", 1, "chunk-not-valid"),
        ("-3\r\n", 0, "chunk-not-valid"),
        ("3\nabc", 1, "bare-lf"),
        ("3\rabc", 2, "chunk-not-valid"),
        ("3\r\nabcd", 6, "chunk-not-valid"),
        ("3\r\nabc\n", 6, "bare-lf"),
        ("0\r\nHost: evil.test\r\n\r\n", 3, "trailers-not-allowed"),
        ("0\r\n\n", 3, "bare-lf"),
        ("0000000000000003\r\nabc", 15, "chunk-too-long"),
        ("fffffffffffffffff\r\n", 15, "chunk-too-long"),
    ] {
        let found = all(format!("{head}{body}").as_bytes());
        assert_eq!(found, (head.len() + released, Some(code)), "{body:?}");
    }
}

#[test]
fn web_socket_starts_only_when_the_server_accepts_it() {
    let upgrade = get("Connection: Upgrade\r\nUpgrade: WebSocket\r\n");
    let evil = "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n";
    let begin = || {
        let mut reader = Reader::new(NAME, 80);
        assert_eq!(run(&mut reader, format!("{upgrade}{evil}").as_bytes()), (upgrade.len(), None));
        assert!(reader.awaits_answer());
        assert_eq!((run(&mut reader, b""), reader.free()), ((0, None), 0));
        reader
    };
    let mut agreed = begin();
    agreed.answer(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 Swit").unwrap();
    assert!(agreed.awaits_answer());
    agreed.answer(b"ching\r\nUpgrade: websocket\r\n\r\n\x81\x00").unwrap();
    assert_eq!(run(&mut agreed, b"more"), (evil.len() + 4, None));
    assert_eq!(agreed.free(), u64::MAX);
    agreed.skip(99);
    assert_eq!(agreed.free(), u64::MAX);

    let mut declined = begin();
    declined.answer(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
    assert_eq!(run(&mut declined, b""), (0, Some("host-mismatch")));

    let mut declined = Reader::new(NAME, 80);
    run(&mut declined, format!("{upgrade}{}", get("")).as_bytes());
    declined.answer(b"HTTP/1.1 404 Not Found\r\n\r\n").unwrap();
    assert_eq!(run(&mut declined, get("").as_bytes()), (2 * get("").len(), None));

    assert!(begin().answer(b"SSH-2.0\r\n\r\n").is_err());
    assert!(begin().answer(b"HTTP/1.1 1015 x\r\n\r\n").is_err());
    assert!(begin().answer(&[b'a'; MAX_HEAD]).is_err());
    assert_eq!(run(&mut begin(), &[0; 64 * 1024]).1, Some("early-data"));
    let late = format!("{}{upgrade}", get(""));
    assert_eq!(all(late.as_bytes()), (get("").len(), Some("upgrade-not-first")));
}

/// Headers from which servers, gateways and frameworks take method, path or host.
const REPLACING: &str = "X-HTTP-Method-Override: DELETE | x-http-method: DELETE | X_Method_Override: DELETE | \
    X-HTTPMethodOverride: DELETE | X-Goog-Method-Override: DELETE | X-Forwarded-Method: DELETE | \
    X-Original-URL: admin | x-rewrite-url: admin | X-Forwarded-Path: admin | \
    X-Envoy-Original-Path: admin | X-Forwarded-Uri: admin | X-Forwarded-Prefix: admin | \
    X-Waws-Unencoded-Url: admin | X-HTTP-DestinationURL: admin | X-Invoke-Path: admin | \
    X-Matched-Path: admin | X-Middleware-Subrequest: middleware | X-Forwarded-Host: other.example.com | \
    X-Host: other.example.com | X_Host: other.example.com | Forwarded: host=other.example.com | \
    Destination: /admin | Script_Name: /admin | X-Accel-Redirect: /admin | \
    X-Proxy-To: http://other.example.com/admin | X-Envoy-Decorator-Operation: /admin";

/// Headers that ordinary clients, SDKs and browsers send.
const ORDINARY: &str = "Referer: https://example.com/a | Origin: https://example.com | HTTP-Referer: https://example.com | \
    Accept: */* | Accept-Language: en | Content-Type: application/json | Content-Location: /a | \
    Content-MD5: /w/w/w/w/w== | If-None-Match: \"/a\" | User-Agent: curl/8.0 | Authorization: Bearer a/b | \
    Cookie: a=/b | X-Requested-With: XMLHttpRequest | X-Request-Id: /w/w | X-Forwarded-For: 192.0.2.1 | \
    X-Forwarded-Proto: https | traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 | \
    X-Amz-Target: DynamoDB_20120810.GetItem | X-Amz-Security-Token: /w/w | \
    x-amz-copy-source: /bucket/key | x-amz-website-redirect-location: /a | \
    x-goog-copy-source: /bucket/key | x-goog-request-params: name=projects/a | \
    x-goog-api-client: gl-python/3 | x-ms-copy-source: https://example.com/a | \
    x-ms-rename-source: /container/a | grpc-timeout: 1S | X-Stainless-Helper-Method: stream | \
    X-Api-Key: /w/w | Access-Control-Request-Method: DELETE | Mcp-Method: tools/call | \
    Git-Protocol: version=2 | X-Gemfile-Source: https://rubygems.org/ | Sec-WebSocket-Key: /w/w | \
    SOAPAction: http://example.com/a | Upgrade-Insecure-Requests: 1";

#[test]
fn request_rules_are_applied() {
    let rule =
        |text: &str| Ruled { value: RequestRule::parse(text).unwrap(), rule: RuleRef::default_rule("r") };
    let rules = vec![rule("GET /repos/**"), rule("POST /graphql")];
    let ask = |line: &str| {
        let text = format!("{line} HTTP/1.1\r\nHost: api.example.com\r\n\r\n");
        run(&mut Reader::new(NAME, 80).with_rules(rules.clone()), text.as_bytes()).1
    };
    assert_eq!(ask("GET /repos/a/b?c"), None);
    assert_eq!(ask("GET http://api.example.com/repos/a"), None);
    assert_eq!(ask("POST /graphql"), None);
    for line in ["GET /", "DELETE /repos/a", "GET /repos/../user", "GET /repos/%2e%2e/user", "OPTIONS *"] {
        assert_eq!(ask(line), Some("request-not-allowed"), "{line}");
    }
    let with = |reader: &mut Reader, header: &str| {
        let text = format!("GET /repos/a HTTP/1.1\r\nHost: api.example.com\r\n{header}\r\n\r\n");
        run(reader, text.as_bytes()).1
    };
    let ruled = |header: &str| with(&mut Reader::new(NAME, 80).with_rules(rules.clone()), header);
    for header in REPLACING.split(" | ") {
        assert_eq!(ruled(header), Some("override-not-allowed"), "{header}");
        assert_eq!(with(&mut Reader::new(NAME, 80), header), None, "without rules nothing is replaced");
    }
    for header in ORDINARY.split(" | ") {
        assert_eq!(ruled(header), None, "{header}");
    }
    let body = "DELETE /repos/a HTTP/1.1\r\nHost: api.example.com\r\nX: ";
    for (method, wanted) in [("GET /repos/a", Some("body-not-expected")), ("POST /graphql", None)] {
        for header in [format!("Content-Length: {}", body.len()), "Transfer-Encoding: chunked".to_owned()] {
            let text = format!("{method} HTTP/1.1\r\nHost: api.example.com\r\n{header}\r\n\r\n");
            let found = run(&mut Reader::new(NAME, 80).with_rules(rules.clone()), text.as_bytes()).1;
            assert_eq!(found, wanted, "{method} {header}");
        }
    }
    let push = ["service=git-receive-pack", "service=git%2dreceive-pack", "a=b&servic%65=git-receive-pac%6B"];
    for query in push {
        assert_eq!(ask(&format!("GET /repos/a/info/refs?{query}")), Some("request-not-allowed"), "{query}");
    }
    assert_eq!(ask("GET /repos/a/info/refs?service=git-upload-pack"), None);
    let mut reader = Reader::new(NAME, 80).with_rules(rules.clone());
    let refusal = reader.feed(b"PUT /x HTTP/1.1\r\nHost: api.example.com\r\n\r\n").unwrap_err();
    assert_eq!(refusal.request.unwrap(), Request { method: "PUT".to_owned(), path: "/x".to_owned() });
}

#[test]
fn bodies_may_be_forwarded_unseen() {
    let head = "POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 1000\r\n\r\n";
    let mut reader = Reader::new(NAME, 80);
    assert_eq!((run(&mut reader, head.as_bytes()).0, reader.free()), (head.len(), 1000));
    reader.skip(900);
    assert_eq!(run(&mut reader, &[0; 100]), (100, None));
    assert_eq!(reader.free(), 0);
    assert_eq!(run(&mut reader, b"\x00").1, Some("nul-in-head"));
    let mut reader = Reader::new(NAME, 80);
    run(&mut reader, format!("{}a\r\n", get("Transfer-Encoding: chunked\r\n")).as_bytes());
    reader.skip(reader.free());
    assert_eq!(run(&mut reader, b"\r\n0\r\n\r\n"), (7, None));
}

/// Pieces out of which both good and bad connections come.
const PIECES: [&str; 22] = [
    "GET / HTTP/1.1\r\n",
    "POST /x HTTP/1.1\r\n",
    "GET http://evil.test/ HTTP/1.1\r\n",
    "Host: api.example.com\r\n",
    "Host: evil.test\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 0\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Upgrade: websocket\r\n",
    "Connection: upgrade\r\n",
    "\r\n",
    "\r\n",
    "\n",
    "\r",
    "5\r\nhello\r\n",
    "0\r\n\r\n",
    "hello",
    "A: b\r\n",
    " c\r\n",
    "\0",
    ": ",
    "PRI * HTTP/2.0\r\n\r\n",
];

proptest! {
    #[test]
    fn http_bytes_are_released_equally_for_any_split(
        pieces in proptest::collection::vec(0..PIECES.len(), 0..14), cuts in proptest::collection::vec(1usize..30, 1..30),
    ) {
        let text: String = pieces.into_iter().map(|at| PIECES[at]).collect();
        check(text.as_bytes(), &cuts);
    }

    #[test]
    fn http_reader_takes_any_bytes_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), cuts in proptest::collection::vec(1usize..30, 1..30)) {
        check(&bytes, &cuts);
        check(&[get("Transfer-Encoding: chunked\r\n").as_bytes(), &bytes].concat(), &cuts);
    }
}

fn check(bytes: &[u8], cuts: &[usize]) {
    let whole = all(bytes);
    let mut reader = Reader::new(NAME, 80);
    let (mut released, mut fed, mut code) = (0, 0, None);
    let mut rest = bytes;
    for cut in cuts.iter().cycle() {
        let (now, later) = rest.split_at((*cut).min(rest.len()));
        fed += now.len();
        match reader.feed(now) {
            Ok(verdict) => released += verdict.forward,
            Err(refusal) => code = Some(refusal.reason.code()),
        }
        assert!(released <= fed);
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    assert_eq!((released, code.or(reader.refusal().map(|refusal| refusal.reason.code()))), whole);
}

#[test]
fn mcp_requests_that_bypass_the_bridges_are_refused() {
    let judge = |text: &str, is_bridged| {
        let mut reader = Reader::new(NAME, 80).bridged(is_bridged);
        run(&mut reader, text.as_bytes()).1
    };
    for header in ["Mcp-Session-Id: 1\r\n", "MCP_PROTOCOL_VERSION: x\r\n"] {
        assert_eq!(judge(&get(header), true), Some("mcp-past-bridges"), "{header}");
        assert_eq!(judge(&get(header), false), None, "{header}");
    }
    let post = |accept: &str| get(accept).replacen("GET", "POST", 1);
    let both = "Accept: application/json;q=1\r\nAccept: TEXT/event-stream\r\n";
    assert_eq!(judge(&post(both), true), Some("mcp-past-bridges"));
    assert_eq!(judge(&get(both), true), None);
    assert_eq!(judge(&post("Accept: application/json\r\n"), true), None);
}

#[test]
fn loose_reader_releases_bytes_that_are_no_request() {
    let picks: RequestFilter = |method, path| (method, path) == ("POST", "/p");
    let released = |parts: &[&str]| {
        let mut reader = Reader::search_only(picks);
        let forward = parts.iter().map(|part| reader.feed(part.as_bytes()).unwrap().forward > 0);
        (forward.collect::<Vec<_>>(), reader.is_picked(), reader.free() == u64::MAX)
    };
    for other in ["PING", "GET key\r\n", "GET /\r\n", "\u{0}\u{1}", "P2", "GET / HTTP/1.1\r\n odd: x\r\n\r\n"]
    {
        assert_eq!(released(&[other]), (vec![true], false, true), "{other:?}");
    }
    let get = "GET /p HTTP/1.1\r\nHost: any\r\n\r\n";
    let post = "POST /p HTTP/1.1\r\nContent-Length: 1\r\n\r\n";
    assert_eq!(released(&[get, post, "x"]), (vec![true, false, false], true, false));
    assert_eq!(released(&["PO", &post[2..]]), (vec![false, false], true, false));
}
