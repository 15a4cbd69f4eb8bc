//! A process that is root on the host, whatever its id inside. Stopped by: sandboxes run under the caller's id, or
//! under an id that no user has.

use crate::support::sandbox::Kind;
use crate::support::{Mode, Peer, Place, eventually, everywhere, no, processes, yes};

#[test]
fn process_inside_cannot_become_root() {
    everywhere(|sandbox| {
        sandbox.holds(&[no("become 0"), no("uid-is 0"), yes("become")]);
        if sandbox.kind == Kind::Agent && sandbox.place.mode.is_root() {
            assert_eq!(sandbox.place.outside(&["uid-is 0", "become 0"]), ["DONE", "DONE"]);
        }
    });
}

#[test]
fn host_sees_no_root_process_in_a_sandbox() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mut peer = Peer::ready(&place, &[]);
        let supervisor = peer.child.id();
        assert_eq!(processes::uids(i32::try_from(supervisor).unwrap()).contains(&0), mode.is_root());
        let inside = || {
            let found = processes::below(supervisor);
            found
                .into_iter()
                .filter(|pid| processes::arguments(*pid).contains("fixture_server"))
                .collect::<Vec<_>>()
        };
        assert!(eventually(|| !inside().is_empty()));
        // Sandboxes are born from a process of agentsh's own, which runs no program: it stays in the user namespace of
        // its caller, with the caller's id.
        let own = |pid| {
            processes::namespace(pid, "user")
                == processes::namespace(i32::try_from(supervisor).unwrap(), "user")
        };
        let (launchers, sandboxed): (Vec<_>, Vec<_>) =
            processes::below(supervisor).into_iter().partition(|pid| own(*pid));
        assert_eq!(launchers.len(), 1, "{mode:?}");
        assert!(processes::arguments(launchers[0]).contains("__init"), "{mode:?}");
        for pid in sandboxed {
            let uids = processes::uids(pid);
            assert!(!uids.contains(&0), "{mode:?}: {uids:?} {}", processes::arguments(pid));
            for kind in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
                let own = processes::namespace(i32::try_from(std::process::id()).unwrap(), kind);
                assert_ne!(processes::namespace(pid, kind), own, "{mode:?} {kind}");
            }
        }
        peer.text("echo", serde_json::json!({"text": "still here"}));
    }
}

#[test]
fn files_that_the_sandbox_makes_belong_to_the_caller() {
    use std::os::unix::fs::MetadataExt;
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.shell("echo x > made; mkdir -p deep/er; echo y > deep/er/made").expect_code(0);
        for path in ["made", "deep", "deep/er/made"] {
            let owner = std::fs::metadata(place.project.join(path)).unwrap().uid();
            let expected = std::fs::metadata(&place.project).unwrap().uid();
            assert_eq!(owner, expected, "{mode:?} {path}");
        }
        assert!(mode != Mode::User || place.project.join("made").metadata().unwrap().uid() == 1000);
    }
}
