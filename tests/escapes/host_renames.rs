//! A guard is a mount over one name. Somebody on the host renames something over that name (`git config`, an editor, `git
//! clean`), and the mount is gone.
//! Stopped by: a watch over the mounts: the sandbox is stopped, everything is guarded again, and what was changed
//! meanwhile is put back.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use crate::support::{Mode, Outcome, Place, skip, within};

/// A shell in the sandbox that does what it is told, line by line.
struct Inside {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Inside {
    fn start(place: &Place) -> Self {
        Self::of(place.agentsh(&["run", "--", "sh", "-c", "while read -r line; do eval \"$line\"; done"]))
    }

    fn of(mut command: std::process::Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut inside = Self { child, stdin, stdout };
        assert_eq!(inside.says("echo ready"), "ready");
        inside
    }

    fn says(&mut self, line: &str) -> String {
        writeln!(self.stdin, "{line}").unwrap();
        let mut answer = String::new();
        self.stdout.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    }

    fn may(&mut self, command: &str) -> bool {
        self.says(&format!("if ( {command} ) 2>/dev/null; then echo yes; else echo no; fi")) == "yes"
    }

    /// What was on standard error.
    fn end(self) -> String {
        drop(self.stdin);
        let output = self.child.wait_with_output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

fn replace(place: &Place, path: &str, content: &str) {
    let beside = place.write(format!("{path}.new"), content);
    fs::rename(beside, place.project.join(path)).unwrap();
}

fn repository(place: &Place) {
    place.policy("agent: {filesystem: {write: [\".\"], deny: [\"./secret\"]}}\n");
    place.write(".git/HEAD", "ref: refs/heads/main\n");
    place.write(".git/config", "[core]\n\tbare = false\n");
    place.write(".git/hooks/post-commit", "");
    place.write(".mcp.json", "{}");
    place.write("secret", "TOPSECRET");
}

fn is_guarded_again(inside: &mut Inside, command: &str) -> bool {
    let start = std::time::Instant::now();
    while inside.may(command) {
        if start.elapsed() > Duration::from_secs(10) {
            return false;
        }
    }
    true
}

#[test]
fn guarded_file_that_the_host_replaces_is_guarded_again() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        repository(&place);
        for sign in [".claude", ".vscode"] {
            place.make_directory(&place.home.join(sign));
        }
        let mut inside = Inside::start(&place);
        assert!(!inside.may("echo x >> .git/config"));
        replace(
            &place,
            ".git/config",
            "[core]\n\tbare = false\n[remote \"o\"]\n\turl = https://example.com/\n",
        );
        assert!(is_guarded_again(&mut inside, ": >> .git/config"), "{mode:?}");
        replace(&place, ".mcp.json", "{\"mcpServers\": {}}");
        assert!(is_guarded_again(&mut inside, ": >> .mcp.json"), "{mode:?}");
        replace(&place, "secret", "TOPSECRET");
        assert!(is_guarded_again(&mut inside, "grep -q TOPSECRET secret"), "{mode:?}");
        // Whole directories, and stubs that `git clean` removes.
        fs::rename(place.project.join(".git/hooks"), place.project.join(".git/old")).unwrap();
        place.write(".git/hooks/pre-push", "");
        assert!(
            is_guarded_again(&mut inside, ": > .git/hooks/pre-commit && rm .git/hooks/pre-commit"),
            "{mode:?}"
        );
        fs::remove_dir(place.project.join(".vscode")).unwrap();
        assert!(is_guarded_again(&mut inside, "mkdir .vscode && rmdir .vscode"), "{mode:?}");
        // The twin: what is not guarded, and what the host wrote.
        assert!(inside.may("echo x > file && echo x > .git/index"));
        assert!(inside.may("grep -q example.com .git/config"));
        let stderr = inside.end();
        assert!(
            stderr.contains(".git/config changed during the run, and is guarded again"),
            "{mode:?} {stderr}"
        );
        assert!(fs::read_to_string(place.project.join(".git/config")).unwrap().contains("example.com"));
        assert!(!place.project.join(".vscode").exists());
    }
}

/// A process inside waits for the moment.
#[test]
fn guarded_file_changed_before_the_new_mount_is_restored() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        repository(&place);
        let config = place.project.join(".git/config");
        let mut inside = Inside::start(&place);
        writeln!(
            inside.stdin,
            "(while :; do ( printf '[core]\\nfsmonitor = ./evil\\n' >> .git/config ) 2>/dev/null; done) & echo waits"
        )
        .unwrap();
        let mut answer = String::new();
        inside.stdout.read_line(&mut answer).unwrap();
        for number in 0..20 {
            replace(&place, ".git/config", &format!("[core]\n\tbare = false\n[user]\n\tname = {number}\n"));
            std::thread::sleep(Duration::from_millis(20));
            let is_clean = || !fs::read_to_string(&config).unwrap_or_default().contains("fsmonitor");
            assert!(within(Duration::from_secs(10), is_clean), "{mode:?}: {:?}", fs::read_to_string(&config));
        }
        writeln!(inside.stdin, "kill $!").unwrap();
        let stderr = inside.end();
        assert!(!fs::read_to_string(&config).unwrap().contains("fsmonitor"), "{mode:?} {stderr}");
    }
}

