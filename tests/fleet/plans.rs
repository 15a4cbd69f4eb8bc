//! Plans of the database: every query of the command line reads only the rows that it returns, however many there
//! are.

use std::path::Path;
use std::process::{Command, Stdio};

use super::{Server, asked};
use crate::support::{Mode, Outcome, Place, eventually, postgres, skip};

const EVENTS: usize = 200_000;
/// Maximum number of rows that one step of a plan may read: twenty for each row of a page, less than half of a day. A
/// row with one of seven servers and one of two types is one of fourteen.
const MAX_COUNT: u64 = 20_000;
/// Rows up to which a partition may be read whole: three hours of events. Shortly after midnight UTC the newest day is small, and
/// PostgreSQL rightly reads it without an index.
const SMALL_PARTITION: u64 = 5_000;

/// One per line, as typed; `cargo xtask bench fleet` uses the same. `SESSION` is a session from the middle of the
/// database.
const QUESTIONS: &str = include_str!("questions.txt");

/// Fills the database as `cargo xtask bench fleet` does.
fn fill(at: &Place, bin: &Path, url: &str) {
    let program = Path::new(env!("CARGO_BIN_EXE_agentsh")).parent().unwrap().join("examples/bench");
    let mut script = Command::new(&program)
        .args(["fleet-fill", &EVENTS.to_string(), "5"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}; run `cargo build --examples` first", program.display()));
    let mut psql = at.command(bin.join("psql"));
    psql.args(["-q", "-v", "ON_ERROR_STOP=1", "-d", url]).stdin(script.stdout.take().unwrap());
    assert!(psql.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
    assert!(script.wait().unwrap().success());
}

/// The parts of a plan that cost more than they should.
fn wrong(plan: &str) -> Vec<&str> {
    let number = |line: &str, before: &str| -> u64 {
        let rest = line.split_once(before).map_or("", |(_, rest)| rest);
        rest.split(|letter: char| !letter.is_ascii_digit())
            .next()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    };
    let mut is_whole = false;
    let mut found = Vec::new();
    for line in plan.lines() {
        let looks = line.contains("Scan") && line.contains("events") && !line.contains("never executed");
        let (rows, removed) = (number(line, "actual rows="), number(line, "Rows Removed by Filter: "));
        if line.contains("actual rows=") {
            is_whole = looks && line.contains("Seq Scan");
        }
        let is_wrong = if is_whole {
            rows > SMALL_PARTITION || removed > SMALL_PARTITION
        } else {
            (looks && rows > MAX_COUNT) || removed > MAX_COUNT
        };
        if is_wrong {
            found.push(line);
        }
    }
    found
}

#[test]
#[ignore = "takes long"]
fn fleet_queries_all_use_an_index() {
    let Some(bin) = postgres::programs() else { return skip("PostgreSQL is not installed") };
    if !bin.parent().unwrap().join("lib/auto_explain.so").exists() {
        return skip("auto_explain is not installed");
    }
    let Some(mode) = Mode::all().into_iter().find(|mode| !mode.is_root()) else {
        return skip("no ordinary user");
    };
    let at = Place::new(mode);
    let (cluster, log) = postgres::start_explaining(&at, &bin);
    let server = Server::start(&at, &cluster.url, &[]);
    server.login(&at, "viewer");
    fill(&at, &bin, &cluster.url);
    let page = asked(&at, &server, &["mcp", "events", "--host", "filled9", "--limit", "1500"]);
    let session = page.last().unwrap()["session"].as_str().unwrap().to_owned();
    let url = server.url();
    let plans = |words: &[&str]| -> (usize, String) {
        let before = std::fs::metadata(&log).map_or(0, |found| found.len());
        let mut all = words.to_vec();
        all.extend(["--json", "--fleet", &url]);
        let rows = at.listed(&all).len();
        let logged = || {
            let text = std::fs::read(&log).unwrap();
            String::from_utf8_lossy(&text[usize::try_from(before).unwrap()..]).into_owned()
        };
        // The database writes its log after it has answered.
        eventually(|| logged().contains("actual rows="));
        (rows, logged())
    };
    for question in QUESTIONS.lines() {
        let words = question.replace("SESSION", &session);
        let (rows, plan) = plans(&words.split(' ').collect::<Vec<_>>());
        assert!(plan.contains("Query Text") && plan.contains("actual rows="), "{words}: {plan}");
        assert_eq!(wrong(&plan), Vec::<&str>::new(), "{words}: {plan}");
        assert!(
            rows > 0 || question.contains("alert") || question.contains("high --host"),
            "{words}: {plan}"
        );
    }
    // The statistics match the data.
    let psql = |text: &str| {
        let mut command = at.command(bin.join("psql"));
        command.args(["-At", "-c", text]).arg(&cluster.url);
        Outcome::of(&mut command).expect_code(0).stdout.trim().parse::<usize>().unwrap()
    };
    let rare =
        psql("SELECT count(*) FROM events WHERE tool_name = 'rotate_keys' AND type = 'mcp_tool_called'");
    assert_eq!(plans(&["mcp", "calls", "--tool", "rotate_keys"]).0, rare);
    let blocked =
        psql("SELECT count(*) FROM events WHERE action = 'block' AND type = 'mcp_tool_call_intercepted'");
    let found = plans(&["mcp", "calls", "--action", "block", "--limit", "100000"]).0;
    assert!(found == blocked && blocked > 100, "{found} of {blocked}");
    let blocked = asked(&at, &server, &["mcp", "calls", "--action", "block"]);
    assert!(blocked.iter().all(|row| row["input"].is_object()), "each with its call: {:?}", blocked.first());
    let report =
        Outcome::of(&mut at.agentsh(&["report", &session, "--json", "--fleet", &url])).expect_code(0);
    assert!(
        report.stdout.contains("\"problems\":0") || report.stdout.contains("\"problems\": 0"),
        "{report}"
    );
}
