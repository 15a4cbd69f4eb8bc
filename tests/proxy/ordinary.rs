//! A day of a developer in `proxy`, with labels: data is read from one server and then sent to another, as people
//! work. Prose and code of the project may leave (`shareable`), secrets and what colleagues wrote may not.

use serde_json::{Value, json};

use super::leaks::{plain, reason};
use crate::support::sandbox::script;
use crate::support::{Mode, Peer, Place};

/// What is read of one server, and what another one is sent afterwards.
pub struct Flow {
    pub from: &'static str,
    pub read: &'static str,
    pub to: &'static str,
    pub sent: Value,
}

const README: &str = "# ferrybook\n\nA small library that plans crossings. It reads the timetable of each harbour, keeps the tides \
    in mind and proposes the three best departures for a given day. Install it with `cargo add ferrybook` and call \
    `plan(\"Hvide Sande\", date)`. Fares are not part of it; have a look at `farebook` for these.\n\n## Limits\n\nHarbours without a \
    public timetable are left out, and a crossing of more than one day is planned as two.\n";
const CODE: &str = "pub fn departures(harbour: &Harbour, day: Date) -> Vec<Departure> {\n    let tides = harbour.tides(day);\n    \
    harbour\n        .timetable\n        .iter()\n        .filter(|departure| tides.allow(departure.time, departure.draught))\n        \
    .take(3)\n        .cloned()\n        .collect()\n}\n";
const TRACE: &str = "thread 'main' panicked at src/tides.rs:88:31:\nattempt to subtract with overflow\nstack backtrace:\n   0: \
    rust_begin_unwind\n   1: core::panicking::panic_fmt\n   2: ferrybook::tides::Tide::height\n   3: \
    ferrybook::plan::departures\n   4: ferrybook::main\nnote: run with `RUST_BACKTRACE=full` for a verbose backtrace.\n";
const LOG: &str = "commit 4be1c7f0a2d95e6b83a1f4c2d7e8b90a1c3f5d27\nAuthor: Solveig Aune <solveig@ferrybook.example>\nDate:   Tue \
    Nov 10 09:12:44 2026 +0100\n\n    Take the tide of the harbour, not of the route\n\ncommit 91d3e0b5c8f7a6249d0e1b2c3f4a5d6e7f8091a2\n\
    Author: Piet Mulder <piet@ferrybook.example>\nDate:   Mon Nov 9 17:40:02 2026 +0100\n\n    Read draughts in decimetres\n";
const DIFF: &str = "diff --git a/src/tides.rs b/src/tides.rs\n@@ -85,7 +85,7 @@ impl Tide {\n     fn height(&self, at: Time) -> i64 \
    {\n-        self.high - self.low * at.minutes()\n+        self.high.saturating_sub(self.low * at.minutes())\n     }\n";
const ISSUE: &str = "{\"number\":214,\"title\":\"Panic for harbours without low water\",\"state\":\"open\",\"labels\":[{\"name\":\"bug\"}],\
    \"user\":{\"login\":\"wiebke-t\"},\"body\":\"Planning a day in Norddeich panics with an overflow since 0.9. It worked in 0.8.4. \
    A harbour whose low water is missing in the timetable is enough to see it.\"}";
const PAGE: &str = "saturating_sub: Saturating integer subtraction. Computes self - rhs, saturating at the numeric bounds instead of \
    overflowing. Examples: assert_eq!(100i8.saturating_sub(127), -27);";
const MANIFEST: &str = "[package]\nname = \"ferrybook\"\nversion = \"0.9.1\"\nedition = \"2024\"\nlicense = \"MIT\"\n\n[dependencies]\njiff \
    = \"0.2\"\nserde = { version = \"1\", features = [\"derive\"] }\nthiserror = \"2\"\n";
const WORKFLOW: &str = "name: ci\non: [push, pull_request]\njobs:\n  test:\n    runs-on: ubuntu-latest\n    steps:\n      - uses: \
    actions/checkout@v4\n      - run: cargo test --all-features\n      - run: cargo clippy -- -D warnings\n";
const TALK: &str = "Solveig: the customer from Harlingen calls again tomorrow about the delayed refund. Piet: I spoke with their \
    lawyer, they want it settled before the shareholders meet. Solveig: then we pay, and say nothing about why.";
