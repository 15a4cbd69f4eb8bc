//! `--tier container`, where no namespace can be made.
//!
//! The tests start agentsh as most containers do: without capabilities, and with the kernel's limit of user namespaces at
//! zero.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Mode, Outcome, Peer, Place, eventually, is_root, processes, skip};

/// The same command in a container-like place.
fn contained(command: &Command) -> Command {
    let mut inside = Command::new("unshare");
    inside.args(["--user", "--map-root-user", "sh", "-c"]);
    inside.arg(
        "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all \
         --no-new-privs -- \"$@\"",
    );
    inside.arg("sh").arg(command.get_program()).args(command.get_args()).env_clear();
    inside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    inside.current_dir(command.get_current_dir().unwrap());
    inside
}

/// A place for the tests, when the machine can make it look like a container.
fn place() -> Option<Place> {
    let place = Place::new(Mode::Invoker);
    let can = contained(&place.command("true")).status().is_ok_and(|status| status.success());
    if !can {
        skip("a container-like place: unshare or setpriv is missing, or may not make it");
        return None;
    }
    // It is one: no namespace can be made in it.
    let escape = contained(&{
        let mut command = place.command("unshare");
        command.args(["--user", "true"]);
        command
    })
    .output()
    .unwrap();
    assert!(!escape.status.success());
    Some(place)
}

fn run(place: &Place, flags: &[&str], script: &str) -> Outcome {
    let words = [&["run", "--tier", "container"], flags, &["--", "bash", "-c", script]].concat();
    Outcome::of(&mut contained(&place.agentsh(&words)))
}

#[test]
fn container_tier_is_not_used_unless_asked_for() {
    let Some(place) = place() else { return };
    let outcome = Outcome::of(&mut contained(&place.agentsh(&["run", "--", "touch", "made"])));
    let outcome = outcome.expect_code(125);
    assert!(outcome.stderr.contains("docker run --security-opt seccomp=unconfined"), "{outcome}");
    assert!(outcome.stderr.contains("--tier container"), "{outcome}");
    assert!(!place.project.join("made").exists());
}

#[test]
fn container_tier_enforces_file_rules() {
    let Some(place) = place() else { return };
    let secret = place.write(place.home.join(".ssh/id_ed25519"), "the secret");
    let shown = place.write(place.home.join("shown/file"), "the shown");
    let script = format!(
        "cat {}; cat {}; echo x > written; echo x > {}/escaped; echo x > \"$HOME/own\" && cat \"$HOME/own\"; \
         echo x > \"$TMPDIR/t\" && echo temporary",
        secret.display(),
        shown.display(),
        place.home.display()
    );
    let outcome = run(&place, &["--read", &shown.parent().unwrap().display().to_string()], &script);
    assert!(outcome.stdout.contains("the shown"), "{outcome}");
    assert!(!outcome.stdout.contains("the secret"), "{outcome}");
    assert!(outcome.stdout.contains("temporary"), "{outcome}");
    assert!(place.project.join("written").exists(), "{outcome}");
    assert!(!place.home.join("escaped").exists(), "{outcome}");
    assert!(!place.home.join("own").exists(), "{outcome}");
}

#[test]
fn container_tier_restores_changed_hook_files() {
    let Some(place) = place() else { return };
    Outcome::of(place.command("git").args(["init", "-q"])).expect_code(0);
    let before = std::fs::read_to_string(place.project.join(".git/config")).unwrap()
        + "[core]\n\thooksPath = .husky/_\n";
    place.write(".git/config", &before);
    place.write(".husky/_/.gitignore", "*\n");
    let script = "echo 'echo evil' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit; echo evil > .husky/_/pre-commit; \
                  git config core.pager evil; mkdir -p .vscode; echo evil > .vscode/tasks.json; echo ok > work";
    let outcome = run(&place, &[], script).expect_code(0);
    assert!(!place.project.join(".git/hooks/pre-commit").exists(), "{outcome}");
    assert_eq!(std::fs::read_to_string(place.project.join(".git/config")).unwrap(), before, "{outcome}");
    assert!(!place.project.join(".vscode/tasks.json").exists(), "{outcome}");
    assert!(!place.project.join(".husky/_/pre-commit").exists(), "{outcome}");
    assert_eq!(std::fs::read_to_string(place.project.join("work")).unwrap(), "ok\n");
    assert!(outcome.stderr.contains("restored "), "{outcome}");
    assert!(!place.events("guard_changed").is_empty());
}

