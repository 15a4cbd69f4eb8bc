//! The agent blocks or overloads the one thread of the session, so that nothing is answered, watched or ended any
//! more. Stopped by: no write can block, and every kind of request has a limit.

#![allow(unsafe_code, reason = "ptrace(2) has no wrapper that stops one thread")]

use std::process::Stdio;
use std::time::Duration;

use serde_json::json;

use crate::support::sandbox::script;
use crate::support::{Mode, Peer, Place, processes};

fn with_server(mode: Mode) -> Place {
    let place = Place::new(mode);
    let config = json!({"mcpServers": {"files": {"command": place.program("fixture_server")}}});
    place.write(place.home.join(".claude.json"), config.to_string());
    place
}

/// Each connection is a server with limits of its own.
#[test]
fn connections_with_one_server_are_bounded() {
    for mode in Mode::all() {
        let place = with_server(mode);
        let tries =
            json!([{"attempt": "bridge-many files 4"}, {"pause": 500}, {"attempt": "bridge-many files 5"}]);
        let answers = script(&place, &tries);
        let expected = [json!("DONE"), json!(null), json!("REFUSED ConnectionRefused")];
        assert_eq!(answers.json, expected, "{mode:?} {}", answers.outcome);
        let said = &answers.outcome.stderr;
        assert!(
            said.contains("\"reason\":\"too-many-connections\""),
            "answered at once: {}",
            answers.outcome
        );
        assert!(said.contains("server 'files' has 4 connections"), "{}", answers.outcome);
        let refused = place.events("mcp_server_refused");
        assert!(refused.iter().any(|event| event["reason"] == "too-many-connections"), "{refused:?}");
    }
}

/// Names that no server with that name is configured are counted, not kept.
#[test]
fn invented_server_names_are_counted_and_not_kept() {
    let place = with_server(Mode::Invoker);
    let answers =
        script(&place, &json!([{"attempt": "bridge-names 300"}, {"attempt": "bridge-many files 1"}]));
    assert_eq!(answers.json, [json!("DONE"), json!("DONE")], "{}", answers.outcome);
    let refused = place.events("mcp_server_refused");
    let told = answers.outcome.stderr.matches("no server with that name is configured").count();
    assert!((16..=30).contains(&told) && (16..=31).contains(&refused.len()), "{told} {refused:?}");
    assert!(answers.outcome.stderr.contains("the last of 128 refusals"), "{}", answers.outcome);
    let further = refused.iter().any(|event| event["detail"] == "44 further connections");
    assert!(further, "all of them are on record: {refused:?}");
}

/// Lines that do not end, on as many connections as there may be.
#[test]
#[ignore = "takes long"]
fn unfinished_lines_of_all_connections_are_bounded() {
    let place = Place::new(Mode::Invoker);
    let server = json!({"command": place.program("fixture_server")});
    let servers: serde_json::Map<_, _> = (0..10).map(|n| (format!("s{n}"), server.clone())).collect();
    place.write(place.home.join(".claude.json"), json!({"mcpServers": servers}).to_string());
    let tries: Vec<_> =
        (0..10).map(|n| json!({"background": format!("bridge-unfinished s{n} 4 15")})).collect();
    let steps = [tries, vec![json!({"pause": 6000}), json!({"attempt": "bridge-many s0 1"})]].concat();
    let mut command = place.agentsh(&["run", "--quiet", "--"]);
    command.arg(place.program("claude")).args(["-p", &json!(steps).to_string()]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        peak = peak.max(processes::peak_memory(child.id()));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!((20 << 20..300 << 20).contains(&peak), "{} MiB", peak >> 20);
}

/// A socket that was handed over, made to block again, and filled. Others are served anyway.
#[test]
fn blocking_socket_does_not_block_other_connections() {
    for mode in Mode::all() {
        let place = with_server(mode);
        let answers = script(&place, &json!([{"attempt": "bridge-fill files"}]));
        assert_eq!(answers.json, [json!("DONE")], "{mode:?} {}", answers.outcome);
    }
}

/// Whoever started agentsh does not read what it says. Others are served anyway.
#[test]
fn unread_standard_error_does_not_block_the_session() {
    use std::io::Write;
    let place = Place::new(Mode::Invoker);
    let missing: Vec<_> = (0..40).map(|n| format!("/nonexistent-{n}")).collect();
    place.policy(&format!(
        "sandbox: {{mcp: {{servers: [{{id: fixture, filesystem: {{read: {missing:?}}}}}]}}}}\n"
    ));
    let (reader, writer) = std::io::pipe().unwrap();
    nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK)).unwrap();
    let piece = [b'x'; 4096];
    while (&writer).write(&piece).is_ok() {}
    nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::empty())).unwrap();
    let mut command = place.agentsh(&["mcp", "run", "--id", "fixture", "--"]);
    let mut peer = Peer::with_errors(command.arg(place.program("fixture_server")), writer.into());
    let started = std::time::Instant::now();
    peer.shake_hands();
    assert_eq!(peer.text("echo", json!({"text": "here"})), "here");
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    drop(reader);
}

