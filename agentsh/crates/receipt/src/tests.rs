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

fn ada(key: &SigningKey) -> Accepted {
    Accepted::Keys(vec![Signer::of("ada", key.public().unwrap())])
}

fn at(text: &str, accepted: &Accepted) -> Result<Statement, EnvelopeRefusal> {
    open(text, accepted, NOW.parse().unwrap()).map(|(statement, _)| statement)
}

/// An envelope around any text, signed as it should be.
fn around(payload: &str, key: &SigningKey) -> String {
    let kind = "application/vnd.in-toto+json";
    let encoded = format!("DSSEv1 {} {kind} {} {payload}", kind.len(), payload.len());
    let signature = STANDARD.encode(key.sign(encoded.as_bytes()).unwrap());
    enveloped(payload, &key.fingerprint(), &signature)
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

/// Something else in place of a value.
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
fn valid_receipt_is_accepted() {
    let key = key();
    let text = sign(&statement(), &key).unwrap();
    let read = at(&text, &ada(&key)).unwrap();
    assert_eq!(read, statement());
    assert_eq!(read.check_commit(ONE, TREE), Ok(()));
    assert!(read.check_commit(TREE, TREE).unwrap_err().contains("not about commit 2222"));
    assert!(read.check_commit(ONE, ONE).unwrap_err().contains("has the tree 1111"));
    assert_eq!(text, around(&read.text().unwrap(), &key), "what DSSE says is signed");
}

/// Forgeries of a receipt without the key: a hundred other values in place of each.
#[test]
fn receipt_with_any_mutated_field_is_refused() {
    let (key, other) = (key(), key());
    let signers = ada(&key);
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
        // Members that both have are tried in the first.
        own.retain(|place| {
            !place.is_empty()
                && found.iter().all(|(known, ..)| known != place || place.starts_with("/subject"))
        });
        found.extend(own.into_iter().map(|place| (place, honest.clone(), envelope.clone())));
    }
    // The list is complete: it has every name that a reader takes, and every object.
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
                assert_eq!(forged, Err(EnvelopeRefusal::Stranger(other.fingerprint())), "{place}");
            }
        }
    }
    // Mutations of every letter of the envelope.
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