/// If there is no room for a copy, or the directory is closed, the changed file gets another name.
#[test]
fn hook_files_are_restored_despite_obstacles() {
    for (name, close) in
        [("closed", "chmod 555 .git/hooks"), ("many", "for n in $(seq 2100); do : > .git/hooks/$n; done")]
    {
        let Some(place) = place() else { return };
        Outcome::of(place.command("git").args(["init", "-q"])).expect_code(0);
        let script = format!("echo evil > .git/hooks/pre-commit; {close}; echo evil > .envrc; chmod 555 .");
        let outcome = run(&place, &[], &script).expect_code(0);
        for path in [".git/hooks/pre-commit", ".envrc"] {
            assert!(!place.project.join(path).exists(), "{name} {path} {outcome}");
        }
        assert!(place.project.join(".git/hooks").is_dir() || name == "many", "{outcome}");
    }
}

/// A link, or the file with which git names another directory, in place of `.git`: the hooks behind it are no hooks.
#[test]
fn replacement_of_the_git_directory_is_set_aside() {
    for replace in ["ln -s .g .git", "echo 'gitdir: .g' > .git"] {
        let Some(place) = place() else { return };
        Outcome::of(place.command("git").args(["init", "-q"])).expect_code(0);
        let before = std::fs::read_to_string(place.project.join(".git/config")).unwrap();
        let script = format!(
            "mv .git .g && {replace} && echo 'echo evil' > .g/hooks/pre-commit && chmod +x .g/hooks/pre-commit"
        );
        let outcome = run(&place, &[], &script).expect_code(0);
        let git = place.project.join(".git");
        assert!(git.symlink_metadata().unwrap().is_dir(), "{outcome}");
        assert!(!git.join("hooks/pre-commit").exists(), "{outcome}");
        assert_eq!(std::fs::read_to_string(git.join("config")).unwrap(), before, "{outcome}");
        assert!(place.project.join(".git.set-aside").symlink_metadata().is_ok(), "{outcome}");
        assert!(outcome.stderr.contains("agentsh moved it to"), "{outcome}");
        assert!(!place.events("guard_changed").is_empty());
    }
}

