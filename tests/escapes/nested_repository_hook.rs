//! A repository inside the project, such as a vendored library: its hooks run too.
//! Stopped by: every repository below a writable directory is found before the start.

use std::os::unix::fs::symlink;

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

/// The directory of submodules is a link: its target is not shown, and the link cannot be replaced.
#[test]
fn symlink_in_place_of_submodules_opens_nothing() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"]}");
        let secret = place.write(place.home.join("secret.txt"), "TOPSECRET");
        place.write(".git/HEAD", "ref: refs/heads/main\n");
        place.write(".git/config", "");
        place.write("inner/.git/HEAD", "ref: refs/heads/main\n");
        place.write("inner/.git/config", "");
        for (link, to) in [(".git/modules", &place.home), ("inner/.git/worktrees", &place.home)] {
            symlink(to, place.project.join(link)).unwrap();
            place.own(&place.project.join(link));
        }
        let (project, secret) = (place.project.display(), secret.display());
        sandbox.holds(&[
            no(format!("read {secret} TOPSECRET")),
            no(format!("append {secret}")),
            no(format!("remove {project}/.git/modules")),
            no(format!("rename {project}/.git/modules {project}/old")),
            no(format!("read {project}/.git/modules/secret.txt TOPSECRET")),
            yes(format!("create {project}/inner/.git/index")),
        ]);
        assert_eq!(std::fs::read_to_string(place.home.join("secret.txt")).unwrap(), "TOPSECRET");
    });
}

/// Repositories need not be a directory `.git` with everything in it.
#[test]
fn repositories_of_every_shape_are_guarded() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"]}");
        let bare = |path: &str| {
            for (name, content) in [("HEAD", "ref: refs/heads/main\n"), ("config", "[core]\n")] {
                place.write(format!("{path}/{name}"), content);
            }
            for name in ["objects", "refs", "hooks"] {
                place.make_directory(&place.project.join(path).join(name));
            }
        };
        // Working trees of a bare clone; a bare repository; one whose `.git` is a link.
        bare(".bare");
        place.write(".git", "gitdir: ./.bare\n");
        bare("mirror/one.git");
        bare("linked/real");
        symlink("real", place.project.join("linked/.git")).unwrap();
        place.own(&place.project.join("linked/.git"));
        // Hooks elsewhere, there and not there.
        place.write("tools/.git/HEAD", "ref: refs/heads/main\n");
        place.write("tools/.git/config", "[core]\n\thooksPath = .githooks\n");
        place.write("tools/.githooks/pre-commit", "");
        place.write("later/.git/HEAD", "ref: refs/heads/main\n");
        place.write("later/.git/config", "[core]\n\thookspath = \"scripts/hooks\"\n");
        let project = place.project.display();
        sandbox.holds(&[
            no(format!("append {project}/.bare/config")),
            no(format!("create {project}/.bare/hooks/pre-commit")),
            yes(format!("create {project}/.bare/index")),
            no(format!("append {project}/mirror/one.git/config")),
            no(format!("rename {project}/mirror/one.git {project}/mirror/two.git")),
            no(format!("create {project}/linked/.git/hooks/pre-commit")),
            no(format!("append {project}/linked/real/config")),
            no(format!("remove {project}/linked/.git")),
            no(format!("append {project}/tools/.githooks/pre-commit")),
            no(format!("create {project}/tools/.githooks/post-merge")),
            no(format!("create {project}/tools/.git/config.worktree")),
            no(format!("mkdir {project}/later/scripts/hooks")),
            no(format!("create {project}/later/scripts/hooks")),
            yes(format!("create {project}/later/file")),
        ]);
        assert!(!place.project.join("later/scripts").exists());
        assert!(!place.project.join("tools/.git/config.worktree").exists());
    });
}

/// The project itself is a bare repository.
#[test]
fn a_project_that_is_a_repository_keeps_its_other_guards() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"]}");
        place.write("HEAD", "ref: refs/heads/main\n");
        place.write("config", "[core]\n");
        for name in ["objects", "refs", "hooks"] {
            place.make_directory(&place.project.join(name));
        }
        place.write(".vscode/tasks.json", "{}");
        place.write(".mcp.json", "{}");
        let project = place.project.display();
        sandbox.holds(&[
            no(format!("append {project}/config")),
            no(format!("create {project}/hooks/pre-receive")),
            no(format!("append {project}/.vscode/tasks.json")),
            no(format!("append {project}/.mcp.json")),
            no(format!("rename {project}/refs {project}/away")),
            yes(format!("create {project}/objects/new")),
        ]);
    });
}

