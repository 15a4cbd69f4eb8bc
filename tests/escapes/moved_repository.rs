//! Nested repositories and submodules may be removed and moved inside: what is left, or takes their place, is not the user's.
//! Stopped by: working trees that a configuration names are no links, new working trees have no hooks of their own, and only what
//! was there before the run counts as nested.

use std::fs;
use std::path::Path;

use crate::day::has;
use crate::support::{Mode, Outcome, Place};

/// A place with a repository of one commit for each mode; none without git.
fn places(script: &str) -> Vec<(Mode, Place)> {
    let modes = if has("git") { Mode::all() } else { Vec::new() };
    let places = modes.into_iter().map(|mode| {
        let place = Place::new(mode);
        place.write(
            place.home.join(".gitconfig"),
            "[user]\n\tname = A\n\temail = a@b.example\n[protocol \"file\"]\n\tallow = always\n[init]\n\tdefaultBranch = main\n",
        );
        outside(
            &place,
            &format!("git init -q .; echo one >file; git add file; git commit -qm one; git branch b; {script}"),
        );
        (mode, place)
    });
    places.collect()
}

fn outside(place: &Place, script: &str) -> Outcome {
    Outcome::of(place.command("sh").args(["-ec", script])).expect_code(0)
}

fn inside(place: &Place, script: &str) -> Outcome {
    Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-ec", script])).expect_code(0)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Git of the host writes into the working tree that the configuration of a submodule names.
#[test]
fn working_tree_of_a_submodule_is_no_link_out_of_the_project() {
    for (mode, place) in places(
        "git init -q lib; echo owned >lib/own; git -C lib add own; git -C lib commit -qm lib; \
         for name in libs/one libs/two libs/three; do git submodule --quiet add \"$PWD/lib\" $name; done; git commit -qm subs; rm -rf lib",
    ) {
        let own = place.write(place.home.join("own"), "mine");
        let home = place.home.display();
        let outcome = inside(
            &place,
            &format!(
                "mv libs/one libs/else; ln -s {home} libs/one; ln -s ../file libs/link; \
                 mkdir libs/w; cp libs/two/.git libs/w; git config -f .git/modules/libs/two/config core.worktree ../../../../libs/w; \
                 rm -rf libs/w; ln -s {home} libs/w; git mv libs/three deep; git commit -qam moved; git -C deep status --short"
            ),
        );
        outside(
            &place,
            "for name in libs/else libs/two; do (cd $name; git reset -q --hard) || true; done; cd deep; git reset -q --hard",
        );
        assert_eq!(read(&own), "mine", "{mode:?} {outcome}");
        for link in ["libs/one", "libs/w"] {
            assert!(!place.project.join(link).is_symlink(), "{mode:?} {link} {outcome}");
        }
        assert!(place.project.join("libs/link").is_symlink(), "{mode:?} {outcome}");
        assert!(outcome.stderr.contains("names it as its working tree"), "{mode:?} {outcome}");
    }
}

/// The user's own relative `core.hooksPath` makes git look for hooks in every working tree of the repository.
#[test]
fn new_working_trees_of_a_known_repository_have_no_hooks_of_their_own() {
    for (mode, place) in places(
        "mkdir hk; printf '#!/bin/sh\\necho mine >>$HOME/ran\\n' >hk/post-checkout; chmod 755 hk/post-checkout; \
         git add hk; git commit -qm hk; git config core.hooksPath hk",
    ) {
        let outcome = inside(
            &place,
            "for name in x tree; do test $name = x || git worktree add -q tree; (mkdir -p $name/hk; \
             printf '#!/bin/sh\\necho evil >>$HOME/ran\\n' >$name/hk/post-checkout; chmod 755 $name/hk/post-checkout) || true; done; \
             echo 'gitdir: ../.git' >x/.git; git worktree add -q kept; git worktree add -q cut; \
             truncate -s 30 cut/hk/post-checkout",
        );
        outside(
            &place,
            "for name in x tree kept cut; do (cd $name; git checkout -q -b new-$name) || true; done",
        );
        assert_eq!(read(&place.home.join("ran")), "mine\n", "{mode:?} {outcome}");
        assert!(place.project.join("kept/hk/post-checkout").exists(), "{mode:?} {outcome}");
        // A cut hook is another program than the user's.
        assert!(!place.home.join("ra").exists(), "{mode:?} {outcome}");
    }
}

/// Guarded files stay where an agent makes a repository around them, and hooks that another repository names are not new ones.
#[test]
fn files_that_others_name_are_not_part_of_a_nested_repository() {
    for (mode, place) in places(
        "git init -q --bare shared.git; printf '#!/bin/sh\\necho mine >>$HOME/ran\\n' >shared.git/hooks/post-checkout; \
         chmod 755 shared.git/hooks/post-checkout; git config core.hooksPath shared.git/hooks; git init -q --bare other.git; \
         mkdir tools; echo mine >tools/env.sh; echo '. ~/project/tools/env.sh' >~/.bashrc",
    ) {
        let outcome = inside(
            &place,
            "rm -rf shared.git other.git; mkdir -p shared.git/hooks; \
             (printf '#!/bin/sh\\necho evil >>$HOME/ran\\n' >shared.git/hooks/post-checkout; chmod 755 shared.git/hooks/post-checkout) 2>/dev/null || true; \
             git init -q --bare other.git; git init -q tools; echo x >tools/x; git -C tools add x; sleep 3; \
             rm tools/env.sh 2>/dev/null || echo kept",
        );
        assert_eq!(outcome.stdout, "kept\n", "{mode:?} {outcome}");
        outside(&place, "git checkout -q b; git -C other.git rev-parse --git-dir");
        assert_eq!(read(&place.home.join("ran")), "", "{mode:?} {outcome}");
        assert_eq!(read(&place.project.join("tools/env.sh")), "mine\n", "{mode:?} {outcome}");
    }
}

/// A directory that git would search for hooks is guarded although it is missing: also where the one around it is removed and made
/// again, or becomes a link.
#[test]
fn missing_hooks_stay_guarded_when_the_directory_around_them_comes_back() {
    for (mode, place) in places(
        "git config core.hooksPath x/hooks; git init -q linked; git -C linked config core.hooksPath tools/hooks; \
         git init -q sub; git -C sub config core.hooksPath tools/hooks; \
         for name in x linked/tools sub/tools; do mkdir $name; touch $name/mine; done",
    ) {
        let outcome = inside(
            &place,
            "hook() { (mkdir -p $1; printf '#!/bin/sh\necho evil >>$HOME/ran\n' >$1/post-checkout; chmod 755 $1/post-checkout) 2>/dev/null || true; }; \
             rm -r x linked/tools sub/tools; hook x/hooks; hook sub/tools/hooks; hook linked/evil/hooks; ln -s evil linked/tools",
        );
        outside(
            &place,
            "git checkout -q -b c; for name in sub linked; do git -C $name commit -q --allow-empty -m 1; git -C $name checkout -q -b c; done",
        );
        assert_eq!(read(&place.home.join("ran")), "", "{mode:?} {outcome}");
    }
}

/// Git follows links to the hooks that the user's configuration names for every repository.
#[test]
fn hooks_of_a_new_repository_are_set_aside_behind_links() {
    for (mode, place) in places(
        "git config --global core.hooksPath tools/hk; git init -q old; \
         hook() { mkdir -p $1; printf '#!/bin/sh\necho mine >>$HOME/mine\n' >$1/post-checkout; chmod 755 $1/post-checkout; }; \
         hook e/hk; ln -s e tools; git add e tools; git commit -qm hooks",
    ) {
        let outcome = inside(
            &place,
            "hook() { (mkdir -p $1; printf '#!/bin/sh\necho evil >>$HOME/ran\n' >$1/post-checkout; chmod 755 $1/post-checkout) 2>/dev/null || true; }; \
             rm -rf old; git init -q old; hook old/tools/hk; git init -q above; hook above/e/hk; ln -s e above/tools; git init -q last; mkdir last/tools; hook last/e; ln -s ../e last/tools/hk; \
             git worktree add -q -f tree b2 2>/dev/null || git worktree add -q -b b2 tree; \
             git worktree add -q -b b3 evil; rm -r evil/e; hook evil/e/hk; git init -q twin; mkdir twin/d; ln -s d twin/docs; sleep 2",
        );
        outside(
            &place,
            "for name in above last old twin; do git -C $name commit -q --allow-empty -m 1; done; \
             for name in above last old tree evil; do git -C $name checkout -q -b c-$name; done",
        );
        assert_eq!(read(&place.home.join("ran")), "", "{mode:?} {outcome}");
        // The user's own hooks stay in a second working tree.
        assert!(place.project.join("tree/tools/hk/post-checkout").exists(), "{mode:?} {outcome}");
        assert!(place.project.join("twin/docs").is_symlink(), "{mode:?} {outcome}");
    }
}

/// What the user had is restored, and never what was made in its place; through no link.
#[test]
fn undo_restores_the_users_files_of_a_removed_repository() {
    for (mode, place) in places(
        "git init -q nested; echo mine >nested/.git/hooks/mine; ln -s ../../../file nested/.git/hooks/link; git init -q gone",
    ) {
        let outcome = inside(
            &place,
            "rm -rf nested gone; git init -q nested; echo evil >nested/.git/hooks/mine; chmod 755 nested/.git/hooks/mine; sleep 1",
        );
        let undo = |name: &str| {
            let path = place.project.join(name).display().to_string();
            Outcome::of(&mut place.agentsh(&["undo", &path]))
        };
        let hook = place.project.join("nested/.git/hooks/mine");
        for expected in ["mine\n", "", "mine\n"] {
            undo("nested/.git/hooks/mine").expect_code(0);
            assert_eq!(read(&hook), expected, "{mode:?} {outcome}");
        }
        undo("nested/.git/hooks/link").expect_code(0);
        assert_eq!(
            fs::read_link(place.project.join("nested/.git/hooks/link")).unwrap(),
            Path::new("../../../file"),
            "{mode:?} {outcome}"
        );
        std::os::unix::fs::symlink(&place.home, place.project.join("gone")).unwrap();
        assert_ne!(undo("gone/.git/config").code, 0, "{mode:?}");
        assert!(!place.home.join(".git").exists(), "{mode:?} {outcome}");
    }
}

/// A submodule and a working tree that were moved inside, and are guarded there, can be moved again.
#[test]
fn submodules_and_working_trees_move_twice() {
    for (mode, place) in places(
        "git init -q lib; git -C lib commit -q --allow-empty -m lib; git submodule --quiet add \"$PWD/lib\" libs/one; \
         git commit -qm subs; rm -rf lib",
    ) {
        let outcome = inside(
            &place,
            "git mv libs/one libs/uno; git worktree add -q tree; git worktree move tree wood; sleep 3; \
             git mv libs/uno libs/dos; git worktree move wood forest; git commit -qam moved; git submodule status",
        );
        assert!(outcome.stdout.contains(" libs/dos "), "{mode:?} {outcome}");
        let after = outside(
            &place,
            "git -C libs/dos log --format=%s; git -C forest status --short; git worktree list",
        );
        assert!(after.stdout.starts_with("lib\n"), "{mode:?} {after}");
        assert!(after.stdout.contains("/project/forest "), "{mode:?} {after}");
    }
}
