//! The registry on PostgreSQL, as Debian has it. The server is started here, and skipped where there is none.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use super::server;
use crate::support::{Mode, Outcome, Place, eventually, skip};

/// Where Debian puts the programs that only a server needs.
fn programs() -> Option<PathBuf> {
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .collect();
    versions.sort();
    versions.pop().filter(|bin| bin.join("initdb").exists())
}

struct Cluster(Child);

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// A server of its own, reached by a socket in the place's home. PostgreSQL does not run as root.
fn start(place: &Place, bin: &Path) -> Cluster {
    let data = place.home.join("pg");
    let made = Outcome::of(
        place
            .command(bin.join("initdb"))
            .args(["-A", "trust", "-U", "registry", "--no-sync", "-D"])
            .arg(&data),
    );
    made.expect_code(0);
    let socket = place.home.display().to_string();
    let mut server = place.command(bin.join("postgres"));
    server.arg("-D").arg(&data).args(["-c", "listen_addresses=", "-k", socket.as_str()]);
    let cluster = Cluster(server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let ready =
        || place.command(bin.join("pg_isready")).args(["-q", "-h", &socket]).status().unwrap().success();
    assert!(eventually(ready));
    let url = format!("postgres://registry@{}/postgres", socket.replace('/', "%2F"));
    place.write(place.home.join("database.url"), url);
    cluster
}

#[test]
fn the_same_answers_as_on_a_file() {
    let Some(bin) = programs() else { return skip("PostgreSQL is not installed") };
    let mode = Mode::all().into_iter().find(|mode| !mode.is_root());
    let Some(mode) = mode else { return skip("no ordinary user") };
    for test in [server::first_holds, server::rejections_stick, server::races_are_decided] {
        let place = Place::new(mode);
        let _cluster = start(&place, &bin);
        test(&place);
    }
}
