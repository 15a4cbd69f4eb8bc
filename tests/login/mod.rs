//! `agentsh login`, and what sessions do with it.

mod declared;
mod flow;
mod keyring;
mod lies;
mod providers;
mod step_up;
mod using;

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use serde_json::json;

use crate::support::authority::{Authority, browse};
use crate::support::outcome::{self, Outcome};
use crate::support::{Peer, Place};

/// A user whose Claude Code knows the server `far`.
fn configured(place: &Place, authority: &Authority) {
    let user = json!({"mcpServers": {"far": {"type": "http", "url": authority.mcp.url()}}});
    place.write(place.home.join(".claude.json"), user.to_string());
}

/// Logs in; `user` gets the printed address.
fn log_in_with(place: &Place, words: &[&str], user: impl FnOnce(&str)) -> Outcome {
    let mut command = place.agentsh(&["login", "--no-browser"]);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut errors = child.stderr.take().unwrap();
    let errors = std::thread::spawn(move || {
        let mut text = String::new();
        errors.read_to_string(&mut text).map(|_| text).unwrap_or_default()
    });
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    if !line.is_empty() {
        user(line.trim());
    }
    let code = outcome::wait(&mut child);
    let mut stdout = line;
    output.read_to_string(&mut stdout).unwrap();
    Outcome { code, stdout, stderr: errors.join().unwrap() }
}

fn log_in(place: &Place, words: &[&str]) -> Outcome {
    log_in_with(place, words, |address| {
        browse(address);
    })
}

fn peer(place: &Place, authority: &Authority) -> Peer {
    Peer::start(&mut place.agentsh(&["mcp", "run", "--id", "far", "--url", &authority.mcp.url()]))
}
