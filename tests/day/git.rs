//! Git, as its users use it.

use std::path::Path;

use super::has;
use crate::support::{Mode, Outcome, Place};

const MINE: &str = "[user]\n\tname = Ada Example\n\temail = ada@example.org\n[alias]\n\tst = status --short\n\
                    \tevil = !touch stolen\n[core]\n\teditor = false\n\thooksPath = ~/hooks\n[init]\n\tdefaultBranch = trunk\n\
                    [credential]\n\thelper = store\n[commit]\n\tgpgSign = true\n[includeIf \"gitdir:~/project/\"]\n\
                    \tpath = work.inc\n";

/// A repository with one commit, made outside.
fn repository(place: &Place) {
    place.write(place.home.join(".gitconfig"), MINE);
    place.write(place.home.join("work.inc"), "[user]\n\temail = ada@work.example\n");
    outside(
        place,
        "git init -q -b main . && echo one > file && git add file && git -c commit.gpgSign=false commit -qm one",
    );
}

fn outside(place: &Place, script: &str) -> Outcome {
    Outcome::of(place.command("sh").args(["-ec", script])).expect_code(0)
}

fn inside(place: &Place, directory: &Path, script: &str) -> Outcome {
    let words = ["run", "--quiet", "--", "sh", "-c", script];
    Outcome::of(place.agentsh(&words).current_dir(directory))
}

#[test]
fn a_commit_has_the_name_of_its_user() {
    if !has("git") {
        return;
    }
    for mode in Mode::all() {
        let place = Place::new(mode);
        repository(&place);
        let script = "set -e; echo two > file; git commit -qam two; git log -1 --format='%an %ae'; git st; \
                      git evil 2>/dev/null && echo aliased; git config credential.helper || git config core.hooksPath || true";
        let outcome = inside(&place, &place.project, script).expect_code(0);
        assert_eq!(outcome.stdout, "Ada Example ada@work.example\n", "{outcome}");
        assert!(!place.project.join("stolen").exists());
        let log = outside(&place, "git log -1 --format=%an");
        assert_eq!(log.stdout, "Ada Example\n");
    }
}

#[test]
fn started_below_the_top_the_whole_repository_is_there() {
    if !has("git") {
        return;
    }
    for mode in Mode::all() {
        let place = Place::new(mode);
        repository(&place);
        let below = place.project.join("src/deep");
        place.make_directory(&below);
        let script = "set -e; pwd; cat ../../file; echo new > made; git add made; git commit -qm made; \
                      git -C ../.. status --short";
        let outcome = inside(&place, &below, script).expect_code(0);
        assert_eq!(outcome.stdout, format!("{}\none\n", below.display()), "{outcome}");
        assert_eq!(outside(&place, "git show HEAD:src/deep/made").stdout, "new\n");
        // What is guarded is guarded from there as well.
        let refused = inside(&place, &below, "echo x > ../../.git/hooks/pre-commit");
        assert_ne!(refused.code, 0, "{refused}");
        assert!(!place.project.join(".git/hooks/pre-commit").exists());
    }
}

/// A repository of somebody else further up gives nobody more than he asked for, and the home is never a project.
#[test]
fn a_repository_around_the_home_is_not_the_project() {
    if !has("git") {
        return;
    }
    for mode in Mode::all() {
        let place = Place::new(mode);
        let script = format!("cd {} && git init -q .", place.home.display());
        outside(&place, &script);
        place.write(place.home.join("letter"), "dear");
        place.write("here", "yes");
        let outcome = inside(&place, &place.project, "cat here; cat ../letter");
        assert_eq!(outcome.stdout, "yes", "{outcome}");
    }
}
