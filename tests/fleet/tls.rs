//! TLS between the server and PostgreSQL.

use std::os::unix::fs::PermissionsExt as _;

use super::{Server, forward, hosts, session};
use crate::support::{Mode, Outcome, Place, postgres, skip};

#[test]
fn fleet_database_connection_uses_tls() {
    let Some(bin) = postgres::programs() else { return skip("PostgreSQL is not installed") };
    let Some(mode) = Mode::all().into_iter().find(|mode| !mode.is_root()) else {
        return skip("no ordinary user");
    };
    let at = Place::new(mode);
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = at.write(at.home.join("db.pem"), made.cert.pem());
    let key = at.write(at.home.join("db.key"), made.signing_key.serialize_pem());
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let foreign = at.write(at.home.join("other.pem"), other.cert.pem());
    let (cluster, port) = postgres::start_with_tls(&at, &bin, &certificate, &key);
    let url = |host: &str, words: &str| format!("postgres://agentsh@{host}:{port}/postgres?{words}");
    let rooted =
        |mode: &str, file: &std::path::Path| format!("sslmode={mode}&sslrootcert={}", file.display());

    // Certificates without an authority, of another authority and for another name; and invalid options.
    for (url, why) in [
        (url("localhost", "sslmode=verify-full"), "certificate"),
        (url("localhost", &rooted("require", &foreign)), "certificate"),
        (url("127.0.0.1", &rooted("verify-full", &certificate)), "certificate"),
        (url("localhost", "sslmode=prefer"), "sslmode=prefer is not known"),
        ("postgres://agentsh@db.invalid/postgres".to_owned(), "sslmode=verify-full"),
    ] {
        let words = ["fleet", "serve", "--listen", "127.0.0.1:0", "--database", &url];
        let refused = Outcome::of(&mut at.agentsh(&words)).expect_code(125);
        assert!(refused.stderr.contains(why), "{url}: {refused}");
    }
    let psql = |text: &str| {
        let mut command = at.command(bin.join("psql"));
        command.args(["-At", "-c", text]).arg(&cluster.url);
        Outcome::of(&mut command).expect_code(0).stdout.trim().to_owned()
    };
    let server = Server::start(&at, &url("localhost", &rooted("verify-full", &certificate)), &[]);
    server.login(&at, "viewer");
    let host = Place::new(Mode::Invoker);
    session(&host, 2);
    server.enrol(&host, "laptop");
    forward(&host, &["--check"]).expect_code(0);
    let (known, code) = hosts(&at);
    assert!(code == 0 && known[0]["events"].as_i64().unwrap() > 5, "{known:?}");
    let counted = "SELECT count(*) || ' ' || sum(CASE WHEN ssl THEN 1 ELSE 0 END) FROM pg_stat_ssl JOIN \
        pg_stat_activity USING (pid) WHERE client_addr IS NOT NULL";
    let counts = psql(counted);
    let (all, covered) = counts.split_once(' ').unwrap();
    assert!(all == covered && all.parse::<u32>().unwrap() >= 8, "{counts}");

    // A server without TLS gets nothing, whatever it says.
    drop(server);
    drop(cluster);
    let (_cluster, port) = postgres::start_plain(&at, &bin);
    let url = format!("postgres://agentsh@localhost:{port}/postgres?{}", rooted("require", &certificate));
    let words = ["fleet", "serve", "--listen", "127.0.0.1:0", "--database", &url];
    let refused = Outcome::of(&mut at.agentsh(&words)).expect_code(125);
    assert!(refused.stderr.contains("TLS"), "{refused}");
}
