//! Servers of two versions on one database: tables change while servers write, and a server that no longer fits stops.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{Server, asked, forward, hosts, session};
use crate::support::{Mode, Outcome, Place, postgres, skip, within};

/// The newest version of the tables before anything of this test.
const BEFORE: i64 = 2;

struct Database {
    at: Place,
    cluster: postgres::Cluster,
    bin: std::path::PathBuf,
}

impl Database {
    fn start() -> Option<Self> {
        let Some(bin) = postgres::programs() else {
            skip("PostgreSQL is not installed");
            return None;
        };
        let Some(mode) = Mode::all().into_iter().find(|mode| !mode.is_root()) else {
            skip("no ordinary user");
            return None;
        };
        let at = Place::new(mode);
        let cluster = postgres::start(&at, &bin);
        Some(Self { at, cluster, bin })
    }

    fn say(&self, text: &str) -> String {
        let mut command = self.at.command(self.bin.join("psql"));
        command.args(["-At", "-v", "ON_ERROR_STOP=1", "-c", text]).arg(&self.cluster.url);
        Outcome::of(&mut command).expect_code(0).stdout.trim().to_owned()
    }

    fn version(&self) -> i64 {
        self.say("SELECT max(version) FROM fleet_schema").parse().unwrap()
    }

    /// Days whose part of the index that came later is missing or not whole.
    fn lacking(&self) -> String {
        self.say(
            "SELECT count(*) FROM pg_inherits i, (VALUES ('events_tool'), ('events_severity'), ('events_stopped')) AS n (name) \
             WHERE i.inhparent = 'events'::regclass AND NOT EXISTS (SELECT 1 FROM pg_index x JOIN pg_inherits y ON \
             y.inhrelid = x.indexrelid WHERE x.indrelid = i.inhrelid AND x.indisvalid AND y.inhparent = to_regclass(n.name))",
        )
    }
}

/// Two servers on one database answer the same, and keep what either was sent once.
fn agree(at: &Place, one: &Server<'_>, other: &str, sent: &[&Place]) {
    let words = ["mcp", "events", "--limit", "1000"];
    let all = asked(at, one, &words);
    let mut there = words.to_vec();
    there.extend(["--json", "--fleet", other]);
    at.set("AGENTSH_FLEET_CREDENTIAL", credential(at));
    assert_eq!(at.listed(&there), all);
    let own: usize =
        sent.iter().map(|host| host.listed(&["mcp", "events", "--limit", "1000", "--json"]).len()).sum();
    assert_eq!(all.len(), own);
    assert_eq!(hosts(at).1, 0);
}

fn credential(at: &Place) -> String {
    let login = std::fs::read_to_string(at.home.join(".local/state/agentsh/fleet/login.json")).unwrap();
    let login: serde_json::Value = serde_json::from_str(&login).unwrap();
    login["credential"].as_str().unwrap().to_owned()
}

/// A host with a forwarded session, and a viewer.
fn a_host(at: &Place, server: &Server<'_>, calls: usize) -> Place {
    server.login(at, "viewer");
    let host = Place::new(Mode::Invoker);
    server.enrol(&host, "laptop");
    session(&host, calls);
    forward(&host, &[]).expect_code(0);
    host
}

#[test]
fn schema_migration_works_while_an_older_server_runs() {
    let Some(database) = Database::start() else { return };
    let at = &database.at;
    let mut server = Server::start(at, &database.cluster.url, &[]);
    let host = a_host(at, &server, 2);
    let own = database.version();
    // As a later version would: it only adds.
    database.say(&format!(
        "BEGIN; ALTER TABLE hosts ADD COLUMN label TEXT; ALTER TABLE events ADD COLUMN agent TEXT; \
         CREATE TABLE labels (id TEXT PRIMARY KEY); CREATE INDEX events_agent ON ONLY events (agent, id); \
         INSERT INTO fleet_schema VALUES ({}, 1, 'now'); COMMIT",
        own + 1
    ));
    session(&host, 2);
    forward(&host, &["--check"]).expect_code(0);
    let count = asked(at, &server, &["mcp", "events", "--limit", "1000"]).len();
    assert_eq!(count, host.listed(&["mcp", "events", "--limit", "1000", "--json"]).len());
    let well = Outcome::of(&mut at.agentsh(&["fleet", "doctor"])).expect_code(0);
    assert!(
        well.stdout.contains(&format!("version {}: a newer server upgraded the tables", own + 1)),
        "{well}"
    );
    // The same one starts on tables that are newer than it.
    assert!(server.again());
    session(&host, 1);
    forward(&host, &["--check"]).expect_code(0);
    // Until a version says that it cannot.
    database.say(&format!("INSERT INTO fleet_schema VALUES ({}, {0}, 'now')", own + 2));
    assert!(!server.again());
    let words = ["fleet", "serve", "--listen", "127.0.0.1:0", "--database", &database.cluster.url];
    let refused = Outcome::of(&mut at.agentsh(&words)).expect_code(125);
    assert!(refused.stderr.contains("use a newer agentsh"), "{refused}");
    assert!(refused.stderr.contains(&format!("this one knows {own}")), "{refused}");
}

