//! The tokens of a login in a real store of secrets: GNOME's keyring on a session bus of its own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::{log_in, peer};
use crate::support::authority::{Authority, MARK};
use crate::support::{Mode, Outcome, Place, skip};

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A bus, and its address.
fn bus(place: &Place) -> (Running, String) {
    let mut command = place.command("dbus-daemon");
    command.args(["--session", "--nofork", "--print-address"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut address = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
    (Running(child), address.trim().to_owned())
}

/// An unlocked keyring on it.
fn keyring(place: &Place, address: &str) -> Running {
    let mut command = place.command("gnome-keyring-daemon");
    command.args(["--unlock", "--foreground", "--components=secrets"]);
    command.env("DBUS_SESSION_BUS_ADDRESS", address).env("XDG_RUNTIME_DIR", place.home.join("runtime"));
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"the user's password").unwrap();
    Running(child)
}

fn is_installed(program: &str) -> bool {
    std::path::Path::new("/usr/bin").join(program).exists()
}

/// Files below this directory that contain a token.
fn holding(at: &std::path::Path) -> usize {
    let found = Command::new("grep").args(["-rl", MARK]).arg(at).output().unwrap();
    String::from_utf8(found.stdout).unwrap().lines().count()
}

#[test]
fn a_keyring_of_the_desktop_has_the_tokens() {
    if let Some(missing) =
        ["dbus-daemon", "gnome-keyring-daemon", "secret-tool"].into_iter().find(|one| !is_installed(one))
    {
        return skip(&format!("`{missing}` is not installed"));
    }
    let (place, authority) = (Place::new(Mode::Invoker), Authority::start());
    place.make_directory(&place.home.join("runtime"));
    let (_bus, address) = bus(&place);
    let _keyring = keyring(&place, &address);
    place.set("DBUS_SESSION_BUS_ADDRESS", &address);
    place.set("PATH", "/usr/bin:/bin");
    let lookup = |place: &Place| {
        let mut command = place.command("secret-tool");
        command.args(["search", "--all", "application", "agentsh"]);
        command.env("DBUS_SESSION_BUS_ADDRESS", &address);
        let outcome = Outcome::of(&mut command);
        format!("{}{}", outcome.stdout, outcome.stderr)
    };
    // It takes a moment until the store is on the bus, and until it keeps something.
    let keeps = || {
        let mut command = place.command("sh");
        command.args(["-c", "printf probe | secret-tool store --label=probe probe probe"]);
        command.env("DBUS_SESSION_BUS_ADDRESS", &address);
        Outcome::of(&mut command).stderr.is_empty()
    };
    assert!(crate::support::eventually(keeps), "{}", lookup(&place));
    let done = log_in(&place, &[&authority.mcp.url()]).expect_code(0);
    assert!(lookup(&place).contains(MARK), "{}\n{done}", lookup(&place));
    // Neither the file of the login nor the keyring's own, which is encrypted.
    assert_eq!(holding(&place.home), 0);
    assert_eq!(place.listed(&["login", "--list", "--json"])[0]["is_renewed"], true);
    let mut far = peer(&place, &authority);
    far.shake_hands();
    assert_eq!(far.text("read", json!({})), "from afar");
    // Renewed in the running session, and put back.
    let before = lookup(&place);
    authority.state().expire();
    assert_eq!(far.text("read", json!({})), "from afar");
    far.finish();
    assert_ne!(lookup(&place), before);
    assert_eq!(holding(&place.home), 0);
    let out = Outcome::of(&mut place.agentsh(&["logout", &authority.mcp.url()])).expect_code(0);
    assert!(out.stderr.contains("revoked") && !lookup(&place).contains(MARK), "{out}");
}
