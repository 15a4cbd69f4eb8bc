//! A link inside the project that leads to a secret outside.
//! Stopped by: what a link names does not exist in the sandbox; the mount follows no link out of the tree.

use std::os::unix::fs::symlink;

use crate::support::{Mode, Outcome, Place, everywhere, no, yes};

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

/// A repository may have links on the way to files that run by themselves: git reads each as the link that it tracks, nobody
/// inside replaces it, and what it leads to is guarded.
#[test]
fn tracked_links_to_guarded_files_are_links_inside_that_stay() {
    const LINKS: [(&str, &str); 5] = [
        (".vscode", "vs"),
        (".envrc", "env/e"),
        (".github", "gh"),
        ("tools", "between"),
        ("between", "real"),
    ];
    const FILES: [&str; 4] = ["vs/tasks.json", "env/e", "gh/hooks/x.json", "real/hook.sh"];
    for mode in Mode::all() {
        let place = Place::new(mode);
        let project = place.project.clone();
        for file in FILES {
            place.write(file, "#!/bin/sh\n");
        }
        place.write("a", "one\n");
        for (link, to) in LINKS {
            symlink(to, project.join(link)).unwrap();
            place.own(&project.join(link));
        }
        let setup = "chmod +x real/hook.sh; git init -q -b main .; git config user.email a@b.example; git config user.name A; \
            git config alias.x '!tools/hook.sh'; git add -A; git commit -qm one";
        Outcome::of(place.command("sh").args(["-ec", setup])).expect_code(0);
        let work = "echo two >a; echo x >real/other.sh; git add -A; git commit -qam two; echo three >a; git stash -q; \
            git stash pop -q; git commit -qam three; git checkout -q HEAD~1; git checkout -q main; git status --porcelain; \
            for link in .vscode .envrc .github tools between; do readlink $link; done; cat tools/hook.sh .envrc";
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-ec", work])).expect_code(0);
        let expected = "vs\nenv/e\ngh\nbetween\nreal\n#!/bin/sh\n#!/bin/sh\n";
        assert_eq!(outcome.stdout, expected, "{mode:?} {outcome}");
        let attack = "for link in .vscode .envrc .github tools between; do rm -f $link; mv $link moved; \
            ln -sfn a $link; echo x >new; mv -fT new $link; done; for file in vs/tasks.json env/e gh/hooks/x.json real/hook.sh; do \
            echo evil >>$file; rm -f $file; mv $(dirname $file) moved; done; mkdir gh/hooks/more vs/more; echo evil >tools/hook.sh; true";
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", attack])).expect_code(0);
        for (link, to) in LINKS {
            let now = std::fs::read_link(project.join(link));
            assert_eq!(now.unwrap().to_str(), Some(to), "{mode:?} {link} {outcome}");
        }
        for file in FILES {
            let now = std::fs::read_to_string(project.join(file)).unwrap_or_default();
            assert_eq!(now, "#!/bin/sh\n", "{mode:?} {file} {outcome}");
        }
        assert!(!project.join("gh/hooks/more").exists() && !project.join("vs/more").exists(), "{mode:?}");
    }
}
