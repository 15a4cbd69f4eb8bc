//! A link inside the project that leads to a secret outside.
//! Stopped by: what a link names does not exist in the sandbox; the mount follows no link out of the tree.

use std::os::unix::fs::symlink;

use crate::support::{everywhere, no, yes};

#[test]
fn symlinks_do_not_lead_out_of_the_project() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"], guard: all}");
        let secret = place.write(place.home.join("secret.txt"), "TOPSECRET");
        place.write("plain.txt", "PLAIN");
        symlink(&secret, place.project.join("out")).unwrap();
        symlink("../secret.txt", place.project.join("out-relative")).unwrap();
        symlink(&place.home, place.project.join("home")).unwrap();
        symlink("plain.txt", place.project.join("in")).unwrap();
        for link in ["out", "out-relative", "home", "in"] {
            place.own(&place.project.join(link));
        }
        let (project, secret) = (place.project.display(), secret.display());
        sandbox.holds(&[
            no(format!("read {project}/out TOPSECRET")),
            no(format!("read {project}/out-relative TOPSECRET")),
            no(format!("read {project}/home/secret.txt TOPSECRET")),
            no(format!("append {project}/out")),
            no(format!("link {secret} {project}/hard")),
            yes(format!("symlink {secret} {project}/new")),
            no(format!("read {project}/new TOPSECRET")),
            no(format!("read /proc/1/root{secret} TOPSECRET")),
            no("read /proc/self/cwd/../secret.txt TOPSECRET"),
            yes(format!("read {project}/in PLAIN")),
        ]);
        assert_eq!(place.outside(&[&format!("read {project}/out TOPSECRET")]), ["DONE"]);
    });
}

/// A hook directory that is a link: neither followed nor replaced.
#[test]
fn hook_directory_that_is_a_symlink_is_guarded() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"], guard: all}");
        place.write("hooks/pre-commit", "");
        place.write(".git/HEAD", "");
        place.write(".git/config", "");
        symlink("../hooks", place.project.join(".git/hooks")).unwrap();
        place.own(&place.project.join(".git/hooks"));
        let project = place.project.display();
        sandbox.holds(&[
            no(format!("create {project}/.git/hooks/post-checkout")),
            no(format!("remove {project}/.git/hooks")),
            no(format!("rename {project}/.git/hooks {project}/.git/old")),
            yes(format!("create {project}/hooks-notes")),
        ]);
    });
}

/// Instructions that are a link to another file of the project stay readable.
#[test]
fn guarded_symlink_inside_the_project_stays_readable() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"], guard: all}");
        place.write("AGENTS.md", "PLAIN");
        symlink("AGENTS.md", place.project.join("CLAUDE.md")).unwrap();
        place.own(&place.project.join("CLAUDE.md"));
        let project = place.project.display();
        sandbox.holds(&[
            yes(format!("read {project}/CLAUDE.md PLAIN")),
            no(format!("append {project}/CLAUDE.md")),
            no(format!("remove {project}/CLAUDE.md")),
            no(format!("append {project}/AGENTS.md")),
        ]);
    });
}
