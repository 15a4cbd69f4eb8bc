//! `kill -9` of agentsh at any moment: no process survives it, and no answered call is forgotten.

use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::support::{Mode, Outcome, Peer, Place, eventually, processes, skip, within};

/// After this nothing may be left.
const SOON: Duration = Duration::from_millis(100);

fn end(child: &mut Child) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
}

/// Unique to one test, and part of the arguments of whatever it starts.
fn mark(place: &Place, name: &str) -> String {
    format!("{}-{name}", place.path("x").parent().unwrap().file_name().unwrap().to_string_lossy())
}

#[track_caller]
fn nothing_left(mark: &str) {
    let gone = within(SOON, || processes::find(mark).is_empty());
    let left: Vec<String> = processes::find(mark).into_iter().map(processes::arguments).collect();
    assert!(gone, "still there after {SOON:?}: {left:?}");
}

fn agent(place: &Place, mark: &str) -> Child {
    let mut command = place.agentsh(&["run", "--quiet", "--"]);
    let daemon = format!("daemon {mark}-daemon");
    command.arg(place.program("probe")).args([&daemon, "pause 60000", mark]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}

#[test]
fn agent_and_its_daemons_end_when_agentsh_is_killed() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mark = mark(&place, "idle");
        let mut child = agent(&place, &mark);
        assert!(eventually(|| processes::find(&format!("{mark}-daemon"))
            .iter()
            .any(|pid| processes::arguments(*pid).contains("--wait"))));
        end(&mut child);
        nothing_left(&mark);
    }
}

/// The thread that serves everything is stopped: for a moment, and for good. `kill -9` is then done by agentsh itself.
#[test]
#[ignore = "takes long"]
fn stopped_session_is_ended() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mark = mark(&place, "still");
        let mut command = place.agentsh(&["run", "--quiet", "--"]);
        command.arg(place.program("probe")).args(["pause 60000", &mark]);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        assert!(eventually(|| place.events("process_started").len() == 1));
        let hold = |ms: u32| place.outside(&[&format!("hold-thread {} {ms}", child.id())]);
        let moment = hold(3000);
        if moment == ["REFUSED EPERM"] {
            skip("this machine lets nobody trace another process");
            continue;
        }
        assert_eq!(moment, ["DONE"]);
        assert!(!processes::find(&mark).is_empty(), "a moment is not a reason");
        assert_eq!(hold(40_000), ["REFUSED NotFound"], "it ended while it was held");
        nothing_left(&mark);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{said}");
        // 12 s, and one look more where it was held just after the question.
        assert!(
            ["12 s", "14 s"].iter().any(|time| said.contains(&format!("did not answer for {time}"))),
            "{said}"
        );
        let ended = place.events("session_ended");
        assert_eq!(ended[0]["exit_code"], 125, "{ended:?}");
    }
}

/// At moments spread over the whole start, which takes some tens of milliseconds.
#[test]
fn kill_at_any_moment_of_the_start_leaves_no_process() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        for step in 0..12_u64 {
            let mark = mark(&place, &format!("start{step}"));
            let mut child = agent(&place, &mark);
            std::thread::sleep(Duration::from_micros(step * step * 900));
            let below = processes::below(child.id());
            end(&mut child);
            nothing_left(&mark);
            // Also what has not yet become the program.
            let gone =
                within(SOON, || below.iter().all(|pid| !processes::arguments(*pid).contains("__init")));
            assert!(gone, "{mode:?} step {step}");
        }
        place.shell("exit 4").expect_code(4);
        let verified = Outcome::of(&mut place.agentsh(&["events", "verify"]));
        assert_eq!(verified.code, 0, "{mode:?} {verified}");
    }
}

/// The project is elsewhere when agentsh starts again: the last check waits for it, and is reported once.
#[test]
fn killed_run_is_checked_wherever_the_project_is_then() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let arm = |name: &str| {
            place.write(format!("{name}/.git/HEAD"), "ref: refs/heads/main\n");
            place.write(format!("{name}/.git/config"), "[core]\n\tfsmonitor = evil\n");
        };
        arm("old");
        let mut command = place.agentsh(&["run", "--quiet", "--", "sh", "-c", "touch made; sleep 60"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let left = place.home.join(".local/state/agentsh/unfinished");
        let is_left = || std::fs::read_dir(&left).is_ok_and(|mut left| left.next().is_some());
        assert!(eventually(|| place.project.join("made").exists() && is_left()));
        end(&mut child);
        arm("new");
        let (moved, other) = (place.home.join("moved"), place.home.join("other"));
        std::fs::rename(&place.project, &moved).unwrap();
        place.make_directory(&other);
        let run = |directory| {
            let mut command = place.agentsh(&["run", "--", "true"]);
            Outcome::of(command.current_dir(directory)).expect_code(0).stderr
        };
        let said = run(&other);
        assert!(said.contains("that directory is missing") && is_left(), "{mode:?} {said}");
        let said = run(&other);
        assert!(!said.contains("killed session") && is_left(), "{mode:?} {said}");
        let said = run(&moved);
        assert!(said.contains("left by a killed session: new repository: ") && !is_left(), "{mode:?} {said}");
        let is_armed = |name: &str| {
            std::fs::read_to_string(moved.join(name).join(".git/config")).unwrap().contains("evil")
        };
        assert!(!is_armed("new") && is_armed("old"), "{mode:?} {said}");
    }
}

