//! The client of kiji-safeguard 0.3.0, from PyPI, against our registry: it registers, verifies, sees what changed, and waits
//! for a person who approves or rejects.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::place::{Ended, Place, Starter, installed, run};

/// Offers one tool, described by the project's file `offer`.
const SERVER: &str = r#"#!/bin/sh
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case $line in
    *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"wetter-ü","version":"1"},"instructions":"frag höflich"}' ;;
    *'"tools/list"'*) result='{"tools":[{"name":"get","description":"'"$(cat offer)"'","inputSchema":{"type":"object","properties":{"n":{"type":"number","minimum":1.0}}}}]}' ;;
    *) continue ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

struct Registry {
    child: Child,
    url: String,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(place: &Place) -> Registry {
    let mut command =
        place.agentsh(["registry", "serve", "--open", "--listen", "127.0.0.1:0", "--operators"]);
    command.arg(place.home.join("operators")).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("listening on ").expect(&line).to_owned();
    Registry { child, url }
}

/// The agent of kiji, under nothing but its own hook.
fn kiji(place: &Place, registry: &Registry, mode: &str) -> Ended {
    std::fs::write(installed("venv-mcp1/kiji.py"), include_str!("kiji.py")).unwrap();
    let mut command = place.command(installed("venv-mcp1/bin/python3"));
    command
        .arg(installed("venv-mcp1/kiji.py"))
        .arg(place.home.join("server"))
        .env("KIJI_SAFEGUARD_REGISTRY", &registry.url)
        .env("KIJI_SAFEGUARD_MODE", mode)
        .env("KIJI_SAFEGUARD_ENFORCE", "1")
        .env("KIJI_SAFEGUARD_APPROVAL_TIMEOUT", "60")
        .env("KIJI_SAFEGUARD_APPROVAL_POLL_INTERVAL", "0.2")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    run(&mut command)
}

fn offer(place: &Place, description: &str) {
    place.write(&place.project.join("offer"), description);
}

fn ours(place: &Place, registry: &Registry, words: &[&str]) -> Ended {
    let operators = place.home.join("operators");
    let mut command = place.agentsh(["registry"]);
    run(command.args(words).args(["--registry", &registry.url, "--token"]).arg(operators))
}

/// Answers the request that waits for a decision, as soon as it does.
fn decide(place: &Place, registry: &Registry, verb: &str) {
    let started = Instant::now();
    loop {
        let listed = ours(place, registry, &["approvals"]);
        if let Some(line) = listed.stdout.lines().find(|line| line.contains("wetter-ü")) {
            let id = line.split('\t').next().unwrap().trim();
            let said = ours(place, registry, &["approvals", verb, id]);
            assert_eq!(said.status, Some(0), "{said:?}");
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "nobody asks: {listed:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

pub fn serves_the_client_of_kiji(starter: Starter) {
    let place = Place::new(starter);
    place.program(&place.home.join("server"), SERVER);
    offer(&place, "says «ü»");
    let registry = serve(&place);
    let listed = |ended: &Ended, what: &str| {
        assert_eq!(ended.stdout.trim(), format!("listed {what}"), "{}", ended.stderr);
    };
    let blocked = |ended: &Ended, why: &str| {
        assert!(ended.status != Some(0) && ended.stdout.is_empty(), "{ended:?}");
        assert!(ended.stderr.contains(why), "{why}: {}", ended.stderr);
    };
    blocked(&kiji(&place, &registry, "verify"), "is not registered");
    let first = kiji(&place, &registry, "auto");
    listed(&first, "says «ü»");
    assert!(first.stderr.contains("first sight of 'wetter-ü'"), "{}", first.stderr);
    // The hash that kiji computed from its own types is the one that agentsh computes from the wire.
    let server = place.home.join("server");
    let hashed = run(place.agentsh(["registry", "hash", "--format", "kiji", "--"]).arg(&server));
    let hash = hashed.stdout.trim().rsplit('\t').next().unwrap().to_owned();
    assert!(hash.len() == 64 && first.stderr.contains(&hash), "{hashed:?} {}", first.stderr);
    let same = kiji(&place, &registry, "verify");
    listed(&same, "says «ü»");
    assert!(same.stderr.contains(&format!("verified 'wetter-ü' (hash {hash})")), "{}", same.stderr);
    listed(&kiji(&place, &registry, "register"), "says «ü»");
    // Changed: a server does not register that itself, whatever the mode.
    offer(&place, "says more");
    for mode in ["verify", "auto"] {
        let changed = kiji(&place, &registry, mode);
        blocked(&changed, "interface changed: 'wetter-ü' is registered with hash");
        assert!(changed.stderr.contains("says more"), "the difference is shown: {}", changed.stderr);
    }
    blocked(&kiji(&place, &registry, "register"), "registration of 'wetter-ü' failed");
    let approved = std::thread::scope(|scope| {
        let asked = scope.spawn(|| kiji(&place, &registry, "approval"));
        decide(&place, &registry, "approve");
        asked.join().unwrap()
    });
    listed(&approved, "says more");
    assert!(approved.stderr.contains("approved: 'wetter-ü' new interface"), "{}", approved.stderr);
    listed(&kiji(&place, &registry, "verify"), "says more");
    // The one before is superseded.
    offer(&place, "says «ü»");
    blocked(&kiji(&place, &registry, "verify"), "interface changed");
    offer(&place, "says everything");
    let rejected = std::thread::scope(|scope| {
        let asked = scope.spawn(|| kiji(&place, &registry, "approval"));
        decide(&place, &registry, "reject");
        asked.join().unwrap()
    });
    blocked(&rejected, "was rejected");
    // A rejection sticks: nobody is asked a second time.
    blocked(&kiji(&place, &registry, "approval"), "was rejected");
    let log = ours(&place, &registry, &["log"]);
    assert!(log.status == Some(0) && log.stdout.contains("hash chain valid"), "{log:?}");
}
