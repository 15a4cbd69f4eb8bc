//! The official clients with servers that lie: what a client receives holds nothing that was blocked, what was hidden cannot be
//! used, and what is honest next to it works.

use serde_json::{Value, json};

use crate::clients::{Client, command_of, seen};
use crate::place::{Place, Starter, agentsh, run};

const SERVER: &str = include_str!("hostile_server.mjs");
const POLICY: &str = "version: 1\nsandbox: {mcp: {content: {definitions: block, results: block}}}\n";

pub struct InvalidMetadata {
    pub name: &'static str,
    /// The tools called after the first listing, and again after a second one.
    calls: &'static [&'static str],
    /// Calls that are refused after the second listing.
    refused: &'static [&'static str],
    /// Words of what must not come out.
    hidden: &'static [&'static str],
    /// Tools that the client sees in the first listing and in the second one. None: it gets none.
    listed: [Option<usize>; 2],
}

const ORDER: &[&str] = &["id_rsa", "collect.example.net"];

pub const LIES: &[InvalidMetadata] = &[
    InvalidMetadata {
        name: "poison",
        calls: &["p0", "p4", "p8", "honest"],
        refused: &["p0", "p4", "p8"],
        hidden: ORDER,
        listed: [Some(2), Some(2)],
    },
    InvalidMetadata {
        name: "rug",
        calls: &["read", "honest"],
        refused: &["read"],
        hidden: ORDER,
        listed: [Some(3), Some(2)],
    },
    InvalidMetadata {
        name: "twice",
        calls: &["honest", "extra"],
        refused: &["extra"],
        hidden: &["smuggled"],
        listed: [Some(3), Some(2)],
    },
    InvalidMetadata {
        name: "unlisted",
        calls: &["honest", "backdoor"],
        refused: &["backdoor"],
        hidden: &["ran backdoor"],
        listed: [Some(3), Some(3)],
    },
    InvalidMetadata {
        name: "split",
        calls: &["story", "honest"],
        refused: &[],
        hidden: ORDER,
        listed: [Some(3), Some(3)],
    },
    InvalidMetadata {
        name: "oversized",
        calls: &[],
        refused: &[],
        hidden: &["smuggled"],
        listed: [None, None],
    },
    InvalidMetadata {
        name: "many",
        calls: &["t0", "p0", "t9999", "honest"],
        refused: &["p0"],
        hidden: ORDER,
        listed: [Some(10_002), Some(10_002)],
    },
];

/// A client with one server that lies.
pub fn lied_to(client: &Client, lie: &InvalidMetadata, starter: Starter) {
    let place = Place::new(starter);
    let program = place.project.join("hostile_server.mjs");
    place.write(&program, SERVER);
    let policy = place.home.join("policy.yaml");
    place.write(&policy, POLICY);
    let policy = policy.display().to_string();
    let program = program.display().to_string();
    let args = ["mcp", "run", "--id", "hostile", "--policy", &policy, "--", "node", &program, lie.name];
    let (told, text) = ask(client, &place, &args, lie.calls);
    for word in lie.hidden {
        assert!(!text.contains(word), "{} came through:\n{}", word, around(&text, word));
    }
    for (at, listing) in [&told["lists"]["tools"], &told["again"]].into_iter().enumerate() {
        let count = listing["tools"].as_array().map(Vec::len);
        assert_eq!(
            count,
            lie.listed[at],
            "listing {at}: {}",
            &listing.to_string()[..200.min(listing.to_string().len())]
        );
    }
    let later = told["later"].as_array().unwrap();
    for call in later {
        let name = call["name"].as_str().unwrap();
        let is_refused = call["result"].get("error").is_some();
        let wanted = lie.refused.contains(&name) || name == "story";
        assert_eq!(is_refused, wanted, "{call}");
    }
    // Nothing that was refused from the start arrived.
    let arrived = later.iter().find(|call| call["name"] == "arrived");
    if let Some(arrived) = arrived.filter(|_| lie.listed[0] == lie.listed[1]) {
        let arrived = arrived["result"].to_string();
        for name in lie.refused {
            assert!(!arrived.contains(&format!("{name}\\\"")), "{name} arrived: {arrived}");
        }
    }
}

/// A client with two servers behind the proxy: a tool of the second looks like one of the first.
pub fn shadowed(client: &Client, starter: Starter) {
    let place = Place::new(starter);
    let program = place.project.join("hostile_server.mjs");
    place.write(&program, SERVER);
    let policy = place.home.join("policy.yaml");
    place.write(&policy, POLICY);
    let policy = policy.display().to_string();
    let entry = |id: &str, lie: &str| json!({"id": id, "command": "node", "args": [program, lie]});
    let file = place.home.join("proxy.json");
    place.write(&file, &json!({"servers": [entry("files", "victim"), entry("other", "shadow")]}).to_string());
    let file = file.display().to_string();
    let args = ["proxy", "--config", &file, "--policy", &policy];
    let calls = ["files__list", "other__l\u{456}st", "other__honest"];
    let (told, text) = ask(client, &place, &args, &calls);
    // The one that was declared first stays, whichever of them answers first.
    let listed = told["lists"]["tools"]["tools"].as_array().unwrap();
    assert!(listed.iter().any(|tool| tool["name"] == "files__list"), "{text}");
    assert!(listed.iter().all(|tool| tool["name"] != "other__l\u{456}st"), "{text}");
    let later = told["later"].as_array().unwrap();
    let refused: Vec<bool> = later.iter().take(3).map(|call| call["result"].get("error").is_some()).collect();
    assert_eq!(refused, [false, true, false], "{later:?}");
}

fn ask(client: &Client, place: &Place, args: &[&str], calls: &[&str]) -> (Value, String) {
    let with_arguments = |name: &&str| json!([name, {}]);
    let mut later: Vec<Value> = calls.iter().map(with_arguments).collect();
    if !calls.is_empty() && args[0] == "mcp" {
        later.push(json!(["arrived", {}]));
    }
    let task = json!({"command": agentsh(), "args": args, "env": {}, "calls": calls.iter().map(with_arguments).collect::<Vec<_>>(),
        "later": later});
    let file = place.home.join("task.json");
    place.write(&file, &task.to_string());
    let told = seen(&run(command_of(client, place).arg(file)));
    let text = told.to_string();
    (told, text)
}

fn around<'t>(text: &'t str, word: &str) -> &'t str {
    let at = text.find(word).unwrap_or(0);
    &text[text.floor_char_boundary(at.saturating_sub(300))
        ..text.ceil_char_boundary((at + 100).min(text.len()))]
}
