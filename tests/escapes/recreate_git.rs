//! Instead of writing a hook: move the whole `.git` away, and make a new one.
//! Stopped by: `.git` is a mount point of its own, which can be neither moved nor removed.

use crate::support::{everywhere, known_failing, no, yes};

#[test]
fn the_directory_cannot_be_replaced() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"]}");
        place.write(".git/HEAD", "ref: refs/heads/main\n");
        place.write(".git/config", "[core]\n");
        place.write(".git/hooks/pre-commit", "");
        place.write("other/HEAD", "");
        place.write("plain/file", "");
        let project = place.project.display();
        sandbox.holds(&[
            no(format!("rename {project}/.git {project}/old")),
            no(format!("exchange {project}/.git {project}/other")),
            no(format!("rename {project}/other {project}/.git")),
            no(format!("remove-tree {project}/.git/hooks")),
            yes(format!("rename {project}/plain {project}/moved")),
            yes(format!("exchange {project}/moved {project}/other")),
        ]);
        assert!(place.project.join(".git/hooks/pre-commit").exists());
    });
}

/// A repository may say that its configuration stands somewhere else, where it can be written.
#[test]
fn git_is_not_sent_elsewhere_for_its_configuration() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"]}");
        place.write(".git/HEAD", "ref: refs/heads/main\n");
        place.write(".git/config", "[core]\n");
        place.write(".git/hooks/pre-commit", "");
        let project = place.project.display();
        sandbox.holds(&[
            no(format!("create {project}/.git/commondir")),
            no(format!("append {project}/.git/commondir x")),
            yes(format!("create {project}/.git/index")),
        ]);
        assert!(!place.project.join(".git/commondir").exists());
    });
}

#[test]
fn a_repository_without_hooks_gets_none() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"]}");
        place.write(".git/HEAD", "ref: refs/heads/main\n");
        place.write(".git/config", "[core]\n");
        let project = place.project.display();
        let answers = sandbox.answers(&[
            &format!("mkdir {project}/.git/hooks"),
            &format!("create {project}/.git/hooks/pre-commit"),
            &format!("mkdir {project}/.git/objects"),
        ]);
        assert_ne!(answers[1], "DONE", "{:?} {:?}", place.mode, sandbox.kind);
        assert_eq!(answers[2], "DONE");
        assert!(!place.project.join(".git/hooks/pre-commit").exists());
    });
}

/// A directory that becomes a repository during the run: nobody could know it before.
#[test]
fn a_new_repository_brings_no_hooks() {
    known_failing("what becomes a repository during the run is not guarded", || {
        everywhere(|sandbox| {
            let place = &sandbox.place;
            sandbox.policy("filesystem: {write: [\".\"]}");
            let project = place.project.display();
            sandbox.holds(&[
                yes(format!("mkdir {project}/new")),
                yes(format!("mkdir {project}/new/.git")),
                yes(format!("mkdir {project}/new/.git/hooks")),
                no(format!("create {project}/new/.git/hooks/post-checkout")),
            ]);
        });
    });
}