/// The run ends before anybody could look. What the host removes is not attributed to a process inside.
#[test]
fn guarded_file_that_the_host_removes_cannot_be_made_inside() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        repository(&place);
        let mut inside = Inside::start(&place);
        fs::remove_file(place.project.join(".git/config")).unwrap();
        assert!(
            is_guarded_again(
                &mut inside,
                "printf '[core]\\n\\tfsmonitor = ./run\\n' > .git/config && rm .git/config"
            ),
            "{mode:?}"
        );
        assert!(inside.may("echo x > .git/index"), "the twin");
        let stderr = inside.end();
        let left = fs::read_to_string(place.project.join(".git/config")).unwrap_or_default();
        assert!(!left.contains("fsmonitor"), "{mode:?} {left} {stderr}");
    }
}

#[test]
#[ignore = "takes long"]
fn guarded_files_are_checked_again_at_the_end() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        repository(&place);
        place.write("new", "{}");
        let script = "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); ( echo evil > .mcp.json ) 2>/dev/null && exit 0; done; exit 0";
        let mut child =
            place.agentsh(&["run", "--", "sh", "-c", script]).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let _ = fs::rename(place.project.join("new"), place.project.join(".mcp.json"));
        child.wait().unwrap();
        let found = fs::read_to_string(place.project.join(".mcp.json")).unwrap();
        assert_eq!(found.trim(), "{}", "{mode:?}");
    }
}

/// The twin: without anybody inside who waits, what the host writes stays, whoever reads it.
#[test]
fn host_git_works_during_a_run() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        repository(&place);
        fs::remove_dir_all(place.project.join(".git")).unwrap();
        let git = |words: &[&str]| assert!(place.command("git").args(words).status().unwrap().success());
        git(&["init", "-q"]);
        let mut inside = Inside::start(&place);
        git(&["remote", "add", "origin", "https://example.com/x"]);
        git(&["config", "branch.main.remote", "origin"]);
        assert!(is_guarded_again(&mut inside, ": >> .git/config"), "{mode:?}");
        git(&["add", "-A"]);
        let listed = place.command("git").args(["ls-files"]).output().unwrap();
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let mut listed: Vec<&str> = listed.lines().collect();
        listed.sort_unstable();
        // No stub among them.
        assert_eq!(listed, [".mcp.json", "secret"], "{mode:?}");
        let stderr = inside.end();
        let config = fs::read_to_string(place.project.join(".git/config")).unwrap();
        assert!(
            config.contains("example.com/x") && config.contains("[branch \"main\"]"),
            "{config} {stderr}"
        );
        assert!(!Path::new(&place.project.join(".envrc")).exists());
    }
}

/// A host with `hidepid`, on which users do not see each other's processes in `/proc`, so only root sees those of a
/// sandbox.
#[test]
fn host_renames_are_followed_on_a_host_that_hides_processes() {
    if !nix::unistd::geteuid().is_root() {
        skip("only root can mount /proc anew");
        return;
    }
    for mode in Mode::all() {
        let place = Place::new(mode);
        repository(&place);
        let id = if mode == Mode::User { "1000" } else { "0" };
        let script = "mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid \"$1\" --regid \"$1\" --clear-groups \
                      \"$2\" run -- sh -c 'while read -r line; do eval \"$line\"; done'";
        let mut command = place.command("unshare");
        command.uid(0).gid(0).args(["--mount", "--propagation", "private", "sh", "-c", script, "sh", id]);
        command.arg(place.program("agentsh"));
        let mut inside = Inside::of(command);
        assert!(!inside.may("echo x >> .git/config"), "{mode:?}");
        replace(&place, ".git/config", "[core]\n\tbare = true\n");
        assert!(is_guarded_again(&mut inside, ": >> .git/config"), "{mode:?}");
        assert!(inside.may("grep -q true .git/config && echo x > file"), "{mode:?}");
        let stderr = inside.end();
        assert!(
            stderr.contains(".git/config changed during the run, and is guarded again"),
            "{mode:?} {stderr}"
        );
    }
}

