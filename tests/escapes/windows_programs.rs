//! Linux below Windows: a file that begins like a program of Windows is handed to an interpreter, which asks Windows over a
//! local socket to start it, outside of every sandbox.
//! Stopped by: no such socket, variable or interpreter is inside, and no family of sockets that reaches the host.
//!
//! No Windows is needed: the kernel's handler of binary formats is registered in a user namespace as WSL does it, with an
//! interpreter that the kernel keeps open, and the test listens where Windows would.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Mode, Place, eventually, is_root, outcome, skip};

/// Read by Python, which the kernel starts for it because of its first letters.
const PROGRAM: &str = r#"MZ = 0
import os, socket
def tell(what, attempt):
    try:
        attempt()
        print(what, "REACHED")
    except OSError as error:
        print(what, "refused")
print("started")
print("variable", os.environ.get("WSL_INTEROP", "refused"))
tell("interop", lambda: socket.socket(socket.AF_UNIX).connect("/run/WSL/1_interop"))
tell("vsock", lambda: socket.socket(socket.AF_VSOCK))
tell("handlers", lambda: open("/proc/sys/fs/binfmt_misc/WSLInterop").read())
"#;

/// Waits for its ids, registers the handler, and puts the socket where it is on such a machine.
const PREPARE: &str = "set -e; read go; mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
printf ':WSLInterop:M::MZ::/usr/bin/python3:PF' > /proc/sys/fs/binfmt_misc/register
mount -t tmpfs tmpfs /run; mkdir /run/WSL; mount --bind \"$1\" /run/WSL; shift; exec \"$@\"";

/// What the program says when a command line starts it on such a machine.
fn heard(place: &Place, line: &str) -> String {
    let mut command = Command::new("unshare");
    command.args(["--user", "--mount", "--propagation", "private", "sh", "-c", PREPARE, "sh"]);
    command.arg(place.path("wsl"));
    command.args(["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups", "sh", "-c", line]);
    for (name, value) in place.command("sh").get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.env("WSL_INTEROP", "/run/WSL/1_interop").env("AGENTSH", place.program("agentsh"));
    command.current_dir(&place.project).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let of = |pid: &str| std::fs::read_link(Path::new("/proc").join(pid).join("ns/user")).ok();
    let pid = child.id().to_string();
    assert!(eventually(|| of(&pid) != of("self")), "no user namespace");
    for map in ["uid_map", "gid_map"] {
        std::fs::write(Path::new("/proc").join(&pid).join(map), "0 0 4294967295").unwrap();
    }
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    outcome::wait(&mut child);
    let output = child.wait_with_output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn windows_program_does_not_escape_the_sandbox() {
    if !is_root() || !Mode::all().contains(&Mode::User) {
        return skip("a handler of binary formats is registered by root, in a user namespace");
    }
    if !Path::new("/usr/bin/python3").exists() {
        return skip("no /usr/bin/python3 that could be the interpreter");
    }
    let place = Place::new(Mode::User);
    place.script("tool.exe", PROGRAM);
    place.make_directory(&place.path("wsl"));
    let socket = place.path("wsl/1_interop");
    let windows = UnixListener::bind(&socket).unwrap();
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o777)).unwrap();
    windows.set_nonblocking(true).unwrap();
    let asked = || std::iter::from_fn(|| windows.accept().ok()).count();

    // The twin: without a sandbox it gets everywhere.
    let twin = heard(&place, "./tool.exe");
    if !twin.contains("started") {
        return skip("this kernel has no handlers of binary formats in user namespaces");
    }
    assert!(twin.contains("variable /run/WSL/1_interop") && twin.contains("interop REACHED"), "{twin}");
    assert!(twin.contains("handlers REACHED"), "{twin}");
    assert_eq!(asked(), 1);
    for start in ["-- sh -c ./tool.exe", "-- ./tool.exe", "--tier container -- sh -c ./tool.exe"] {
        let inside = heard(&place, &format!("exec \"$AGENTSH\" run {start}"));
        assert!(inside.contains("started"), "{start}: it runs, and that is all: {inside}");
        // Without namespaces /proc is that of the container, in which this can be read.
        let seen = if start.contains("--tier") { 3 } else { 4 };
        for what in &["variable", "interop", "vsock", "handlers"][..seen] {
            assert!(inside.contains(&format!("{what} refused")), "{start}: {inside}");
        }
        assert_eq!(asked(), 0, "{start}");
    }
}
