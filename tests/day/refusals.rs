//! Connections that would fail without a word: a port of this machine's loopback, an address that no rule names.

use std::net::{TcpListener, UdpSocket};

use super::has;
use crate::support::{Mode, Outcome, Place};

#[test]
#[ignore = "takes long"]
fn connection_that_nobody_inside_answers_is_reported() {
    if !has("python3") {
        return;
    }
    let there = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = there.local_addr().unwrap().port();
    // Nothing listens here, outside or inside.
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for mode in Mode::all() {
        for (backend, rules) in [
            ("auto", "allow: [a.example], "),
            ("userns", "allow: [a.example], "),
            ("auto", ""),
            ("userns", ""),
        ] {
            let place = Place::new(mode).policed_by(backend);
            place.user_policy(&format!("agent: {{network: {{{rules}unknown: deny}}}}\n"));
            place.write(
                "connect.py",
                format!(
                    "import socket\nfor host, port in (('127.0.0.1', {port}), ('127.0.0.1', {free}), ('192.0.2.7', 8080)):\n    \
                     s = socket.socket(); s.settimeout(5)\n    try: s.connect((host, port)); print('in')\n    \
                     except OSError as e: print('no')\n\
                     u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ntry: u.sendto(b'x', ('192.0.2.8', 53))\n\
                     except OSError: pass\n\
                     name = b''.join(bytes([len(part)]) + part for part in b'_http._tcp.b.example'.split(b'.')) + b'\\0'\n\
                     u.sendto(bytes([0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]) + name + bytes([0, 33, 0, 1]), ('127.0.0.53', 53))\nu.recv(512)\n"
                ),
            );
            let outcome =
                Outcome::of(&mut place.agentsh(&["run", "--", "python3", "connect.py"])).expect_code(0);
            assert_eq!(outcome.stdout, "no\nno\nno\n", "{outcome}");
            let loopback = format!("`agentsh policy allow localhost:{port}`");
            for said in [
                &loopback[..],
                "`agentsh policy allow 192.0.2.7:8080`",
                "-> 192.0.2.8:",
                "`agentsh policy allow b.example`",
            ] {
                assert!(outcome.stderr.contains(said), "{mode:?} {backend} {said}: {outcome}");
            }
            assert!(!outcome.stderr.contains(&free.to_string()), "{outcome}");
            let refused = place.events("net_connect_blocked");
            let reason = |port: u16| {
                let event = refused.iter().find(|event| event["port"] == port);
                event.and_then(|event| event["reason"].as_str())
            };
            assert_eq!(reason(port), Some("loopback-port-not-open"), "{refused:?}");
            assert_eq!(reason(53), Some("udp-not-allowed"), "{refused:?}");
            assert!(reason(8080).is_some() && reason(free).is_none(), "{refused:?}");
            // The suggested command opens it.
            let port = format!("localhost:{port}");
            Outcome::of(&mut place.agentsh(&["policy", "allow", &port])).expect_code(0);
            let outcome =
                Outcome::of(&mut place.agentsh(&["run", "--", "python3", "connect.py"])).expect_code(0);
            assert!(outcome.stdout.starts_with("in\n"), "{outcome}");
        }
    }
}

/// The home inside is lost with the run: reported once, for files that somebody would look for.
#[test]
fn files_made_in_the_home_are_reported_as_gone_with_the_run() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.make_directory(&place.home.join("kept"));
        place.user_policy("agent: {filesystem: {write: [\"~/kept\"]}}\n");
        let run = |script: &str| {
            Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-ec", script])).expect_code(0).stderr
        };
        let hidden = "mkdir -p ~/.cache/x/bin ~/.config/y; echo x >~/.cache/x/bin/z; echo x >~/.config/y/z";
        let told =
            run(&format!("{hidden}; mkdir -p ~/.local/bin; echo x >~/.local/bin/tool; echo x >~/note"));
        let line = "not kept, because the home inside ends with the run: ~/.local/bin, ~/note; install";
        assert!(told.contains(line), "{mode:?} {told}");
        let told = run(&format!(
            "{hidden}; test ! -e ~/note; mkdir -p ~/kept/bin bin; echo x >~/kept/bin/x; echo x >bin/x"
        ));
        assert!(
            !told.contains("ends with the run") && place.home.join("kept/bin/x").exists(),
            "{mode:?} {told}"
        );
    }
}