#[test]
#[ignore = "takes long"]
fn database_of_the_previous_version_is_migrated() {
    let Some(database) = Database::start() else { return };
    let at = &database.at;
    let mut server = Server::start(at, &database.cluster.url, &[]);
    let host = a_host(at, &server, 3);
    let own = database.version();
    server.end();
    // As version 2 made it.
    database.say(&format!(
        "DROP TABLE sign_ins; ALTER TABLE hosts DROP COLUMN last_event; DROP INDEX events_tool, events_severity, events_stopped; DELETE FROM fleet_schema WHERE version > {BEFORE}"
    ));
    let before = database.lacking();
    assert_ne!(before, "0");
    assert!(server.again());
    assert_eq!(database.version(), own);
    assert!(within(Duration::from_secs(20), || database.lacking() == "0"), "{}", database.lacking());
    assert_eq!(
        database.say("SELECT indisvalid FROM pg_index WHERE indexrelid = 'events_tool'::regclass"),
        "t"
    );
    session(&host, 1);
    forward(&host, &["--check"]).expect_code(0);
    let found = asked(at, &server, &["mcp", "calls", "--tool", "crash"]);
    assert_eq!(found.len(), 2, "{found:?}");
    // Its clock was ahead: what arrives now is behind that anyway.
    let ahead = 600_000_000_i64 << 11;
    database.say(&format!("UPDATE events SET id = id + {ahead}; UPDATE hosts SET last_event = 0"));
    session(&host, 1);
    forward(&host, &["--check"]).expect_code(0);
    let order = "SELECT count(*) FROM hosts WHERE last_event <> (SELECT max(id) FROM events WHERE host = hosts.id) \
                 UNION ALL SELECT count(*) FROM events WHERE id > (SELECT max(id) FROM events WHERE type = 'session_started') \
                 AND session <> (SELECT session FROM events WHERE type = 'session_started' ORDER BY id DESC LIMIT 1)";
    assert_eq!(database.say(order), "0\n0");
    // A second start has nothing to do.
    assert!(server.again());
    assert_eq!((database.version(), database.lacking().as_str()), (own, "0"));
}

/// A server of version 4 can write into these tables, and its rows are queried here.
#[test]
fn rows_of_the_previous_versions_server_are_accepted() {
    let Some(database) = Database::start() else { return };
    let at = &database.at;
    let server = Server::start(at, &database.cluster.url, &[]);
    let host = a_host(at, &server, 2);
    let before = asked(at, &server, &["mcp", "events", "--limit", "1000"]).len();
    // A batch of one row, as that version stores it, without `last_event`.
    let row = "SELECT id + (60000000::bigint << 11), host, session, seq + 1, time, type, body, md5(hash) || md5(hash), \
               server_id, tool_name, action, severity, call FROM events ORDER BY id DESC LIMIT 1";
    database.say(&format!(
        "BEGIN; UPDATE hosts SET seen_at = seen_at; SELECT last_id, last_hash, state FROM hosts; \
         INSERT INTO events (id, host, session, seq, time, type, body, hash, server_id, tool_name, action, severity, call) {row}; \
         UPDATE hosts SET last_id = last_id + 1, last_hash = (SELECT hash FROM events ORDER BY id DESC LIMIT 1); COMMIT"
    ));
    database.say(
        "INSERT INTO hosts (id, name, key, state, version, enrolled_at, seen_at, last_id, last_hash) \
         VALUES ('older', 'older', '', 'active', '', 'now', 'now', 0, '')",
    );
    assert_eq!(asked(at, &server, &["mcp", "events", "--limit", "1000"]).len(), before + 1);
    assert_eq!(hosts(at).0.len(), 2);
    // The host did not write this row; that is found, whichever server accepted it.
    let said = forward(&host, &["--check"]);
    assert!(said.code != 0, "{said}");
}

