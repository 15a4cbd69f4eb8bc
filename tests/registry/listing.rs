//! Interfaces from folders of captured answers.

use std::fs;
use std::path::Path;

use crate::support::{Mode, Place};

const OPENING: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"resources":{}},"serverInfo":{"name":"weather","version":"1"},"instructions":"use a"}}"#;
const TOOL: &str = r#"{"name":"a","description":"d","inputSchema":{"type":"object"}}"#;

fn folder(directory: &Path, opening: &str, tools: &str) -> String {
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join("initialize.json"), opening).unwrap();
    fs::write(directory.join("tools.json"), tools).unwrap();
    directory.to_str().unwrap().to_owned()
}

fn page(items: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{{\"tools\":[{items}]}}}}\n")
}

fn registry(words: &[&str]) -> (String, String, i32) {
    let output = Place::new(Mode::Invoker).agentsh(&["registry"]).args(words).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code().unwrap())
}

/// The hash was computed by hand: SHA-256 over the sorted digests of the two canonical texts.
#[test]
fn a_listing_has_the_hash_that_kiji_gives_it() {
    let directory = tempfile::tempdir().unwrap();
    let one = folder(&directory.path().join("one"), OPENING, &page(TOOL));
    let (stdout, stderr, code) = registry(&["hash", "--listing", &one, "--format", "kiji"]);
    assert_eq!(
        (stdout.as_str(), code),
        ("weather\t7dace353bd95ad16a9ae4dc703bdca970cdfa427fc09705b1ee45365f27d4365\n", 0),
        "{stderr}"
    );
    // Pages, order and what is not hashed do not count; a component more does.
    let other = r#"{"title":"x","inputSchema":{"type":"object"},"name":"b"}"#;
    let paged = folder(&directory.path().join("paged"), OPENING, &(page(TOOL) + &page(other)));
    let turned = folder(&directory.path().join("turned"), OPENING, &page(&format!("{other},{TOOL}")));
    let hash = |folder: &str| registry(&["hash", "--listing", folder, "--format", "kiji"]).0;
    assert_eq!(hash(&paged), hash(&turned));
    let named = folder(&directory.path().join("named"), &OPENING.replace("weather", "other"), &page(TOOL));
    assert_eq!(hash(&named).split_once('\t').unwrap().1, stdout.split_once('\t').unwrap().1);
    assert_ne!(hash(&paged), hash(&one));
}

#[test]
fn a_difference_is_named_and_is_exit_status_1() {
    let directory = tempfile::tempdir().unwrap();
    let before = folder(&directory.path().join("before"), OPENING, &page(TOOL));
    let after =
        folder(&directory.path().join("after"), OPENING, &page(&TOOL.replace("\"d\"", "\"\u{202e}e\"")));
    let (stdout, _, code) = registry(&["diff", &before, &after]);
    assert_eq!(code, 1);
    for expected in ["~ changed tool 'a':", "-  \"description\": \"d\",", "+  \"description\": \"\\u202ee\","]
    {
        assert!(stdout.contains(&expected.replace(",", "")), "{expected}: {stdout}");
    }
    let (stdout, _, code) = registry(&["diff", &before, &before]);
    assert_eq!((stdout.as_str(), code), ("no difference\n", 0));
}

#[test]
fn malformed_captured_listing_has_no_hash() {
    let directory = tempfile::tempdir().unwrap();
    let bad = [
        page(r#"{"name":"a","description":"\ud800"}"#),
        page(r#"{"name":"a","inputSchema":{"x":NaN}}"#),
        page(r#"{"name":"a","name":"b"}"#),
        page(r#"{"name":5}"#),
        r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"x"}}"#.to_owned(),
    ];
    for (index, tools) in bad.iter().enumerate() {
        let folder = folder(&directory.path().join(index.to_string()), OPENING, tools);
        let (stdout, stderr, code) = registry(&["hash", "--listing", &folder]);
        assert_eq!((stdout.as_str(), code), ("", 2), "{tools}");
        assert!(stderr.starts_with("error: cannot read "), "{stderr}");
    }
    assert_eq!(registry(&["hash", "--listing", "/nonexistent"]).2, 2);
    assert_eq!(registry(&["hash"]).2, 2);
}