/// Empty members that were added later are left out, so that older receipts keep their signed spelling.
#[test]
fn receipt_of_the_first_version_is_accepted() {
    let key = key();
    let signers = ada(&key);
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
    let read = at(&text, &ada(&key)).unwrap();
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
fn signed_profile_is_not_accepted_as_a_receipt() {
    let key = key();
    let signers = ada(&key);
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
    let bytes = [
        &b"Ed12345678"[..],
        &STANDARD.decode(key.public().unwrap().line().split(' ').nth(1).unwrap()).unwrap()[19..],
    ]
    .concat();
    let file = |bytes: &[u8]| format!("untrusted comment: x\n{}\n", STANDARD.encode(bytes));
    assert_eq!(signers(&file(&bytes)).unwrap()[0].key, key.public().unwrap());
    for wrong in [&bytes[1..], &bytes[..41], b"Ed"] {
        assert_eq!(signers(&file(wrong)), Err(KeyError::Minisign));
    }
}

/// Even with the key nobody can sign a text that two readers would understand differently.
#[test]
fn receipt_with_another_spelling_is_refused() {
    let key = key();
    let signers = ada(&key);
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
fn receipt_key_is_valid_only_in_its_period() {
    let key = key();
    let text = sign(&statement(), &key).unwrap();
    let line = key.public().unwrap().line();
    let read = |options: &str| signers(&format!("# ours\n\nada@example.org {options} {line} laptop\n"));
    let ask = |options: &str| at(&text, &Accepted::Keys(read(options).unwrap())).map(|_| ());
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
    assert_eq!(signers(&line).unwrap()[0].who, key.fingerprint());
    assert_eq!(signers("ada ssh-rsa AAAA\n"), Err(KeyError::Nobody));
    assert!(matches!(signers("ada ssh-ed25519 AAAA\n"), Err(KeyError::Line(1, _))));
    let past: jiff::Timestamp = "2026-11-27T10:00:00Z".parse().unwrap();
    let future = open(&text, &ada(&key), past).map(|_| ());
    assert!(matches!(future, Err(EnvelopeRefusal::Future(_))));
}

#[test]
fn key_with_a_passphrase_and_a_non_key_have_different_errors() {
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
fn requirements_that_a_receipt_does_not_meet_are_named() {
    let predicate: Predicate = serde_json::from_value(predicate()).unwrap();
    let unmet = |text: &str| Requirements::read(text).unwrap().unmet_requirements(&predicate);
    for met in [
        "layers: [landlock]",
        "hosts: ['api.example.com']",
        "hosts: ['*.example.com:443', other.example]",
        "tools_denied: [other/delete, fs/read]",
        "commits: recorded",
    ] {
        assert_eq!(unmet(met), Vec::<String>::new(), "{met}");
    }
    for odd in
        ["pins:", "approvals:", "tools_denied: ['fs/del*']", "tools_denied: ['fs/']", "tools_denied: ['']"]
    {
        Requirements::read(odd).unwrap_err();
    }
    assert_eq!(unmet("hosts:").len(), 1, "none is allowed");
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

/// An authority of a test: its root, one between, and the key of a signer with this name.
struct Issued {
    root: String,
    between: rcgen::CertifiedIssuer<'static, rcgen::KeyPair>,
}

impl Issued {
    fn new() -> Self {
        use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
        let named = |name: &str| {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.distinguished_name.push(DnType::CommonName, name);
            params
        };
        let root = CertifiedIssuer::self_signed(named("root"), KeyPair::generate().unwrap()).unwrap();
        let between =
            CertifiedIssuer::signed_by(named("between"), KeyPair::generate().unwrap(), &root).unwrap();
        Self { root: root.pem(), between }
    }

    fn key(&self, change: impl FnOnce(&mut rcgen::CertificateParams)) -> SigningKey {
        self.of(&rcgen::KeyPair::generate().unwrap(), change)
    }

    fn of(&self, key: &rcgen::KeyPair, change: impl FnOnce(&mut rcgen::CertificateParams)) -> SigningKey {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, "signer");
        params.subject_alt_names = vec![rcgen::SanType::Rfc822Name("ada@example.org".try_into().unwrap())];
        change(&mut params);
        let own = params.signed_by(key, &self.between).unwrap();
        SigningKey::read(&[key.serialize_pem(), own.pem(), self.between.pem(), self.root.clone()].concat())
            .unwrap()
    }

    fn accepted(&self, name: &str, issuer: Option<&str>) -> Accepted {
        Accepted::Authorities(Authorities::read(&self.root, name, issuer).unwrap())
    }
}

#[test]
fn a_certificate_of_an_authority_is_accepted_for_its_name() {
    let issued = Issued::new();
    let accepted = issued.accepted("ada@example.org", None);
    let ed25519 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let honest = [issued.key(|_| {}), issued.of(&ed25519, |_| {})];
    for key in &honest {
        let text = sign(&statement(), key).unwrap();
        assert_eq!(at(&text, &accepted).unwrap(), statement());
        assert_eq!(
            serde_json::from_str::<Value>(&text).unwrap()["signatures"][0]["x5c"].as_array().unwrap().len(),
            2
        );
    }
    let text = sign(&statement(), &honest[0]).unwrap();
    for (others, why) in [
        (
            issued.accepted("bob@example.org", None),
            "it names ada@example.org, and not the e-mail address bob@example.org",
        ),
        (issued.accepted("ada@example.org", Some("https://login.example")), "its OpenID issuer is not named"),
        (Issued::new().accepted("ada@example.org", None), "none of the given authorities issued it"),
        (ada(&key()), "with a certificate"),
    ] {
        let refused = at(&text, &others).unwrap_err().to_string();
        assert!(refused.contains(why), "{why}: {refused}");
    }
    let refused = |change: &dyn Fn(&mut rcgen::CertificateParams)| {
        let text = sign(&statement(), &issued.key(change)).unwrap();
        at(&text, &accepted).unwrap_err().to_string()
    };
    let day = rcgen::date_time_ymd;
    let expired = refused(&|params| params.not_after = day(2026, 11, 1));
    assert_eq!(
        expired,
        "the key of ada@example.org (or a certificate above it) expired at 2026-11-01T00:00:00Z"
    );
    let early = refused(&|params| params.not_before = day(2026, 11, 28));
    assert_eq!(
        early,
        "the key of ada@example.org (or a certificate above it) is not valid before 2026-11-28T00:00:00Z"
    );
    let purpose =
        refused(&|params| params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth]);
    assert!(purpose.contains("code signing is none of its purposes"), "{purpose}");
    assert!(refused(&|params| params.subject_alt_names.clear()).contains("it names nobody"));
    // The same letters as another kind of name, which an authority may be allowed to issue for.
    for name in ["URI", "DNS"] {
        let other = |params: &mut rcgen::CertificateParams| {
            let same = "ada@example.org".try_into().unwrap();
            let same = if name == "URI" { rcgen::SanType::URI(same) } else { rcgen::SanType::DnsName(same) };
            params.subject_alt_names = vec![same];
        };
        assert!(refused(&other).contains("and not the e-mail address"), "{name}");
    }
    // As sigstore's have it, in DER: a text of 21 bytes.
    let login = "https://login.example";
    let sigstore = |params: &mut rcgen::CertificateParams| {
        let text = [&[0x0c, 21], login.as_bytes()].concat();
        let kind = [1, 3, 6, 1, 4, 1, 57264, 1, 8];
        params.custom_extensions.push(rcgen::CustomExtension::from_oid_content(&kind, text));
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::CodeSigning];
        params.subject_alt_names = vec![rcgen::SanType::URI("https://example.org/ada".try_into().unwrap())];
    };
    let text = sign(&statement(), &issued.key(sigstore)).unwrap();
    at(&text, &issued.accepted("https://example.org/ada", Some(login))).unwrap();
    for issuer in [None, Some("https://other.example")] {
        let refused = at(&text, &issued.accepted("https://example.org/ada", issuer)).unwrap_err().to_string();
        assert!(refused.contains(login), "{refused}");
    }
}

#[test]
fn every_mutation_of_a_certificate_is_refused() {
    let issued = Issued::new();
    let accepted = issued.accepted("ada@example.org", None);
    let text = sign(&statement(), &issued.key(|_| {})).unwrap();
    let envelope: Value = serde_json::from_str(&text).unwrap();
    let whole: Vec<String> = serde_json::from_value(envelope["signatures"][0]["x5c"].clone()).unwrap();
    let list = |chain: &[String]| serde_json::to_string(chain).unwrap();
    let chain = |other: Vec<String>| at(&text.replace(&list(&whole), &list(&other)), &accepted);
    chain(whole.clone()).unwrap();
    for wrong in [
        vec![],
        whole[..1].to_vec(),
        [&whole[..], &whole[1..]].concat(),
        whole.iter().rev().cloned().collect(),
    ] {
        chain(wrong).unwrap_err();
    }
    for (number, one) in whole.iter().enumerate() {
        let bytes = STANDARD.decode(one).unwrap();
        for place in 0..bytes.len() {
            let mut other = bytes.clone();
            other[place] ^= 1 << (place % 8);
            let mut edited = whole.clone();
            edited[number] = STANDARD.encode(other);
            chain(edited).unwrap_err();
        }
    }
}

#[test]
fn a_key_and_a_certificate_that_do_not_belong_together_are_refused() {
    let issued = Issued::new();
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    for text in [
        key.clone(),
        key.clone() + &issued.between.pem(),
        issued.between.pem(),
        key.replace("PRIVATE", "EC PRIVATE"),
    ] {
        let why = SigningKey::read(&text).err().unwrap();
        assert!(matches!(why, KeyError::Pkcs8 | KeyError::Certificate), "{why}");
    }
    Authorities::read(&key, "ada", None).unwrap_err();
}
