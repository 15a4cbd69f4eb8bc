//! `uvx`, `pipx run` and `uv run --with`: what they would download comes from the index that pip is configured with.

use std::path::Path;
use std::process::Command;

use super::registry::Registry;
use super::{Started, files, launch, store};
use crate::support::{Mode, Place, skip};

/// A module whose `main` answers the first request with the value of an expression, and waits for the end.
pub fn answering(expression: &str) -> String {
    format!(
        "import json, sys\n\
         def main():\n\
         \x20   sys.stdin.readline()\n\
         \x20   answer = {expression}\n\
         \x20   print(json.dumps({{'jsonrpc': '2.0', 'id': 1, 'result': {{'answer': answer}}}}), flush=True)\n\
         \x20   sys.stdin.read()\n"
    )
}

pub fn has_pip() -> bool {
    let found = Command::new("/usr/bin/python3").args(["-m", "pip", "--version"]).output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        skip("pip is not installed for /usr/bin/python3");
    }
    found
}

/// With launchers that report their start, which must not happen: their arguments are resolved without them.
fn place(mode: Mode, registry: &Registry) -> Place {
    let place = Place::new(mode);
    let index = format!("[global]\nindex-url = http://127.0.0.1:{}/simple\n", registry.port);
    place.write(place.home.join(".config/pip/pip.conf"), index);
    let tools = place.home.join("tools");
    for name in ["uv", "uvx", "pipx"] {
        place.script(tools.join(name), "#!/bin/sh\necho started the launcher >&2\nexit 9\n");
    }
    place.set("PATH", format!("{}:/usr/bin:/bin", tools.display()));
    place
}

#[track_caller]
fn said(started: &Started, wanted: &str) {
    assert_eq!(*started.said(), wanted, "{}", started.errors);
    assert!(!started.errors.contains("started the launcher"), "{}", started.errors);
}

#[test]
#[ignore = "takes long"]
fn the_first_start_fetches_and_the_second_needs_no_index() {
    if !has_pip() {
        return;
    }
    for mode in Mode::all() {
        let mut registry = Registry::start();
        registry.publish_wheel("helper", "3.1", "WORD = 'helped'\n", &[]);
        let with_helper = answering("__import__('helper').WORD + ' one'");
        registry.publish_wheel("greeter-server", "1.0", &with_helper, &["helper"]);
        let place = place(mode, &registry);
        let server =
            place.write("own.py", format!("{}main()\n", answering("__import__('helper').WORD + ' here'")));
        let server = server.to_str().unwrap();
        let launchers: [(&str, &[&str], &str); 5] = [
            ("uvx", &["uvx", "greeter-server"], "helped one"),
            ("from", &["uvx", "--from", "greeter_server>=1", "greeter-server"], "helped one"),
            ("pipx", &["pipx", "run", "greeter-server"], "helped one"),
            ("uv", &["uv", "run", "--with", "greeter-server", "greeter-server"], "helped one"),
            ("own", &["uv", "run", "--with", "helper", server], "helped here"),
        ];
        // Fetching takes seconds each: an ordinary user tries two of them.
        let tried = if mode == Mode::Invoker { &launchers[..] } else { &launchers[3..] };
        for (id, words, answer) in tried {
            said(&launch(&place, id, words, &[]), answer);
        }
        // A newer version changes nothing until somebody asks for it.
        registry.publish_wheel("greeter-server", "2.0", &answering("'two'"), &[]);
        for (id, words, answer) in tried {
            said(&launch(&place, id, words, &[]), answer);
        }
        let reset = place.agentsh(&["mcp", "pins", "reset", "--server", "uv"]).output().unwrap();
        assert!(reset.status.success(), "{reset:?}");
        said(&launch(&place, "uv", launchers[3].1, &[]), "two");
        registry.stop();
        for (id, words, answer) in tried {
            said(&launch(&place, id, words, &[]), if *id == "uv" { "two" } else { answer });
        }
        assert_eq!(std::fs::read_dir(store(&place).join("staging")).unwrap().count(), 0);
    }
}

#[test]
#[ignore = "takes long"]
fn python_fetch_errors_are_shown_and_a_changed_store_refused() {
    if !has_pip() {
        return;
    }
    let mut registry = Registry::start();
    registry.publish_wheel("greeter-server", "1.0", &answering("'one'"), &[]);
    registry.publish_file("only-source", "only-source-1.0.tar.gz", vec![0; 64]);
    let place = place(Mode::Invoker, &registry);
    launch(&place, "a", &["uvx", "greeter-server==9"], &[]).refused(&["no such package or version"]);
    // It would have to run its setup to be installed.
    launch(&place, "b", &["uvx", "only-source"], &[]).refused(&["build script", "install_scripts: allow"]);
    said(&launch(&place, "g", &["uvx", "greeter-server"], &[]), "one");
    let module = files(&store(&place)).into_iter().find(|path| path.ends_with("greeter_server/__init__.py"));
    let module = module.unwrap();
    let text = std::fs::read_to_string(&module).unwrap();
    std::fs::write(&module, text.replace("'one'", "'evil'")).unwrap();
    launch(&place, "g", &["uvx", "greeter-server"], &[]).refused(&["is not what was fetched"]);
    registry.stop();
    launch(&place, "c", &["uvx", "another"], &[]).refused(&["cannot reach the registry"]);
}

/// The variables of uv name the index before pip's configuration does.
#[test]
#[ignore = "takes long"]
fn uv_index_wins_over_pip_configuration() {
    if !has_pip() {
        return;
    }
    let (mut of_pip, mut of_uv) = (Registry::start(), Registry::start());
    of_pip.publish_wheel("greeter-server", "1.0", &answering("'pip'"), &[]);
    of_uv.publish_wheel("greeter-server", "1.0", &answering("'uv'"), &[]);
    let place = place(Mode::Invoker, &of_pip);
    let index = format!("http://127.0.0.1:{}/simple", of_uv.port);
    said(&launch(&place, "u", &["uvx", "greeter-server"], &[("UV_DEFAULT_INDEX", &index)]), "uv");
    said(&launch(&place, "p", &["uvx", "greeter-server"], &[]), "pip");
    assert!(!Path::new(&place.home.join(".cache/uv")).exists());
}