/// If root started agentsh and the machine's audit is on, agentsh reports what Landlock refuses, with its
/// rule.
#[test]
fn landlock_refusal_is_reported_with_its_rule() {
    if std::env::var_os("AGENTSH_TEST_AUDIT").is_none() {
        return crate::support::skip("the machine's audit may be off; with AGENTSH_TEST_AUDIT=1 it is on");
    }
    let place = Place::new(Mode::Invoker);
    if !place.mode.is_root() {
        return crate::support::skip("only root hears the machine's audit");
    }
    let script = "for n in 1 2 3; do touch /proc/x 2>/dev/null; done; touch own; sleep 0.3";
    let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", script])).expect_code(0);
    let told: Vec<&str> = outcome.stderr.lines().filter(|line| line.contains("'/proc' is refused")).collect();
    assert_eq!(told.len(), 1, "{outcome}");
    assert!(told[0].contains("make_reg") && told[0].contains("by built-in (private)"), "{outcome}");
    let events = place.events("file_refused");
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!((events[0]["path"].as_str(), events[0]["access"].as_str()), (Some("/proc"), Some("make_reg")));
    // The twin is not a refusal, and refusals in other sandboxes are not reported here.
    assert!(place.project.join("own").exists());
}

/// A new file at a guarded name is refused by the mount of its directory: that is told with and without reports of files.
#[test]
fn new_files_in_a_guarded_directory_are_told_at_once_and_in_the_report() {
    let place = Place::new(Mode::Invoker);
    Outcome::of(place.command("git").args(["init", "-q"])).expect_code(0);
    let script = "echo x > .git/hooks/post-commit";
    for words in [&["run", "--"][..], &["run", "--tell-files", "--"]] {
        let outcome = Outcome::of(place.agentsh(words).args(["sh", "-c", script]));
        assert!(outcome.stderr.contains("refused to change .git/hooks/post-commit"), "{words:?} {outcome}");
        assert!(outcome.stderr.contains(": 1 file refused"), "{words:?} {outcome}");
        let report = Outcome::of(&mut place.agentsh(&["report"])).expect_code(0).stdout;
        let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(report.contains("refused to change .git/hooks/post-commit"), "{words:?} {report}");
        assert!(report.contains("`agentsh policy allow --write .git/hooks`"), "{words:?} {report}");
    }
}

/// A program says that a file is read-only or missing and does not know why: the user and the record hear it where they ask for
/// it, and where to ask elsewhere.
#[test]
fn file_refusals_are_reported_with_rule_and_remedy_on_request() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write(".envrc", "before\n");
        place.write(place.home.join("data/a"), "data\n");
        let script =
            "echo x > .envrc; echo x > .mcp.json; cat ~/data/a; cat ~/nowhere; echo x > made; exit 3";
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--tell-files", "--", "sh", "-c", script]))
            .expect_code(3);
        for said in [
            "/.envrc (write_file: `.envrc` stays read-only: ",
            "to allow it: `agentsh policy allow --write .envrc`",
            ".mcp.json was created during the run and set aside (agents start the programs named in it)",
            "/data/a (read_file: nothing grants it",
            ": 2 files refused",
            "agentsh policy allow ~/data/a\n",
        ] {
            let said = said.replace("~/data/a", &place.home.join("data/a").display().to_string());
            assert!(outcome.stderr.contains(&said), "{mode:?} {said}: {outcome}");
        }
        assert!(!outcome.stderr.contains("/nowhere (") && place.project.join("made").exists(), "{outcome}");
        assert_eq!(place.events("file_refused").len(), 2);
        let report = Outcome::of(&mut place.agentsh(&["report"])).expect_code(0).stdout;
        let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            report.contains(".envrc' of the agent: write_file, by built-in (read-only:.envrc)"),
            "{report}"
        );
        // Otherwise nothing waits, and the end says where to ask.
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", script])).expect_code(3);
        assert!(outcome.stderr.contains("`agentsh run --tell-files` prints each refused file"), "{outcome}");
        assert!(!outcome.stderr.contains("'.envrc' is refused"), "{outcome}");
        // Nothing was refused, or nothing failed.
        for (script, code) in [("exit 3", 3), ("cat nowhere", 1), ("echo x > .mcp.json", 0)] {
            let outcome =
                Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", script])).expect_code(code);
            assert!(!outcome.stderr.contains("--tell-files"), "{outcome}");
        }
        // A file that is written beside a guarded one and renamed over it is always reported.
        let script = "echo x > .envrc.tmp.17; mv .envrc.tmp.17 .envrc; rm -f .envrc.tmp.17";
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", script])).expect_code(0);
        assert!(outcome.stderr.contains("refused to change .envrc"), "{outcome}");
    }
}

