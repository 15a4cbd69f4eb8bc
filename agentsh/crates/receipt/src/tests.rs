#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::statement as of;
use super::*;

const NOW: &str = "2026-11-27T12:00:00Z";
const ONE: &str = "1111111111111111111111111111111111111111";
const TREE: &str = "2222222222222222222222222222222222222222";

fn predicate() -> Value {
    json!({
        "agentsh": "0.1.0", "issued": "2026-11-27T11:00:00Z", "binding": "record",
        "session": {"id": "0198", "version": "0.1.0", "verb": "run", "agent": "claude", "kernel": "Linux 6.12",
            "started": "2026-11-27T10:00:00Z", "ended": "2026-11-27T10:30:00Z", "exit_code": 0},
        "record": {"events": 120, "head": "sha256:aa"},
        "policy": [{"name": "built-in:claude", "digest": "sha256:bb"}],
        "organisation": [{"name": "acme", "version": 3, "state": "in-force"}],
        "layers": [{"server": null, "layer": "landlock", "state": "enforced"},
            {"server": "fs", "layer": "landlock", "state": "enforced"},
            {"server": "fs", "layer": "memory limit", "state": "degraded"}],
        "programs": [{"server": null, "name": "claude", "digest": "sha256:cc", "starts": 1},
            {"server": "fs", "name": "node", "digest": "sha256:dd", "starts": 2}],
        "servers": [{"id": "fs", "pin": "first-use", "interface": "mcp1:ee", "registry": "approved",
            "definitions": "sha256:00",
            "profile": {"name": "built-in:servers/fs.yaml", "digest": "sha256:ff"}}],
        "hosts": [{"name": "api.example.com", "port": 443, "connections": 7}],
        "tools": [{"server": "fs", "tool": "delete", "calls": 3, "refused": 2}],
        "refusals": [{"what": "call", "reason": "denied-tool", "rule": "policy.yaml:3 (x)", "count": 2}],
        "approvals": [{"server": "fs", "name": "delete", "word": "approved", "scope": "always", "by": "uid 1000", "count": 1}],
        "models": [{"model": "m-1", "answers": 4, "input_tokens": 1000, "output_tokens": 200}],
        "included": [{"what": "addresses", "name": "example.org:443", "count": 2}],
    })
}

fn statement() -> Statement {
    let predicate = serde_json::from_value(predicate()).unwrap();
    Statement::new(&[(ONE.to_owned(), TREE.to_owned())], predicate)
}

fn key() -> SigningKey {
    SigningKey::read(&SigningKey::make().unwrap()).unwrap()
}

fn at(text: &str, signers: &[Signer]) -> Result<Statement, EnvelopeRefusal> {
    open(text, signers, NOW.parse().unwrap()).map(|(statement, _)| statement)
}

/// An envelope around any text, signed as it should be.
fn around(payload: &str, key: &SigningKey) -> String {
    let kind = "application/vnd.in-toto+json";
    let encoded = format!("DSSEv1 {} {kind} {} {payload}", kind.len(), payload.len());
    let signature = STANDARD.encode(key.sign(encoded.as_bytes()));
    enveloped(payload, &key.public().fingerprint(), &signature)
}

fn enveloped(payload: &str, id: &str, signature: &str) -> String {
    let payload = STANDARD.encode(payload);
    format!(
        r#"{{"payloadType":"application/vnd.in-toto+json","payload":"{payload}","signatures":[{{"keyid":"{id}","sig":"{signature}"}}]}}"#
    ) + "\n"
}

/// Pointers of every member of an object or list, and of every value, of a document.
fn places(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, inner)| places(inner, format!("{at}/{name}"), found));
        }
        Value::Array(items) => {
            (0..)
                .zip(items)
                .for_each(|(number, inner): (usize, _)| places(inner, format!("{at}/{number}"), found));
        }
        _ => {}
    }
    found.push(at);
}

/// Something else in the place of a value.
fn mutated(value: &Value, round: u64) -> Value {
    match value {
        Value::Number(number) => json!(number.as_u64().unwrap() + 1 + round),
        Value::Null => json!(format!("s{round}")),
        Value::String(text) => {
            let number = usize::try_from(round).unwrap();
            let mut letters: Vec<char> = text.chars().collect();
            let place = number % letters.len();
            match number % 3 {
                0 => letters[place] = if letters[place] == 'z' { 'y' } else { 'z' },
                1 => letters.insert(place, char::from_digit((round % 10) as u32, 10).unwrap()),
                _ => drop(letters.remove(place)),
            }
            json!(letters.into_iter().collect::<String>() + &"~".repeat(number / letters_of(text)))
        }
        _ => json!(round),
    }
}

