//! The cost of a start, counted in calls, so that it does not depend on the speed of the machine. `[start]` of
//! `weight.toml` says how much it may.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Mode, Outcome, Place, processes, skip};

const TRACER: &str = "/usr/bin/strace";
/// Calls whose number the scheduler decides: waiting, waking, allocating memory. The number of all others varies by
/// fewer than ten, with the pages of the journal that are written.
const OF_THE_SCHEDULER: [&str; 7] =
    ["brk", "clock_nanosleep", "epoll_wait", "futex", "poll", "ppoll", "restart_syscall"];

#[test]
fn a_start_costs_what_weight_toml_says() {
    let mut counted = BTreeMap::new();
    for mode in Mode::all() {
        let who = if mode.is_root() { "root" } else { "user" };
        let place = Place::new(mode);
        repository(&place);
        let first = Outcome::of(&mut start(&place, &["true"])).expect_code(0);
        assert_eq!(first.stderr, "", "{mode:?}");
        // Disks differ between machines: each is a mount.
        let list = ["sh", "-c", "grep -vc ' /sys/devices/' /proc/self/mountinfo"];
        let outcome = Outcome::of(&mut start(&place, &list)).expect_code(0);
        counted.insert(format!("mounts-{who}"), outcome.stdout.trim().parse().unwrap());
        if Path::new(TRACER).exists() {
            let (calls, syncs) = traced(&place);
            counted.insert(format!("calls-{who}"), calls);
            counted.insert(format!("syncs-{who}"), syncs);
        } else {
            skip("strace is not installed: system calls are not counted");
        }
    }
    for (name, count) in &counted {
        // `cargo xtask weight` reads these lines.
        eprintln!("start {name}: {count}");
    }
    let text = include_str!("../../weight.toml");
    let maxima: BTreeMap<String, BTreeMap<String, u64>> = toml::from_str(text).unwrap();
    let is_more =
        |(name, count): &(&String, &u64)| maxima["start"].get(*name).is_none_or(|most| *count > most);
    let more: Vec<_> = counted.iter().filter(is_more).collect();
    assert!(more.is_empty(), "more than weight.toml says: {more:?}");
}

fn repository(place: &Place) {
    place.write("README.md", "text\n");
    let own = ["-c", "user.name=t", "-c", "user.email=t@example.com"];
    for words in [&["init", "-q"][..], &["add", "README.md"], &["commit", "-qm", "one"]] {
        let git = place.command("git").args(own).args(words).status().unwrap();
        assert!(git.success(), "{words:?}");
    }
}

/// The name of an agent in place of a command starts it in a sandbox, with its own options.
#[test]
fn the_name_of_an_agent_starts_it() {
    let place = Place::new(Mode::Invoker);
    place.script(place.path("bin/claude"), "#!/bin/sh\necho \"started $*\"\n");
    place.set("PATH", format!("{}:/usr/bin:/bin", place.path("bin").display()));
    let outcome = Outcome::of(&mut place.agentsh(&["claude", "--help"])).expect_code(0);
    assert!(outcome.stdout.starts_with("started ") && outcome.stdout.contains("--help"), "{outcome}");
    assert_eq!(place.events("session_started").len(), 1);
    let unknown = Outcome::of(&mut place.agentsh(&["cluade"])).expect_code(125);
    assert!(unknown.stderr.contains("agentsh run -- cluade"), "{unknown}");
}

fn start(place: &Place, words: &[&str]) -> Command {
    place.agentsh(&[&["run", "--quiet", "--"], words].concat())
}

/// System calls, and waits for the disk, of a start that is not the first.
fn traced(place: &Place) -> (u64, u64) {
    let record = place.project.parent().unwrap().join("calls.txt");
    let own = start(place, &["true"]);
    let mut command = place.command(TRACER);
    command.args(["-f", "-qq", "-o"]).arg(&record).arg(own.get_program()).args(own.get_args());
    Outcome::of(&mut command).expect_code(0);
    let text = fs::read_to_string(&record).unwrap();
    // `NUMBER NAME(...`: none of these are signals, ends, and the second halves of calls that were interrupted in the text.
    // F_GETFD: the standard library of a debug build asks it before each `close`.
    let names = text.lines().filter(|line| !line.contains("F_GETFD")).filter_map(|line| {
        let (name, _) = line.split_once(char::is_whitespace)?.1.trim_start().split_once('(')?;
        name.bytes().all(|letter| letter.is_ascii_alphanumeric() || letter == b'_').then_some(name)
    });
    let (mut calls, mut syncs) = (0, 0);
    for name in names {
        calls += u64::from(!OF_THE_SCHEDULER.contains(&name));
        syncs += u64::from(matches!(name, "fsync" | "fdatasync" | "sync" | "syncfs" | "sync_file_range"));
    }
    (calls, syncs)
}

/// Variables and command lines may contain secrets.
#[test]
fn zygote_holds_no_variables_or_arguments() {
    const SECRET: &str = "rather-long-and-unlikely-to-be-anywhere";
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mut command = start(&place, &["sh", "-c", "echo ready; read line", "a-word-of-the-command-line"]);
        command.env("AWS_SECRET_ACCESS_KEY", SECRET).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut session = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(session.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let own = i32::try_from(session.id()).unwrap();
        assert!(holds(own, SECRET), "{mode:?}: the search finds what is there");
        let of_sandbox: Vec<i32> = processes::below(session.id())
            .into_iter()
            .filter(|pid| processes::arguments(*pid).trim_end() == "agentsh __init")
            .collect();
        assert_eq!(of_sandbox.len(), 2, "{mode:?}: the zygote and pid 1");
        for pid in of_sandbox {
            let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            assert!(variables.iter().all(|byte| *byte == 0), "{mode:?}");
            assert!(!holds(pid, SECRET), "{mode:?}");
        }
        drop(session.stdin.take());
        assert!(session.wait().unwrap().code().is_some());
    }
}