/// The one thread that serves all sandboxes is blocked, for whatever reason: then everything inside is ended.
#[test]
#[ignore = "takes long"]
fn stopped_session_is_ended() {
    let place = Place::new(Mode::Invoker);
    let wait = "touch made; while :; do sleep 0.1; date > beat; done";
    let child =
        place.agentsh(&["run", "--quiet", "--", "sh", "-c", wait]).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    assert!(crate::support::within(Duration::from_secs(20), || place.project.join("beat").exists()));
    let sandboxed = processes::below(pid);
    assert!(stop_thread(pid.cast_signed()), "cannot be stopped: {}", std::io::Error::last_os_error());
    let outcome = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.status.code(), Some(125), "{said}");
    assert!(said.contains("did not answer for"), "{said}");
    assert!(
        sandboxed.iter().all(|pid| !std::path::Path::new(&format!("/proc/{pid}/root")).exists()),
        "{said}"
    );
    let lacks = place.events("enforcement");
    assert!(lacks.iter().any(|event| event["layer"] == "session" && event["got"] == "ended"), "{lacks:?}");
}

/// Stops the first thread of a process and no other, as a debugger does.
fn stop_thread(pid: i32) -> bool {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: both requests take no pointer; the process is a child of ours.
    unsafe {
        libc::ptrace(libc::PTRACE_SEIZE, pid, none, none) == 0
            && libc::ptrace(libc::PTRACE_INTERRUPT, pid, none, none) == 0
    }
}

/// Each sandbox has a limit; the sum of them has one too, where control groups can be had.
#[test]
fn all_sandboxes_together_have_a_limit() {
    for mode in Mode::all() {
        let place = with_server(mode);
        let wait = "touch made; while ! test -e stop; do sleep 0.1; done";
        let mut child = place.agentsh(&["run", "--quiet", "--", "sh", "-c", wait]).spawn().unwrap();
        let name = format!("agentsh-{}", child.id());
        let is_made = crate::support::within(Duration::from_secs(20), || place.project.join("made").exists());
        let limits: Vec<u64> = groups(&name)
            .iter()
            .flat_map(|group| ["memory.limit_in_bytes", "memory.max"].map(|file| group.join(file)))
            .filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok())
            .collect();
        place.write("stop", "");
        child.wait().unwrap();
        assert!(is_made, "{mode:?}");
        if limits.is_empty() {
            crate::support::skip("no control group can be made here");
            continue;
        }
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap();
        let total = memory
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        assert!(limits.iter().all(|limit| *limit < total.unwrap() << 10), "{mode:?} {limits:?}");
        assert!(groups(&name).is_empty(), "{mode:?}: left behind");
    }
}

/// Refusals without end are counted, not written down one by one: a record of one takes more than a kilobyte.
#[test]
#[ignore = "takes long"]
fn flood_of_refused_names_does_not_fill_the_journal() {
    let place = Place::new(Mode::all()[0]);
    let flood = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); getent hosts h$i.example; done; true";
    let words = ["run", "--quiet", "--", "sh", "-c", flood];
    crate::support::Outcome::of(&mut place.agentsh(&words)).expect_code(0);
    assert!(!place.events("dns_blocked").is_empty());
    let record = place.home.join(".local/state/agentsh/agentsh.db");
    let bytes = record.metadata().unwrap().len();
    assert!(bytes < 3 << 20, "{bytes} bytes");
}

/// Directories of this name among the control groups.
fn groups(name: &str) -> Vec<std::path::PathBuf> {
    let mut open = vec![std::path::PathBuf::from("/sys/fs/cgroup")];
    let mut found = Vec::new();
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name() == name {
                    found.push(entry.path());
                }
                open.push(entry.path());
            }
        }
    }
    found
}
