//! The fleet that this host is enrolled at: a session starts what forwards, unless that runs already, and keeps the fleet's
//! server out of every sandbox.

use std::path::Path;
use std::process::Stdio;

use url::Url;

use crate::fleet::place::{self, HostFile};
use crate::policy::NetworkPolicy;
use crate::types::RuleRef;

use super::shut::without;

/// This host, where it is enrolled and its file can be read.
#[must_use]
pub fn host(state_dir: &Path) -> Option<HostFile> {
    let file: Option<HostFile> = place::read(&place::host_file(state_dir)).ok()?;
    file.filter(|file| !file.host.is_empty())
}

/// The rules of a sandbox without the fleet's server: who is asked about must not answer.
#[must_use]
pub fn shut(rules: NetworkPolicy, state_dir: &Path) -> NetworkPolicy {
    let place = host(state_dir).and_then(|file| {
        let url = Url::parse(&file.url).ok()?;
        Some((url.host_str()?.trim_matches(['[', ']']).to_owned(), url.port_or_known_default()?))
    });
    match place {
        Some(place) => without(rules, place, &RuleRef::default_rule("fleet")),
        None => rules,
    }
}

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
    // It makes a session of its own at once, which the leader of a process group cannot.
    forwarder.args(["fleet", "forward", "--until-idle"]).current_dir(state_dir);
    forwarder.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    forwarder.spawn().err().map(|error| error.to_string())
}
