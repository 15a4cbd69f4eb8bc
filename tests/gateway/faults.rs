//! Errors of servers and of clients: each is reported in the form of the protocol, and recorded.

use std::time::Instant;

use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;

use super::*;
use crate::support::{Answer as Said, Receiver};

fn far(url: &str, more: &str) -> String {
    format!("listen: 127.0.0.1:0\n{OPEN}endpoints: [{{id: far, url: \"{url}\"}}]\n{more}")
}

/// The message of the error that the call of a tool gets.
fn refusal(gateway: &Gateway, session: &str, id: u64, tool: &str) -> String {
    let answer = gateway.post("/mcp/far", &[("Mcp-Session-Id", session)], &call(id, tool, json!({}))).last();
    assert_eq!(answer["id"], id, "{answer}");
    answer["error"]["message"].as_str().unwrap_or_default().to_owned()
}

fn text(id: &Value, text: &str) -> String {
    json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}}).to_string()
}

#[test]
fn misbehaving_server_is_reported_and_recorded() {
    let place = Place::new(Mode::Invoker);
    let policy = place.write("small.yaml", "sandbox: {mcp: {max_line_bytes: 100000, version_pinning: {enabled: false}, content: {definitions: off}}}\n");
    let server = HttpServer::start(|asked| {
        handshake(asked).unwrap_or_else(|| {
            let message = asked.message();
            let id = &message["id"];
            match message["params"]["name"].as_str() {
                Some("reset") => Reply::events(&["data: {\"jsonrpc\":\"2.0\",\"id\""]).broken(),
                Some("half") => Reply { pieces: Vec::new(), ..Reply::json("") }.broken(),
                Some("reset-hard") => Reply::events(&["data: {\"jsonrpc\""]).ending(End::Reset),
                Some("silent") => Reply::nothing().ending(End::HalfClosed),
                Some("half-closed") => Reply::json("{\"jsonrpc\":\"2.0\"").ending(End::HalfClosed),
                Some("half-closed-event") => Reply::events(&["data: {\"jsonrpc\""]).ending(End::HalfClosed),
                Some("no-kind") => Reply { pieces: vec![text(id, "x")], ..Reply::status(200) },
                Some("page") => Reply { pieces: vec!["<html>".into()], ..Reply::status(200) }
                    .with("Content-Type", "text/html"),
                Some("other-id") => Reply::json(text(&json!(4242), "x")),
                Some("endless") => {
                    let piece = "x".repeat(10_000);
                    let pieces: Vec<String> =
                        std::iter::once("data: ".to_owned()).chain(std::iter::repeat_n(piece, 20)).collect();
                    let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
                    Reply::events(&pieces).open()
                }
                Some("long") => Reply::json(text(id, &"x".repeat(200_000))),
                Some("packed") => Reply::json("this is none").with("Content-Encoding", "gzip"),
                Some("packed-unheard-of") => Reply::json("....").with("Content-Encoding", "snappy"),
                Some("busy") => Reply::status(500),
                Some("twice") => {
                    let one = format!("data: {}\n\n", text(id, "first"));
                    let two = format!("data: {}\n\n", text(id, "second"));
                    Reply::events(&[&one, &two])
                }
                Some("twice-in-one") => {
                    Reply::json(format!("[{},{}]", text(id, "first"), text(id, "second")))
                }
                _ => Reply::json(text(id, "fine")),
            }
        })
    });
    let gateway = Gateway::start(&place, &far(&server.url(), &format!("policy: {}\n", policy.display())));
    let session = gateway.shake_hands("/mcp/far", &[]);
    let wrong = [
        ("reset", "ended the answer before the response"),
        ("half", ""),
        ("reset-hard", ""),
        ("silent", ""),
        ("half-closed", ""),
        ("half-closed-event", "ended the answer before the response"),
        ("no-kind", "neither JSON nor a stream of events"),
        ("page", "'text/html'"),
        ("other-id", "ended the answer before the response"),
        ("endless", "more than 100000 bytes"),
        ("long", "more than 100000 bytes"),
        ("packed", "the answer is compressed, and its gzip cannot be read"),
        ("packed-unheard-of", "compressed (snappy)"),
        ("busy", "HTTP 500"),
    ];
    for (id, (tool, says)) in (1..).zip(wrong) {
        let told = refusal(&gateway, &session, id, tool);
        assert!(told.contains(says) && told.contains("server 'far'"), "{tool}: {told}");
    }
    // Two answers: the first counts, the second is refused, and the session continues.
    let headers = [("Mcp-Session-Id", session.as_str())];
    let twice = gateway.post("/mcp/far", &headers, &call(50, "twice", json!({})));
    assert_eq!(twice.last()["result"]["content"][0]["text"], "first", "{}", twice.body);
    assert_eq!(twice.messages().len(), 1, "{}", twice.body);
    let twice = gateway.post("/mcp/far", &headers, &call(52, "twice-in-one", json!({})));
    assert_eq!(twice.last()["result"]["content"][0]["text"], "first", "{}", twice.body);
    assert_eq!(twice.messages().len(), 1, "{}", twice.body);
    let fine = gateway.post("/mcp/far", &headers, &call(51, "fine", json!({})));
    assert_eq!(fine.last()["result"]["content"][0]["text"], "fine");
    assert_eq!(gateway.stop(), 0);
    let failed = place.events("mcp_server_unavailable");
    for (tool, _) in wrong {
        let event = failed.iter().find(|event| event["tool_name"] == tool);
        assert!(event.is_some_and(|event| event["method"] == "tools/call"), "{tool}: {failed:?}");
    }
    let rejected = json!(place.events("mcp_message_rejected")).to_string();
    // The foreign id, and the second answers.
    assert!(rejected.matches("unasked-response").count() >= 3, "{rejected}");
}