/// Whether a text is in the memory that a process may write. One whose memory we may not read holds nothing.
fn holds(pid: i32, text: &str) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let Ok(memory) = fs::File::open(format!("/proc/{pid}/mem")) else { return false };
    maps.lines().filter(|line| line.contains(" rw")).any(|line| {
        let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [from, to] = [from, to].map(|number| u64::from_str_radix(number, 16).unwrap());
        let mut bytes = vec![0; usize::try_from(to - from).unwrap()];
        // Some of the kernel's own cannot be read.
        memory.read_exact_at(&mut bytes, from).is_ok()
            && memchr::memmem::find(&bytes, text.as_bytes()).is_some()
    })
}

/// Everything that a program finds in `/etc`, with modes and owners.
const LIST_ETC: &str = "find /etc -exec stat -c '%A %U %n' {} + | sort; cat /etc/passwd /etc/hosts /etc/resolv.conf; \
                        ls /etc/ssl/certs | wc -l; touch /etc/x 2>&1; ls /etc/shadow 2>&1";

#[test]
fn cached_etc_is_what_a_start_would_make() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let state = place.home.join(".local/state/agentsh");
        let list = || Outcome::of(&mut start(&place, &["sh", "-c", LIST_ETC])).stdout;
        let made = list();
        assert!(
            made.contains("/etc/passwd") && made.contains("Read-only") && made.contains("127.0.0.53"),
            "{made}"
        );
        assert!(made.contains("cannot access '/etc/shadow'"), "{made}");
        assert_eq!(list(), made, "{mode:?}: kept");
        let kept = fs::read_dir(state.join("etc")).unwrap().flatten().find(|entry| entry.path().is_dir());
        let kept = kept.unwrap().path();
        assert!(kept.join("passwd").is_file(), "{mode:?}");
        // Whatever becomes of it, the next start makes it again.
        fs::write(state.join("etc/copies"), "damaged").unwrap();
        fs::remove_dir_all(&kept).unwrap();
        assert_eq!(list(), made, "{mode:?}: made again");
        fs::remove_dir_all(state.join("etc")).unwrap();
        place.write(state.join("etc"), "in the way");
        // Then a file that is not made by agentsh is the real one, with its owner.
        assert_eq!(without_owners(&list()), without_owners(&made), "{mode:?}: not kept");
    }
}

/// The rows of [`LIST_ETC`], sorted.
fn without_owners(listed: &str) -> BTreeSet<String> {
    let row = |line: &str| match line.split_once(' ') {
        Some((mode, rest)) if rest.contains(" /etc") => format!("{mode} {}", rest.split_once(' ').unwrap().1),
        _ => line.to_owned(),
    };
    listed.lines().map(row).collect()
}

#[test]
fn git_settings_are_cached_until_the_configuration_changes() {
    const SECRET: &str = "Authorization: Basic c2VjcmV0LXRva2Vu";
    let place = Place::new(Mode::Invoker);
    let configuration = place.home.join(".gitconfig");
    let configure = |name: &str| {
        let text = format!("[user]\n\tname = {name}\n[http]\n\textraHeader = {SECRET}\n");
        place.write(&configuration, text);
    };
    let name = || {
        Outcome::of(&mut start(&place, &["git", "config", "user.name"]))
            .expect_code(0)
            .stdout
            .trim()
            .to_owned()
    };
    configure("One");
    assert_eq!(name(), "One");
    // A file that changed a moment ago is not cached.
    let kept = place.home.join(".local/state/agentsh/git");
    assert!(!kept.exists());
    std::thread::sleep(std::time::Duration::from_millis(2100));
    assert_eq!((name(), name()), ("One".to_owned(), "One".to_owned()));
    let answers: Vec<String> =
        fs::read_dir(&kept).unwrap().flatten().map(|one| fs::read_to_string(one.path()).unwrap()).collect();
    assert!(!answers.is_empty() && answers.iter().all(|answer| !answer.contains("c2VjcmV0")), "{answers:?}");
    let bytes = format!("{:?}", SECRET.as_bytes()).replace(' ', "");
    assert!(answers.iter().all(|answer| !answer.contains(bytes.trim_matches(['[', ']']))), "{answers:?}");
    configure("Two");
    assert_eq!(name(), "Two");
}

/// A hardening guide's `* hard core 0`, and an administrator's limit of processes: neither can be raised.
#[test]
fn lower_hard_limits_of_the_caller_are_kept() {
    const LIMITS: &str = "awk '/core file/ {print $6} /Max processes/ {print $4}' /proc/self/limits";
    for mode in Mode::all() {
        let place = Place::new(mode);
        let own = start(&place, &["sh", "-c", LIMITS]);
        let mut command = place.command("prlimit");
        command.args(["--core=0:0", "--nproc=1900:1900", "--"]).arg(own.get_program()).args(own.get_args());
        assert_eq!(Outcome::of(&mut command).expect_code(0).stdout, "0\n1900\n");
    }
}
