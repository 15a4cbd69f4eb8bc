//! New versions of guarded files that programs inside rename over them: a person sees what is different, and decides.

use std::fs;
use std::process::{Child, Stdio};

use super::has;
use crate::support::asking::{ended, question, waiting};
use crate::support::{Mode, Outcome, Place, Pty, eventually};

/// A repository with the guarded files of an editor and of agents.
fn project(mode: Mode) -> Place {
    let place = Place::new(mode);
    place.write(".vscode/settings.json", "{}\n");
    place.write(".mcp.json", "{\"mcpServers\": {}}\n");
    place.write("CLAUDE.md", "one\n");
    let setup = "git init -q -b main .; git config user.email a@b.example; git config user.name A";
    Outcome::of(place.command("sh").args(["-ec", setup])).expect_code(0);
    place
}

fn read(place: &Place, path: &str) -> String {
    fs::read_to_string(place.project.join(path)).unwrap()
}

/// As an agent that does one task, on a terminal.
fn on_a_terminal(place: &Place, script: &str) -> Pty {
    let claude = place.script(place.project.join("bin/claude"), &format!("#!/bin/sh\n{script}\n"));
    let mut command = place.agentsh(&["run", "--"]);
    command.arg(claude).args(["-p", "task"]);
    Pty::start(command)
}

const CHOICE: &str = "y (once), s (for this session), n (no)? ";

#[test]
fn guarded_file_change_is_decided_on_the_terminal() {
    for mode in Mode::all() {
        let place = project(mode);
        let script = "git config core.hooksPath h || echo refused-one\n\
            git config core.hooksPath h || echo refused-two\n\
            git config core.hooksPath other && echo written-three; git config core.hooksPath\n\
            printf '{\"a\": \"\\033[2J\"}\\n' >new; mv -f new .vscode/settings.json && echo written-four; cat .vscode/settings.json\n\
            python3 -c 'import os; open(\"new\", \"w\").write(\"{}\"); os.replace(\"new\", \".mcp.json\")' && echo written-five\n\
            test ! -e new && echo moved";
        let mut terminal = on_a_terminal(&place, script);
        let asked = |terminal: &mut Pty, what: &str, shown: &str, answer: &str, then: &str| {
            terminal.expect(&format!("a change of '{what}' waits for your answer: "));
            terminal.expect("rule: built-in (read-only:");
            terminal.expect(shown);
            terminal.expect(CHOICE);
            terminal.write(answer);
            terminal.expect(then);
        };
        asked(&mut terminal, ".git/config", "+\\thooksPath = h", "n\n", "refused-one");
        // A no holds for the same bytes, and for no others.
        terminal.expect("refused-two");
        asked(&mut terminal, ".git/config", "+\\thooksPath = other", "y\n", "written-three");
        terminal.expect("other");
        asked(&mut terminal, ".vscode/settings.json", "+{\"a\": \"\\u{1b}[2J\"}", "y\n", "written-four");
        asked(&mut terminal, ".mcp.json", "-{\"mcpServers\": {}}", "s\n", "written-five");
        terminal.expect("moved");
        assert_eq!(terminal.wait(), 0, "{mode:?} {}", terminal.text());
        assert!(read(&place, ".git/config").contains("hooksPath = other"), "{mode:?}");
        assert_eq!(read(&place, ".vscode/settings.json"), "{\"a\": \"\x1b[2J\"}\n", "{mode:?}");
        assert_eq!(read(&place, ".mcp.json"), "{}", "{mode:?}");
        let refused: Vec<_> = place.events("guard_changed");
        let refused: Vec<_> = refused.iter().filter(|event| event["what"] == "refused").collect();
        assert!(refused[0]["detail"].as_str().unwrap().contains("you said no"), "{refused:?}");
        for path in [".vscode/settings.json", ".mcp.json", ".git/config"] {
            let path = place.project.join(path).display().to_string();
            Outcome::of(&mut place.agentsh(&["undo", &path])).expect_code(0);
        }
        assert_eq!(read(&place, ".vscode/settings.json"), "{}\n", "{mode:?}");
        assert!(!read(&place, ".git/config").contains("hooksPath"), "{mode:?}");
    }
}

