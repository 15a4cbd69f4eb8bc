//! A key in the home directory, read directly, listed, or by a handle.
//! Stopped by: a home that is empty but for what policy lists, and masks over secrets even where it is granted.

use crate::support::{Place, everywhere, no, yes};

const SECRETS: [&str; 6] = [
    ".ssh/id_ed25519",
    ".aws/credentials",
    ".netrc",
    ".config/gh/hosts.yml",
    ".claude.json",
    ".bash_history",
];

fn fill(place: &Place) {
    for secret in SECRETS {
        place.write(place.home.join(secret), "TOPSECRET");
    }
    place.write(place.home.join("Documents/letter.txt"), "TOPSECRET");
    place.write("notes.txt", "PLAIN");
}

#[test]
fn home_is_empty_by_default() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        fill(place);
        let home = place.home.display();
        let mut expected: Vec<_> =
            SECRETS.iter().map(|secret| no(format!("read {home}/{secret} TOPSECRET"))).collect();
        expected.push(no(format!("read {home}/Documents/letter.txt TOPSECRET")));
        expected.push(no(format!("list {home} .ssh")));
        expected.push(no(format!("handle {home}/.ssh/id_ed25519")));
        expected.push(no("read /etc/shadow root"));
        expected.push(yes(format!("read {home}/project/notes.txt PLAIN")));
        sandbox.holds(&expected);
        assert_eq!(place.outside(&[&format!("read {home}/.ssh/id_ed25519 TOPSECRET")]), ["DONE"]);
    });
}

#[test]
fn masks_win_over_a_grant_of_the_whole_home() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        fill(place);
        sandbox.policy("filesystem: {read: [\"~\"]}");
        let home = place.home.display();
        let mut expected: Vec<_> =
            SECRETS.iter().map(|secret| no(format!("read {home}/{secret} TOPSECRET"))).collect();
        expected.push(no(format!("list {home}/.ssh id_ed25519")));
        expected.push(no(format!("remove {home}/.ssh/id_ed25519")));
        expected.push(yes(format!("read {home}/Documents/letter.txt TOPSECRET")));
        sandbox.holds(&expected);
    });
}

#[test]
fn denied_files_inside_a_grant_are_hidden() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        place.write("secrets/deploy.key", "TOPSECRET");
        place.write("deep/down/.env", "TOPSECRET");
        place.write("src/main.rs", "PLAIN");
        sandbox.policy("filesystem: {read: [\".\"], deny: [\"secrets/**\", \"**/.env\"]}");
        let project = place.project.display();
        sandbox.holds(&[
            no(format!("read {project}/secrets/deploy.key TOPSECRET")),
            no(format!("read {project}/deep/down/.env TOPSECRET")),
            yes(format!("read {project}/src/main.rs PLAIN")),
        ]);
    });
}
