//! Replace the server's program between its check and its start. Stopped by: the hashed bytes are the bytes that run,
//! and others are refused.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::support::{Mode, Outcome, Peer, Place};

/// Long enough that an overwrite in place takes several writes.
fn program(word: &str) -> String {
    format!("#!/bin/sh\n{}\necho {word}-bytes-ran >&2\ncat >/dev/null\n", "# padding\n".repeat(2000))
}

fn start(place: &Place, program: &Path) -> String {
    let mut command = place.agentsh(&["mcp", "run", "--id", "swapped", "--"]);
    let mut peer = Peer::start(command.arg(program));
    peer.send(&serde_json::json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    peer.finish().1
}

#[test]
fn changed_program_bytes_never_run() {
    for mode in Mode::all() {
        for in_place in [false, true] {
            let place = Place::new(mode);
            let server = place.script(place.home.join("tools/server"), &program("good"));
            assert!(start(&place, &server).contains("good-bytes-ran"), "{mode:?}");

            let done = AtomicBool::new(false);
            let spare = place.home.join("tools/spare");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        for word in ["evil", "good"] {
                            if in_place {
                                fs::write(&server, program(word)).unwrap();
                            } else {
                                fs::write(&spare, program(word)).unwrap();
                                fs::set_permissions(&spare, fs::Permissions::from_mode(0o755)).unwrap();
                                fs::rename(&spare, &server).unwrap();
                            }
                        }
                    }
                });
                for _ in 0..6 {
                    let said = start(&place, &server);
                    assert!(!said.contains("evil-bytes-ran"), "{mode:?}, in place: {in_place}: {said}");
                }
                done.store(true, Ordering::Relaxed);
            });
            fs::write(&server, program("good")).unwrap();
            assert!(start(&place, &server).contains("good-bytes-ran"), "{mode:?}");
        }
    }
}

/// Says nothing before a file is there.
const SLOW_SERVER: &str = r#"#!/bin/sh
read -r line
until [ -e go ]; do sleep 0.02; done
printf '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"first","version":"1"}}}\n'
cat > /dev/null
"#;

/// Attacks the server from the moment in which its names are held; `rmdir` shows this moment, since the directory is
/// never empty.
const REPLACE: &str = r#"#!/bin/bash
export LC_ALL=C AGENTSH_SOCKET=/run/agentsh/bridge
held() { rmdir tools 2>&1 | grep -q busy; }
may() { if "$@" 2> /dev/null; then echo "may $*"; else echo "may not $*"; fi; }
cp evil new
{ printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}'
  until [ -e /tmp/end ]; do sleep 0.02; done; } | /run/agentsh/agentsh bridge s > /tmp/said 2> /tmp/errors &
for try in {1..500}; do held && break; sleep 0.02; done
may mv -f new tools/server; may rm -f tools/server; may mv tools others; may cat /run/agentsh/held/tree/evil
may touch tools/beside; may mv tools/beside tools/besides; may mv -f tools/besides .
touch go
for try in {1..500}; do grep -q serverInfo /tmp/said && ! held && break; sleep 0.02; done
cat /tmp/said
may mv -f new tools/server; may mv tools others
touch /tmp/end; wait; cat /tmp/errors
"#;

#[test]
fn server_script_cannot_be_replaced_from_inside_at_its_start() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let server = place.script(place.project.join("tools/server"), SLOW_SERVER);
        place.script(place.project.join("evil"), &SLOW_SERVER.replace("first", "second"));
        place.write(
            place.home.join(".claude.json"),
            json!({"mcpServers": {"s": {"command": server}}}).to_string(),
        );
        let claude = place.script(place.project.join("bin/claude"), REPLACE);
        let outcome = Outcome::of(place.agentsh(&["run", "--"]).arg(claude)).expect_code(0);
        let said = |line: &str| outcome.stdout.lines().any(|said| said == line);
        for attack in [
            "mv -f new tools/server",
            "rm -f tools/server",
            "mv tools others",
            "cat /run/agentsh/held/tree/evil",
        ] {
            assert!(said(&format!("may not {attack}")), "{mode:?} {attack} {outcome}");
        }
        for harmless in ["touch tools/beside", "mv tools/beside tools/besides", "mv -f tools/besides ."] {
            assert!(said(&format!("may {harmless}")), "{mode:?} {harmless} {outcome}");
        }
        assert!(outcome.stdout.contains("\"name\":\"first\""), "{mode:?} {outcome}");
        // Its interpreter has opened it.
        assert!(said("may mv -f new tools/server") && said("may mv tools others"), "{mode:?} {outcome}");
    }
}
