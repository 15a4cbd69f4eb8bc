//! Where agentsh may be started.

use std::path::Path;

use crate::support::{Mode, Outcome, Place};

fn run_in(place: &Place, directory: &Path) -> Outcome {
    Outcome::of(
        place.agentsh(&["run", "--quiet", "--", "sh", "-c", "echo ran > made; pwd"]).current_dir(directory),
    )
}

#[test]
fn the_home_itself_may_be_the_project() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write(place.home.join(".ssh/id_ed25519"), "TOPSECRET");
        place.write(place.home.join(".bashrc"), "# mine");
        place.write(place.home.join("notes"), "");
        let mut command = place.agentsh(&["run", "--quiet", "--", "sh", "-c",
            "echo ran > made; cat .ssh/id_ed25519; echo x >> .bashrc; echo x >> notes; cat .local/state/agentsh/agentsh.db; true"]);
        let outcome = Outcome::of(command.current_dir(&place.home)).expect_code(0);
        assert!(
            !outcome.stdout.contains("TOPSECRET") && !outcome.stdout.contains("SQLite"),
            "{mode:?} {outcome}"
        );
        assert_eq!(std::fs::read_to_string(place.home.join("made")).unwrap(), "ran\n");
        assert_eq!(std::fs::read_to_string(place.home.join(".bashrc")).unwrap(), "# mine");
        assert_eq!(std::fs::read_to_string(place.home.join("notes")).unwrap(), "x\n");
    }
}

#[test]
fn a_directory_that_shows_the_machine_may_not() {
    let place = Place::new(Mode::Invoker);
    for directory in ["/", "/usr", "/etc", "/tmp", "/proc", "/var"] {
        let outcome = run_in(&place, Path::new(directory));
        assert_eq!((outcome.code, outcome.stdout.as_str()), (125, ""), "{directory} {outcome}");
        assert!(outcome.stderr.contains("cannot be a project"), "{outcome}");
    }
    let above = place.path("x").parent().unwrap().to_owned();
    assert_eq!(run_in(&place, &above).code, 125, "it contains the home");
}

#[test]
fn a_directory_with_an_unusual_name_may() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let directory = place.home.join("a b/ü'\"$(x)\n");
        place.make_directory(&directory);
        let outcome = run_in(&place, &directory).expect_code(0);
        assert_eq!(
            outcome.stdout.trim_end_matches('\n'),
            directory.display().to_string().trim_end_matches('\n')
        );
        assert!(directory.join("made").exists());
    }
}

#[test]
fn a_project_outside_of_the_home_and_one_behind_a_link() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let elsewhere = place.path("elsewhere");
        place.make_directory(&elsewhere);
        run_in(&place, &elsewhere).expect_code(0);
        assert!(elsewhere.join("made").exists(), "{mode:?}");
        std::os::unix::fs::symlink(&elsewhere, place.home.join("link")).unwrap();
        std::fs::remove_file(elsewhere.join("made")).unwrap();
        run_in(&place, &place.home.join("link")).expect_code(0);
        assert!(elsewhere.join("made").exists(), "{mode:?}");
    }
}

/// A closed directory of root's, which the sandbox id could not even enter.
#[test]
fn a_private_project_is_fully_usable() {
    use std::os::unix::fs::PermissionsExt;
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write("old", "old");
        for path in [&place.project, &place.home] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
        }
        std::fs::set_permissions(place.project.join("old"), std::fs::Permissions::from_mode(0o600)).unwrap();
        let outcome =
            place.shell("cat old; echo new >> old; rm old; echo x > new; chmod 700 new; mv new newer");
        assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "old"), "{mode:?} {outcome}");
        assert!(place.project.join("newer").exists());
    }
}
