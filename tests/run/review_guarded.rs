//! `agentsh review --apply` without `--guarded` leaves out what a run on the project itself sets aside, and names what commits of
//! the run change.

use std::fs;

use crate::support::{Mode, Outcome, Place};

#[test]
fn files_that_a_run_sets_aside_are_applied_only_when_named() {
    let place = Place::new(Mode::Invoker);
    place.write(
        place.home.join(".bashrc"),
        format!(". {0}/rc.sh\n. {0}/named/rc.sh\n", place.project.display()),
    );
    place.write(".envrc", "source env.sh\n");
    place.write(".husky/pre-commit", "");
    place.write("tools/hk/other", "");
    place.write("named/rc.sh", "");
    place.write("doc/text", "");
    let bin = place.project.join("bin");
    place.set("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    place.write(
        place.home.join(".gitconfig"),
        "[user]\n\tname = A\n\temail = a@b\n[core]\n\tfsmonitor = own/monitor\n",
    );
    let setup = "git init -q; git config core.hooksPath tools/hk; git add .; git commit -qm 1";
    Outcome::of(place.command("sh").args(["-ec", setup])).expect_code(0);
    let script = "mkdir -p bin .git/info .git/refs/replace; echo x > bin/ls; echo x > bin/own; chmod +x bin/*; \
        echo x > rc.sh; echo x > env.sh; echo x > work; \
        mkdir evil; echo x > evil/rc.sh; rm -r named; ln -s evil named; ln -s doc docs; \
        git init -q new; mkdir -p new/own; echo x > new/own/monitor; echo x > new/own/text; mkdir -p own2/own; echo x > own2/own/monitor; \
        add() { git update-index --add --cacheinfo 100755,$(echo evil | git hash-object -w --stdin),$1; }; \
        add tools/hk/post-checkout; git branch feat $(git commit-tree -m 2 $(git write-tree)); git reset -q; \
        h=$(git rev-parse HEAD); f=$(git rev-parse feat); echo $h > .git/info/grafts; echo $f > .git/refs/replace/$h";
    let run = Outcome::of(&mut place.agentsh(&["run", "--quiet", "--review", "--", "sh", "-ec", script]));
    run.expect_code(0);
    Outcome::of(&mut place.agentsh(&["review", "--stat"]));
    let applied = Outcome::of(&mut place.agentsh(&["review", "--apply"]));
    let is_there = |name: &str| place.project.join(name).exists();
    for name in [
        "bin/own",
        "work",
        ".git/refs/heads/feat",
        "evil/rc.sh",
        "docs/text",
        "new/own/text",
        "own2/own/monitor",
    ] {
        assert!(is_there(name), "{name} {applied}");
    }
    for name in ["bin/ls", "rc.sh", "env.sh", ".git/info/grafts", "new/own/monitor"] {
        assert!(!is_there(name), "{name} {applied}");
    }
    assert!(!place.project.join("named").is_symlink(), "{applied}");
    assert_eq!(
        fs::read_dir(place.project.join(".git/refs/replace")).map_or(0, Iterator::count),
        0,
        "{applied}"
    );
    let told = "refs/heads/feat changes files that run automatically: tools/hk/post-checkout";
    assert!(applied.stderr.contains(told), "{applied}");
    Outcome::of(&mut place.agentsh(&["review", "--apply", "--guarded"]));
    assert!(is_there("bin/ls") && is_there("rc.sh"));
}