/// A tool that installs below a directory that is only shown says EROFS in its own words: the end of a run that failed, and
/// whoever asks inside, hear the rule and the command.
#[test]
fn write_below_a_read_only_directory_is_reported_with_rule_and_remedy() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let tools = place.home.join("own");
        place.script(tools.join("tool"), "#!/bin/sh\necho tool\n");
        place.set("PATH", format!("{}:/usr/bin:/bin", tools.display()));
        let script = "mkdir ~/own/new; touch ~/own/.cache; /run/agentsh/agentsh why mkdir; \
                      /run/agentsh/agentsh why EROFS; exit $1";
        let run = |more: &[&str], code: &str| {
            let words = [&["run"], more, &["--", "sh", "-c", script, "sh", code]].concat();
            Outcome::of(&mut place.agentsh(&words))
        };
        let outcome = run(&[], "3").expect_code(3);
        let command = format!("agentsh policy allow --write {}", tools.display());
        for said in [
            format!("refused: the agent -> {} (write_file: ", tools.display()),
            format!("to allow it: `{command}`"),
            ": 1 file refused\n".to_owned(),
        ] {
            assert!(outcome.stderr.contains(&said), "{mode:?} {said}: {outcome}");
        }
        for said in [
            format!("execute: denied: 'mkdir' could not write {}: ", tools.display()),
            format!("to allow it: {command}\n"),
            format!("'touch' could not write {}\n", tools.display()),
        ] {
            assert!(outcome.stdout.contains(&said), "{mode:?} {said}: {outcome}");
        }
        // Programs try it and continue without: a run that did not fail reports nothing.
        let outcome = run(&[], "0").expect_code(0);
        assert!(!outcome.stderr.contains("own (write_file"), "{mode:?} {outcome}");
        // The suggested option allows it.
        let outcome = run(&["--write", &tools.display().to_string()], "3").expect_code(3);
        assert!(outcome.stderr.contains("nothing refused"), "{mode:?} {outcome}");
        assert!(tools.join("new").exists(), "{mode:?}");
    }
}

/// A directory of the system that the user opens is the sandbox's own where root started it.
#[test]
fn system_directory_that_root_opens_can_be_written() {
    let place = Place::new(Mode::Invoker);
    if !place.mode.is_root() {
        return crate::support::skip("only root may write there outside");
    }
    let own = tempfile::tempdir_in("/usr/local/lib").unwrap();
    let path = own.path().display().to_string();
    let script = format!("touch {path}/new");
    let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", &script]));
    assert!(
        outcome.code != 0 && outcome.stderr.contains(&format!("policy allow --write {path}")),
        "{outcome}"
    );
    Outcome::of(&mut place.agentsh(&["run", "--write", &path, "--", "sh", "-c", &script])).expect_code(0);
    let made = own.path().join("new").metadata().unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&made), 0);
}
