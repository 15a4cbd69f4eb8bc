//! PostgreSQL as Debian has it, started for one test.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use super::{Outcome, Place};

/// Where Debian puts the programs that only a server needs.
pub fn programs() -> Option<PathBuf> {
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .collect();
    versions.sort();
    versions.pop().filter(|bin| bin.join("initdb").exists())
}

pub struct Cluster {
    child: Child,
    pub url: String,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.end();
    }
}

impl Cluster {
    /// `kill -9` of the server; what works for it ends by itself.
    pub fn end(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A server of its own, reached by a socket in the place's home. PostgreSQL does not run as root.
pub fn start(place: &Place, bin: &Path) -> Cluster {
    let data = place.home.join("pg");
    let made = Outcome::of(
        place
            .command(bin.join("initdb"))
            .args(["-A", "trust", "-U", "agentsh", "-E", "UTF8", "--no-sync", "-D"])
            .arg(&data),
    );
    made.expect_code(0);
    again(place, bin)
}

/// On the data that are there.
pub fn again(place: &Place, bin: &Path) -> Cluster {
    run(place, bin, &["listen_addresses=".to_owned()])
}

/// A server that writes down how it answers every question, and how many rows it looked at, in this file.
pub fn start_explaining(place: &Place, bin: &Path) -> (Cluster, PathBuf) {
    drop(start(place, bin));
    let words = [
        "listen_addresses=",
        "shared_preload_libraries=auto_explain",
        "auto_explain.log_min_duration=0",
        "auto_explain.log_analyze=on",
        "auto_explain.log_timing=off",
        "logging_collector=on",
        "log_filename=plans.log",
        "log_rotation_size=0",
    ];
    let directory = format!("log_directory={}", place.home.display());
    let words: Vec<String> = words.into_iter().map(str::to_owned).chain([directory]).collect();
    (run(place, bin, &words), place.home.join("plans.log"))
}

/// On a port of the loopback too, under TLS where that is asked for.
pub fn start_with_tls(place: &Place, bin: &Path, certificate: &Path, key: &Path) -> (Cluster, u16) {
    drop(start(place, bin));
    let words = [
        "ssl=on".to_owned(),
        format!("ssl_cert_file={}", certificate.display()),
        format!("ssl_key_file={}", key.display()),
    ];
    on_a_port(place, bin, &words)
}

/// On a port of the loopback too, on the data that are there.
pub fn start_plain(place: &Place, bin: &Path) -> (Cluster, u16) {
    on_a_port(place, bin, &[])
}

fn on_a_port(place: &Place, bin: &Path, more: &[String]) -> (Cluster, u16) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut words = vec!["listen_addresses=127.0.0.1".to_owned(), format!("port={port}")];
    words.extend_from_slice(more);
    (run(place, bin, &words), port)
}

fn run(place: &Place, bin: &Path, words: &[String]) -> Cluster {
    let port = words.iter().find_map(|word| word.strip_prefix("port=")).unwrap_or("5432");
    let socket = place.home.display().to_string();
    let url = format!("postgres://agentsh@{}:{port}/postgres", socket.replace('/', "%2F"));
    let begun = std::time::Instant::now();
    loop {
        let mut server = place.command(bin.join("postgres"));
        server.arg("-D").arg(place.home.join("pg")).args(["-k", socket.as_str()]);
        server.args(words.iter().flat_map(|word| ["-c", word.as_str()]));
        let child = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut cluster = Cluster { child, url: url.clone() };
        let is_ready = || {
            place
                .command(bin.join("pg_isready"))
                .args(["-q", "-h", &socket, "-p", port])
                .status()
                .unwrap()
                .success()
        };
        // Processes of a server that was killed may still hold its memory: it then ends at once.
        let mut has_ended = false;
        while !has_ended && begun.elapsed() < super::patience(std::time::Duration::from_secs(30)) {
            if is_ready() {
                return cluster;
            }
            has_ended = cluster.child.try_wait().unwrap().is_some();
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert!(has_ended, "the server does not answer");
    }
}