#[test]
fn kill_during_a_call_leaves_no_process() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mark = mark(&place, "call");
        let mut peer = Peer::ready(&place, &[&mark]);
        peer.text("spawn", json!({"mark": format!("{mark}-child")}));
        peer.ask("tools/call", json!({"name": "hang", "arguments": {}}));
        peer.text("echo", json!({"text": "x"}));
        assert!(eventually(|| processes::find(&format!("{mark}-child")).len() == 1));
        end(&mut peer.child);
        nothing_left(&mark);
        let verified = Outcome::of(&mut place.agentsh(&["events", "verify"]));
        assert_eq!(verified.code, 0, "{mode:?} {verified}");
    }
}

#[test]
fn kill_with_an_agent_and_several_servers_leaves_no_process() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mark = mark(&place, "all");
        let entry = |name: &str| json!({"command": place.program("fixture_server"), "args": [format!("{mark}-{name}")]});
        let config =
            json!({"mcpServers": {"one": entry("one"), "two": entry("two"), "three": entry("three")}});
        place.write(place.home.join(".claude.json"), config.to_string());
        let echo = |server: &str| json!({"server": server, "tool": "echo", "arguments": {"text": "x"}});
        let steps = json!([echo("one"), echo("two"), echo("three"), {"touch": place.project.join("ready")}, {"pause": 60_000}, mark]);
        let mut command = place.agentsh(&["run", "--quiet", "--"]);
        command.arg(place.program("claude")).args(["-p", &steps.to_string()]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        assert!(within(Duration::from_secs(20), || place.project.join("ready").exists()));
        assert!(processes::find(&mark).len() >= 5, "agentsh, the agent and three servers");
        end(&mut child);
        nothing_left(&mark);
    }
}

/// The refusal was on disk before the client heard of it.
#[test]
fn answered_refusal_is_recorded_before_a_kill() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy("sandbox: {mcp: {enforce_policy: true, tool_policy: denylist, denied_tools: [{server: \"*\", tool: crash}]}}\n");
        for round in 1..=3 {
            let mut peer = Peer::ready(&place, &[]);
            let answer = peer.call("crash", json!({}));
            end(&mut peer.child);
            assert!(answer["error"]["message"].as_str().unwrap().contains("policy.yaml:1"), "{answer}");
            let words = ["mcp", "calls", "--action", "block", "--json"];
            let recorded = Outcome::of(&mut place.agentsh(&words)).expect_code(0);
            let recorded: Vec<Value> = serde_json::from_str(&recorded.stdout).unwrap();
            assert_eq!(recorded.len(), round, "{mode:?}");
        }
        Outcome::of(&mut place.agentsh(&["events", "verify"])).expect_code(0);
    }
}

/// At moments spread over the writing itself: what was answered stays, and the chain holds.
#[test]
#[ignore = "takes long"]
fn kill_at_any_moment_of_recording_keeps_what_was_answered() {
    let place = Place::new(Mode::Invoker);
    place.policy("sandbox: {mcp: {enforce_policy: true, tool_policy: denylist, denied_tools: [{server: \"*\", tool: crash}]}}\n");
    let mut answered = 0;
    for round in 0..12_u64 {
        let mut peer = Peer::ready(&place, &[]);
        let id = i32::try_from(peer.child.id()).unwrap();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(2_000 + round * round * 700));
            kill(Pid::from_raw(id), Signal::SIGKILL).unwrap();
        });
        // Until the connection ends: refusals, which are answered only when they are on disk.
        while peer.try_call("crash", json!({})).is_some() {
            answered += 1;
        }
        killer.join().unwrap();
        peer.child.wait().unwrap();
    }
    let recorded = place.listed(&["mcp", "calls", "--action", "block", "--limit", "100000", "--json"]).len();
    assert!(answered > 0 && recorded >= answered, "{recorded} of {answered} are on record");
    Outcome::of(&mut place.agentsh(&["events", "verify"])).expect_code(0);
}

/// The other way round: an agent that is killed takes its servers with it, and agentsh says 137.
#[test]
fn a_killed_agent_is_an_exit_code() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mark = mark(&place, "agent");
        let mut child = agent(&place, &mark);
        let probe = || {
            let all = processes::find(&mark);
            all.into_iter().find(|pid| {
                let line = processes::arguments(*pid);
                line.starts_with(place.program("probe").to_str().unwrap())
            })
        };
        let found = eventually(|| probe().is_some());
        assert!(found, "{mode:?}");
        kill(Pid::from_raw(probe().unwrap()), Signal::SIGKILL).unwrap();
        assert_eq!(crate::support::outcome::wait(&mut child), 137, "{mode:?}");
        nothing_left(&mark);
    }
}
