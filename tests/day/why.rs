//! The agent knows that it is in a sandbox, and gets the reason of each refusal.

use crate::support::{Mode, Outcome, Place, skip};

fn inside(place: &Place, script: &str) -> Outcome {
    Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "sh", "-c", script]))
}

const WHY: &str = "/run/agentsh/agentsh why";

#[test]
fn why_names_the_rule_its_place_and_the_line_that_allows() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let policy = place
            .user_policy("agent:\n  network: {allow: [one.test]}\n  filesystem: {deny: [./secret.txt]}\n");
        place.write("secret.txt", "x");
        let script = format!(
            "{WHY} two.test; {WHY} one.test; {WHY} https://two.test:8443/a; {WHY} ~/.ssh/id_ed25519; {WHY} secret.txt; \
             {WHY} new.txt; {WHY} sh; {WHY} .git/hooks/pre-commit"
        );
        let outcome = inside(&place, &script);
        let file = policy.display();
        for expected in [
            "connect: denied: no rule names `two.test`".to_owned(),
            "to allow it: agentsh policy allow two.test\n".to_owned(),
            "connect: allowed: `one.test".to_owned(),
            format!("rule: {file}:2 ("),
            "to allow it: agentsh policy allow two.test:8443\n".to_owned(),
            "read: denied: `~/.ssh` is never visible".to_owned(),
            format!("to allow it, remove line 3 of {file}"),
            "execute: allowed:".to_owned(),
            "write: denied: `.git/hooks` stays read-only".to_owned(),
            "only the user can allow it, outside".to_owned(),
        ] {
            assert!(outcome.stdout.contains(&expected), "{expected}\n{outcome}");
        }
        inside(&place, &format!("{WHY} two.test")).expect_code(1);
        inside(&place, &format!("{WHY} one.test")).expect_code(0);
    }
}

#[test]
fn why_counts_what_the_session_adds_to_the_policy() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let home = place.home.display().to_string();
        place.set("PATH", format!("{home}/own:/usr/bin:/bin"));
        place.script(place.home.join("own/tool"), "#!/bin/sh\necho tool\n");
        let outcome = inside(&place, &format!("tool && {WHY} ~/own/tool"));
        assert!(outcome.stdout.contains("read: allowed: "), "{outcome}");
        assert!(outcome.stdout.contains("write: denied: "), "{outcome}");
    }
}

#[test]
fn why_outside_of_a_session_names_the_command_to_use() {
    let place = Place::new(Mode::all()[0]);
    let outcome = Outcome::of(&mut place.agentsh(&["why", "/etc/passwd"])).expect_code(125);
    assert!(outcome.stderr.contains("agentsh policy explain"), "{outcome}");
}

#[test]
fn briefing_of_claude_code_and_codex_names_the_sandbox() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.user_policy("agent: {network: {allow: [one.test]}}\n");
        let show = "#!/bin/sh\nfor word; do printf '[%s]\\n' \"$word\"; done\n";
        let claude = place.script(place.path("bin/claude"), show).display().to_string();
        let codex = place.script(place.path("bin/codex"), show).display().to_string();
        let told = |words: &[&str]| {
            let words = [&["run", "--quiet", "--"], words].concat();
            Outcome::of(&mut place.agentsh(&words)).expect_code(0).stdout
        };
        let alone = told(&[&claude, "hello"]);
        assert!(alone.contains("[--append-system-prompt=You run inside an agentsh sandbox."), "{alone}");
        let project = place.project.display().to_string();
        for part in [project.as_str(), "one.test", "/run/agentsh/agentsh why PATH|HOST|COMMAND", "EROFS"] {
            assert!(alone.contains(part), "{part}\n{alone}");
        }
        // The user's own option is kept, and comes first.
        for own in [&["--append-system-prompt", "Be kind."][..], &["--append-system-prompt=Be kind."]] {
            let merged = told(&[&[claude.as_str()], own, &["hello"]].concat());
            assert!(merged.contains("Be kind.\n\nYou run inside an agentsh sandbox."), "{merged}");
            assert_eq!(merged.matches("--append-system-prompt").count(), 1, "{merged}");
        }
        let config = place.home.join(".codex/config.toml");
        place.write(&config, "developer_instructions = \"Be \\\"kind\\\".\"\n");
        let merged = told(&[&codex, "hello"]);
        assert!(merged.contains("[developer_instructions="), "{merged}");
        assert!(merged.contains("You run inside an agentsh sandbox.") && merged.contains("kind"), "{merged}");
        // Nothing is written where it would stay.
        assert!(!place.project.join("CLAUDE.md").exists() && !place.project.join("AGENTS.md").exists());

        place.user_policy("agent: {tell_sandbox: false}\n");
        assert!(!told(&[&claude, "hello"]).contains("sandbox"), "switched off");
        assert!(!told(&[&codex, "hello"]).contains("developer_instructions"), "switched off");
    }
}

