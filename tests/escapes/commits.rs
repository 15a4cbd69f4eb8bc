//! A commit, the index or a stash that holds a file which runs automatically, though nobody could write it in the
//! working tree. Stopped by: nothing, since git writes it at the next checkout; it is reported at the end of the run.

use crate::support::{Mode, Outcome, Place};

/// Puts a file into the index without touching the working tree.
const ADD: &str =
    "add() { git update-index --add --cacheinfo 100755,$(echo evil | git hash-object -w --stdin),$1; }; ";

#[test]
fn commit_of_automatically_run_files_is_reported() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy("agent: {filesystem: {write: [\".\"]}}\n");
        place.write(place.home.join(".gitconfig"), "[user]\n\tname = A\n\temail = a@b\n");
        place.script(".husky/pre-commit", "#!/bin/sh\n");
        Outcome::of(place.command("sh").args([
            "-ec",
            "git init -q; git config core.hooksPath tools/hk; git add .; git commit -qm 1; git branch old",
        ]))
        .expect_code(0);
        let run = |script: &str| {
            let script = format!("set -e; {ADD} {script}");
            Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", &script])).expect_code(0)
        };
        let honest =
            run("echo 1 > a; git add a; git commit -qm 2; git checkout -q -b more; git tag t; git status");
        assert!(!honest.stderr.contains("run automatically"), "{mode:?} {honest}");
        let cases = [
            ("add sub/.vscode/tasks.json; git stash -q", "refs/stash", "sub/.vscode/tasks.json"),
            (
                "add .envrc; git branch feat $(git commit-tree -m 4 $(git write-tree)); git reset -q",
                "refs/heads/feat",
                ".envrc",
            ),
            (
                "add tools/hk/post-checkout; git branch hook $(git commit-tree -m 5 $(git write-tree)); git reset -q",
                "refs/heads/hook",
                "tools/hk/post-checkout",
            ),
            (
                "for i in $(seq 1100); do echo $(git rev-parse HEAD) > .git/refs/heads/n$i; done; add .envrc; \
                 git branch zzz $(git commit-tree -m 6 $(git write-tree)); git reset -q",
                "refs/heads/zzz",
                ".envrc",
            ),
            (
                "u=$(add .envrc; git commit-tree -m u $(git write-tree)); git reset -q; \
                 i=$(git commit-tree -m i HEAD^{tree}); \
                 git update-ref refs/stash $(git commit-tree -m s -p HEAD -p $i -p $u HEAD^{tree})",
                "refs/stash",
                ".envrc",
            ),
            ("add d/HEAD; add d/config", "the index", "d/HEAD"),
            ("add .husky/pre-commit; git commit -qnm 3", "HEAD", ".husky/pre-commit"),
        ];
        for (script, name, file) in cases {
            let outcome = run(script);
            let told = format!("{name} changes files that run automatically: {file}");
            assert!(outcome.stderr.contains(&told), "{mode:?} {told} {outcome}");
        }
    }
}
