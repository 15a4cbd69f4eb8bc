//! Replace the server's program between the look at it and its start.
//! Stopped by: the bytes that were hashed are the bytes that run, and others are refused.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Mode, Peer, Place};

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
fn other_bytes_never_run() {
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