/// A stub that came back at once would keep the directory from being removed, and one that moved along would stay for ever.
#[test]
fn repositories_that_the_user_removes_or_moves_outside_hold_no_stubs() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        for name in ["one", "two"] {
            if !place.command("git").args(["init", "-q", name]).status().is_ok_and(|status| status.success())
            {
                return skip("git is not installed");
            }
        }
        let inside = Inside::start(&place);
        assert!(place.project.join("two/.git/commondir").exists(), "{mode:?}");
        Outcome::of(place.command("rm").args(["-rf", "one"])).expect_code(0);
        let moved = place.home.join("moved");
        fs::rename(place.project.join("two"), &moved).unwrap();
        let stderr = inside.end();
        assert!(!stderr.contains("is guarded again"), "{mode:?} {stderr}");
        assert!(!place.project.join("one").exists(), "{mode:?}");
        let left = fs::read_dir(moved.join(".git")).unwrap().flatten().map(|entry| entry.file_name());
        let left: Vec<_> = left.filter(|name| name == "commondir" || name == "config.worktree").collect();
        assert!(left.is_empty() && moved.join(".git/HEAD").exists(), "{mode:?} {left:?}");
    }
}

/// The host gives the project another name, and perhaps something else its old one: the last look finds it.
#[test]
fn project_moved_by_the_host_is_checked_at_its_new_path() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write("old/.git/HEAD", "ref: refs/heads/main\n");
        place.write("old/.git/config", "[core]\n\tfsmonitor = mine\n");
        let mut inside = Inside::start(&place);
        let moved = place.home.join("moved");
        fs::rename(&place.project, &moved).unwrap();
        place.write(".exrc", "mine");
        assert!(
            inside.may("git init -q q; git -C q config core.fsmonitor evil; echo evil >.exrc; echo x >file")
        );
        let said = inside.end();
        let text = |name: &str| fs::read_to_string(moved.join(name)).unwrap_or_default();
        assert!(
            !text("q/.git/config").contains("evil") && !text(".exrc").contains("evil"),
            "{mode:?} {said}"
        );
        assert!(text("old/.git/config").contains("mine") && text("file") == "x\n", "{mode:?} {said}");
        assert_eq!(fs::read_to_string(place.project.join(".exrc")).unwrap(), "mine", "{mode:?} {said}");
        assert!(said.contains(&format!("was moved to {} during the run", moved.display())), "{said}");
    }
}

/// The host moves a directory out of the project. A process that works in it keeps writing there.
#[test]
fn directory_moved_out_by_the_host_is_checked_at_its_new_path() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write("deep/sub/.git/HEAD", "ref: refs/heads/main\n");
        place.write("deep/sub/.git/config", "[core]\n\tfsmonitor = mine\n");
        place.write("within/file", "");
        let mut inside = Inside::start(&place);
        assert_eq!(inside.says("cd deep/sub; mkdir ../../late; echo there"), "there");
        let (moved, late) = (place.home.join("moved"), place.home.join("late"));
        let is_moved = within(Duration::from_secs(10), || {
            std::thread::sleep(Duration::from_millis(300));
            fs::rename(place.project.join("late"), &late).is_ok()
        });
        fs::rename(place.project.join("deep/sub"), &moved).unwrap();
        fs::rename(place.project.join("within"), place.project.join("other")).unwrap();
        let command = "mkdir -p q/.git/objects q/.git/refs; echo 'ref: refs/heads/m' >q/.git/HEAD; \
                       echo \"[core] fsmonitor = evil\" >q/.git/config; echo evil >CLAUDE.md; echo x >file";
        assert!(is_moved && inside.may(command));
        let said = inside.end();
        let text = |name: &str| fs::read_to_string(moved.join(name)).unwrap_or_default();
        assert!(!text("q/.git/config").contains("evil"), "{mode:?} {said}");
        assert!(text(".git/config").contains("mine") && text("file") == "x\n", "{mode:?} {said}");
        assert!(said.contains(&format!("{}/CLAUDE.md", moved.display())), "{mode:?} {said}");
        for to in [&moved, &late] {
            assert!(
                said.contains(&format!("was moved to {} during the run", to.display())),
                "{mode:?} {said}"
            );
        }
        assert_eq!(said.matches("was moved to").count(), 2, "{mode:?} {said}");
    }
}