/// Tables of days that cannot be made are reported.
#[test]
fn failure_to_make_day_tables_is_reported() {
    let Some(database) = Database::start() else { return };
    let at = &database.at;
    let mut server = Server::start(at, &database.cluster.url, &[]);
    server.login(at, "viewer");
    server.end();
    // The last day is in a table with another name.
    let last = database.say(
        "SELECT relname || ' ' || pg_get_expr(relpartbound, oid) FROM pg_class WHERE relispartition AND relkind = 'r' \
         AND relname LIKE 'events\\_2%' ORDER BY relname DESC LIMIT 1",
    );
    let (name, bounds) = last.split_once(' ').unwrap();
    database.say(&format!("DROP TABLE {name}; CREATE TABLE elsewhere PARTITION OF events {bounds}"));
    let said = at.project.join("said");
    let file = std::fs::File::create(&said).unwrap();
    let words = ["fleet", "serve", "--listen", &server.address, "--database", &database.cluster.url];
    let mut child = at.agentsh(&words).stdout(Stdio::null()).stderr(file).spawn().unwrap();
    let text = || std::fs::read_to_string(&said).unwrap_or_default();
    let is_told =
        within(Duration::from_secs(20), || text().contains("tables for the days to come cannot be made"));
    let bearer = format!("Bearer {}", credential(at));
    let metrics = server.raw("GET", "/metrics", &[("Authorization", &bearer)], b"").1;
    let _ended = child.kill();
    let _reaped = child.wait();
    assert!(is_told, "{}", text());
    assert!(text().contains("overlap"), "{}", text());
    assert!(metrics.contains("agentsh_fleet_keeping_failed{what=\"days\"} 1"), "{metrics}");
    assert!(metrics.contains("agentsh_fleet_keeping_failed{what=\"forgetting\"} 0"), "{metrics}");
}

struct Older {
    child: Child,
    address: String,
}

impl Drop for Older {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The server of a binary of an earlier version, which `AGENTSH_TEST_OLDER` names.
#[test]
fn previous_server_version_works_beside_this_one() {
    let Some(binary) = std::env::var_os("AGENTSH_TEST_OLDER") else {
        return skip("a binary of the version before: AGENTSH_TEST_OLDER does not name one");
    };
    let Some(database) = Database::start() else { return };
    let at = &database.at;
    let start = |listen: &str| {
        let ours = at.agentsh(&["fleet", "serve", "--listen", listen, "--database", &database.cluster.url]);
        let mut command = Command::new(&binary);
        command.args(ours.get_args()).env_clear().current_dir(&at.project);
        command.envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))));
        // PostgreSQL trusts every connection to its socket.
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit("://").next().unwrap_or_default().to_owned();
        Older { child, address }
    };
    let older = start("127.0.0.1:0");
    let before = database.version();
    assert!(before >= BEFORE);
    let old_url = format!("http://{}", older.address);
    let token = |role: &str| {
        let mut command = Command::new(&binary);
        let ours = at.agentsh(&["fleet", "token", "--role", role, "--database", &database.cluster.url]);
        command.args(ours.get_args()).env_clear().current_dir(&at.project);
        command.envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Outcome::of(&mut command).expect_code(0).stdout.trim().to_owned()
    };
    let (one, two) = (Place::new(Mode::Invoker), Place::new(Mode::Invoker));
    let words = ["fleet", "enrol", "--url", &old_url, "--token", &token("host")];
    Outcome::of(&mut one.agentsh(&words)).expect_code(0);
    session(&one, 2);
    forward(&one, &[]).expect_code(0);
    assert_eq!(database.version(), before);
    // This version starts next to it, while its host keeps sending.
    let server = std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            for _ in 0..3 {
                session(&one, 4);
                forward(&one, &[]).expect_code(0);
            }
        });
        let server = Server::start(at, &database.cluster.url, &[]);
        sending.join().unwrap();
        server
    });
    assert!(database.version() > before, "the binary is not of a version before");
    server.login(at, "viewer");
    server.enrol(&two, "two");
    for host in [&one, &two, &one, &two] {
        session(host, 2);
        forward(host, &["--check"]).expect_code(0);
    }
    assert!(within(Duration::from_secs(20), || database.lacking() == "0"), "{}", database.lacking());
    agree(at, &server, &old_url, &[&one, &two]);
    // The older one starts again on the newer tables, and a person who signed in at a provider is unknown there.
    drop(older);
    let older = start("127.0.0.1:0");
    let old_url = format!("http://{}", older.address);
    session(&two, 1);
    forward(&two, &[]).expect_code(0);
    agree(at, &server, &old_url, &[&one, &two]);
}
