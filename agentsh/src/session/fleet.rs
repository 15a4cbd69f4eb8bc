//! The fleet that this host is enrolled at: a session starts what forwards, unless that runs already, and keeps the fleet's
//! server out of every sandbox.

use std::path::Path;
use std::process::Stdio;

use url::Url;

use agentsh_fleet::place as files;

/// Host and port of the fleet's server: who is asked about must not answer.
#[must_use]
pub fn place(state_dir: &Path) -> Option<(String, u16)> {
    let url = Url::parse(&files::enrolled(state_dir)?.url).ok()?;
    Some((url.host_str()?.trim_matches(['[', ']']).to_owned(), url.port_or_known_default()?))
}

/// Gives why it could not be started, for people. It outlives the session until everything is sent.
pub fn start(state_dir: &Path) -> Option<String> {
    if !files::host_file(state_dir).exists() {
        return None;
    }
    match files::lock(state_dir) {
        // Free: whoever is started takes it.
        Ok(Some(_)) => {}
        Ok(None) => return None,
        Err(error) => return Some(error.to_string()),
    }
    #[expect(clippy::disallowed_methods, reason = "agentsh itself, as the user started it")]
    let mut forwarder = std::process::Command::new("/proc/self/exe");
    // It makes a session of its own at once, which the leader of a process group cannot.
    forwarder.args(["fleet", "forward", "--until-idle"]).current_dir(state_dir);
    forwarder.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    forwarder.spawn().err().map(|error| error.to_string())
}
