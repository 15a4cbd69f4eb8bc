//! A hook file that does not exist yet. Stopped by: an empty, read-only stub for the time of the run where the user
//! has the program that reads it; otherwise it is set aside as soon as it appears, and a stub takes its place.

use std::fs;

use serde_json::json;

use crate::support::sandbox::{attempt, script};
use crate::support::{Mode, Outcome, Place, everywhere, no, yes};

/// Directories that show that the user has the programs that read these files.
const SIGNS: [&str; 4] = [".claude", ".vscode", ".cursor", ".config/zed"];

#[test]
fn missing_hook_file_cannot_be_made_where_its_program_is_used() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        SIGNS.iter().for_each(|sign| place.make_directory(&place.home.join(sign)));
        sandbox.policy("filesystem: {write: [\".\"]}");
        let project = place.project.display();
        let files = [".claude/settings.json", ".vscode/tasks.json", ".cursor/mcp.json", ".zed/settings.json"];
        let mut expected: Vec<_> = files.iter().map(|file| no(format!("create {project}/{file}"))).collect();
        expected.push(no(format!("rename {project}/.vscode {project}/away")));
        expected.push(yes(format!("create {project}/main.rs")));
        sandbox.holds(&expected);
        for file in [".claude", ".vscode", ".cursor", ".zed"] {
            assert!(!place.project.join(file).exists(), "{file} was left behind");
        }
    });
}

const SCRIPT: &str = "made() { mkdir -p \"$(dirname $1)\" && echo evil > $1; }
for file in .Rprofile .agentsh.yaml .husky/pre-commit x.code-workspace; do
  made $file
  for i in $(seq 500); do [ -s $file ] || break; sleep 0.01; done
  [ -s $file ] && echo \"$file stays\"
  made $file 2>/dev/null && echo \"$file is made again\"
done
echo '# fine' > CLAUDE.md; mkdir .github; exit 7";

#[test]
fn new_hook_file_is_set_aside_at_once_and_cannot_be_made_again() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy("agent: {filesystem: {write: [\".\"]}}\n");
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", SCRIPT])).expect_code(7);
        assert_eq!(outcome.stdout, "", "{mode:?} {outcome}");
        for file in [".Rprofile", ".agentsh.yaml", ".husky", "x.code-workspace"] {
            assert!(!place.project.join(file).exists(), "{mode:?} {file}");
            assert!(
                outcome.stderr.contains(&format!("{file} was created during the run and set aside")),
                "{outcome}"
            );
        }
        assert!(
            outcome.stderr.contains(&format!("allow --write {}`", place.project.join(".Rprofile").display())),
            "{outcome}"
        );
        // Nothing lay in the project before, and what is not a program stays.
        assert!(place.project.join("CLAUDE.md").exists() && place.project.join(".github").exists());
        let told = place.events("guard_changed");
        assert_eq!(told.iter().filter(|event| event["what"] == "set-aside").count(), 4, "{told:?}");
        Outcome::of(&mut place.agentsh(&["undo", ".Rprofile"])).expect_code(0);
        assert_eq!(fs::read_to_string(place.project.join(".Rprofile")).unwrap(), "evil\n");
        // The twin: what the policy lifts is made.
        place.policy("agent: {filesystem: {write: [\".\"], unmask: [\".husky\", \"x.code-workspace\"]}}\n");
        let script = "mkdir .husky && echo a > .husky/pre-commit && echo b > x.code-workspace; sleep 0.2";
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", script])).expect_code(0);
        assert!(place.project.join(".husky/pre-commit").exists(), "{mode:?} {outcome}");
        assert!(place.project.join("x.code-workspace").exists(), "{mode:?} {outcome}");
    }
}

