//! A repository inside the project, such as a vendored library: its hooks run too.
//! Stopped by: every repository below a writable directory is found before the start.

use crate::support::{everywhere, no, yes};

#[test]
fn hooks_of_inner_repositories_are_read_only() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"]}");
        place.write("vendor/library/.git/hooks/post-checkout", "");
        place.write("vendor/library/.git/config", "");
        place.write("vendor/library/src.c", "");
        place.write("a/b/c/d/.git/hooks/pre-push", "");
        // A submodule: the pointer names where the real directory is.
        place.write("module/.git", "gitdir: ../.git/modules/module\n");
        place.write(".git/HEAD", "ref: refs/heads/main\n");
        place.write(".git/hooks/x", "");
        place.write(".git/modules/module/hooks/pre-commit", "");
        place.write(".git/modules/module/config", "");
        let project = place.project.display();
        sandbox.holds(&[
            no(format!("append {project}/vendor/library/.git/hooks/post-checkout")),
            no(format!("append {project}/vendor/library/.git/config")),
            no(format!("rename {project}/vendor/library/.git {project}/vendor/library/old")),
            no(format!("append {project}/a/b/c/d/.git/hooks/pre-push")),
            no(format!("append {project}/module/.git")),
            yes(format!("append {project}/vendor/library/src.c")),
            yes(format!("create {project}/vendor/library/.git/index")),
        ]);
    });
}

#[test]
fn hooks_of_submodules_are_read_only() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"]}");
        place.write("module/.git", "gitdir: ../.git/modules/module\n");
        place.write(".git/HEAD", "ref: refs/heads/main\n");
        place.write(".git/config", "");
        place.write(".git/modules/module/HEAD", "ref: refs/heads/main\n");
        place.write(".git/modules/module/hooks/pre-commit", "");
        place.write(".git/modules/module/config", "");
        let project = place.project.display();
        sandbox.holds(&[
            no(format!("append {project}/.git/modules/module/hooks/pre-commit")),
            no(format!("append {project}/.git/modules/module/config")),
            yes(format!("append {project}/.git/modules/module/HEAD")),
        ]);
    });
}