/// A file that cannot be restored, for example because its directory now belongs to another user, is no success.
#[test]
fn guarded_file_that_cannot_be_restored_makes_the_status_125() {
    let Some(place) = place().filter(|_| is_root()) else { return };
    Outcome::of(place.command("git").args(["init", "-q"])).expect_code(0);
    let script = "echo evil > .git/hooks/pre-commit; echo ready; until [ -e go ]; do sleep 0.05; done";
    let words = ["run", "--tier", "container", "--", "bash", "-c", script];
    let mut command = contained(&place.agentsh(&words));
    let mut running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(running.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    for directory in [".git", ".git/hooks"] {
        std::os::unix::fs::chown(place.project.join(directory), Some(12345), None).unwrap();
    }
    place.write("go", "");
    let output = running.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{line} {said}");
    assert!(said.contains("cannot restore") && said.contains("the exit status is 125"), "{said}");
}

/// A repository that git of the host would obey, and files that run automatically by a pattern or in a directory.
const ARMED: &str = "git init -q sub; git -C sub config core.fsmonitor evil; echo {} > evil.code-workspace; \
                     mkdir -p .lsp; echo evil > .lsp/config.edn; echo 'do evil' > CLAUDE.md; ";

#[test]
fn new_files_that_run_by_themselves_are_set_aside_afterwards() {
    let Some(place) = place() else { return };
    let outcome = run(&place, &[], ARMED).expect_code(0);
    let text = |name: &str| std::fs::read_to_string(place.project.join(name)).unwrap_or_default();
    assert!(!text("sub/.git/config").contains("evil"), "{outcome}");
    assert_eq!(text("evil.code-workspace") + &text(".lsp/config.edn"), "", "{outcome}");
    assert!(outcome.stderr.contains("new repository: ") && outcome.stderr.contains("CLAUDE.md"), "{outcome}");
}

/// The next run restores what a killed one left, before it does anything else.
#[test]
fn a_killed_run_leaves_its_check_to_the_next() {
    let Some(place) = place() else { return };
    Outcome::of(place.command("git").args(["init", "-q"])).expect_code(0);
    let before = std::fs::read_to_string(place.project.join(".git/config")).unwrap();
    let script = format!("git config core.fsmonitor evil; {ARMED} echo ready; sleep 60");
    let words = ["run", "--tier", "container", "--", "bash", "-c", &script];
    let mut killed = contained(&place.agentsh(&words)).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(killed.stdout.take().unwrap()).read_line(&mut line).unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    let config = || std::fs::read_to_string(place.project.join(".git/config")).unwrap();
    assert_ne!(config(), before, "{line}");
    let outcome = run(&place, &[], "true").expect_code(0);
    assert_eq!(config(), before, "{outcome}");
    assert!(!place.project.join("evil.code-workspace").exists(), "{outcome}");
    let nested = std::fs::read_to_string(place.project.join("sub/.git/config")).unwrap();
    assert!(!nested.contains("evil"), "{outcome}");
    assert!(outcome.stderr.contains("left by a killed session: restored "), "{outcome}");
}

/// The terminals of others, whoever may write to them outside.
#[test]
fn container_tier_cannot_write_to_other_terminals() {
    let Some(place) = place() else { return };
    let other = nix::pty::openpty(None, None).unwrap();
    let name = nix::unistd::ttyname(&other.slave).unwrap();
    std::fs::set_permissions(&name, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let script = format!("echo written > {}; echo status $?", name.display());
    let outcome = run(&place, &[], &script);
    assert!(outcome.stdout.contains("status 1"), "{outcome}");
    let flags = rustix::fs::OFlags::NONBLOCK;
    rustix::fs::fcntl_setfl(&other.master, flags).unwrap();
    assert!(std::fs::File::from(other.master).read(&mut [0; 16]).is_err(), "{outcome}");
}

#[test]
fn container_tier_does_not_start_where_files_must_be_hidden() {
    let Some(place) = place() else { return };
    place.write("secrets/key", "the secret");
    place.user_policy("version: 1\nagent:\n  filesystem: {deny: [\"secrets/**\"]}\n");
    let outcome = run(&place, &[], "echo started").expect_code(127);
    assert!(!outcome.stdout.contains("started"), "{outcome}");
    assert!(outcome.stderr.contains("secrets") && outcome.stderr.contains("move it elsewhere"), "{outcome}");
}

/// A server of this machine that counts who comes.
fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[test]
fn container_tier_enforces_network_rules() {
    let Some(place) = place() else { return };
    let (listener, port) = listen();
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo hello >&3 && echo connected; sleep 0.3");
    let outcome = run(&place, &[], &script);
    assert!(listener.accept().is_err(), "{outcome}");
    assert!(!place.events("net_connect_blocked").is_empty(), "{outcome}");

    let outcome = run(&place, &["--allow", &format!("localhost:{port}")], &script);
    let mut heard = String::new();
    let (mut stream, _) = listener.accept().unwrap_or_else(|error| panic!("{error} {outcome}"));
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "hello\n", "{outcome}");
    assert!(outcome.stdout.contains("connected"), "{outcome}");
}

/// Packets that bypass `connect`.
#[test]
fn packets_and_sockets_that_bypass_connect_are_refused() {
    let Some(place) = place() else { return };
    let (listener, port) = listen();
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_nonblocking(true).unwrap();
    let udp_port = udp.local_addr().unwrap().port();
    let path = place.path("run/local.sock");
    let local = std::os::unix::net::UnixListener::bind(&path).unwrap();
    local.set_nonblocking(true).unwrap();
    let script = format!(
        r#"
import socket, os
def attempt(name, what):
    try: what(); print(name, "done")
    except OSError as error: print(name, error.errno)
def fast_open():
    s = socket.socket(); s.sendto(b"x", 0x20000000, ("127.0.0.1", {port}))
def listening():
    s = socket.socket(); s.bind(("0.0.0.0", 0)); s.listen()
def unix():
    socket.socket(socket.AF_UNIX).connect("{path}")
def link():
    os.symlink("{path}", "link.sock"); socket.socket(socket.AF_UNIX).connect("link.sock")
attempt("fast-open", fast_open)
attempt("udp", lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", {udp_port})))
attempt("pair", lambda: socket.socketpair(type=socket.SOCK_DGRAM))
attempt("listen", listening)
attempt("unix", unix)
attempt("link", link)
one, other = socket.socketpair()
attempt("twin", lambda: one.send(b"x"))
"#,
        path = path.display()
    );
    place.write("try.py", script);
    let outcome = run(&place, &[], "python3 try.py");
    let said: Vec<_> = outcome.stdout.lines().filter(|line| line.ends_with("done")).collect();
    assert_eq!(said, ["twin done"], "{outcome}");
    assert!(listener.accept().is_err() && local.accept().is_err(), "{outcome}");
    assert!(udp.recv(&mut [0; 8]).is_err(), "{outcome}");
}

#[test]
fn detached_processes_do_not_outlive_the_run() {
    let Some(place) = place() else { return };
    let mark = format!("{}", 70_000_000 + std::process::id());
    let script =
        format!("setsid -f sh -c 'setsid sleep {mark} & sleep {mark}'; sleep 0.2; pgrep -fc 'sleep {mark}'");
    let outcome = run(&place, &["--quiet"], &script);
    assert_ne!(outcome.stdout.trim(), "0", "{outcome}");
    assert!(eventually(|| processes::find(&mark).is_empty()), "{outcome}");
}

/// A process that forks and ends, again and again, is never where it was last seen.
#[test]
fn forking_loop_does_not_outlive_the_run() {
    let Some(place) = place() else { return };
    if !signals_have_a_scope() {
        return skip("a kernel before Linux 6.12: no scope for signals");
    }
    let mark = format!("{}", 80_000_000 + std::process::id());
    let script = format!(
        "perl -e 'use POSIX; for (1..3) {{ next if fork; while (1) {{ my $child = fork; \
         defined $child or next; POSIX::_exit(0) if $child; setsid() }} }}' {mark}"
    );
    let outcome = run(&place, &["--quiet"], &script).expect_code(0);
    assert!(processes::find(&mark).is_empty(), "{outcome}");
}

fn signals_have_a_scope() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(12))
}