const ROWS: &str = "[{\"id\":51,\"customer\":\"Anneke Visser\",\"balance\":1840.5,\"status\":\"late\"},{\"id\":52,\"customer\":\
    \"Bertus Kok\",\"balance\":220.75,\"status\":\"paid\"},{\"id\":53,\"customer\":\"Cato de Wit\",\"balance\":9120,\"status\":\"late\"}]";

/// Ordinary work: every one of these passes.
pub fn day() -> Vec<Flow> {
    let flow = |from, read, to, sent| Flow { from, read, to, sent };
    let repository = |more: Value| {
        let mut all = json!({"owner": "ferrybook", "repo": "ferrybook"});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    vec![
        flow(
            "files",
            README,
            "forge",
            repository(json!({"title": "Say what a crossing of two days is", "body":
            "The README says \"a crossing of more than one day is planned as two\", and not how they are told apart."})),
        ),
        flow("files", CODE, "forge", repository(json!({"path": "src/plan.rs", "body": CODE, "line": 12}))),
        flow(
            "files",
            CODE,
            "forge",
            repository(
                json!({"title": "Panic in departures", "body": format!("It happens here:\n```rust\n{CODE}```")}),
            ),
        ),
        flow(
            "files",
            TRACE,
            "forge",
            repository(
                json!({"title": "attempt to subtract with overflow", "body": format!("```\n{TRACE}```")}),
            ),
        ),
        flow(
            "files",
            TRACE,
            "search",
            json!({"query": "rust attempt to subtract with overflow saturating_sub i64"}),
        ),
        flow("files", MANIFEST, "registry", json!({"crate": "jiff", "version": "0.2"})),
        flow("files", MANIFEST, "search", json!({"query": "serde derive feature edition 2024"})),
        flow(
            "files",
            MANIFEST,
            "forge",
            repository(
                json!({"title": "Update jiff", "body": "jiff = \"0.2\" is behind; `cargo update -p jiff` is enough."}),
            ),
        ),
        flow(
            "files",
            WORKFLOW,
            "forge",
            repository(
                json!({"path": ".github/workflows/ci.yml", "content": WORKFLOW, "message": "Run clippy", "branch": "ci"}),
            ),
        ),
        flow("files", WORKFLOW, "search", json!({"query": "actions/checkout v4 fetch-depth"})),
        flow(
            "git",
            LOG,
            "forge",
            repository(json!({"title": "Tides of harbours", "head": "tides", "base": "main", "body":
            "Take the tide of the harbour, not of the route\n\nRead draughts in decimetres"})),
        ),
        flow("git", LOG, "forge", repository(json!({"sha": "4be1c7f0a2d95e6b83a1f4c2d7e8b90a1c3f5d27"}))),
        flow(
            "git",
            LOG,
            "tracker",
            json!({"issue": "FB-31", "comment": "Fixed by 4be1c7f (Take the tide of the harbour, not of the route)."}),
        ),
        flow(
            "git",
            DIFF,
            "forge",
            repository(
                json!({"title": "Do not overflow", "body": format!("```diff\n{DIFF}```"), "head": "overflow", "base": "main"}),
            ),
        ),
        flow(
            "git",
            DIFF,
            "tracker",
            json!({"issue": "FB-31", "comment": "It subtracts without a bound in `Tide::height`; saturating_sub does."}),
        ),
        flow("git", DIFF, "docs", json!({"path": "saturating_sub", "crate": "std"})),
        flow(
            "git",
            "main\n* overflow\n  tides\n  release-0.9\n",
            "forge",
            repository(json!({"branch": "release-0.9", "from": "main"})),
        ),
        flow(
            "git",
            "On branch overflow\nYour branch is ahead of 'origin/overflow' by 2 commits.\nnothing to commit, working tree clean\n",
            "tracker",
            json!({"issue": "FB-31", "status": "in review"}),
        ),
        flow(
            "forge",
            ISSUE,
            "tracker",
            json!({"title": "Panic for harbours without low water", "description":
            "See #214: a harbour whose low water is missing in the timetable is enough to see it.", "priority": "high"}),
        ),
        flow(
            "forge",
            ISSUE,
            "forge",
            repository(
                json!({"issue_number": 214, "body": "Thank you, it worked in 0.8.4 because draughts were not read there."}),
            ),
        ),
        flow("forge", ISSUE, "search", json!({"query": "Norddeich low water timetable missing"})),
        flow(
            "forge",
            "[{\"number\":214,\"title\":\"Panic\"},{\"number\":209,\"title\":\"Docs\"},{\"number\":188,\"title\":\"Fares\"}]",
            "tracker",
            json!({"comment": "open upstream: #214, #209 and #188"}),
        ),
        flow(
            "forge",
            "{\"conclusion\":\"failure\",\"name\":\"ci\",\"html_url\":\"https://forge.example/ferrybook/ferrybook/actions/runs/88231\"}",
            "chat",
            json!({"channel": "builds", "text": "ci failed: https://forge.example/ferrybook/ferrybook/actions/runs/88231"}),
        ),
        flow(
            "tracker",
            "FB-31 Panic for harbours without low water. Assignee: Piet. Acceptance: planning Norddeich gives a plan, or says why not.",
            "forge",
            repository(
                json!({"title": "FB-31: plan harbours without low water", "body": "Acceptance: planning Norddeich gives a plan, or says why not."}),
            ),
        ),
        flow(
            "tracker",
            "FB-12 Move fares into farebook. Depends on FB-9. Estimate 3 days.",
            "files",
            json!({"path": "TODO.md", "text": "FB-12 Move fares into farebook. Depends on FB-9. Estimate 3 days."}),
        ),
        flow("docs", PAGE, "forge", repository(json!({"body": format!("The documentation says: {PAGE}")}))),
        flow(
            "docs",
            PAGE,
            "files",
            json!({"path": "src/tides.rs", "text": "assert_eq!(100i8.saturating_sub(127), -27);"}),
        ),
        flow(
            "search",
            "1. Saturating arithmetic in Rust - https://blog.example/saturating\n2. Overflow and how to avoid it",
            "docs",
            json!({"url": "https://blog.example/saturating"}),
        ),
        flow(
            "search",
            "Tide tables of the German coast are published by the BSH every year in autumn.",
            "tracker",
            json!({"issue": "FB-40", "comment": "Tide tables of the German coast are published by the BSH every year in autumn."}),
        ),
        flow("chat", TALK, "search", json!({"query": "rust date arithmetic across midnight"})),
        flow(
            "chat",
            TALK,
            "forge",
            repository(
                json!({"title": "Plan the ferry at midnight", "body": "A departure at 00:00 belongs to the next day."}),
            ),
        ),
        flow("chat", TALK, "tracker", json!({"issue": "FB-31", "status": "done"})),
        flow(
            "chat",
            TALK,
            "chat",
            json!({"channel": "team", "text": "Solveig: then we pay, and say nothing about why."}),
        ),
        flow("database", ROWS, "search", json!({"query": "sqlite sum of a column by status"})),
        flow(
            "database",
            ROWS,
            "tracker",
            json!({"issue": "FB-50", "comment": "two of three invoices are late"}),
        ),
        flow(
            "database",
            ROWS,
            "database",
            json!({"query": "UPDATE invoices SET status = 'paid' WHERE customer = 'Cato de Wit'"}),
        ),
        flow(
            "database",
            ROWS,
            "files",
            json!({"path": "out/late.csv", "text": "Anneke Visser,1840.5\nCato de Wit,9120\nBertus Kok,220.75"}),
        ),
        flow(
            "database",
            "id integer primary key, customer text not null, balance real, status text",
            "forge",
            repository(
                json!({"title": "Add an index on status", "body": "CREATE INDEX by_status ON invoices (status);"}),
            ),
        ),
        flow(
            "files",
            "SELECT status, count(*) FROM invoices GROUP BY status ORDER BY status",
            "database",
            json!({"query": "SELECT status, count(*) FROM invoices GROUP BY status ORDER BY status"}),
        ),
        flow(
            "files",
            "error[E0502]: cannot borrow `plan` as mutable because it is also borrowed as immutable\n  --> src/plan.rs:41:9",
            "search",
            json!({"query": "error[E0502]: cannot borrow as mutable because it is also borrowed as immutable"}),
        ),
        flow(
            "files",
            "src/lib.rs\nsrc/plan.rs\nsrc/tides.rs\ntests/norddeich.rs\nCargo.toml\n",
            "forge",
            repository(
                json!({"files": ["src/plan.rs", "src/tides.rs", "tests/norddeich.rs"], "message": "Plan without low water"}),
            ),
        ),
        flow(
            "files",
            "{\"compilerOptions\":{\"strict\":true,\"target\":\"ES2022\",\"module\":\"NodeNext\"}}",
            "docs",
            json!({"query": "typescript module NodeNext target ES2022 strict"}),
        ),
        flow(
            "files",
            "FROM rust:1.95-slim\nWORKDIR /app\nCOPY . .\nRUN cargo build --release\nCMD [\"./target/release/ferrybook\"]",
            "registry",
            json!({"image": "rust", "tag": "1.95-slim"}),
        ),
        flow(
            "git",
            "v0.8.4\nv0.9.0\nv0.9.1\n",
            "forge",
            repository(
                json!({"tag": "v0.9.2", "name": "0.9.2", "notes": "Harbours without low water are planned again."}),
            ),
        ),
        flow(
            "files",
            "## 0.9.1\n\n- Draughts are read in decimetres.\n- Tides are those of the harbour.\n",
            "forge",
            repository(
                json!({"tag": "v0.9.1", "body": "- Draughts are read in decimetres.\n- Tides are those of the harbour."}),
            ),
        ),
        flow(
            "registry",
            "{\"name\":\"jiff\",\"max_version\":\"0.2.16\",\"checksum\":\"sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"}",
            "files",
            json!({"path": "Cargo.lock", "text": "checksum = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\""}),
        ),
        flow(
            "forge",
            "{\"login\":\"wiebke-t\",\"html_url\":\"https://forge.example/wiebke-t\"}",
            "chat",
            json!({"channel": "team", "text": "@wiebke-t asked for it: https://forge.example/wiebke-t"}),
        ),
        flow(
            "files",
            "let fare = zones * 340 + if is_child { 0 } else { 180 };",
            "chat",
            json!({"channel": "team", "text":
            "is `let fare = zones * 340 + if is_child { 0 } else { 180 };` still what we want?"}),
        ),
    ]
}

