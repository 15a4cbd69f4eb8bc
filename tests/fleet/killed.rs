//! `kill -9` of the server, the database and the forwarders, while sessions record: nothing lost, nothing twice.

use std::collections::BTreeSet;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Server, asked, forward, hosts};
use crate::support::{Mode, Outcome, Peer, Place, postgres, processes, skip};

/// The number of kills: `AGENTSH_TEST_KILLS`, by default 30.
fn kills() -> u64 {
    std::env::var("AGENTSH_TEST_KILLS").ok().and_then(|number| number.parse().ok()).unwrap_or(30)
}

/// Numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

fn forwarder(host: &Place) -> Child {
    let mut command = host.agentsh(&["fleet", "forward"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn end(child: &mut Child) {
    let _ended = child.kill();
    let _reaped = child.wait();
}

/// Session and place of each event.
fn places(rows: &[Value]) -> BTreeSet<(String, u64)> {
    rows.iter()
        .map(|row| (row["session"].as_str().unwrap().to_owned(), row["seq"].as_u64().unwrap()))
        .collect()
}

#[test]
#[ignore = "takes long"]
fn killed_servers_and_forwarders_lose_and_repeat_no_event() {
    let Some(bin) = postgres::programs() else { return skip("PostgreSQL is not installed") };
    let Some(mode) = Mode::all().into_iter().find(|mode| !mode.is_root()) else {
        return skip("no ordinary user");
    };
    let at = Place::new(mode);
    let mut cluster = postgres::start(&at, &bin);
    let url = cluster.url.clone();
    // Two servers on one database.
    let mut servers = [Server::start(&at, &url, &[]), Server::start(&at, &url, &[])];
    servers[0].login(&at, "viewer");
    let places_of_hosts = [Place::new(Mode::Invoker), Place::new(Mode::Invoker)];
    for ((host, server), name) in places_of_hosts.iter().zip(&servers).zip(["one", "two"]) {
        server.enrol(host, name);
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for host in &places_of_hosts {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let mut peer = Peer::ready(host, &[]);
                    for number in 0..40 {
                        peer.text("echo", json!({"text": format!("number {number}")}));
                    }
                    peer.finish();
                }
            });
        }
        let mut forwarders: Vec<Child> = places_of_hosts.iter().map(forwarder).collect();
        let mut dice = Dice(7);
        for _ in 0..kills() {
            std::thread::sleep(Duration::from_millis(50 + dice.roll(400)));
            match dice.roll(5) {
                0 => {
                    cluster.end();
                    std::thread::sleep(Duration::from_millis(dice.roll(200)));
                    cluster = postgres::again(&at, &bin);
                }
                number @ (1 | 2) => assert!(servers[usize::try_from(number - 1).unwrap()].again()),
                number => {
                    let index = usize::try_from(number - 3).unwrap();
                    end(&mut forwarders[index]);
                    // The one that a session started in its place.
                    processes::end_below(&places_of_hosts[index].home.join(".local/state/agentsh"));
                    forwarders[index] = forwarder(&places_of_hosts[index]);
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        forwarders.iter_mut().for_each(end);
    });
    for (host, name) in places_of_hosts.iter().zip(["one", "two"]) {
        forward(host, &["--check"]).expect_code(0);
        let own = host.listed(&["mcp", "events", "--limit", "1000000", "--json"]);
        let there = asked(&at, &servers[0], &["mcp", "events", "--limit", "1000000", "--host", name]);
        assert!(own.len() > 100, "{}", own.len());
        assert_eq!(there.len(), own.len(), "of {name}");
        assert_eq!(places(&there), places(&own));
        let sessions: BTreeSet<String> = places(&own).into_iter().map(|(session, _)| session).collect();
        for session in sessions {
            let words = ["report", &session, "--json", "--fleet", &servers[0].url()];
            let report = Outcome::of(&mut at.agentsh(&words)).expect_code(0);
            let report: Value = serde_json::from_str(&report.stdout).unwrap();
            assert_eq!(report["chain"], json!({"state": "ended", "problems": 0}), "{session}");
        }
    }
    let (known, code) = hosts(&at);
    assert_eq!(code, 0, "{known:?}");
    drop(cluster);
}

/// A long reader, such as a backup, delays the removal of a day, and no host's sending.
#[test]
fn removal_of_a_day_in_use_is_delayed_and_blocks_nobody() {
    let Some(bin) = postgres::programs() else { return skip("PostgreSQL is not installed") };
    let Some(mode) = Mode::all().into_iter().find(|mode| !mode.is_root()) else {
        return skip("no ordinary user");
    };
    let at = Place::new(mode);
    let cluster = postgres::start(&at, &bin);
    let mut server = Server::start(&at, &cluster.url, &["--keep", "30"]);
    server.login(&at, "viewer");
    let host = Place::new(Mode::Invoker);
    server.enrol(&host, "laptop");
    let psql = |text: &str| {
        let mut command = at.command(bin.join("psql"));
        command.args(["-At", "-c", text]).arg(&cluster.url);
        Outcome::of(&mut command).expect_code(0).stdout
    };
    let days =
        || psql("SELECT relname FROM pg_class WHERE relname LIKE 'events_2%' AND relkind = 'r' ORDER BY 1");
    let (old, next) = (1_577_836_800_000_000_i64 << 11, (1_577_836_800_000_000_i64 + 86_400_000_000) << 11);
    psql(&format!("CREATE TABLE events_20200101 PARTITION OF events FOR VALUES FROM ({old}) TO ({next})"));
    // A day to come is missing too.
    let last = days().trim().lines().last().unwrap().to_owned();
    psql(&format!("DROP TABLE {last}"));
    let reading = "SELECT pg_sleep(600) FROM (SELECT count(*) FROM events) AS of";
    let mut reads = at.command(bin.join("psql"));
    let mut reads = reads.args(["-At", "-c", reading]).arg(&cluster.url).spawn().unwrap();
    let of_reader = "FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(600)%' AND state = 'active'";
    assert!(crate::support::eventually(|| psql(&format!("SELECT count(*) {of_reader}")).trim() == "1"));
    assert!(server.again(), "a day to come is not a reason not to start");
    super::session(&host, 2);
    forward(&host, &["--check"]).expect_code(0);
    let (known, code) = hosts(&at);
    assert!(code == 0 && known[0]["events"].as_i64().unwrap() > 5, "{known:?}");
    assert!(days().contains("events_20200101") && !days().contains(&last), "{}", days());
    psql(&format!("SELECT pg_terminate_backend(pid) {of_reader}"));
    reads.wait().unwrap();
    assert!(server.again());
    assert!(crate::support::eventually(|| !days().contains("events_20200101") && days().contains(&last)));
}

/// Expired days are removed, and their events are not sent again.
#[test]
fn expired_days_are_removed() {
    let Some(bin) = postgres::programs() else { return skip("PostgreSQL is not installed") };
    let Some(mode) = Mode::all().into_iter().find(|mode| !mode.is_root()) else {
        return skip("no ordinary user");
    };
    let at = Place::new(mode);
    let cluster = postgres::start(&at, &bin);
    let mut server = Server::start(&at, &cluster.url, &["--keep", "30"]);
    server.login(&at, "viewer");
    let host = Place::new(Mode::Invoker);
    super::session(&host, 1);
    server.enrol(&host, "laptop");
    forward(&host, &[]).expect_code(0);
    let psql = |text: &str| {
        let mut command = at.command(bin.join("psql"));
        command.args(["-At", "-c", text]).arg(&cluster.url);
        Outcome::of(&mut command).expect_code(0).stdout
    };
    // As if it had arrived long ago.
    let old = 1_577_836_800_000_000_i64 << 11;
    let next = (1_577_836_800_000_000_i64 + 86_400_000_000) << 11;
    psql(&format!("CREATE TABLE events_20200101 PARTITION OF events FOR VALUES FROM ({old}) TO ({next})"));
    psql(&format!(
        "UPDATE events SET id = {old} + (id - (SELECT min(id) FROM events)) % 1000000 + seq * 1000000"
    ));
    let count = || psql("SELECT count(*) FROM events").trim().parse::<u64>().unwrap();
    assert!(count() > 5);
    assert!(server.again());
    assert!(crate::support::eventually(|| count() == 0));
    assert!(!psql("SELECT relname FROM pg_class").contains("events_20200101"));
    forward(&host, &["--check"]).expect_code(0);
    assert_eq!(count(), 0, "nothing comes again");
    let words = ["report", "latest", "--json", "--fleet", &server.url()];
    let report = Outcome::of(&mut at.agentsh(&words)).expect_code(0);
    assert!(report.stderr.contains("has forgotten its first"), "{report}");
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    assert_eq!(report["chain"], json!({"state": "ended", "problems": 0}));
    let (known, code) = hosts(&at);
    assert!(code == 0 && known[0]["events"].as_i64().unwrap() > 5, "{known:?}");
    super::session(&host, 1);
    forward(&host, &[]).expect_code(0);
    assert!(count() > 5);
}
