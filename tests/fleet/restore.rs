//! A database that comes back from a backup: what it lacks is sent again, and everything fits.

use super::{Server, asked, forward, hosts, session};
use crate::support::{Mode, Outcome, Place, postgres, skip};

fn count(at: &Place, server: &Server<'_>) -> usize {
    asked(at, server, &["mcp", "events", "--limit", "1000"]).len()
}

fn own(host: &Place) -> usize {
    host.listed(&["mcp", "events", "--limit", "1000", "--json"]).len()
}

/// `back` replaces the database by the backup.
fn comes_back(at: &Place, database: &str, backup: &dyn Fn(), back: &dyn Fn()) {
    let mut server = Server::start(at, database, &[]);
    server.login(at, "viewer");
    let (host, late) = (Place::new(Mode::Invoker), Place::new(Mode::Invoker));
    server.enrol(&host, "laptop");
    session(&host, 2);
    forward(&host, &[]).expect_code(0);
    let before = count(at, &server);
    backup();
    session(&host, 3);
    forward(&host, &["--check"]).expect_code(0);
    server.enrol(&late, "late");
    assert_eq!(count(at, &server), own(&host));
    server.end();
    back();
    assert!(server.again());
    assert_eq!(count(at, &server), before);
    session(&host, 1);
    forward(&host, &["--check"]).expect_code(0);
    assert_eq!(count(at, &server), own(&host), "every event, once");
    let (known, code) = hosts(at);
    assert!(code == 0 && known.len() == 1, "{known:?}");
    let report = Outcome::of(&mut at.agentsh(&["report", "latest", "--json", "--fleet", &server.url()]))
        .expect_code(0);
    let report: serde_json::Value = serde_json::from_str(&report.stdout).unwrap();
    assert_eq!(report["chain"], serde_json::json!({"state": "ended", "problems": 0}));
    // A host that was enrolled after the backup is unknown: it reports this, and is enrolled again.
    session(&late, 1);
    let refused = forward(&late, &[]).expect_code(1);
    assert!(refused.stderr.contains("no such host"), "{refused}");
    server.enrol(&late, "late");
    forward(&late, &[]).expect_code(0);
}

#[test]
fn fleet_file_database_is_restored_from_a_backup() {
    let at = Place::new(Mode::Invoker);
    let (file, copy) = (at.home.join("fleet.db"), at.home.join("backup.db"));
    let backup = || {
        let connection = rusqlite::Connection::open(&file).unwrap();
        connection.execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
    };
    let back = || {
        for more in ["-wal", "-shm"] {
            let _may_be_none = std::fs::remove_file(format!("{}{more}", file.display()));
        }
        std::fs::copy(&copy, &file).unwrap();
    };
    comes_back(&at, file.to_str().unwrap(), &backup, &back);
}

#[test]
#[ignore = "takes long"]
fn fleet_postgres_database_is_restored_from_a_dump() {
    let Some(bin) = postgres::programs() else { return skip("PostgreSQL is not installed") };
    let Some(mode) = Mode::all().into_iter().find(|mode| !mode.is_root()) else {
        return skip("no ordinary user");
    };
    let at = Place::new(mode);
    let cluster = postgres::start(&at, &bin);
    let dump = at.home.join("fleet.sql");
    let backup = || {
        let mut command = at.command(bin.join("pg_dump"));
        command.arg("-f").arg(&dump).arg(&cluster.url);
        Outcome::of(&mut command).expect_code(0);
    };
    let back = || {
        // Into an empty place: the keys of days cannot be dropped one by one, as `--clean` would.
        let mut empty = at.command(bin.join("psql"));
        empty.args(["-q", "-c", "DROP SCHEMA public CASCADE; CREATE SCHEMA public"]).arg(&cluster.url);
        Outcome::of(&mut empty).expect_code(0);
        let mut command = at.command(bin.join("psql"));
        command.args(["-q", "-v", "ON_ERROR_STOP=1", "-f"]).arg(&dump).arg(&cluster.url);
        Outcome::of(&mut command).expect_code(0);
    };
    comes_back(&at, &cluster.url, &backup, &back);
}