/// What must not pass on the same day.
fn leaks() -> Vec<Flow> {
    let flow = |from, read, to, sent| Flow { from, read, to, sent };
    vec![
        flow(
            "chat",
            TALK,
            "forge",
            json!({"body": "the customer from Harlingen calls again tomorrow about the delayed refund"}),
        ),
        flow(
            "database",
            ROWS,
            "search",
            json!({"query": "Anneke Visser 1840.5, Bertus Kok 220.75, Cato de Wit 9120"}),
        ),
        flow(
            "files",
            "REGISTRY_TOKEN=fbk_7Hq2mZx9Lw4TnVb8RsYcQ1eD",
            "forge",
            json!({"body": "log in with fbk_7Hq2mZx9Lw4TnVb8RsYcQ1eD"}),
        ),
    ]
}

pub const SERVERS: [&str; 9] =
    ["files", "git", "forge", "tracker", "search", "docs", "chat", "database", "registry"];
const LABELS: &str = "version: 1
sandbox:
  mcp:
    exfiltration: {marker: off}
    servers:
      - {id: files, flow: {source: shareable, sink: local}}
      - {id: git, flow: {source: shareable}}
      - {id: forge, flow: {source: shareable}}
      - {id: tracker, flow: {source: shareable}}
      - {id: search, flow: {source: public}}
      - {id: docs, flow: {source: public}}
      - {id: registry, flow: {source: public}}