/// Names from the documentation of shells, debuggers, consoles and editors.
#[test]
fn missing_startup_files_of_other_programs_cannot_be_made() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy("agent: {filesystem: {write: [\".\"]}}\n");
        let files = [
            ".pdbrc",
            ".byebugrc",
            ".perldb",
            ".ocamlinit",
            ".luarc.json",
            ".rvmrc",
            "jupyter_server_config.py",
        ];
        let directories = [".direnv/flake-profile.rc", ".run/x.run.xml", ".vs/tasks.vs.json"];
        let script = format!(
            "for file in {} {}; do mkdir -p $(dirname $file); echo evil > $file; done; mkdir run vs; \
             echo work > run/x; echo work > perldb; true",
            files.join(" "),
            directories.join(" ")
        );
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", &script])).expect_code(0);
        for file in files.into_iter().chain(directories) {
            assert!(!place.project.join(file).exists(), "{mode:?} {file} {outcome}");
        }
        assert!(place.project.join("run/x").exists() && place.project.join("perldb").exists(), "{outcome}");
    }
}

/// Nothing of agentsh lies in a project in which none of its programs is used, or all of them ask before they obey a new file.
#[test]
fn stubs_are_left_out_where_no_program_would_read_them() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy("agent: {filesystem: {write: [\".\"]}}\n");
        let ls = || Outcome::of(&mut place.agentsh(&["run", "--", "ls", "-A"])).expect_code(0).stdout;
        for sign in [".config/direnv", ".config/JetBrains", ".codex", ".gemini", ".qwen", ".config/opencode"]
        {
            place.make_directory(&place.home.join(sign));
        }
        assert_eq!(ls(), "", "{mode:?}");
        for sign in [".claude", ".vscode", ".cursor", ".config/zed"] {
            place.make_directory(&place.home.join(sign));
        }
        assert_eq!(ls(), ".claude\n.cursor\n.vscode\n.zed\n", "{mode:?}");
    }
}

/// A directory that a server is given is guarded as the project is, wherever it lies.
#[test]
fn server_directory_outside_the_project_has_stubs_too() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let work = place.home.join("work");
        place.write(work.join("file"), "");
        let entry = json!({"command": place.program("fixture_server"), "args": [work]});
        place.write(place.home.join(".claude.json"), json!({"mcpServers": {"one": entry}}).to_string());
        for sign in [".vscode", ".config/zed"] {
            place.make_directory(&place.home.join(sign));
        }
        let tries = [".zed/tasks.json", ".vscode/tasks.json", ".git/hooks/pre-commit", "honest"]
            .map(|name| attempt("one", &format!("create {}", work.join(name).display())));
        let answers = script(&place, &json!(tries));
        for number in 0..3 {
            assert_ne!(answers.text(number), "DONE", "{mode:?} {number} {}", answers.outcome);
        }
        assert_eq!(answers.text(3), "DONE", "{mode:?} {}", answers.outcome);
        assert!(!work.join(".zed").exists() && !work.join(".vscode").exists());
    }
}

/// Packages may be installed where direnv keeps them; what direnv reads itself, and the names of other commands, may not come there.
#[test]
fn direnv_packages_can_be_installed_and_nothing_else_beside_them() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy("agent: {filesystem: {write: [\".\"]}}\n");
        place.make_directory(&place.home.join(".config/direnv"));
        place.write(".direnv/nix.rc", "kept");
        place.script(".direnv/python-3.11/bin/python3", "");
        place.write(".direnv/python-3.11/lib/a.py", "");
        let script = "cd .direnv; for path in nix.rc other.rc bin python-3.12 python-3.11/bin/ls; do (echo evil >$path); done; \
                      mv python-3.11 away; \
                      for path in lib/b.py lib/a.py bin/pip-of-project bin/python3; do echo x >python-3.11/$path || exit 1; done";
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", script])).expect_code(0);
        let is_there = |name: &str| place.project.join(".direnv").join(name).exists();
        assert_eq!(fs::read_to_string(place.project.join(".direnv/nix.rc")).unwrap(), "kept", "{outcome}");
        for name in ["other.rc", "bin", "python-3.12", "python-3.11/bin/ls"] {
            assert!(!is_there(name), "{mode:?} {name}: {outcome}");
        }
        assert!(is_there("python-3.11/lib/b.py") && is_there("python-3.11/bin/pip-of-project"), "{outcome}");
    }
}
