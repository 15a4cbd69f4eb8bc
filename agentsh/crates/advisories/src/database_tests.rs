#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use minisign::KeyPair;
use serde_json::json;

use super::*;
use crate::deny::signers;
use crate::read::documents;
use crate::{Ecosystem, archive};

fn now() -> Timestamp {
    "2026-06-01T00:00:00Z".parse().unwrap()
}

fn left(version: &str) -> BTreeSet<Package> {
    BTreeSet::from([Package::new(Ecosystem::Npm, "left", version)])
}

fn osv() -> String {
    json!({"id": "GHSA-1", "aliases": ["CVE-2026-1"], "modified": "2026-01-01T00:00:00Z", "summary": "it leaks\nmore",
        "affected": [{"package": {"ecosystem": "npm", "name": "left"},
            "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}, {"fixed": "1.2.0"}]}]}]})
    .to_string()
}

fn database() -> (tempfile::TempDir, Database) {
    let place = tempfile::tempdir().unwrap();
    let database = Database::create(place.path()).unwrap();
    (place, database)
}

fn take(database: &mut Database, source: &str, text: &str) {
    database.take(source, &documents(text.as_bytes()).unwrap().all, |_| Vec::new(), now()).unwrap();
}

#[test]
fn the_vulnerable_version_is_found_and_the_fixed_one_is_not() {
    let (place, mut database) = database();
    take(&mut database, "a.json", &osv());
    let kev = json!({"title": "known", "catalogVersion": "1", "dateReleased": "2026-01-01T00:00:00Z", "count": 1,
        "vulnerabilities": [{"cveID": "CVE-2026-1", "vendorProject": "left", "product": "left", "dateAdded": "2026-02-01",
            "vulnerabilityName": "left leak", "shortDescription": "", "requiredAction": "update", "dueDate": "2026-03-01"}]});
    take(&mut database, "kev.json", &kev.to_string());
    let database = Database::open(place.path()).unwrap().unwrap();
    let found = database.of_packages(&left("1.1.9"), &TrustedSigners::default(), now()).unwrap();
    let told: Vec<_> = found.iter().map(|one| (one.kind, one.id.as_str(), one.fixed.as_deref())).collect();
    assert_eq!(
        told,
        [
            (AdvisoryKind::Vendor, "CVE-2026-1", Some("1.2.0")),
            (AdvisoryKind::Dependency, "GHSA-1", Some("1.2.0"))
        ]
    );
    assert_eq!(found[1].summary, "it leaks");
    assert!(database.of_packages(&left("1.2.0"), &TrustedSigners::default(), now()).unwrap().is_empty());
    assert!(database.record("ghsa-1").unwrap().unwrap().contains("it leaks"));
    assert_eq!(database.sources().unwrap().len(), 2);
}

#[test]
fn a_newer_record_replaces_the_older_one() {
    let (_place, mut database) = database();
    take(&mut database, "a", &osv());
    take(&mut database, "a", &osv().replace("\"left\"", "\"right\""));
    assert!(database.of_packages(&left("1.0.0"), &TrustedSigners::default(), now()).unwrap().is_empty());
}

#[test]
fn source_update_keeps_records_of_other_sources() {
    let (_place, mut database) = database();
    let kev = |id: &str| {
        json!({"title": "known", "catalogVersion": "1", "dateReleased": "2026-01-01T00:00:00Z", "count": 1,
            "vulnerabilities": [{"cveID": id, "vendorProject": "left", "product": "left", "dateAdded": "2026-02-01",
                "vulnerabilityName": "leak", "shortDescription": "", "requiredAction": "update",
                "dueDate": "2026-03-01"}]})
        .to_string()
    };
    let found = |database: &Database| {
        let found = database.of_packages(&left("1.0.0"), &TrustedSigners::default(), now()).unwrap();
        found.into_iter().map(|one| (one.id, one.summary)).collect::<Vec<_>>()
    };
    take(&mut database, "a", &osv());
    take(&mut database, "kev", &kev("CVE-2026-1"));
    let both = found(&database);
    assert_eq!(both.len(), 2, "{both:?}");
    // Another catalogue, and a newer record that is about something else.
    take(&mut database, "b", &kev("CVE-2026-2"));
    take(&mut database, "b", &osv().replace("2026-01-01", "2026-05-01").replace("\"left\"", "\"right\""));
    assert_eq!(found(&database), both);
    // Of two records about it, the newer one is reported, once.
    take(&mut database, "c", &osv().replace("2026-01-01", "2026-05-02").replace("it leaks", "it gushes"));
    let told = found(&database);
    assert!(told.len() == 2 && told.iter().any(|(_, summary)| summary == "it gushes"), "{told:?}");
    // An older record does not replace a newer one of the same source.
    take(&mut database, "c", &osv());
    assert_eq!(found(&database), told);
}

#[test]
fn database_of_an_older_version_is_read_and_updated() {
    let place = tempfile::tempdir().unwrap();
    let connection = Connection::open(place.path().join(FILE)).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE osv (ecosystem TEXT NOT NULL, name TEXT NOT NULL, id TEXT NOT NULL, record TEXT NOT NULL,
                PRIMARY KEY (ecosystem, name, id)) WITHOUT ROWID;
            CREATE INDEX osv_by_id ON osv (id);
            CREATE TABLE kev (id TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;",
        )
        .unwrap();
    connection.execute("INSERT INTO osv VALUES ('npm', 'left', 'GHSA-1', ?1)", [osv()]).unwrap();
    drop(connection);
    let count = |database: &Database| {
        database.of_packages(&left("1.0.0"), &TrustedSigners::default(), now()).unwrap().len()
    };
    assert_eq!(count(&Database::open(place.path()).unwrap().unwrap()), 1);
    assert_eq!(count(&Database::create(place.path()).unwrap()), 1);
    let mut database = Database::create(place.path()).unwrap();
    take(&mut database, "a", &osv().replace("\"left\"", "\"right\""));
    assert_eq!(count(&database), 0, "whoever gives it anew takes its place");
}

/// A list, and its signatures by these keys.
fn signed(version: u64, keys: &[&KeyPair]) -> (String, String) {
    let list = json!({"format": "agentsh-deny/1", "name": "watch", "version": version, "expires": "2027-01-01T00:00:00Z",
        "entries": [{"package": "npm:left", "versions": ["1.0.0"], "reason": "steals tokens"},
            {"host": "mcp.evil.example", "reason": "phishing", "severity": "critical"}]})
    .to_string();
    let signatures = keys
        .iter()
        .map(|key| minisign::sign(None, &key.sk, list.as_bytes(), None, None).unwrap().to_string());
    let signatures = signatures.collect::<Vec<_>>().join("\n");
    (list, signatures)
}

#[test]
fn deny_list_counts_once_enough_keys_signed_it() {
    let keys: Vec<KeyPair> = (0..3).map(|_| KeyPair::generate_unencrypted_keypair().unwrap()).collect();
    let public: Vec<String> = keys.iter().map(|key| key.pk.to_base64()).collect();
    let (_place, mut database) = database();
    let (list, signatures) = signed(2, &[&keys[0], &keys[1]]);
    let by = signers(list.as_bytes(), &signatures, &public);
    assert_eq!(by.len(), 2);
    assert!(signers(format!("{list} ").as_bytes(), &signatures, &public).is_empty());
    let parsed = documents(list.as_bytes()).unwrap().all;
    assert!(matches!(database.take("w", &parsed, |_| Vec::new(), now()), Err(DatabaseError::Unsigned(_))));
    database.take("w", &parsed, |_| by.clone(), now()).unwrap();
    let believed = |quorum| TrustedSigners { signers: public.clone(), quorum };
    let found = |database: &Database, version: &str, quorum| {
        database.of_packages(&left(version), &believed(quorum), now()).unwrap().len()
    };
    assert_eq!(
        (found(&database, "1.0.0", 2), found(&database, "1.0.1", 2), found(&database, "1.0.0", 3)),
        (1, 0, 0)
    );
    let host = database.of_host("MCP.evil.example.", &believed(2), now()).unwrap();
    assert_eq!((host.len(), host[0].severity), (1, Severity::Critical));
    // The third one signs a list of its own.
    let (list, signatures) = signed(2, &[&keys[2]]);
    let list = list.replace("watch", "other");
    assert!(signers(list.as_bytes(), &signatures, &public).is_empty());
    let signature = minisign::sign(None, &keys[2].sk, list.as_bytes(), None, None).unwrap().to_string();
    let by = signers(list.as_bytes(), &signature, &public);
    database.take("o", &documents(list.as_bytes()).unwrap().all, |_| by.clone(), now()).unwrap();
    assert_eq!(found(&database, "1.0.0", 3), 1);
    // Keys that are no longer trusted do not count, and neither do expired entries.
    let two = TrustedSigners { signers: public[..2].to_vec(), quorum: 3 };
    assert!(database.of_packages(&left("1.0.0"), &two, now()).unwrap().is_empty());
    let later: Timestamp = "2027-01-01T00:00:00Z".parse().unwrap();
    assert!(database.of_packages(&left("1.0.0"), &believed(1), later).unwrap().is_empty());
    // An older list does not take the place of a newer one.
    let (old, signatures) = signed(1, &[&keys[0]]);
    let by = signers(old.as_bytes(), &signatures, &public);
    let taken = database.take("w", &documents(old.as_bytes()).unwrap().all, |_| by.clone(), now());
    assert!(matches!(taken, Err(DatabaseError::Older { version: 1, newest: 2, .. })), "{taken:?}");
}

#[test]
fn status_page_counts_only_while_it_is_recent() {
    let (_place, mut database) = database();
    let page = json!({"page": {"name": "Search"}, "status": {"indicator": "major", "description": "Partial outage"}});
    take(&mut database, "s", &page.to_string());
    assert_eq!(database.of_status("s", now()).unwrap().unwrap().severity, Severity::Medium);
    let later = now().checked_add(jiff::SignedDuration::from_hours(7)).unwrap();
    assert_eq!(database.of_status("s", later).unwrap(), None);
    take(&mut database, "s", &page.to_string().replace("major", "none"));
    assert_eq!(database.of_status("s", now()).unwrap(), None);
}

#[test]
fn source_formats_are_read_and_other_files_refused() {
    let lines = format!("{}\n{}\n", osv(), osv().replace("GHSA-1", "GHSA-2"));
    assert_eq!(documents(lines.as_bytes()).unwrap().all.len(), 2);
    let list = format!("[{}, {{\"x\": 1}}]", osv());
    let read = documents(list.as_bytes()).unwrap();
    assert_eq!((read.all.len(), read.unread), (1, 1));
    for bad in [
        "",
        "{",
        "[]x",
        "{\"id\": \"GHSA-1\", \"affected\"",
        "<html>",
        "{\"a\": 1}",
        "{\"format\": \"agentsh-deny/1\"}",
    ] {
        assert!(documents(bad.as_bytes()).is_err(), "{bad}");
    }
    assert!(documents(&[0xff, 0xfe]).is_err());
    assert!(archive::for_each_file(&&b"PK\x03\x04"[..], 9, |_, _| Ok(())).is_err());
}

/// An archive whose directory names one stored file again and again.
fn archive_of(text: &[u8], times: u16) -> Vec<u8> {
    let size = u32::try_from(text.len()).unwrap().to_le_bytes();
    let sizes = [[0; 4], size, size].concat();
    let mut bytes = [&b"PK\x03\x04"[..], &[0; 10], &sizes, &[1, 0, 0, 0], b"a", text].concat();
    let at = u32::try_from(bytes.len()).unwrap().to_le_bytes();
    for _ in 0..times {
        bytes.extend([&b"PK\x01\x02"[..], &[0; 12], &sizes, &[1, 0], &[0; 16], b"a"].concat());
    }
    bytes.extend([&b"PK\x05\x06"[..], &[0; 6], &times.to_le_bytes(), &[0; 4], &at, &[0; 2]].concat());
    bytes
}

#[test]
fn advisory_archive_is_limited_in_size() {
    // With its name of one letter each file counts for 1 MiB.
    let bytes = archive_of(&[b'x'; (1 << 20) - 1], 3);
    let read = |most: u64| {
        let mut files = 0;
        let count = |_: &str, _: &[u8]| {
            files += 1;
            Ok(())
        };
        archive::for_each_file(&bytes.as_slice(), most, count).map(|()| files)
    };
    assert_eq!(read(3 << 20), Ok(3));
    let error = read(2 << 20).unwrap_err();
    assert!(error.contains("larger than 2 MiB"), "{error}");
}