#[test]
fn container_tier_is_named_in_the_report() {
    let Some(place) = place() else { return };
    let report = place.path("run/report.json");
    run(&place, &["--report-json", &report.display().to_string()], "true").expect_code(0);
    let report: Value = serde_json::from_str(&std::fs::read_to_string(report).unwrap()).unwrap();
    assert!(report.to_string().contains("container: Landlock"), "{report}");
    let text = Outcome::of(&mut place.agentsh(&["report", "latest"])).expect_code(0);
    assert!(text.stdout.contains("container: Landlock"), "{text}");
}

#[test]
fn container_tier_serves_an_mcp_server() {
    let Some(place) = place() else { return };
    let mut command = place.agentsh(&["mcp", "run", "--tier", "container", "--"]);
    command.arg(place.program("fixture_server"));
    let mut peer = Peer::start(&mut contained(&command));
    peer.shake_hands();
    assert_eq!(peer.text("add", json!({"a": 1, "b": 2})), "3");
    assert_eq!(peer.finish().0, 0);
}

/// The steps of a CI job, without the CI.
#[test]
fn ci_action_runs_and_keeps_the_exit_status() {
    let Some(place) = place() else { return };
    let action = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/action/run.sh");
    let agentsh = place.agentsh(&[]);
    let directory = std::path::Path::new(agentsh.get_program()).parent().unwrap().display().to_string();
    let mut command = place.command("bash");
    command.arg(action).env("AGENTSH_TIER", "container").env("AGENTSH_RUN", "echo made > made; exit 3");
    command.env("PATH", format!("{directory}:/usr/local/bin:/usr/bin:/bin"));
    for name in ["GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_PATH"] {
        command.env(name, place.path(&format!("run/{name}")));
    }
    command.env("RUNNER_TEMP", place.path("run"));
    let outcome = Outcome::of(&mut contained(&command)).expect_code(3);
    assert!(place.project.join("made").exists(), "{outcome}");
    let summary = std::fs::read_to_string(place.path("run/GITHUB_STEP_SUMMARY")).unwrap();
    assert!(summary.contains("container: Landlock"), "{summary}");
    let output = std::fs::read_to_string(place.path("run/GITHUB_OUTPUT")).unwrap();
    assert!(std::path::Path::new(output.trim().strip_prefix("report=").unwrap()).exists());
}