/// A file that names a repository may be written by anybody who can write there, so it opens nothing that is closed.
#[test]
fn git_file_pointer_makes_nothing_writable() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"]}");
        place.write(".git/HEAD", "ref: refs/heads/main\n");
        place.write(".git/config", "[core]\n");
        place.write(".git/hooks/x", "");
        place.write(".vscode/tasks.json", "{}");
        place.write(".husky/inner/.git/HEAD", "ref: refs/heads/main\n");
        place.write(".husky/inner/.git/description", "");
        for (name, to) in [("a", "../.git/hooks"), ("b", "../.vscode"), ("c", "../.git"), ("d", "../.husky")]
        {
            place.write(format!("{name}/.git"), format!("gitdir: {to}\n"));
        }
        let project = place.project.display();
        sandbox.holds(&[
            no(format!("append {project}/.git/hooks/x")),
            no(format!("create {project}/.git/hooks/pre-commit")),
            no(format!("append {project}/.git/config")),
            no(format!("append {project}/.vscode/tasks.json")),
            no(format!("create {project}/.vscode/settings.json")),
            no(format!("create {project}/.husky/pre-commit")),
            no(format!("append {project}/.husky/inner/.git/description")),
            yes(format!("create {project}/.git/index")),
        ]);
    });
}

/// The nearer of two grants decides, repositories or not.
#[test]
fn repository_below_a_read_only_grant_stays_read_only() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"], read: [\"./library\"]}");
        place.write("library/.git/HEAD", "ref: refs/heads/main\n");
        place.write("library/.git/config", "[core]\n");
        place.write("library/inner/.git/HEAD", "ref: refs/heads/main\n");
        place.write("pointer/.git", "gitdir: ../library\n");
        let project = place.project.display();
        sandbox.holds(&[
            no(format!("append {project}/library/.git/HEAD")),
            no(format!("append {project}/library/inner/.git/HEAD")),
            no(format!("create {project}/library/new")),
            yes(format!("create {project}/new")),
        ]);
    });
}

/// A file that only shows what a directory is may be moved away until the next start.
#[test]
fn repositories_are_recognised_without_files_that_can_be_moved_away() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"]}");
        place.write(".git/HEAD", "ref: refs/heads/main\n");
        place.write(".git/config", "[core]\n");
        place.write(".git/worktrees/tree/commondir", "../..\n");
        place.write(".git/worktrees/tree/gitdir", "/nonexistent/.git\n");
        place.write(".git/modules/one/config", "[core]\n");
        place.write(".git/modules/with/slash/config", "[core]\n");
        place.write("bare.git/config", "[core]\n");
        for name in ["objects", "refs", "hooks"] {
            place.make_directory(&place.project.join("bare.git").join(name));
        }
        let project = place.project.display();
        sandbox.holds(&[
            no(format!("append {project}/.git/worktrees/tree/commondir")),
            no(format!("append {project}/.git/modules/one/config")),
            no(format!("append {project}/.git/modules/with/slash/config")),
            no(format!("create {project}/.git/modules/with/slash/commondir")),
            no(format!("append {project}/bare.git/config")),
            no(format!("create {project}/bare.git/hooks/pre-receive")),
            no(format!("rename {project}/bare.git/refs {project}/bare.git/away")),
            no(format!("rename {project}/bare.git/objects {project}/bare.git/away")),
            yes(format!("create {project}/bare.git/objects/new")),
            yes(format!("create {project}/.git/modules/one/HEAD")),
        ]);
    });
}

/// Git takes a relative path of hooks from the working tree, and further configurations from wherever one says.
#[test]
fn hooks_and_configurations_that_a_configuration_names_are_read_only() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"]}");
        place.write(".git/HEAD", "ref: refs/heads/main\n");
        place.write(".git/config", "[include]\n\tpath = ../.gitshared\n");
        place.write(".gitshared", "[include] path = more/git.inc\n");
        place.write("more/git.inc", "[core] hooksPath = .incl\n");
        place.write(".incl/pre-commit", "");
        place.write("module/.git", "gitdir: ../.git/modules/module\n");
        place.write("module/.hooks/pre-commit", "");
        place.write(
            ".git/modules/module/config",
            "[core]\n\tworktree = ../../../module\n\thooksPath = .hooks\n",
        );
        // A linked working tree of a repository that lies elsewhere.
        let main = place.home.join("main/.git");
        place.write(main.join("config"), "[core]\nhooksPath = .linked\n");
        place.write(main.join("worktrees/tree/commondir"), "../..\n");
        place.write("tree/.git", format!("gitdir: {}\n", main.join("worktrees/tree").display()));
        place.write("tree/.linked/pre-commit", "");
        // The user's setting for every repository.
        place.write(place.home.join(".gitconfig"), "[core]\n\thooksPath = .everywhere\n");
        place.write("tree/.everywhere/pre-commit", "");
        let project = place.project.display();
        sandbox.holds(&[
            no(format!("append {project}/.gitshared")),
            no(format!("append {project}/more/git.inc")),
            no(format!("append {project}/.incl/pre-commit")),
            no(format!("append {project}/module/.hooks/pre-commit")),
            no(format!("append {project}/tree/.linked/pre-commit")),
            no(format!("append {project}/tree/.everywhere/pre-commit")),
            no(format!("mkdir {project}/.everywhere")),
            yes(format!("create {project}/more/file")),
            yes(format!("create {project}/tree/file")),
        ]);
    });
}