/// Facts of every sandbox, and files that no rule names because they belong to the sandbox.
#[test]
fn why_describes_the_sandbox_as_it_was_built() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let script = format!(
            "for word in limits /dev/stderr /proc/self/comm /dev/kvm /run/new /run/agentsh /dev/mqueue chown EROFS /srv/none; do \
             echo \"== $word\"; {WHY} $word; done; touch /dev/mqueue/q && echo queue; echo x >/proc/self/comm || cat /proc/self/comm >/dev/null; touch /run/new 2>&1; \
             awk '/core file/ {{ print \"core\", $5, $6 }}' /proc/self/limits"
        );
        let outcome = inside(&place, &script).expect_code(0);
        let said = |word: &str| {
            let (_, rest) = outcome.stdout.split_once(&format!("== {word}\n")).unwrap();
            rest.split("== ").next().unwrap().to_owned()
        };
        assert!(said("limits").contains(" MiB of memory for all processes, by "), "{outcome}");
        assert!(said("limits").contains("size of a file"), "{outcome}");
        assert!(
            said("limits").contains("at most 4096 pending signals, and 262144 bytes in message queues"),
            "{outcome}"
        );
        assert!(said("/proc/self/comm").contains("read: allowed: "), "{outcome}");
        assert!(
            said("/proc/self/comm").contains("write: denied: every sandbox has its own `/proc`"),
            "{outcome}"
        );
        // No grant shows a device.
        assert!(said("/dev/kvm").contains("read: denied: every sandbox has its own `/dev`"), "{outcome}");
        assert!(!said("/dev/kvm").contains("policy allow"), "{outcome}");
        assert!(said("limits").contains("the home, which are in memory\n"), "{outcome}");
        // The kernel starts the host's program for dumps also where the limit is 0.
        assert!(outcome.stdout.contains("\ncore 1 1\n"), "{outcome}");
        assert!(said("/dev/stderr").contains("is a stream that the program was started with"), "{outcome}");
        assert_eq!(
            said("/dev/stderr").contains("only through a descriptor"),
            mode.is_root(),
            "{mode:?} {outcome}"
        );
        assert!(
            said("/run/new").contains("write: denied: `/run` belongs to the sandbox, and is read-only"),
            "{outcome}"
        );
        assert!(said("/run/agentsh").contains("read: allowed: "), "{outcome}");
        assert!(!said("/dev/mqueue").contains("denied"), "{outcome}");
        assert!(said("chown").contains("one user and one group exist inside"), "{outcome}");
        assert!(said("EROFS").contains("ask for its path"), "{outcome}");
        assert!(said("/srv/none").contains("read: denied: nothing grants it"), "{outcome}");
        assert!(
            outcome.stdout.contains("\nqueue\n") && outcome.stdout.contains("'/run/new': Read-only"),
            "{outcome}"
        );
    }
}

/// A program that cannot start another one says EAGAIN at most.
#[test]
fn process_limit_is_reported_when_it_is_reached() {
    let place = Place::new(Mode::User);
    place.user_policy("agent: {limits: {pids: 24}}\n");
    let script = format!("(for n in $(seq 40); do sleep 4 & done) 2>/dev/null; sleep 2; {WHY} limits");
    let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", &script]));
    if place.events("enforcement").iter().all(|event| event["got"] != "a watchdog over all") {
        return skip("the memory of this user's processes is limited by a cgroup");
    }
    assert!(outcome.stdout.contains("at most 24 processes and threads (2"), "{outcome}");
    let said = "the agent had 24 processes and threads, and could start no more (EAGAIN), by ";
    assert!(outcome.stderr.contains(said) && outcome.stderr.contains("policy.yaml:1 ("), "{outcome}");
    let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", "sleep 1"])).expect_code(0);
    assert!(!outcome.stderr.contains("EAGAIN"), "{outcome}");
}
