//! Files that other programs run later: git hooks, editor tasks, agent settings. Stopped by: read-only mounts inside
//! the writable project.

use std::fs;

use crate::support::{Mode, Outcome, Place, everywhere, no, yes};

const FILES: [&str; 9] = [
    ".git/hooks/pre-commit",
    ".git/config",
    ".mcp.json",
    ".claude/settings.json",
    ".vscode/tasks.json",
    ".envrc",
    ".gitmodules",
    "CLAUDE.md",
    ".cargo/config.toml",
];

#[test]
#[ignore = "takes long"]
fn existing_hook_files_are_read_only() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"], guard: all}");
        for file in FILES {
            // JSON, because agents read some of them.
            place.write(file, "{}");
        }
        place.write(".git/HEAD", "ref: refs/heads/main\n");
        place.write("src/main.rs", "");
        let project = place.project.display();
        let mut expected = Vec::new();
        for file in FILES {
            expected.push(no(format!("append {project}/{file}")));
            expected.push(no(format!("overwrite {project}/{file}")));
            expected.push(no(format!("remove {project}/{file}")));
            expected.push(no(format!("chmod {project}/{file}")));
            expected.push(no(format!("rename {project}/{file} {project}/away")));
            expected.push(no(format!("rename {project}/src/main.rs {project}/{file}")));
            expected.push(no(format!("exchange {project}/src/main.rs {project}/{file}")));
        }
        expected.push(no(format!("create {project}/.git/hooks/post-checkout")));
        expected.push(no(format!("create {project}/.claude/settings.local.json")));
        expected.push(no(format!("rename {project}/.git/hooks {project}/.git/old")));
        expected.push(no(format!("rename {project}/.vscode {project}/away")));
        expected.push(no(format!("unmount {project}/.git/hooks")));
        expected.push(yes(format!("append {project}/src/main.rs")));
        expected.push(yes(format!("create {project}/.git/index")));
        expected.push(yes(format!("mkdir {project}/.git/refs")));
        sandbox.holds(&expected);
        for file in FILES {
            assert_eq!(fs::read_to_string(place.project.join(file)).unwrap(), "{}", "{file}");
        }
        assert!(fs::read_to_string(place.project.join("src/main.rs")).unwrap().contains("probe"));
    });
}

/// `git submodule add` is a day's work: it is refused only where everything that instructs is guarded.
#[test]
#[ignore = "takes long"]
fn submodule_add_is_refused_only_if_all_instructions_are_guarded() {
    everywhere(|sandbox| {
        let project = sandbox.place.project.display().to_string();
        sandbox.place.write("src/main.rs", "");
        sandbox.policy("filesystem: {write: [\".\"], guard: all}");
        sandbox.holds(&[yes(format!("create {project}/plain"))]);
        // What is made is removed at the end.
        sandbox.answers(&[&format!("create {project}/.gitmodules")]);
        assert!(!sandbox.place.project.join(".gitmodules").exists());
        sandbox.policy("filesystem: {write: [\".\"]}");
        sandbox.holds(&[yes(format!("create {project}/.gitmodules"))]);
    });
}

#[test]
fn shell_files_of_a_writable_home_are_read_only() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\"~/*\"]}");
        let home = place.home.display();
        for file in [".bashrc", ".profile", ".config/autostart/x.desktop", ".local/bin/tool", ".gitconfig"] {
            place.write(place.home.join(file), "");
        }
        place.write(place.home.join("plain.txt"), "");
        sandbox.holds(&[
            no(format!("append {home}/.bashrc")),
            no(format!("append {home}/.profile")),
            no(format!("append {home}/.config/autostart/x.desktop")),
            no(format!("append {home}/.local/bin/tool")),
            no(format!("append {home}/.gitconfig")),
            no(format!("rename {home}/.config {home}/away")),
            yes(format!("append {home}/plain.txt")),
        ]);
    });
}

/// A file in a directory: whoever can rename the directory can replace the file.
#[test]
fn parent_directories_of_guarded_files_cannot_be_renamed() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox
            .policy("filesystem: {write: [\".\", \"granted/itself\"], read: [\"kept/letters\"], guard: all}");
        place.write(".cargo/config.toml", "");
        place.write(".cargo/other", "");
        place.write("granted/itself/.git/hooks/pre-commit", "");
        place.write("kept/letters/one", "");
        place.write("vendor/library/.git/hooks/pre-commit", "");
        // Hooks that lie elsewhere: where the repository is counts.
        place.write("vendor/library/.git/config", "[core]\n\thooksPath = ../../hooks\n");
        place.write("plain/file", "");
        let project = place.project.display();
        sandbox.holds(&[
            no(format!("rename {project}/.cargo {project}/away")),
            no(format!("rename {project}/vendor {project}/away")),
            no(format!("rename {project}/vendor/library {project}/vendor/away")),
            no(format!("rename {project}/granted {project}/away")),
            no(format!("append {project}/kept/letters/one")),
            no(format!("rename {project}/kept {project}/away")),
            yes(format!("append {project}/.cargo/other")),
            yes(format!("create {project}/vendor/library/new")),
            yes(format!("rename {project}/plain {project}/away")),
        ]);
    });
}

/// In a directory of the home that may be written: files that do not exist yet, and would run later.
#[test]
fn missing_shell_files_of_a_writable_home_cannot_be_made() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\"~/.config\", \"~/.local\"]}");
        place.write(place.home.join(".config/app"), "");
        place.write(place.home.join(".local/app"), "");
        let home = place.home.display();
        sandbox.holds(&[
            no(format!("mkdir {home}/.config/fish/conf.d")),
            no(format!("create {home}/.config/autostart/x.desktop")),
            no(format!("create {home}/.config/Code/User")),
            no(format!("mkdir {home}/.config/Code/User")),
            no(format!("create {home}/.local/bin/ls")),
            no(format!("mkdir {home}/.local/share/systemd")),
            yes(format!("create {home}/.config/plain.txt")),
        ]);
        assert!(!place.home.join(".config/fish").exists() && !place.home.join(".local/bin").exists());
    });
}

/// The policy in force for the next run.
#[test]
fn user_policy_cannot_be_made_from_inside() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy("agent: {filesystem: {write: [\".\", \"~/.config\"]}}\n");
        let policy = place.home.join(".config/agentsh/policy.yaml");
        let before = fs::read_to_string(&policy).unwrap();
        let script = "mkdir -p ~/.config/agentsh/servers && echo 'version: 1' > ~/.config/agentsh/policy.yaml; \
                      echo x > ~/.config/agentsh/servers/x.yaml; echo ran > ~/.config/made";
        Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "sh", "-c", script]));
        assert!(place.home.join(".config/made").exists());
        assert_eq!(fs::read_to_string(&policy).unwrap(), before, "{mode:?}");
        assert!(!place.home.join(".config/agentsh/servers").exists(), "{mode:?}");
    }
}
