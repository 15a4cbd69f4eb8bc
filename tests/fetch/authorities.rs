//! Registries that prove themselves with the certificate of a private authority: believed where the user trusts it, wherever he
//! says so.

use std::path::PathBuf;

use serde_json::json;

use super::python::{answering as python_answering, has_pip};
use super::registry::Registry;
use super::{Started, answering, has_npm, launch, start};
use crate::support::trusted::{SOURCES, issued, server};
use crate::support::{Mode, Peer, Place, is_root, skip};

fn pem(place: &Place, authority: &str) -> PathBuf {
    place.write(place.home.join("certificates/authority.pem"), authority)
}

/// The modes in turn.
fn mode(number: usize) -> Mode {
    let modes = Mode::all();
    modes[number % modes.len()]
}

#[test]
#[ignore = "takes long"]
fn npm_fetches_from_a_registry_that_the_user_trusts() {
    if !has_npm() {
        return;
    }
    let (authority, secret) = issued(&["127.0.0.1"]);
    let mut registry = Registry::secure(server(&secret));
    registry.publish("greeter", "1.0.0", &answering("'one'"), &json!({}));
    let place = |mode| {
        let place = Place::new(mode);
        place.write(place.home.join(".npmrc"), format!("registry={}/\n", registry.address()));
        place
    };
    for (number, (name, set)) in SOURCES.iter().enumerate() {
        let place = place(mode(number));
        set(&place, &pem(&place, &authority));
        let started = start(&place, "g", &["greeter"], &[]);
        assert_eq!(
            started.answer["result"]["answer"], "one",
            "{name}: {} {}",
            started.answer, started.errors
        );
    }
    let unknown = place(Mode::Invoker);
    start(&unknown, "g", &["greeter"], &[]).refused(&["cannot fetch"]);
}

#[test]
#[ignore = "takes long"]
fn pip_fetches_from_an_index_that_the_user_trusts() {
    if !has_pip() {
        return;
    }
    let (authority, secret) = issued(&["127.0.0.1"]);
    let mut registry = Registry::secure(server(&secret));
    registry.publish_wheel("greeter-server", "1.0", &python_answering("'one'"), &[]);
    let place = |mode| {
        let place = Place::new(mode);
        let index = format!("[global]\nindex-url = {}/simple\n", registry.address());
        place.write(place.home.join(".config/pip/pip.conf"), index);
        place.script(place.home.join("tools/uvx"), "#!/bin/sh\nexit 9\n");
        place.set("PATH", format!("{}:/usr/bin:/bin", place.home.join("tools").display()));
        place
    };
    for (number, (name, set)) in SOURCES.iter().enumerate() {
        let place = place(mode(number));
        set(&place, &pem(&place, &authority));
        let started = launch(&place, "g", &["uvx", "greeter-server"], &[]);
        assert_eq!(
            started.answer["result"]["answer"], "one",
            "{name}: {} {}",
            started.answer, started.errors
        );
    }
    let unknown = place(Mode::Invoker);
    launch(&unknown, "g", &["uvx", "greeter-server"], &[]).refused(&["cannot fetch"]);
}

/// An authority that an administrator added to the machine.
#[test]
fn certificate_store_of_the_machine_is_trusted() {
    const STORE: &str = "/etc/ssl/certs/ca-certificates.crt";
    if !has_npm() {
        return;
    }
    if !is_root() || !std::path::Path::new(STORE).exists() {
        return skip("only root can lay another store over the machine's");
    }
    let (authority, secret) = issued(&["127.0.0.1"]);
    let mut registry = Registry::secure(server(&secret));
    registry.publish("greeter", "1.0.0", &answering("'one'"), &json!({}));
    let place = Place::new(Mode::Invoker);
    place.write(place.home.join(".npmrc"), format!("registry={}/\n", registry.address()));
    let script = format!("mount --bind \"$0\" {STORE} && exec \"$@\"");
    let mut command = place.command("unshare");
    command.args(["-m", "sh", "-c", &script]).arg(pem(&place, &authority)).arg(place.program("agentsh"));
    command.args(["mcp", "run", "--id", "g", "--", "npx", "-y", "greeter"]);
    let mut peer = Peer::start(&mut command);
    peer.ask("ping", json!({}));
    let answer = peer.next();
    let started = Started { answer, errors: peer.finish().1 };
    assert_eq!(*started.said(), "one");
}
