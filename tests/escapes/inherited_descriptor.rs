//! A descriptor that whoever started agentsh left open.
//! Stopped by: nothing above standard error crosses into a sandbox.

use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::json;

use crate::support::{Mode, Outcome, Peer, Place};

#[allow(unsafe_code, reason = "a descriptor is leaked between fork and exec")]
fn leak(command: &mut Command, file: &std::fs::File) {
    let descriptor = file.as_raw_fd();
    // SAFETY: neither call allocates or locks; the file lives until the child was started.
    unsafe {
        command.pre_exec(move || {
            // If it is 9 already, a copy onto itself would still be closed at execve.
            let leaked = if descriptor == 9 {
                libc::fcntl(descriptor, libc::F_SETFD, 0)
            } else {
                libc::dup2(descriptor, 9)
            };
            if leaked < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
        });
    }
}

#[test]
fn inherited_descriptor_does_not_reach_the_sandbox() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let secret = place.write(place.path("secret"), "TOPSECRET");
        let attempts = ["descriptor 9 TOPSECRET", "extra-descriptors", "descriptors-of self"];

        let file = std::fs::File::open(&secret).unwrap();
        let mut command = place.agentsh(&["run", "--quiet", "--"]);
        command.arg(place.program("probe")).args(attempts);
        leak(&mut command, &file);
        assert_eq!(Outcome::of(&mut command).stdout, "REFUSED EBADF\nREFUSED NotFound\nDONE\n", "{mode:?}");

        let file = std::fs::File::open(&secret).unwrap();
        let mut command = place.agentsh(&["mcp", "run", "--id", "fixture", "--"]);
        command.arg(place.program("fixture_server"));
        leak(&mut command, &file);
        let mut peer = Peer::start(&mut command);
        peer.shake_hands();
        assert_eq!(peer.text("try", json!({"line": attempts[0]})), "REFUSED EBADF", "{mode:?}");
        assert_eq!(peer.text("try", json!({"line": attempts[1]})), "REFUSED NotFound", "{mode:?}");

        let file = std::fs::File::open(&secret).unwrap();
        let mut command = place.command(place.program("probe"));
        command.arg(attempts[0]);
        leak(&mut command, &file);
        assert_eq!(Outcome::of(&mut command).stdout, "DONE\n");
    }
}
