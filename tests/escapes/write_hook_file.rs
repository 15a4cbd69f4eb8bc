//! Files that somebody else runs later: git hooks, editor tasks, agent settings.
//! Stopped by: read-only mounts inside the writable project.

use std::fs;

use crate::support::{everywhere, no, yes};

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
fn existing_ones_stay_as_they_are() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"]}");
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

#[test]
fn shell_files_of_a_writable_home_too() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\"~\"]}");
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