fn letters_of(text: &str) -> usize {
    text.chars().count().max(1)
}

/// The names of all fields, as the reader of a type lists them.
fn fields<T: serde::de::DeserializeOwned + std::fmt::Debug>() -> Vec<String> {
    let said = serde_json::from_str::<T>(r#"{"?":0}"#).unwrap_err().to_string();
    said.split('`').skip(3).step_by(2).map(str::to_owned).collect()
}

/// Every object of a receipt, with the names that it may have.
fn objects() -> Vec<(&'static str, Vec<String>)> {
    vec![
        ("", fields::<Statement>()),
        ("/subject/0", fields::<of::Subject>()),
        ("/predicate", fields::<Predicate>()),
        ("/predicate/session", fields::<of::Session>()),
        ("/predicate/record", fields::<of::Chain>()),
        ("/predicate/policy/0", fields::<of::Layered>()),
        ("/predicate/organisation/0", fields::<of::Organisation>()),
        ("/predicate/layers/0", fields::<of::Layer>()),
        ("/predicate/programs/0", fields::<of::Program>()),
        ("/predicate/servers/0", fields::<of::Server>()),
        ("/predicate/servers/0/profile", fields::<of::Layered>()),
        ("/predicate/hosts/0", fields::<of::Host>()),
        ("/predicate/tools/0", fields::<of::Tool>()),
        ("/predicate/refusals/0", fields::<of::Refusal>()),
        ("/predicate/approvals/0", fields::<of::Approval>()),
        ("/predicate/models/0", fields::<of::Model>()),
        ("/predicate/unattributed", fields::<of::Unattributed>()),
        ("/predicate/included/0", fields::<of::Included>()),
    ]
}

#[test]
fn an_honest_receipt_is_good() {
    let key = key();
    let text = sign(&statement(), &key).unwrap();
    let read = at(&text, &[Signer::of("ada", key.public())]).unwrap();
    assert_eq!(read, statement());
    assert_eq!(read.about(ONE, TREE), Ok(()));
    assert!(read.about(TREE, TREE).unwrap_err().contains("not about commit 2222"));
    assert!(read.about(ONE, ONE).unwrap_err().contains("has the tree 1111"));
    assert_eq!(text, around(&read.text().unwrap(), &key), "what DSSE says is signed");
}

/// Forgeries of a receipt without the key: a hundred other values in the place of each.
#[test]
fn a_hundred_mutations_of_every_field_are_refused() {
    let (key, other) = (key(), key());
    let signers = [Signer::of("ada", key.public())];
    let text = sign(&statement(), &key).unwrap();
    let mut predicate = statement().predicate;
    predicate.removed = vec!["old".to_owned()];
    let files = Statement::of_files([("src/b".to_owned(), "ab".repeat(32))], predicate);
    let mut commits = statement();
    commits.predicate.unattributed =
        Some(of::Unattributed { count: 2, commits: vec![TREE.to_owned(), ONE.to_owned()] });
    let mut found: Vec<(String, Value, Value)> = Vec::new();
    for of in [commits, files] {
        let honest: Value = serde_json::from_str(&of.text().unwrap()).unwrap();
        let envelope: Value = serde_json::from_str(&sign(&of, &key).unwrap()).unwrap();
        let mut own = Vec::new();
        places(&honest, String::new(), &mut own);
        // What both have is tried in the first.
        own.retain(|place| {
            !place.is_empty()
                && found.iter().all(|(known, ..)| known != place || place.starts_with("/subject"))
        });
        found.extend(own.into_iter().map(|place| (place, honest.clone(), envelope.clone())));
    }
    // None is forgotten: every name that a reader takes is there, and every object is one of those.
    let objects = objects();
    for (object, names) in &objects {
        assert!(!names.is_empty(), "{object}");
        for name in names {
            let place = format!("{object}/{name}");
            assert!(found.iter().any(|(known, ..)| *known == place), "{place}");
        }
    }
    for (place, honest, _) in
        found.iter().filter(|(place, honest, _)| honest.pointer(place).unwrap().is_object())
    {
        let first: String =
            place.chars().map(|letter| if letter.is_ascii_digit() { '0' } else { letter }).collect();
        let is_known = objects.iter().any(|(object, _)| *object == first) || first.ends_with("/digest");
        assert!(is_known, "{place}: {honest}");
    }
    for (place, honest, envelope) in &found {
        let [id, signature] = ["keyid", "sig"].map(|name| envelope["signatures"][0][name].as_str().unwrap());
        for round in 0..100 {
            let mut payload = honest.clone();
            let value = payload.pointer_mut(place).unwrap();
            *value = mutated(value, round);
            assert_ne!(payload, *honest, "{place} {round}");
            let payload = payload.to_string();
            let edited = at(&enveloped(&payload, id, signature), &signers);
            assert_eq!(edited, Err(EnvelopeRefusal::Edited("ada".to_owned())), "{place} {round}");
            if round == 0 {
                let forged = at(&around(&payload, &other), &signers);
                assert_eq!(forged, Err(EnvelopeRefusal::Stranger(other.public().fingerprint())), "{place}");
            }
        }
    }
    // And of every letter of the envelope.
    for (number, byte) in text.bytes().enumerate() {
        for round in 0..4 {
            let mut bytes = text.clone().into_bytes();
            bytes[number] = [byte ^ 1, byte ^ 32, b'"', b'A'][round];
            if bytes[number] != byte
                && let Ok(text) = String::from_utf8(bytes)
            {
                at(&text, &signers).unwrap_err();
            }
        }
        at(&text[..number], &signers).unwrap_err();
    }
    for more in [" ", "\n", "{}"] {
        at(&(text.clone() + more), &signers).unwrap_err();
    }
}

/// What was added since is left out where there is nothing of it: what was signed before keeps its spelling.
#[test]
fn a_receipt_of_the_first_version_is_good() {
    let key = key();
    let signers = [Signer::of("ada", key.public())];
    let first = statement().text().unwrap();
    let first = first.replace(r#","definitions":"sha256:00""#, "");
    let first = first.replace(r#","profile":{"name":"built-in:servers/fs.yaml","digest":"sha256:ff"}"#, "");
    let first = first.replace(r#","included":[{"what":"addresses","name":"example.org:443","count":2}]"#, "");
    assert!(
        !first.contains("profile") && !first.contains("definitions") && !first.contains("included"),
        "{first}"
    );
    at(&around(&first, &key), &signers).unwrap();
    let empty = first.replace(r#""output_tokens":200}]"#, r#""output_tokens":200}],"included":[]"#);
    assert!(matches!(at(&around(&empty, &key), &signers), Err(EnvelopeRefusal::Form(_))));
}

#[test]
fn files_are_named_by_paths_that_lead_nowhere_else() {
    let key = key();
    let predicate: Predicate = serde_json::from_value(predicate()).unwrap();
    let of = |files: &[(&str, &str)], removed: &[&str]| {
        let files = files.iter().map(|(name, digest)| ((*name).to_owned(), (*digest).to_owned()));
        let removed = removed.iter().map(|name| (*name).to_owned()).collect();
        sign(&Statement::of_files(files, Predicate { removed, ..predicate.clone() }), &key)
    };
    let digest = "ab".repeat(32);
    let text = of(&[("a", &digest), ("src/b", &digest)], &["old"]).unwrap();
    let read = at(&text, &[Signer::of("ada", key.public())]).unwrap();
    let files: Vec<_> = read.files().collect();
    assert_eq!(files, [("a", Some(&*digest)), ("src/b", Some(&*digest)), ("old", None)]);
    assert_eq!(read.commits().count(), 0);
    for (name, digest) in [("../a", &*digest), ("/a", &digest), ("", &digest), ("a", ONE), ("a", "x")] {
        assert!(of(&[(name, digest)], &[]).is_err(), "{name} {digest}");
    }
    assert!(of(&[("a", &digest)], &["../a"]).is_err());
    assert!(of(&[("b", &digest), ("a", &digest)], &[]).is_err() && of(&[], &["a"]).is_err());
}

#[test]
fn a_profile_is_no_receipt() {
    let key = key();
    let signers = [Signer::of("ada", key.public())];
    let now = NOW.parse().unwrap();
    let text = sign_profile("version: 1\n", &key).unwrap();
    assert_eq!(open_profile(&text, &signers, now).unwrap().0, "version: 1\n");
    assert!(matches!(at(&text, &signers), Err(EnvelopeRefusal::Form(_))));
    assert!(matches!(
        open_profile(&sign(&statement(), &key).unwrap(), &signers, now),
        Err(EnvelopeRefusal::Form(_))
    ));
}

#[test]
fn a_public_key_of_minisign_is_read() {
    let key = key();
    let bytes =
        [&b"Ed12345678"[..], &STANDARD.decode(key.public().line().split(' ').nth(1).unwrap()).unwrap()[19..]]
            .concat();
    let file = |bytes: &[u8]| format!("untrusted comment: x\n{}\n", STANDARD.encode(bytes));
    assert_eq!(signers(&file(&bytes)).unwrap()[0].key, key.public());
    for wrong in [&bytes[1..], &bytes[..41], b"Ed"] {
        assert_eq!(signers(&file(wrong)), Err(KeyError::Minisign));
    }
}

/// Even with the key nobody can sign a text that two readers would understand differently.
#[test]
fn there_is_one_spelling() {
    let key = key();
    let signers = [Signer::of("ada", key.public())];
    let good = statement().text().unwrap();
    at(&around(&good, &key), &signers).unwrap();
    let first = r#"{"_type":"#;
    for (from, to) in [
        (first, r#"{"more":1,"_type":"#),
        (first, r#"{ "_type":"#),
        (first, r#"{"_type":"x","_type":"#),
        (r#""events":120"#, r#""events":120.0"#),
        (r#""events":120"#, r#""events":"120""#),
        (r#""gitCommit":"#, r#""gitCommit":"x","gitCommit":"#),
        (r#""binding":"record""#, r#""binding":"none""#),
        (r#""verb":"run""#, r#""verb":"r\u0075n""#),
        ("in-toto.io/Statement/v1", "in-toto.io/Statement/v2"),
        ("urn:agentsh:receipt:1", "urn:agentsh:receipt:2"),
        ("commit 1111", "commit 2111"),
        (ONE, "11"),
        ("11:00:00Z", "11:00:00+00:00"),
        (r#""events":120,"head":"sha256:aa""#, r#""head":"sha256:aa","events":120"#),
        (r#""included":["#, r#""unattributed":null,"included":["#),
        (r#""included":["#, r#""removed":["a"],"included":["#),
    ] {
        let payload = good.replace(from, to);
        assert_ne!(payload, good, "{to}");
        assert!(matches!(at(&around(&payload, &key), &signers), Err(EnvelopeRefusal::Form(_))), "{to}");
    }
    let mut none = statement();
    none.subject.clear();
    assert!(sign(&none, &key).unwrap_err().contains("no commit"));
    let envelope = around(&good, &key);
    let one = &envelope[envelope.find(r#"{"keyid""#).unwrap()..envelope.find("]}").unwrap()];
    // The good signature has 64 bytes: one letter and its padding carry four bits that mean nothing.
    let end = &envelope[envelope.find("\"}]}").unwrap() - 3..envelope.find("\"}]}").unwrap()];
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let next = alphabet.find(&end[..1]).unwrap() + 1;
    for (from, to) in [
        (r#"{"keyid""#, r#"{"x":1,"keyid""#),
        (r#"{"keyid""#, r#"{"keyid":"x","keyid""#),
        (r#"{"payloadType""#, r#"{"payload":"e30=","payloadType""#),
        (r#"","payload":""#, r#"","payload":"\u0065"#),
        (r#","signatures""#, r#", "signatures""#),
        ("vnd.in-toto+json", "vnd.in-toto"),
        (one, &format!("{one},{one}")),
        (one, ""),
        (end, end.trim_end_matches('=')),
        (end, &format!("{}==", &alphabet[next..=next])),
        ("\"}]}", "\\n\"}]}"),
    ] {
        let edited = envelope.replacen(from, to, 1);
        assert_ne!(edited, envelope, "{to}");
        assert!(matches!(at(&edited, &signers), Err(EnvelopeRefusal::Form(_))), "{from} {to}");
    }
    let stranger = envelope.replace("SHA256:", "SHA256:+");
    assert!(matches!(at(&stranger, &signers), Err(EnvelopeRefusal::Stranger(_))));
}

#[test]
fn a_key_has_its_time() {
    let key = key();
    let text = sign(&statement(), &key).unwrap();
    let line = key.public().line();
    let read = |options: &str| signers(&format!("# ours\n\nada@example.org {options} {line} laptop\n"));
    let ask = |options: &str| at(&text, &read(options).unwrap()).map(|_| ());
    assert_eq!(
        ask(r#"valid-after="20261127",valid-before="202611271201Z",namespaces="git,agentsh""#),
        Ok(())
    );
    let who = || "ada@example.org".to_owned();
    // It was issued an hour ago: an expired key is refused for what it signed before, too.
    let expired = EnvelopeRefusal::Expired(who(), "2026-11-27T11:30:00Z".parse().unwrap());
    assert_eq!(ask(r#"valid-before="202611271130""#), Err(expired));
    let early = EnvelopeRefusal::Early(who(), "2026-11-27T11:30:00Z".parse().unwrap());
    assert_eq!(ask(r#"valid-after="20261127113000Z""#), Err(early));
    assert_eq!(read(r#"namespaces="git""#), Err(KeyError::Nobody));
    for wrong in [
        "cert-authority",
        r#"valid-before="soon""#,
        r#"valid-before="20261399""#,
        r#"valid-before="20200101",valid-before="20270101""#,
        r#"valid-after="20270101",VALID-AFTER="20200101""#,
        r#"namespaces="!agentsh,*""#,
    ] {
        assert!(matches!(read(wrong), Err(KeyError::Line(3, _))), "{wrong}");
    }
    assert_eq!(signers(&line).unwrap()[0].who, key.public().fingerprint());
    assert_eq!(signers("ada ssh-rsa AAAA\n"), Err(KeyError::Nobody));
    assert!(matches!(signers("ada ssh-ed25519 AAAA\n"), Err(KeyError::Line(1, _))));
    let past: jiff::Timestamp = "2026-11-27T10:00:00Z".parse().unwrap();
    let future = open(&text, &[Signer::of("ada", key.public())], past).map(|_| ());
    assert!(matches!(future, Err(EnvelopeRefusal::Future(_))));
}

#[test]
fn a_key_with_a_passphrase_and_no_key_are_told_apart() {
    let text = SigningKey::make().unwrap();
    let body: String = text.lines().filter(|line| !line.starts_with('-')).collect();
    let mut bytes = STANDARD.decode(body).unwrap();
    bytes[19..23].copy_from_slice(b"aes1");
    let other = format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END", STANDARD.encode(bytes));
    assert_eq!(SigningKey::read(&other).err(), Some(KeyError::Passphrase));
    assert_eq!(SigningKey::read("nothing").err(), Some(KeyError::NotPrivate));
    for length in 0..text.len() - 40 {
        assert!(SigningKey::read(&text[..length]).is_err(), "{length}");
    }
}

#[test]
fn what_is_required_is_said_where_it_is_missing() {
    let predicate: Predicate = serde_json::from_value(predicate()).unwrap();
    let unmet = |text: &str| Requirements::read(text).unwrap().unmet(&predicate);
    for met in [
        "layers: [landlock]",
        "hosts: ['api.example.com']",
        "hosts: ['*.example.com:443', other.example]",
        "tools_denied: [other/delete, fs/read]",
        "commits: recorded",
    ] {
        assert_eq!(unmet(met), Vec::<String>::new(), "{met}");
    }
    for (text, why) in [
        ("layers: [seccomp]", "layers: 'seccomp' is not on record for the agent"),
        ("layers: [memory limit]", "layers: 'memory limit' is degraded for server 'fs'"),
        ("hosts: []", "hosts: api.example.com:443 is not allowed and was reached"),
        (
            "hosts: ['api.example.com:80', '*.api.example.com']",
            "hosts: api.example.com:443 is not allowed and was reached",
        ),
        ("tools_denied: ['*/delete']", "tools_denied: fs/delete was called"),
        ("pins: known", "pins: server 'fs' is first-use"),
        ("approvals: no-always", "approvals: fs/delete was approved: always"),
        ("approvals: none", "approvals: fs/delete was approved: always"),
    ] {
        assert!(unmet(text).iter().any(|said| said == why), "{text}: {:?}", unmet(text));
    }
    for wrong in ["layer: [landlock]", "pins: unknown", "- x", "hosts: [1]\nhosts: []"] {
        assert!(Requirements::read(wrong).is_err(), "{wrong}");
    }
}
