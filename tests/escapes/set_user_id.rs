//! A program that runs as its owner: where root started agentsh, files made inside are root's.
//! Stopped by: the filter looks at the mode of everything that makes a file or changes its mode.

use std::os::unix::fs::PermissionsExt;

use crate::support::{everywhere, no, yes};

#[test]
fn set_user_id_bits_are_refused() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"]}");
        place.write("program", "");
        let project = place.project.display();
        sandbox.holds(&[
            no(format!("chmod-set-id {project}/program")),
            no(format!("create-set-id {project}/made")),
            no(format!("unnamed-set-id {project}")),
            yes(format!("chmod {project}/program")),
            yes(format!("create {project}/other")),
        ]);
        let mode = std::fs::metadata(place.project.join("program")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o777);
        assert!(!place.project.join("made").exists());
    });
}
