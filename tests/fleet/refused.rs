//! Invalid requests are refused, and leave nothing behind.

use std::io::Write;
use std::net::TcpStream;

use agentsh_fleet::batch::{self, Batch, JournalPosition};
use agentsh_fleet::keys::{self, HostKey};
use serde_json::{Value, json};

use super::{Server, asked, forward, hosts, session};
use crate::support::{Mode, Outcome, Place, eventually};

struct Signed {
    host: String,
    key: HostKey,
}

impl Signed {
    fn of(place: &Place) -> Self {
        let text = std::fs::read_to_string(place.home.join(".local/state/agentsh/fleet/host.json")).unwrap();
        let file: Value = serde_json::from_str(&text).unwrap();
        let key = HostKey::read(file["key"].as_str().unwrap()).unwrap();
        Self { host: file["host"].as_str().unwrap().to_owned(), key }
    }

    fn post(&self, server: &Server<'_>, path: &str, body: &[u8]) -> (u16, String) {
        self.late(server, path, body, 0)
    }

    fn late(&self, server: &Server<'_>, path: &str, body: &[u8], minutes: i64) -> (u16, String) {
        let [host, time, digest, signature] = self.head(path, body, minutes);
        let headers =
            [(host.0, &*host.1), (time.0, &*time.1), (digest.0, &*digest.1), (signature.0, &*signature.1)];
        server.raw("POST", path, &headers, body)
    }