#[test]
fn expired_session_is_started_again() {
    let place = Place::new(Mode::Invoker);
    let calls = std::sync::atomic::AtomicUsize::new(0);
    let server = HttpServer::start(move |asked| {
        handshake(asked).unwrap_or_else(|| match calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0 => Reply::status(404),
            _ => Reply::json(text(&asked.message()["id"], "again")),
        })
    });
    let gateway = Gateway::start(&place, &far(&server.url(), &without_definitions(&place)));
    let session = gateway.shake_hands("/mcp/far", &[]);
    let again = gateway.post("/mcp/far", &[("Mcp-Session-Id", &session)], &call(2, "x", json!({})));
    assert_eq!(again.last()["result"]["content"][0]["text"], "again", "{}", again.body);
    gateway.stop();
    assert_eq!(place.events("mcp_server_crashed").len(), 0);
}

#[test]
fn a_certificate_for_another_name_and_a_server_that_is_not_there() {
    let place = Place::new(Mode::Invoker);
    let made = rcgen::generate_simple_self_signed(["other.example.com".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    let receiver = Receiver::secure(config, |_, _| Said::Say(200, String::new()));
    let authority = place.write("authority.pem", made.cert.pem());
    place.set("SSL_CERT_FILE", authority.to_str().unwrap());
    let hello = json!({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {}});
    for (url, says) in [
        (format!("https://127.0.0.1:{}/mcp", receiver.port), "certificate"),
        ("http://127.0.0.1:1/mcp".to_owned(), "refused"),
        ("https://10.1.2.3/mcp".to_owned(), "10.1.2.3"),
    ] {
        let gateway = Gateway::start(&place, &far(&url, ""));
        let answer = gateway.post("/mcp/far", &[], &hello);
        let told = answer.last();
        assert_eq!(told["id"], 7, "{url}: {told}");
        assert!(told["error"]["message"].as_str().unwrap().to_lowercase().contains(says), "{url}: {told}");
        assert!(answer.header("mcp-session-id").is_none(), "nothing began");
        gateway.stop();
    }
    assert!(receiver.heard().is_empty());
    let record = json!(place.listed(&["mcp", "events", "--json"])).to_string();
    assert!(record.contains("mcp_server_unavailable") && record.contains("mcp_server_refused"), "{record}");
}

#[test]
fn clients_that_are_slow_or_send_packed_messages_are_let_go() {
    let place = Place::new(Mode::Invoker);
    let gateway = Gateway::start(
        &place,
        &file(&place, &format!("{OPEN}limits: {{request_seconds: 1, connections: 4}}\n")),
    );
    // One that only waits for what the server will say.
    let session = gateway.shake_hands("/mcp/fs", &[]);
    let headers = [("Mcp-Session-Id", session.as_str()), ("Accept", "text/event-stream")];
    let mut quiet = gateway.send("GET", "/mcp/fs", &headers, "");
    // Nothing, HTTP/2 without a request, an answer for which there is never room, a head that never ends, and a body that
    // never comes.
    let began = Instant::now();
    let no_room = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0".as_slice(),
        b"\0\0\x16\x01\x05\0\0\0\x01\x82\x86\x04\x07/mcp/no\x01\x09localhost",
    ]
    .concat();
    for text in [
        b"".as_slice(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        &no_room,
        b"POST /mcp/fs HTTP/1.1\r\nHost: localhost\r\nX-",
        b"POST /mcp/fs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
    ] {
        let mut stream = TcpStream::connect(&gateway.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(text).unwrap();
        let mut said = Vec::new();
        // It may be reset while something is unread.
        let _ = stream.read_to_end(&mut said);
        let said = String::from_utf8_lossy(&said);
        assert!(text.starts_with(b"PRI") || said.is_empty() || said.contains(" 408 "), "{said}");
    }
    assert!(began.elapsed() < Duration::from_secs(18), "{:?}", began.elapsed());
    quiet.set_nonblocking(true).unwrap();
    let waits = |stream: &mut TcpStream| loop {
        match stream.read(&mut [0; 1024]) {
            Ok(1..) => {}
            other => break other.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock),
        }
    };
    assert!(waits(&mut quiet), "nobody had anything to say to it");
    drop(quiet);
    let packed = gateway.ask("POST", "/mcp/fs", &[("Content-Encoding", "gzip")], "....");
    assert_eq!((packed.status, packed.code().as_str()), (415, "BLOCKED_MALFORMED"));
    // An address has half of the connections: its next one gets no answer until one is free.
    let held: Vec<_> = (0..2).map(|_| TcpStream::connect(&gateway.address).unwrap()).collect();
    assert!(crate::support::eventually(|| {
        let mut stream = TcpStream::connect(&gateway.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let mut said = String::new();
        stream.read_to_string(&mut said).map_or(true, |_| said.is_empty())
    }));
    let mut neighbour = place.command("curl");
    neighbour.args(["-sS", "--interface", "127.0.0.2", &format!("http://{}/healthz", gateway.address)]);
    assert_eq!(Outcome::of(&mut neighbour).expect_code(0).stdout, "ok\n");
    drop(held);
    assert!(crate::support::eventually(|| {
        let mut stream = TcpStream::connect(&gateway.address).unwrap();
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let mut said = String::new();
        stream.read_to_string(&mut said).is_ok_and(|_| said.ends_with("ok\n"))
    }));
}

#[test]
fn a_session_belongs_to_its_endpoint_and_nothing_of_the_gateway_reaches_a_server() {
    let place = Place::new(Mode::Invoker);
    let server = HttpServer::start(|asked| {
        handshake(asked).unwrap_or_else(|| {
            Reply::json(text(&asked.message()["id"], "fine"))
                .with("X-Of-The-Server", "1")
                .with("Set-Cookie", "a=b")
        })
    });
    let text = format!(
        "listen: 127.0.0.1:0\n{OPEN}endpoints: [{{id: far, url: \"{0}\"}}, {{id: near, url: \"{0}\"}}]\n{1}",
        server.url(),
        without_definitions(&place)
    );
    let gateway = Gateway::start(&place, &text);
    let session = gateway.shake_hands("/mcp/far", &[]);
    let own = ("Mcp-Session-Id", session.as_str());
    assert_eq!(gateway.post("/mcp/near", &[own], &call(1, "x", json!({}))).status, 404);
    assert_eq!(gateway.ask("DELETE", "/mcp/near", &[own], "").status, 404);
    let theirs = [
        own,
        ("Cookie", "c=1"),
        ("X-Api-Key", "k"),
        ("X-Forwarded-For", "192.0.2.1"),
        ("Proxy-Authorization", "Basic x"),
        ("X-Agentsh-Any", "1"),
        ("Mcp-Param-Region", "x"),
    ];
    let answer = gateway.post("/mcp/far", &theirs, &call(2, "x", json!({})));
    assert_eq!(answer.last()["result"]["content"][0]["text"], "fine", "{}", answer.body);
    assert!(answer.header("x-of-the-server").is_none() && answer.header("set-cookie").is_none());
    assert!(answer.header("x-agentsh-log-id").is_some() && answer.header("x-agentsh-trace-id").is_some());
    for asked in server.asked() {
        for name in [
            "cookie",
            "x-api-key",
            "x-forwarded-for",
            "proxy-authorization",
            "x-agentsh-any",
            "mcp-param-region",
        ] {
            assert!(asked.header(name).is_none(), "{name}: {asked:?}");
        }
        assert_ne!(asked.header("mcp-session-id"), Some(session.as_str()));
    }
}

#[test]
fn reload_keeps_streams_and_shutdown_sends_pending_answers() {
    let place = Place::new(Mode::Invoker);
    let (feed, fed) = std::sync::mpsc::channel::<String>();
    let fed = std::sync::Mutex::new(Some(fed));
    let server = HttpServer::start(move |asked| {
        handshake(asked).unwrap_or_else(|| match fed.lock().unwrap().take() {
            Some(fed) => Reply::events(&[]).fed(fed),
            None => Reply::json(text(&asked.message()["id"], "fine")),
        })
    });
    let gateway = Gateway::start(&place, &far(&server.url(), &without_definitions(&place)));
    let session = gateway.shake_hands("/mcp/far", &[]);
    let headers = [("Mcp-Session-Id", session.as_str()), ("Accept", "text/event-stream, application/json")];
    let stream = gateway.send("POST", "/mcp/far", &headers, &call(9, "slow", json!({})).to_string());
    assert!(crate::support::eventually(|| server.asked().iter().any(|asked| asked.rpc() == "tools/call")));
    let called =
        server.asked().iter().find(|asked| asked.rpc() == "tools/call").unwrap().message()["id"].clone();
    // Another endpoint appears; a file that is wrong changes nothing.
    let local = place.program("fixture_server");
    let more =
        far(&server.url(), "").replace("]\n", &format!(", {{id: fs, command: {}}}]\n", local.display()));
    place.write("gateway.yaml", more);
    gateway.reload();
    assert!(crate::support::eventually(|| gateway
        .ask("DELETE", "/mcp/fs", &[], "")
        .header("x-agentsh-log-id")
        .is_some()
        && gateway.ask("GET", "/mcp/fs", &[], "").status == 400));
    place.write("gateway.yaml", "endpoints: []\n");
    gateway.reload();
    assert_eq!(gateway.ask("GET", "/readyz", &[], "").body, "ready\n");
    assert_eq!(gateway.ask("GET", "/mcp/fs", &[], "").status, 400);
    // Told to end while an answer is on its way.
    kill(Pid::from_raw(gateway.child.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert!(crate::support::eventually(|| TcpStream::connect(&gateway.address).is_err()));
    feed.send(text(&called, "at last")).unwrap();
    drop(feed);
    let body: String = BufReader::new(stream).lines().map_while(Result::ok).collect();
    assert!(body.contains("at last"), "{body}");
    assert_eq!(gateway.stop(), 0);
}

/// Memory of a process that is its own, in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
#[ignore = "takes long"]
fn unread_answer_waits_at_the_server_and_blocks_nobody() {
    const PIECES: usize = 600;
    let place = Place::new(Mode::Invoker);
    let server = HttpServer::start(|asked| {
        handshake(asked).unwrap_or_else(|| {
            let message = asked.message();
            if message["params"]["name"] != "flood" {
                return Reply::json(text(&message["id"], "fine"));
            }
            let data = "x".repeat(100_000);
            let note = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": data}});
            let mut pieces = vec![format!("data: {note}\n\n"); PIECES];
            pieces.push(format!("data: {}\n\n", text(&message["id"], "done")));
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            Reply::events(&pieces)
        })
    });
    let more = format!("limits: {{unread_bytes: 200000}}\n{}", without_definitions(&place));
    let gateway = Gateway::start(&place, &far(&server.url(), &more));
    let slow = gateway.shake_hands("/mcp/far", &[]);
    let quick = gateway.shake_hands("/mcp/far", &[]);
    let before = resident(gateway.child.id());
    let stream = gateway.send(
        "POST",
        "/mcp/far",
        &[("Mcp-Session-Id", &slow)],
        &call(1, "flood", json!({})).to_string(),
    );
    std::thread::sleep(Duration::from_secs(2));
    let grown = resident(gateway.child.id()).saturating_sub(before);
    assert!(grown < 25 << 10, "{grown} KiB of 60 MB that nobody reads");
    let other = gateway.post("/mcp/far", &[("Mcp-Session-Id", &quick)], &call(2, "x", json!({}))).last();
    assert_eq!(other["result"]["content"][0]["text"], "fine");
    // A late reader gets all of it.
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    let events = lines.filter(|line| line.starts_with("data: ")).count();
    assert_eq!(events, PIECES + 1);
}

#[test]
fn a_tool_whose_listed_name_is_empty_is_called_by_it() {
    let place = Place::new(Mode::Invoker);
    let server = HttpServer::start(|asked| {
        handshake(asked).unwrap_or_else(|| {
            let message = asked.message();
            let tools = json!({"tools": [{"name": "", "inputSchema": {"type": "object"}}]});
            match message["method"].as_str() {
                Some("tools/list") => {
                    Reply::json(json!({"jsonrpc": "2.0", "id": message["id"], "result": tools}).to_string())
                }
                _ => Reply::json(text(&message["id"], "called")),
            }
        })
    });
    let gateway = Gateway::start(&place, &far(&server.url(), ""));
    let session = gateway.shake_hands("/mcp/far", &[]);
    let ask = |message: &Value| gateway.post("/mcp/far", &[("Mcp-Session-Id", &session)], message).last();
    let listed = ask(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
    assert_eq!(listed["result"]["tools"][0]["name"], "", "{listed}");
    let called = ask(&call(2, "", json!({})));
    assert_eq!(called["result"]["content"][0]["text"], "called", "{called}");
    let other = ask(&call(3, "other", json!({})));
    assert_eq!(other["error"]["data"]["code"], "BLOCKED_TOOL_REVIEW", "{other}");
}

/// Processor time of a process so far: of its first thread, and of those that judge, in ticks.
fn ticks(process: u32) -> (u64, u64) {
    let mut ticks = (0, 0);
    for thread in std::fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        let thread = thread.unwrap();
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let Some((named, rest)) = stat.rsplit_once(") ") else { continue };
        let used: u64 = rest.split(' ').skip(11).take(2).map(|time| time.parse::<u64>().unwrap()).sum();
        ticks.0 += if thread.file_name() == process.to_string().as_str() { used } else { 0 };
        ticks.1 += if named.ends_with("(judge") { used } else { 0 };
    }
    ticks
}

#[test]
fn a_long_result_is_read_by_other_threads_than_the_one_that_serves_everybody() {
    let place = Place::new(Mode::Invoker);
    let rows: String = (0..16_000)
        .map(|row| {
            format!(
                "<p class=\"x\">Row {row} of a long table has the code {:x}</p>\n",
                row * 7_919_u64.pow(3)
            )
        })
        .collect();
    let server = HttpServer::start(move |asked| {
        handshake(asked).unwrap_or_else(|| {
            let message = asked.message();
            let said = if message["params"]["name"] == "long" { &rows } else { "short" };
            Reply::events(&[&format!("data: {}\n\n", text(&message["id"], said))])
        })
    });
    let policy = place.write("unlisted.yaml", "sandbox: {mcp: {version_pinning: {unlisted: alert}}}\n");
    let gateway = Gateway::start(&place, &far(&server.url(), &format!("policy: {}\n", policy.display())));
    let session = gateway.shake_hands("/mcp/far", &[]);
    let ask = |id, tool| {
        gateway.post("/mcp/far", &[("Mcp-Session-Id", &session)], &call(id, tool, json!({}))).last()["result"]
            ["content"][0]["text"]
            .as_str()
            .map(str::len)
    };
    assert_eq!(ask(1, "short"), Some(5));
    let before = ticks(gateway.child.id());
    assert!(ask(2, "long").is_some_and(|length| length > 1_000_000));
    // This one waits until all is read.
    assert_eq!(ask(3, "short"), Some(5));
    let after = ticks(gateway.child.id());
    let (serving, judging) = (after.0 - before.0, after.1 - before.1);
    assert!(serving < judging, "{serving} ticks here, {judging} there");
}
