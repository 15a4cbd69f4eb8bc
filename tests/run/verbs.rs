//! What every verb shows in a terminal of 80 and of 120 columns, with colour and without, compared with stored files:
//! its help, and its answer with and without a record. The binary names the verbs, so that a new one without a file
//! fails. `AGENTSH_WRITE_SNAPSHOTS=1` writes the files anew.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::json;

use crate::support::{Mode, Outcome, Peer, Place, Pty, commands, without_colour};

/// Answers that are the same on every machine, once what is volatile is replaced.
const ASKED: &[&[&str]] = &[
    &["advisories", "list"],
    &["approvals", "list"],
    &["approvals", "show", "nosuch"],
    &["client-config", "--client", "cursor", "notes", "--", "node", "server.js"],
    &["events", "verify"],
    &["fleet", "doctor"],
    &["gateway", "keys", "list"],
    &["login", "--list"],
    &["logout", "https://nosuch.example"],
    &["mcp", "calls"],
    &["mcp", "detections"],
    &["mcp", "inventory"],
    &["mcp", "pins", "diff", "--server", "nosuch"],
    &["mcp", "pins", "list"],
    &["mcp", "servers"],
    &["mcp", "tools"],
    &["mcp", "wrap", "--client", "cursor"],
    &["policy", "bundle", "status"],
    &["policy", "check"],
    &["policy", "explain", "--read", "~/.ssh/id_ed25519"],
    &["policy", "show", "strict"],
    &["policy", "test"],
    &["profile", "list"],
    &["profile", "show", "notes"],
    &["registry", "hash", "--listing", "nosuch"],
    &["registry", "log", "--registry", "http://127.0.0.1:1"],
    &["report", "list"],
    &["report", "nosuch"],
    &["review"],
    &["review", "--list"],
    &["run"],
    &["run", "nosuch-program"],
    &["scan", "project"],
    &["sessions"],
    &["status"],
    &["undo", "nosuch"],
    &["vet-url", "http://127.0.0.1/"],
    &["why", "example.com"],
];

fn stored() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/run/verbs"))
}

/// Verbs below these words, by what their help lists.
fn below(place: &Place, words: &[String], found: &mut Vec<Vec<String>>) {
    let mut asked: Vec<&str> = words.iter().map(String::as_str).collect();
    asked.push("--help");
    let help = Outcome::of(&mut place.agentsh(&asked)).expect_code(0).stdout;
    found.push(words.to_vec());
    for name in commands(&help) {
        below(place, &[words, &[name]].concat(), found);
    }
}

/// The exit status and what was in the terminal at the end.
fn shown(place: &Place, words: &[&str], columns: u16, colour: bool) -> String {
    let mut command = place.agentsh(words);
    command.env("TERM", "xterm-256color").env("SHELL", "/bin/bash");
    if !colour {
        command.env("NO_COLOR", "1");
    }
    let (code, text) = Pty::sized(command, columns).whole();
    let text = text.replace("\r\n", "\n");
    let text: String = text.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    format!("{text}[exit status {code}]\n")
}

/// Digits of ids, hashes and times become `0`; nothing changes its length, so that tables keep their columns.
fn stable(place: &Place, text: &str) -> String {
    let directory = place.path("").display().to_string();
    let directory = directory.trim_end_matches('/');
    let text = text.replace(directory, &"/place".repeat(20)[..directory.len()]);
    let programs = place.program("agentsh").parent().unwrap().display().to_string();
    // A sequence for colour ends no word by its last letter.
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    let text = parts.fold(first, |text, part| match part.split_once('m') {
        Some((colour, rest)) => format!("{text}\u{1}{colour}\u{2}{rest}"),
        None => text + part,
    });
    let text = text.replace(&programs, "/programs");
    let mut stable = String::new();
    for piece in text.split_inclusive(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == ':')) {
        let (word, end) = match piece.char_indices().last() {
            Some((at, last)) if !(last.is_ascii_alphanumeric() || last == '-' || last == ':') => {
                piece.split_at(at)
            }
            _ => (piece, ""),
        };
        let digits = word.chars().filter(char::is_ascii_digit).count();
        let is_hex = word.len() >= 8 && word.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
        let is_time = digits >= 6 && word.chars().all(|c| c.is_ascii_digit() || "-:Z".contains(c));
        if digits > 0 && (is_hex || is_time) {
            stable.extend(word.chars().map(|c| if c.is_ascii_hexdigit() { '0' } else { c }));
        } else {
            stable.push_str(word);
        }
        stable.push_str(end);
    }
    without_counts(&stable.replace('\u{1}', "\x1b[").replace('\u{2}', "m"))
}

/// Each layer that a machine lacks is an event more: how many there are becomes `00`.
fn without_counts(text: &str) -> String {
    let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let mut parts = text.split("events");
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let before = result
            .strip_suffix(' ')
            .map(|before| before.trim_end_matches(|c: char| c.is_ascii_digit()).len());
        if let Some(length) = before.filter(|length| length + 1 < result.len()) {
            result.replace_range(length.., "00 ");
        }
        result.push_str("events");
        let space = ["\x1b[0m ", " "].into_iter().find(|space| part.starts_with(space)).unwrap_or_default();
        let count = digits(&part[space.len()..]);
        if count > 0 {
            result.push_str(space);
            result.push_str("00");
        }
        result.push_str(if count > 0 { &part[space.len() + count..] } else { part });
    }
    result
}