/// Without a person at its terminal, and a policy that waits for `agentsh approvals`.
fn elsewhere(place: &Place, wait: &str, script: &str) -> Child {
    place.user_policy(&format!(
        "agent: {{filesystem: {{guard: all}}}}\nsandbox: {{mcp: {{approvals: {{wait: {wait}, headless: wait}}}}}}\n"
    ));
    let mut command = place.agentsh(&["run", "--", "sh", "-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn decision_elsewhere_about_a_guarded_file_covers_only_the_shown_bytes() {
    for mode in Mode::all() {
        let place = project(mode);
        let script = "sed -i s/one/two/ CLAUDE.md && echo first; sed -i s/one/three/ CLAUDE.md || echo second; \
            cat CLAUDE.md; echo x >new; ln new .vscode/launch.json && echo third; cat .vscode/launch.json; \
            echo y >new; mv -n new .vscode/tasks.json && echo fourth";
        let child = elsewhere(&place, "60s", script);
        let decide = |answer: &str, path: &str, line: &str| {
            let item = question(&place);
            assert_eq!(item["path"], path, "{mode:?} {item}");
            assert!(item["arguments"].as_str().unwrap().contains(line), "{mode:?} {item}");
            assert!(item["arguments_hash"].as_str().unwrap().starts_with("sha256:"), "{item}");
            let id = item["id"].as_str().unwrap();
            let always = Outcome::of(&mut place.agentsh(&["approvals", "approve", id, "--always"]));
            assert!(always.code != 0 && always.stderr.contains("bound to its content"), "{always}");
            Outcome::of(&mut place.agentsh(&["approvals", answer, id])).expect_code(0);
        };
        decide("approve", "CLAUDE.md", "-one\n+two\n");
        // The first one is written: what comes now is another change.
        decide("approve", ".vscode/launch.json", "+x\n");
        decide("approve", ".vscode/tasks.json", "+y\n");
        let (out, err) = ended(child);
        assert_eq!(out, "first\ntwo\nthird\nx\nfourth\n", "{mode:?} {err}");
        let owner =
            |path: &str| std::os::unix::fs::MetadataExt::uid(&place.project.join(path).metadata().unwrap());
        assert_eq!(owner(".vscode/launch.json"), owner(".vscode"), "{mode:?}");
        assert_eq!(fs::metadata(place.project.join(".vscode/launch.json")).unwrap().len(), 2);
    }
}

/// The session works on a call that takes no time outside: no signal interrupts it (Linux 5.19).
#[test]
fn a_signal_does_not_interrupt_a_call_that_waits_for_an_answer() {
    if !has("python3") {
        return;
    }
    for mode in Mode::all() {
        let place = project(mode);
        place.write(
            "rename.py",
            "import ctypes, signal\nopen('new', 'w').write('{}')\n\
             signal.signal(signal.SIGALRM, lambda *_: None)\nsignal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)\n\
             result = ctypes.CDLL(None, use_errno=True).rename(b'new', b'.mcp.json')\n\
             signal.setitimer(signal.ITIMER_REAL, 0)\nprint(result, ctypes.get_errno())\n",
        );
        let child = elsewhere(&place, "60s", "python3 rename.py; cat .mcp.json");
        let item = question(&place);
        std::thread::sleep(std::time::Duration::from_millis(300));
        Outcome::of(&mut place.agentsh(&["approvals", "approve", item["id"].as_str().unwrap()]))
            .expect_code(0);
        let (out, err) = ended(child);
        assert_eq!(out, "0 0\n{}", "{mode:?} {err}");
    }
}

/// A question that nobody answers, one whose caller goes away, and one that cannot be shown.
#[test]
#[ignore = "takes long"]
fn guarded_file_stays_without_an_answer() {
    for mode in Mode::all() {
        let place = project(mode);
        let child = elsewhere(&place, "1s", "echo x >new; mv -f new .mcp.json; echo $?; cat .mcp.json");
        let (out, err) = ended(child);
        assert_eq!(out, "1\n{\"mcpServers\": {}}\n", "{mode:?} {err}");
        assert!(err.contains("refused to change .mcp.json (nobody answered in time)"), "{mode:?} {err}");
        assert!(err.contains("agentsh policy allow --write"), "{mode:?} {err}");
        let script = "echo x >new; mv -f new .mcp.json & sleep 0.5; kill -9 $!; wait; sleep 2; cat .mcp.json; \
            head -c 9000 /dev/urandom >new; mv -f new .mcp.json; echo $?";
        let (out, err) = ended(elsewhere(&place, "60s", script));
        assert_eq!(out, "{\"mcpServers\": {}}\n1\n", "{mode:?} {err}");
        assert!(err.contains("refused to change .mcp.json (it is not UTF-8"), "{mode:?} {err}");
        assert!(eventually(|| waiting(&place).is_empty()));
        let decided = place.events("approval_decided");
        let words: Vec<_> = decided.iter().map(|event| event["word"].as_str().unwrap()).collect();
        assert_eq!(words, ["timed-out", "withdrawn"], "{mode:?}");
    }
}

/// A tree that is neither the old one nor the new one helps nobody: git does all of it, or nothing.
#[test]
fn git_changes_the_whole_tree_or_nothing() {
    let setup = "git checkout -qb other; mkdir .github; echo new >.github/ci.yml; echo two >.config; echo two >a; \
        echo two >zz/deep; git rm -q gone/file; echo '{\"x\": 1}' >.vscode/settings.json; git add -A; git commit -qm two; \
        git checkout -q main; git checkout -qb plain; echo three >a; git commit -qam three; git checkout -q main";
    for mode in Mode::all() {
        let place = project(mode);
        let first = "mkdir gone zz; echo one >gone/file; echo one >.config; echo one >a; echo one >zz/deep; git add -A; git commit -qm one";
        Outcome::of(place.command("sh").args(["-ec", &format!("{first}; {setup}")])).expect_code(0);
        let tree = || {
            Outcome::of(place.command("sh").args(["-c", "git status --porcelain; git rev-parse HEAD; cat a"]))
                .stdout
        };
        let before = tree();
        for command in [
            "git merge -q other",
            "git reset -q --hard other",
            "git checkout -q other",
            "git pull -q . other",
        ] {
            // If root started agentsh, the index has another owner for its files, and git would write all of
            // them anew.
            let script = format!(
                "git update-index -q --refresh; {command} 2>said; echo $?; cat said; rm said; git status --porcelain; test ! -e .git/index.lock"
            );
            let outcome =
                Outcome::of(&mut place.agentsh(&["run", "--", "bash", "-c", &script])).expect_code(0);
            assert!(!outcome.stdout.starts_with("0\n"), "{mode:?} {command}: {outcome}");
            for said in [&outcome.stdout, &outcome.stderr] {
                let text = "stopped git before it replaced .vscode/settings.json: ";
                assert!(
                    said.contains(text) && said.contains("by built-in (read-only:"),
                    "{mode:?} {command}: {outcome}"
                );
                assert!(
                    said.contains("to allow it: `agentsh policy allow --write .vscode"),
                    "{mode:?} {command}: {outcome}"
                );
            }
            assert!(
                outcome.stderr.contains("the working tree is as before"),
                "{mode:?} {command}: {outcome}"
            );
            assert_eq!(tree(), before, "{mode:?} {command}: {outcome}");
        }
        let run = |words: &[&str], script: &str| {
            let words = [&["run", "--quiet"], words, &["--", "sh", "-c", script]].concat();
            Outcome::of(&mut place.agentsh(&words)).expect_code(0)
        };
        run(
            &[],
            "git update-index -q --refresh; git merge -q plain && test $(cat a) = three && git reset -q --hard HEAD~1",
        );
        assert_eq!(tree(), before, "{mode:?}");
        place.user_policy("agent: {filesystem: {unmask: [\".vscode\"]}}\n");
        run(
            &[],
            "git merge -q other && test $(cat zz/deep) = two && test ! -e gone && grep -q x .vscode/settings.json",
        );
    }
}

/// A file that is set aside as soon as git made it would be missing from the next commit.
#[test]
fn git_that_would_make_a_file_that_is_set_aside_leaves_the_tree_as_it_was() {
    for (made, name) in
        [(".idea", ".idea/tasks.xml"), (".envrc", ".envrc"), (".github/hooks", ".github/hooks/x")]
    {
        let place = project(Mode::Invoker);
        let setup = format!(
            "echo one >a; git add -A; git commit -qm one; git checkout -qb other; mkdir -p .github $(dirname {name}); \
             echo x >{name}; echo two >a; git add -A; git commit -qm two; git checkout -q main; git checkout -qb plain; \
             mkdir sub; echo x >sub/b; git add -A; git commit -qm plain; git checkout -q main"
        );
        Outcome::of(place.command("sh").args(["-ec", &setup])).expect_code(0);
        let run = |script: &str| Outcome::of(&mut place.agentsh(&["run", "--", "bash", "-c", script]));
        let outcome = run("git merge -q other; echo $?; git status --porcelain; echo y >>a; git commit -qam more; git show --stat --format=")
            .expect_code(0);
        assert!(!outcome.stdout.starts_with("0\n"), "{made}: {outcome}");
        assert_eq!(outcome.stdout.matches(" | ").count(), 1, "{made}: {outcome}");
        assert!(!outcome.stdout.contains(name), "{made}: {outcome}");
        let told = outcome.stderr.matches(&format!("stopped git before it made {made}: ")).count();
        assert!(told >= 2, "git and the user are told: {made}: {outcome}");
        assert!(outcome.stderr.contains("the working tree is as before"), "{made}: {outcome}");
        assert!(outcome.stderr.contains("to allow it: `agentsh policy allow --write"), "{made}: {outcome}");
        let outcome = run("git merge -qm merged plain && cat sub/b").expect_code(0);
        assert_eq!(outcome.stdout, "x\n", "{made}: {outcome}");
    }
}

/// Every way to change a guarded file that the kernel refuses is reported, with the line.
#[test]
fn changes_that_a_read_only_mount_refuses_are_reported() {
    for (command, path) in [
        ("echo x >.mcp.json", ".mcp.json"),
        ("python3 -c 'open(\".vscode/settings.json\", \"a\")'", ".vscode/settings.json"),
        ("rm -f .vscode/settings.json", ".vscode/settings.json"),
        ("mkdir .vscode/more", ".vscode/more"),
        ("ln -s x .vscode/more", ".vscode/more"),
        ("rm .mcp.json", ".mcp.json"),
        ("cd .vscode; touch new.json", ".vscode/new.json"),
        ("mkfifo .vscode/more", ".vscode/more"),
        ("python3 -c 'import os; os.truncate(\".mcp.json\", 0)'", ".mcp.json"),
        ("python3 -c 'import os; os.open(\".mcp.json\", os.O_RDONLY | os.O_TRUNC)'", ".mcp.json"),
        ("python3 -c 'import ctypes; exit(ctypes.CDLL(None).creat(b\".mcp.json\", 0o644) < 0)'", ".mcp.json"),
    ] {
        let place = project(Mode::Invoker);
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", command]));
        assert_ne!(outcome.code, 0, "{command}: {outcome}");
        let told = format!("refused to change {path}: ");
        assert!(
            outcome.stderr.contains(&told) && outcome.stderr.contains("by built-in (read-only:"),
            "{command}: {outcome}"
        );
        let place = project(Mode::Invoker);
        let harmless = "mkdir -p .vscode; cat .mcp.json >/dev/null; rm -f .vscode/none; echo x >own; git status >/dev/null; \
            mkfifo pipe; python3 -c 'import os; os.truncate(\"own\", 0)'";
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", harmless])).expect_code(0);
        assert!(!outcome.stderr.contains("refused to change"), "{outcome}");
    }
}
