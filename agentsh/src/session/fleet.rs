//! The fleet of this host: starts the forwarder if none runs, and closes the fleet's server to every sandbox.

use std::path::Path;
use std::process::Stdio;

use url::Url;

use agentsh_fleet::key_files as files;

/// Host and port of the fleet server, closed to sandboxes.
#[must_use]
pub fn fleet_address(state_dir: &Path) -> Option<(String, u16)> {
    let url = Url::parse(&files::enrolled_host(state_dir)?.url).ok()?;
    Some((url.host_str()?.trim_matches(['[', ']']).to_owned(), url.port_or_known_default()?))
}

/// Returns why it could not be started. It outlives the session until everything is sent.
pub fn start(state_dir: &Path) -> Option<String> {
    if !files::host_file(state_dir).exists() {
        return None;
    }
    match files::lock(state_dir) {
        // Unlocked: the new process takes it.
        Ok(Some(_)) => {}
        Ok(None) => return None,
        Err(error) => return Some(error.to_string()),
    }
    #[expect(clippy::disallowed_methods, reason = "agentsh itself, as the user started it")]
    let mut forwarder = std::process::Command::new("/proc/self/exe");
    // It calls setsid, which a process group leader cannot.
    forwarder.args(["fleet", "forward", "--until-idle"]).current_dir(state_dir);
    forwarder.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    forwarder.spawn().err().map(|error| error.to_string())
}