";

fn begun(place: &Place) -> Peer {
    place.policy(LABELS);
    let server = place.program("fixture_server");
    let servers: Vec<Value> = SERVERS.iter().map(|id| json!({"id": id, "command": server})).collect();
    let file = json!({"servers": servers, "allowed_domains": ["forge.example", "blog.example"]});
    let config = place.write("proxy.json", file.to_string());
    let mut peer = Peer::start(&mut place.halting(&["proxy", "--config", config.to_str().unwrap()]));
    peer.shake_hands();
    peer
}

/// None: it passed.
fn refused(place: &Place, peer: &mut Peer, at: usize, flow: &Flow) -> Option<Value> {
    let file = place.write(format!("read-{at}.txt"), flow.read);
    let read = peer.text(&format!("{}__read_file", flow.from), json!({"path": file}));
    assert_eq!(plain(&read), flow.read);
    // Only the content of a call counts, whatever the tool does with it.
    let answer = peer.call(&format!("{}__echo", flow.to), flow.sent.clone());
    answer.get("error").is_some().then_some(answer)
}

#[test]
fn ordinary_calls_pass_and_private_data_is_refused() {
    let place = Place::new(Mode::Invoker);
    let mut peer = begun(&place);
    let day = day();
    assert!(day.len() >= 40);
    for (at, flow) in day.iter().enumerate() {
        let refused = refused(&place, &mut peer, at, flow);
        assert!(refused.is_none(), "{} -> {}: {}\n{refused:?}", flow.from, flow.to, flow.sent);
    }
    for (at, flow) in leaks().iter().enumerate() {
        let refused = refused(&place, &mut peer, 100 + at, flow).unwrap_or_default();
        assert_eq!(reason(&refused), "tainted-data", "{} -> {}: {}", flow.from, flow.to, flow.sent);
    }
    let found = place.detections();
    assert_eq!(found.iter().filter(|event| event["action"] == "block").count(), leaks().len(), "{found:?}");
}