    fn head(&self, path: &str, body: &[u8], minutes: i64) -> [(&'static str, String); 4] {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
        let time = (i64::try_from(now).unwrap() - minutes * 60_000).to_string();
        let digest = keys::digest(body);
        let signature = self.key.sign(&keys::signed_text("POST", path, &self.host, &time, &digest));
        [
            (keys::HOST, self.host.clone()),
            (keys::TIME, time),
            (keys::BODY, digest),
            (keys::SIGNATURE, signature),
        ]
    }
}

#[test]
fn refused_enrolments_and_batches_leave_nothing_behind() {
    let at = Place::new(Mode::Invoker);
    let server = Server::start(&at, at.home.join("fleet.db").to_str().unwrap(), &[]);
    server.login(&at, "admin");
    let (host, other) = (Place::new(Mode::Invoker), Place::new(Mode::Invoker));
    session(&host, 2);

    // Tokens: none, of another kind, used before.
    let url = server.url();
    let enrol = |place: &Place, token: &str| {
        Outcome::of(&mut place.agentsh(&["fleet", "enrol", "--url", &url, "--token", token]))
    };
    let file = host.home.join(".local/state/agentsh/fleet/host.json");
    for token in ["agf_once_0", "", &server.token("viewer", "x")] {
        enrol(&host, token).expect_code(1);
        assert!(!file.exists());
    }
    let token = server.token("host", "laptop");
    enrol(&host, &token).expect_code(0);
    let said = enrol(&other, &token).expect_code(1);
    assert!(said.stderr.contains("agentsh fleet token"), "{said}");
    let person = server.token("viewer", "y");
    let login = |token: &str| {
        Outcome::of(&mut other.agentsh(&["fleet", "login", "--url", &url, "--token", token])).code
    };
    assert_eq!((login(&person), login(&person)), (0, 1));
    assert_eq!(hosts(&at).0.len(), 1);

    // Requests signed by another host, unsigned, and old.
    let signed = Signed::of(&host);
    let empty = Batch { after: JournalPosition { id: 0, hash: None }, rows: Vec::new() }.to_gzip().unwrap();
    let stranger =
        Signed { host: signed.host.clone(), key: HostKey::read(&HostKey::make().unwrap()).unwrap() };
    let unknown =
        Signed { host: "abcdef".to_owned(), key: HostKey::read(&HostKey::make().unwrap()).unwrap() };
    assert_eq!(stranger.post(&server, "/v1/events", &empty).0, 401);
    assert_eq!(unknown.post(&server, "/v1/events", &empty).0, 401);
    assert_eq!(server.raw("POST", "/v1/events", &[], &empty).0, 401);
    assert_eq!(signed.late(&server, "/v1/events", &empty, 6).0, 401);
    assert_eq!(signed.late(&server, "/v1/events", &empty, -6).0, 401);
    assert_eq!(signed.post(&server, "/v1/events", &empty).0, 200, "its twin");
    assert_eq!(server.raw("GET", "/v1/events", &[], b"").0, 401);
    assert_eq!(server.raw("GET", "/v1/events", &[("Authorization", "Bearer agf_0")], b"").0, 401);

    // Invalid batches.
    let whole = Batch {
        after: JournalPosition { id: 0, hash: None },
        rows: vec![row(1, "01980000-0000-7000-8000-000000000001")],
    };
    let packed = whole.to_gzip().unwrap();
    assert_eq!(signed.post(&server, "/v1/events", &packed[..packed.len() - 5]).0, 400, "broken off");
    assert_eq!(signed.post(&server, "/v1/events", b"not compressed").0, 400);
    let bomb = batch::pack(&vec![b'a'; batch::MAX_UNPACKED + 1]).unwrap();
    assert_eq!(signed.post(&server, "/v1/events", &bomb).0, 413);
    let declared = (batch::MAX_SENT + 1).to_string();
    for (who, status) in [(&signed, 413), (&stranger, 401)] {
        let head = who.head("/v1/events", b"", 0);
        let mut headers: Vec<(&str, &str)> = head.iter().map(|(name, value)| (*name, &**value)).collect();
        // A stranger's body is not waited for, whatever it would be.
        headers.push(("Content-Length", if status == 413 { &*declared } else { "9" }));
        let begun = std::time::Instant::now();
        assert_eq!(server.raw("POST", "/v1/events", &headers, b"").0, status);
        assert!(begun.elapsed() < std::time::Duration::from_secs(20));
    }
    let head = signed.head("/v1/events", &empty, 0);
    let headers: Vec<(&str, &str)> = head.iter().map(|(name, value)| (*name, &**value)).collect();
    assert_eq!(server.raw("POST", "/v1/events", &headers, &packed).0, 401, "another body");
    let head = signed.head("/v1/position", b"x", 0);
    let headers: Vec<(&str, &str)> = head.iter().map(|(name, value)| (*name, &**value)).collect();
    assert_ne!(server.raw("GET", "/v1/position", &headers, b"x").0, 200, "a body where none is taken");
    for session in
        ["01980000-0000-7000-8000-00000000000G", "01980000000070008000000000000001", "'; DROP TABLE events"]
    {
        let wrong = Batch { rows: vec![row(1, session)], ..whole.clone() };
        assert_eq!(signed.post(&server, "/v1/events", &wrong.to_gzip().unwrap()).0, 400, "{session}");
    }
    let gap = Batch { after: JournalPosition { id: 9, hash: Some([1; 32]) }, rows: Vec::new() };
    let (status, said) = signed.post(&server, "/v1/events", &gap.to_gzip().unwrap());
    assert!(status == 409 && said.contains("\"kind\":\"gap\""), "{said}");
    assert_eq!(asked(&at, &server, &["mcp", "events"]).len(), 0);
    assert_eq!(hosts(&at).1, 0, "none of it speaks against the host");

    // The same batch twice is there once.
    forward(&host, &[]).expect_code(0);
    let events = asked(&at, &server, &["mcp", "events", "--limit", "1000"]);
    let rows = rows_of(&host);
    let again = Batch { after: JournalPosition { id: 0, hash: None }, rows };
    assert_eq!(signed.post(&server, "/v1/events", &again.to_gzip().unwrap()).0, 200);
    assert_eq!(asked(&at, &server, &["mcp", "events", "--limit", "1000"]), events);

    // The session of another host.
    let token = server.token("host", "other");
    enrol(&other, &token).expect_code(0);
    let (status, said) = Signed::of(&other).post(&server, "/v1/events", &again.to_gzip().unwrap());
    assert!(status == 409 && said.contains("another host"), "{said}");
    assert_eq!(asked(&at, &server, &["mcp", "events", "--limit", "1000"]), events);

    // A host that was revoked.
    Outcome::of(&mut at.agentsh(&["fleet", "revoke", &signed.host])).expect_code(0);
    forward(&host, &[]).expect_code(1);

    // A person, and a token that was not used yet.
    let (person, leaver) = (Place::new(Mode::Invoker), server.token("viewer", "viewer"));
    server.login(&person, "viewer");
    assert_eq!(hosts(&person).0.len(), 2);
    Outcome::of(&mut person.agentsh(&["fleet", "revoke", "--credential", "viewer"])).expect_code(1);
    Outcome::of(&mut at.agentsh(&["fleet", "revoke", "--credential", "nobody"])).expect_code(1);
    assert_eq!(hosts(&person).0.len(), 2);
    Outcome::of(&mut at.agentsh(&["fleet", "revoke", "--credential", "viewer"])).expect_code(0);
    let refused = Outcome::of(&mut person.agentsh(&["fleet", "hosts"])).expect_code(1);
    assert!(refused.stderr.contains("no such credential"), "{refused}");
    assert_eq!(login(&leaver), 1);
    assert_eq!(hosts(&at).0.len(), 2);

    // Plain text for other machines.
    let database = at.home.join("other.db");
    let words = ["fleet", "serve", "--listen", "0.0.0.0:0", "--database", database.to_str().unwrap()];
    let refused = Outcome::of(&mut at.agentsh(&words)).expect_code(125);
    assert!(refused.stderr.contains("--tls-cert"), "{refused}");
    let token = server.token("host", "x");
    let plain = ["fleet", "enrol", "--url", "http://192.0.2.1:8700", "--token", &token];
    let refused = Outcome::of(&mut other.agentsh(&plain)).expect_code(2);
    assert!(refused.stderr.contains("only to this machine"), "{refused}");
}

/// More batches than a host may have under way: it is told to retry later, and the others continue.
#[test]
fn batches_above_a_hosts_limit_are_told_to_retry_later() {
    let at = Place::new(Mode::Invoker);
    let server = Server::start(&at, at.home.join("fleet.db").to_str().unwrap(), &[]);
    server.login(&at, "viewer");
    let (host, other) = (Place::new(Mode::Invoker), Place::new(Mode::Invoker));
    for (host, name) in [(&host, "one"), (&other, "two")] {
        session(host, 1);
        server.enrol(host, name);
    }
    let signed = Signed::of(&host);
    // Bodies that do not come.
    let slow: Vec<TcpStream> = (0..4)
        .map(|_| {
            let mut stream = TcpStream::connect(&server.address).unwrap();
            let head = signed.head("/v1/events", b"123456789", 0);
            let lines: String = head.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let head = format!("POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n{lines}\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            stream
        })
        .collect();
    let empty = Batch { after: JournalPosition { id: 0, hash: None }, rows: Vec::new() }.to_gzip().unwrap();
    let answer = || signed.post(&server, "/v1/events", &empty);
    assert!(eventually(|| answer().0 == 429), "{}", answer().1);
    assert!(answer().1.contains("retry-after: 2"));
    forward(&other, &[]).expect_code(0);
    drop(slow);
    forward(&host, &[]).expect_code(0);
    assert_eq!(hosts(&at).1, 0);
}

fn row(id: i64, session: &str) -> agentsh_store::raw::Raw {
    agentsh_store::raw::Raw {
        id,
        session: session.to_owned(),
        seq: 1,
        time: "2026-01-02T03:04:05.000006Z".to_owned(),
        body: json!({"type": "x"}).to_string(),
        hash: [7; 32],
    }
}

/// The journal as it is.
fn rows_of(host: &Place) -> Vec<agentsh_store::raw::Raw> {
    let connection = rusqlite::Connection::open(host.home.join(".local/state/agentsh/agentsh.db")).unwrap();
    let mut statement =
        connection.prepare("SELECT id, session, seq, time, body, hash FROM events ORDER BY id").unwrap();
    let rows = statement.query_map([], |row| {
        Ok(agentsh_store::raw::Raw {
            id: row.get(0)?,
            session: row.get(1)?,
            seq: row.get::<_, i64>(2)?.try_into().unwrap(),
            time: row.get(3)?,
            body: row.get(4)?,
            hash: row.get::<_, Vec<u8>>(5)?.try_into().unwrap(),
        })
    });
    rows.unwrap().map(Result::unwrap).collect()
}

/// TLS ends in the server, and a certificate that nobody vouches for is not believed.
#[test]
fn fleet_tls_certificate_is_verified() {
    let at = Place::new(Mode::Invoker);
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    let certificate = at.write(at.home.join("cert.pem"), made.cert.pem());
    let key = at.write(at.home.join("key.pem"), made.signing_key.serialize_pem());
    let words = ["--tls-cert", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let server = Server::start(&at, at.home.join("fleet.db").to_str().unwrap(), &words);
    let url = format!("https://{}", server.address);
    let host = Place::new(Mode::Invoker);
    session(&host, 1);
    let token = server.token("host", "laptop");
    let enrol = || Outcome::of(&mut host.agentsh(&["fleet", "enrol", "--url", &url, "--token", &token]));
    assert_ne!(enrol().code, 0);
    host.set("SSL_CERT_FILE", certificate.to_str().unwrap());
    enrol().expect_code(0);
    forward(&host, &[]).expect_code(0);
}
