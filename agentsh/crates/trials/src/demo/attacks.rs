//! The attacks of the agent and the hostile server on the system.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;

use super::facts::{DemoFacts, ENV_FILE, HOOK, KEY, PIDS, Report, VARIABLE};
use crate::attempt::{self, Try, errno};

/// Bounded, should the limit not hold.
const MAX_FORKS: usize = 300;
/// A resolver that answers everybody: where the sandbox leaks, one connection is opened and closed again.
const INTERNET: Ipv4Addr = Ipv4Addr::new(1, 1, 1, 1);
const INTERNET_6: Ipv6Addr = Ipv6Addr::new(0x2606, 0x4700, 0x4700, 0, 0, 0, 0, 0x1111);

/// Everything that both sides try.
pub fn common(by: &str, facts: &DemoFacts) -> Vec<Report> {
    vec![
        Report::new(
            by,
            "ssh-key",
            vec![Try::new("read ~/.ssh/id_demo", attempt::read(&facts.home.join(KEY)))],
        ),
        Report::new(by, "secret-variable", vec![variable()]),
        Report::new(by, "env-file", vec![env_file()]),
        Report::new(by, "git-hook", hooks()),
        Report::new(by, "supervisor", supervisor(facts.supervisor)),
        Report::new(by, "internet", internet()),
        Report::new(by, "host-loopback", loopback(facts)),
        Report::new(by, "kernel-calls", attempt::forbidden_calls()),
        Report::new(by, "terminal", terminal()),
        fork_bomb(by),
    ]
}

fn variable() -> Try {
    let found = std::env::var_os(VARIABLE).is_some();
    Try::answered(format!("read ${VARIABLE}"), (!found).then(|| "not set".to_owned()), None)
}

fn env_file() -> Try {
    let what = format!("read {ENV_FILE}");
    match attempt::read(Path::new(ENV_FILE)) {
        Ok(content) if content.is_empty() => Try::answered(what, Some("empty".to_owned()), None),
        other => Try::new(what, other),
    }
}

fn hooks() -> Vec<Try> {
    let away = std::fs::rename(".git", ".git-moved").map_err(|error| errno(&error));
    if away.is_ok() {
        // Back again: only whether it can be done is the question.
        let _ = std::fs::rename(".git-moved", ".git");
    }
    vec![
        Try::new(format!("append to {HOOK}"), attempt::append(Path::new(HOOK), "echo owned\n")),
        Try::new("create .git/hooks/post-commit", attempt::create(Path::new(".git/hooks/post-commit"))),
        Try::new("move .git away", away),
    ]
}

fn supervisor(pid: i32) -> Vec<Try> {
    let mut tries = attempt::inspect_process(1);
    // A small number may be a process of the sandbox itself.
    if pid > 64 {
        tries.extend(attempt::inspect_process(pid));
        let process = nix::unistd::Pid::from_raw(pid);
        tries.push(Try::new("signal it", nix::sys::signal::kill(process, None)));
    }
    tries
}

fn internet() -> Vec<Try> {
    vec![
        Try::new("TCP to 1.1.1.1:443", attempt::connect((INTERNET, 443).into())),
        Try::new("UDP to 1.1.1.1:53", attempt::send_datagram((INTERNET, 53).into())),
        Try::new("TCP over IPv6", attempt::connect((INTERNET_6, 443).into())),
    ]
}

fn loopback(facts: &DemoFacts) -> Vec<Try> {
    let address: SocketAddr = (Ipv4Addr::LOCALHOST, facts.port).into();
    vec![
        Try::new("TCP to the host's loopback", attempt::connect(address)),
        Try::new("the host's abstract socket", attempt::connect_abstract(&facts.abstract_name)),
    ]
}

fn terminal() -> Vec<Try> {
    use std::io::IsTerminal;
    let standard = std::io::stdin();
    if standard.is_terminal() {
        return attempt::type_into_terminal(standard.as_fd());
    }
    match std::fs::OpenOptions::new().read(true).write(true).open("/dev/tty") {
        Ok(terminal) => attempt::type_into_terminal(&terminal),
        // No terminal anywhere: what is left to see is whether the request itself is refused.
        Err(_) => match std::fs::File::open("/dev/null") {
            Ok(file) => attempt::type_into_terminal(&file),
            Err(error) => vec![Try::new("open a terminal", Err::<(), _>(errno(&error)))],
        },
    }
}

fn fork_bomb(by: &str) -> Report {
    let (made, refused) = attempt::fork_until_refused(MAX_FORKS);
    let what = format!("start more than {PIDS} processes");
    Report { detail: format!("after {made}"), ..Report::new(by, "fork-bomb", vec![Try::new(what, refused)]) }
}