/// The same day in a run without a policy: findings are reported, and nothing is refused or asked.
#[test]
#[ignore = "takes long"]
fn ordinary_day_without_a_policy_refuses_nothing() {
    let place = Place::new(Mode::Invoker);
    let server = json!({"command": place.program("fixture_server"), "args": []});
    let servers: serde_json::Map<String, Value> =
        SERVERS.iter().map(|id| ((*id).to_owned(), server.clone())).collect();
    place.write(place.home.join(".claude.json"), json!({"mcpServers": servers}).to_string());
    let mut steps = Vec::new();
    for (at, flow) in day().iter().enumerate() {
        let file = place.write(format!("read-{at}.txt"), flow.read);
        steps.push(json!({"server": flow.from, "tool": "read_file", "arguments": {"path": file}}));
        steps.push(json!({"server": flow.to, "tool": "echo", "arguments": flow.sent}));
    }
    let answers = script(&place, &json!(steps));
    for (at, flow) in day().iter().enumerate() {
        assert_eq!(answers.text(2 * at), flow.read);
        // Without a member `text` there is nothing to say; an error would be in place of it.
        answers.text(2 * at + 1);
    }
    let found = place.detections();
    assert!(!found.is_empty() && found.iter().all(|event| event["action"] != "block"), "{found:?}");
}

/// A server that fills the memory evicts only its own results: 50 MB of one server do not make room for another one's
/// secret.
#[test]
#[ignore = "takes long"]
fn fifty_megabytes_of_one_server_flush_nothing_of_another() {
    const SECRET: &str = "fbk_7Hq2mZx9Lw4TnVb8RsYcQ1eD";
    const PIECES: u64 = 25;
    let place = Place::new(Mode::Invoker);
    let mut peer = begun(&place);
    let file = place.write("key.txt", format!("REGISTRY_TOKEN={SECRET}\n"));
    peer.text("chat__read_file", json!({"path": file}));
    let mut sent = 0;
    for piece in 0..PIECES {
        let text = words(piece, 2_000_000);
        sent += text.len();
        let file = place.write("much.txt", text);
        let read = peer.call("database__read_file", json!({"path": file}));
        assert!(read.get("error").is_none(), "{}", read["error"]);
    }
    assert!(sent >= 50_000_000);
    let refused = peer.call("search__echo", json!({"text": format!("log in with {SECRET}")}));
    assert_eq!(reason(&refused), "tainted-data", "{refused}");
    let forgotten = place.events("mcp_results_forgotten");
    let whose: Vec<&str> = forgotten.iter().filter_map(|event| event["detail"].as_str()).collect();
    assert!(!whose.is_empty() && whose.iter().all(|detail| !detail.contains("'chat'")), "{whose:?}");
}

/// Words that no other piece has.
fn words(piece: u64, length: usize) -> String {
    let mut state = piece.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut text = String::with_capacity(length + 16);
    while text.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        for letter in 0..8 {
            text.push(char::from(b'a' + u8::try_from((state >> (20 + 5 * letter)) % 26).unwrap()));
        }
        text.push(' ');
    }
    text
}