/// All four looks of one command line. Without its colours the coloured text is the plain one, at both widths.
fn looks(place: &Place, words: &[&str], into: &mut String) {
    let mut last = String::new();
    for columns in [80, 120] {
        let plain = stable(place, &shown(place, words, columns, false));
        let coloured = stable(place, &shown(place, words, columns, true));
        assert!(!plain.contains('\x1b'), "{words:?}: {plain}");
        assert_eq!(without_colour(&coloured), plain, "{words:?} {columns}");
        let both = format!("{plain}--- in colour\n{}", coloured.replace('\x1b', "␛"));
        let text = if both == last { "(the same)\n" } else { &both };
        into.push_str(&format!("=== agentsh {} ({columns} columns)\n{text}", words.join(" ")));
        last = both;
    }
}

/// A server that was called, a run that was refused something, a policy and a profile.
fn filled(place: &Place) {
    place.user_policy(
        "version: 1\nsandbox:\n  mcp:\n    denied_tools: [{server: \"*\", tool: \"delete_*\"}]\n",
    );
    let mut peer = Peer::ready(place, &[]);
    peer.text("echo", json!({"text": "x"}));
    peer.finish();
    Outcome::of(&mut place.agentsh(&[
        "run",
        "--quiet",
        "--",
        "sh",
        "-c",
        "getent hosts one.example.com; exit 3",
    ]))
    .expect_code(3);
    Outcome::of(&mut place.agentsh(&["profile", "add", "notes", "--", "sh", "server.sh"])).expect_code(0);
    Outcome::of(place.agentsh(&["enable", "nosuch-agent"]).env("SHELL", "/bin/bash")).expect_code(0);
}

/// Whatever the machine has: its toolchains, caches and a home with a long name are shown too.
#[test]
fn policy_show_fits_the_terminal() {
    let place = Place::new(Mode::Invoker);
    filled(&place);
    for columns in [60, 80, 120] {
        let text = shown(&place, &["policy", "show"], columns, false);
        // A warning names a file, and a name is not broken.
        let listing = text.split("warning:").next().unwrap();
        let wide: Vec<&str> =
            listing.lines().filter(|line| line.chars().count() > usize::from(columns)).collect();
        assert!(wide.is_empty(), "{columns}: {wide:#?}");
        assert!(
            text.contains("mcp.enforce_policy: true") && text.contains("# built-in:default:43\n"),
            "{text}"
        );
        assert!(!text.contains('\t') && !text.contains("(sandbox.mcp.enforce_policy)"), "{text}");
    }
    // Away from a terminal, every line is whole.
    let whole = Outcome::of(&mut place.agentsh(&["policy", "show"])).expect_code(0).stdout;
    assert!(whole.contains("# built-in:default:43 (sandbox.mcp.enforce_policy)\n"), "{whole}");
}

#[test]
#[ignore = "takes long"]
fn verb_output_matches_its_snapshots() {
    let (empty, full) = (Place::new(Mode::Invoker), Place::new(Mode::Invoker));
    filled(&full);
    let mut verbs = Vec::new();
    below(&empty, &[], &mut verbs);
    assert!(verbs.len() > 90, "{}", verbs.len());
    let mut found = BTreeMap::new();
    for verb in &verbs {
        let words: Vec<&str> = verb.iter().map(String::as_str).collect();
        let mut text = String::new();
        looks(&empty, &[&words[..], &["--help"]].concat(), &mut text);
        for asked in ASKED.iter().filter(|asked| asked.starts_with(&words) && !words.is_empty()) {
            let is_own = verbs.iter().filter(|other| {
                let other: Vec<&str> = other.iter().map(String::as_str).collect();
                asked.starts_with(&other)
            });
            if is_own.map(Vec::len).max() == Some(words.len()) {
                text.push_str("##### where nothing is on record\n");
                looks(&empty, asked, &mut text);
                text.push_str("##### where something is\n");
                looks(&full, asked, &mut text);
            }
        }
        let name = if words.is_empty() { "agentsh".to_owned() } else { words.join("_") };
        found.insert(format!("{name}.txt"), text);
    }
    if std::env::var_os("AGENTSH_WRITE_SNAPSHOTS").is_some() {
        let _ = std::fs::remove_dir_all(stored());
        std::fs::create_dir_all(stored()).unwrap();
        for (name, text) in &found {
            std::fs::write(stored().join(name), text).unwrap();
        }
    }
    let mut different = Vec::new();
    for (name, text) in &found {
        let before = std::fs::read_to_string(stored().join(name)).unwrap_or_default();
        if before != *text {
            let line = before.lines().zip(text.lines()).find(|(before, now)| before != now);
            different.push(format!("{name}: {line:?}"));
        }
    }
    let files = std::fs::read_dir(stored()).unwrap().count();
    assert!(
        different.is_empty() && files == found.len(),
        "{files} files for {} verbs; look at these, then write them anew with AGENTSH_WRITE_SNAPSHOTS=1: {different:#?}",
        found.len()
    );
}
