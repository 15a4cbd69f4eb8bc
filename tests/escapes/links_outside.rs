//! A link to a directory outside, at a name whose files agentsh sets aside: it sets the link aside and removes no file behind it.
//! Stopped by: directories are opened without links, and files are removed by the directory that holds them.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{Mode, Outcome, Place};

const PRECIOUS: &str = "precious\n";

fn place(mode: Mode) -> Place {
    let place = Place::new(mode);
    place.policy("agent: {filesystem: {write: [\".\"]}}\n");
    for name in ["origin", "knife.rb", "setup.sh", "config.toml"] {
        place.write(place.home.join("docs").join(name), PRECIOUS);
    }
    place.script(place.home.join("docs/ls"), PRECIOUS);
    place.write(place.home.join(".bashrc"), format!(". {}/env/setup.sh\n", place.project.display()));
    Outcome::of(place.command("git").args(["init", "-q"])).expect_code(0);
    place
}

fn run(place: &Place, script: &str) -> Outcome {
    let bin = place.project.join("node_modules/.bin");
    let mut command = place.agentsh(&["run", "--", "sh", "-c", script]);
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    Outcome::of(&mut command)
}

#[test]
fn links_to_directories_outside_are_set_aside_and_files_behind_them_stay() {
    for mode in Mode::all() {
        for (link, is_set_aside) in [
            (".git/remotes", true),
            (".git/branches", true),
            (".chef", true),
            (".lsp", true),
            ("node_modules/.bin", true),
            ("env", true),
            ("other", false),
        ] {
            let place = place(mode);
            let docs = place.home.join("docs");
            let script = format!(
                "rm -rf {link}; mkdir -p $(dirname {link}); ln -s {} {link}; echo work > file",
                docs.display()
            );
            let outcome = run(&place, &script).expect_code(0);
            for file in fs::read_dir(&docs).unwrap().flatten() {
                assert_eq!(fs::read_to_string(file.path()).unwrap(), PRECIOUS, "{mode:?} {link} {outcome}");
            }
            assert_eq!(fs::read_dir(&docs).unwrap().count(), 5, "{mode:?} {link} {outcome}");
            assert_eq!(!place.project.join(link).is_symlink(), is_set_aside, "{mode:?} {link} {outcome}");
            assert_eq!(outcome.stderr.contains("set aside"), is_set_aside, "{mode:?} {link} {outcome}");
            assert!(place.project.join("file").exists());
        }
    }
}

#[test]
fn a_file_behind_a_link_of_the_user_is_set_aside_where_a_sandbox_may_have_written_it() {
    for mode in Mode::all() {
        let place = place(mode);
        place.write("tools/config.rb", "mine\n");
        symlink("tools", place.project.join(".chef")).unwrap();
        place.make_directory(&place.home.join("lsp"));
        symlink(place.home.join("lsp"), place.project.join(".lsp")).unwrap();
        place.write("hid", "text\n");
        let outcome =
            run(&place, "echo x > tools/knife.rb; echo x > tools/other; ln -s hid .github").expect_code(0);
        assert!(place.project.join(".chef").is_symlink() && place.project.join(".lsp").is_symlink());
        assert!(!place.project.join("tools/knife.rb").exists(), "{mode:?} {outcome}");
        assert_eq!(fs::read_to_string(place.project.join("tools/config.rb")).unwrap(), "mine\n", "{outcome}");
        assert!(place.project.join("tools/other").exists() && place.project.join("hid").exists());
        // A file where a program wants a directory.
        assert!(!place.project.join(".github").is_symlink(), "{mode:?} {outcome}");
    }
}

#[test]
fn a_workspace_of_jujutsu_names_a_known_repository_alone() {
    for mode in Mode::all() {
        let place = place(mode);
        place.write(".jj/repo/config.toml", "");
        let script = "mkdir -p one/.jj two/.jj ev; printf ../../ev > one/.jj/repo; echo x > ev/config.toml; \
                      printf ../../.jj/repo > two/.jj/repo";
        let outcome = run(&place, script).expect_code(0);
        assert!(!place.project.join("one/.jj/repo").exists(), "{mode:?} {outcome}");
        assert!(place.project.join("two/.jj/repo").exists(), "{mode:?} {outcome}");
    }
}
