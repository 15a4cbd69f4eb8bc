//! Forwarding to the fleet: a session of an enrolled host starts what forwards, unless that runs already.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

use crate::fleet::place;

/// Gives why it could not be started, for people. It outlives the session until everything is sent.
pub fn start(state_dir: &Path) -> Option<String> {
    if !place::host_file(state_dir).exists() {
        return None;
    }
    match place::lock(state_dir) {
        // Free: whoever is started takes it.
        Ok(Some(_)) => {}
        Ok(None) => return None,
        Err(error) => return Some(error.to_string()),
    }
    #[expect(clippy::disallowed_methods, reason = "agentsh itself, as the user started it")]
    let mut forwarder = std::process::Command::new("/proc/self/exe");
    forwarder.args(["fleet", "forward", "--until-idle"]).current_dir(state_dir).process_group(0);
    forwarder.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    forwarder.spawn().err().map(|error| error.to_string())
}
