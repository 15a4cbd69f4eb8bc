//! Files that are guarded by name, and how programs inside want to change them: git's configuration may get settings
//! that run nothing.

use std::fs;

use super::has;
use crate::support::{Mode, Outcome, Place, skip};

const SETUP: &str = "git init -q -b main .; git config user.email a@b.example; git config user.name A; git config core.editor vi; \
    echo one > file; git add file; git commit -qm one; git clone -q --bare . inner.git; git clone -q --bare . lib.git; \
    printf 'inner.git\\nlib.git\\n' > .git/info/exclude; git remote add inner \"$PWD/inner.git\"";

fn sh(place: &Place, script: &str) -> Outcome {
    Outcome::of(place.command("sh").args(["-ec", script])).expect_code(0)
}

fn inside(place: &Place, options: &[&str], script: &str) -> Outcome {
    let words = [&["run"], options, &["--", "sh", "-c", script]].concat();
    Outcome::of(&mut place.agentsh(&words))
}

fn config(place: &Place) -> String {
    fs::read_to_string(place.project.join(".git/config")).unwrap()
}

#[test]
fn git_config_settings_that_run_nothing_are_written() {
    if !has("git") {
        return skip("git is not installed");
    }
    for mode in Mode::all() {
        let place = Place::new(mode);
        sh(&place, SETUP);
        let before = config(&place);
        let script = "set -e; git config user.name X; git remote add up https://github.com/a/b.git; \
            git config gc.auto 0; git config index.version 4; git checkout -qb new; git push -qu inner new; git branch -m new newer; git config --unset user.email; \
            git -c protocol.file.allow=always submodule --quiet add \"$PWD/lib.git\" lib; \
            git config user.name; git status --porcelain; test ! -e .git/config.lock; \
            if ( echo '[core]' >> .git/config ) 2>/dev/null; then echo open; fi; cat .git/config";
        let outcome = inside(&place, &["--quiet"], script).expect_code(0);
        let now = config(&place);
        assert_eq!(outcome.stdout, format!("X\nA  .gitmodules\nA  lib\n{now}"), "{mode:?}: {outcome}");
        assert!(now.contains("editor = vi") && now.contains("inner.git"), "{now}");
        let asked = "git config user.name; git config remote.up.url; git config branch.newer.remote; \
            git config branch.newer.merge; git config submodule.lib.active; git config user.email || echo none";
        let said = sh(&place, asked).stdout;
        assert_eq!(said, "X\nhttps://github.com/a/b.git\ninner\nrefs/heads/new\ntrue\nnone\n", "{mode:?}");
        let written: Vec<_> = place.events("guard_changed");
        let written: Vec<_> = written.iter().filter(|event| event["what"] == "written").collect();
        assert!(written.len() >= 6, "{mode:?}: {written:?}");
        assert!(written[0]["detail"].as_str().unwrap().contains("user.name = X"), "{}", written[0]);
        // Whose it was it is, and all of it can be taken back.
        let owner =
            |path: &str| std::os::unix::fs::MetadataExt::uid(&place.project.join(path).metadata().unwrap());
        assert_eq!(owner(".git/config"), owner(".git/HEAD"));
        let path = place.project.join(".git/config").display().to_string();
        Outcome::of(&mut place.agentsh(&["undo", &path])).expect_code(0);
        assert_eq!(config(&place), before);
    }
}

/// Each with the expected message.
const REFUSED: &[(&str, &str)] = &[
    ("git config core.hooksPath h", "core.hookspath = h"),
    ("git config core.fsmonitor ./m", "core.fsmonitor = ./m"),
    ("git config core.sshCommand x", "core.sshcommand = x"),
    ("git config --unset core.editor", "no core.editor = vi"),
    ("git config alias.x '!touch stolen'", "alias.x = !touch stolen"),
    ("git config filter.f.clean x", "filter.f.clean = x"),
    ("git config include.path ../x", "include.path = ../x"),
    ("git config url.ext::sh.insteadOf https://github.com/", "url.ext::sh.insteadof = https://github.com/"),
    ("git remote add e 'ext::sh -c x'", "remote.e.url = ext::sh -c x"),
    ("git config branch.main.remote 'ext::sh -c x'", "branch.main.remote = ext::sh -c x"),
    (
        "printf '[user]\\nname = a\\\\\\n[core]\\nhooksPath = x\\n' > .git/config.lock; mv .git/config.lock .git/config",
        "git itself would not write",
    ),
    ("cp .git/config .git/x; echo '[user]' >> .git/x; mv .git/x .git/config", "only changes by git itself"),
    (
        "echo x > bin/HEAD; printf '[user]\\nname = `x`\\n' > bin/config.lock; mv bin/config.lock bin/config",
        "",
    ),
];

/// `git init` changes no setting of a configuration that it may not change; an explicit change of a setting does.
#[test]
fn git_init_in_a_repository_changes_no_setting() {
    if !has("git") {
        return skip("git is not installed");
    }
    for mode in Mode::all() {
        let place = Place::new(mode);
        sh(&place, SETUP);
        let before = config(&place);
        inside(&place, &["--quiet"], "git init -q && git init -q && test ! -e .git/config.lock")
            .expect_code(0);
        assert_eq!(config(&place), before, "{mode:?}");
        inside(&place, &["--quiet"], "git config core.fileMode false").expect_code(0);
        assert_eq!(sh(&place, "git config core.filemode").stdout, "false\n", "{mode:?}");
        // Another spelling of a value is a setting, too.
        inside(&place, &["--quiet"], "git config user.name Ada && git config user.name ADA").expect_code(0);
        assert_eq!(sh(&place, "git config user.name").stdout, "ADA\n", "{mode:?}");
        // A new branch knows where it comes from, if the user did not say otherwise.
        sh(&place, "git fetch -q inner");
        inside(&place, &["--quiet"], "git switch -qc y inner/main").expect_code(0);
        assert_eq!(sh(&place, "git rev-parse --abbrev-ref y@{u}").stdout, "inner/main\n", "{mode:?}");
        sh(&place, "git config --global branch.autoSetupMerge false");
        inside(&place, &["--quiet"], "git switch -qc z inner/main").expect_code(0);
        assert_eq!(sh(&place, "git config branch.z.remote || echo none").stdout, "none\n", "{mode:?}");
    }
}

#[test]
#[ignore = "takes long"]
fn git_config_settings_that_run_programs_are_refused() {
    if !has("git") {
        return skip("git is not installed");
    }
    for mode in Mode::all() {
        let place = Place::new(mode);
        sh(&place, SETUP);
        place.write("bin/config", "#!/bin/sh\nexit 1\n");
        place.write("bin/HEAD", "ref: refs/heads/main\n");
        sh(&place, "git config core.fsmonitor bin/config; chmod +x bin/config");
        let before = config(&place);
        for (command, words) in REFUSED {
            let script = format!("{command}; code=$?; rm -f .git/config.lock; exit $code");
            let outcome = inside(&place, &[], &script);
            assert!(
                outcome.code != 0 && outcome.stderr.contains("Permission denied"),
                "{command}: {outcome}"
            );
            assert!(
                outcome.stderr.contains(words)
                    && outcome.stderr.contains("refused to change")
                    && outcome.stderr.contains("by built-in (read-only:")
                    || words.is_empty(),
                "{mode:?} {command}: {outcome}"
            );
            assert_eq!(config(&place), before, "{mode:?} {command}");
        }
        assert_eq!(fs::read_to_string(place.project.join("bin/config")).unwrap(), "#!/bin/sh\nexit 1\n");
        let refused = place.events("guard_changed");
        assert!(refused.iter().filter(|event| event["what"] == "refused").count() >= 12, "{refused:?}");
        // The twin: where the policy lifts the guard.
        place.user_policy("agent: {filesystem: {unmask: [\".git/config\"]}}\n");
        inside(&place, &[], "git config core.hooksPath h").expect_code(0);
        assert!(config(&place).contains("hooksPath = h"));
    }
}

#[test]
fn only_repositories_lose_their_hooks() {
    if !has("git") {
        return skip("git is not installed");
    }
    for mode in Mode::all() {
        let place = Place::new(mode);
        sh(
            &place,
            &format!(
                "{SETUP}; mkdir -p src/hooks; echo one > src/hooks/use.ts; printf '[a]\\nb = c\\n' > src/config"
            ),
        );
        let script = "mkdir src/refs; echo x > src/HEAD; \
            mkdir -p made/refs made/hooks; echo x > made/hooks/update; echo x > made/HEAD; sleep 1; mkdir made/objects; \
            n=0; while test -e made/hooks/update; do n=$((n+1)); test $n -lt 100; sleep 0.1; done; \
            cat src/hooks/use.ts src/config";
        let outcome = inside(&place, &["--quiet"], script).expect_code(0);
        assert_eq!(outcome.stdout, "one\n[a]\nb = c\n", "{mode:?}: {outcome}");
        let kept = sh(&place, "cat src/hooks/use.ts src/config; ls made/hooks").stdout;
        assert_eq!(kept, "one\n[a]\nb = c\n", "{mode:?}");
    }
}

/// git makes a repository in steps. None of them meets a guard that came for another repository, and at the end it comes.
#[test]
fn a_repository_is_not_guarded_while_git_makes_it() {
    if !has("git") {
        return skip("git is not installed");
    }
    for mode in Mode::all() {
        let place = Place::new(mode);
        sh(&place, SETUP);
        let script = "set -e; git init -q first; echo x >first/f; git -C first add f; sleep 1; \
            m=.git/modules/x; mkdir -p $m/objects $m/refs $m/hooks lib; echo 'ref: refs/heads/main' >$m/HEAD; \
            printf '[core]\\n\\tbare = false\\n' >$m/config; echo 'gitdir: ../.git/modules/x' >lib/.git; \
            mkdir .git/modules/y; echo '[core]' >.git/modules/y/config; \
            for n in 1 2 3 4 5 6 7 8; do sleep 0.3; echo >$m/hooks/$n.sample; done; \
            echo '[core]' >.git/modules/y/config; echo 'gitdir: ../.git/modules/x' >lib/.git; : >$m/index; n=0; \
            while (echo >$m/hooks/more.sample || echo >lib/.git) 2>/dev/null; do n=$((n+1)); test $n -lt 100; sleep 0.1; done; \
            echo guarded";
        let outcome = inside(&place, &[], script).expect_code(0);
        assert_eq!(outcome.stdout, "guarded\n", "{mode:?}: {outcome}");
        // Changes by git or the session are not reported.
        assert!(!outcome.stderr.contains("changed during the run"), "{mode:?}: {outcome}");
    }
}

/// A file `commondir`, which reserves the name in other repositories, would make git wait for a lock of its own.
#[test]
fn reftable_repository_works_and_is_guarded() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        if Outcome::of(place.command("git").args(["init", "-q", "--ref-format=reftable", "."])).code != 0 {
            return skip("this git knows no reftables");
        }
        sh(
            &place,
            "git config user.email a@b.example; git config user.name A; echo 0 >f; git add f; git commit -qm 0",
        );
        let script = "set -e; for n in 1 2 3; do echo $n >f; git commit -qam $n; done; git switch -qc new; \
            git branch -m newer; git tag t; git worktree add -q w; git worktree remove w; git log --oneline | wc -l; \
            if git config core.hooksPath h 2>/dev/null; then echo open; fi; \
            if (echo x >.git/hooks/pre-commit) 2>/dev/null; then echo open; fi; \
            echo ../away >.git/commondir; n=0; \
            while test -e .git/commondir; do n=$((n+1)); test $n -lt 100; sleep 0.1; done; git log -1 --format=%s";
        let outcome = inside(&place, &[], script).expect_code(0);
        assert_eq!(outcome.stdout, "4\n3\n", "{mode:?}: {outcome}");
        let told = ".git/commondir was created during the run and set aside (it redirects git";
        assert!(outcome.stderr.contains(told), "{mode:?}: {outcome}");
        assert_eq!(
            sh(&place, "git log -1 --format=%s newer; git status --porcelain").stdout,
            "3\n",
            "{mode:?}"
        );
    }
}

/// Whoever moves such a directory up later has no repository there that runs something.
#[test]
fn repositories_too_deep_for_a_path_are_disarmed() {
    if !has("git") || !has("python3") {
        return skip("git or python3 is not installed");
    }
    let deep = "import os\n\
        for at in range(400):\n    os.mkdir('a-directory-in-a-directory'); os.chdir('a-directory-in-a-directory')\n\
        os.makedirs('.git/hooks'); os.mkdir('.git/objects'); os.mkdir('.git/refs')\n\
        open('.git/HEAD', 'w').write('ref: refs/heads/main\\n'); open('.git/config', 'w').write('[core]\\n\\tfsmonitor = evil\\n')\n";
    let look = "import os\n\
        while os.path.isdir('a-directory-in-a-directory'): os.chdir('a-directory-in-a-directory')\n\
        print(sorted(name.split('.set')[0] for name in os.listdir('.')), os.path.exists('.git'))\n";
    for mode in Mode::all() {
        let place = Place::new(mode);
        sh(&place, SETUP);
        std::fs::write(place.project.join("deep.py"), deep).unwrap();
        let outcome = inside(&place, &[], "python3 deep.py").expect_code(0);
        assert!(outcome.stderr.contains("it was renamed so that"), "{mode:?}: {outcome}");
        let found = Outcome::of(place.command("python3").args(["-c", look]).current_dir(&place.project));
        assert_eq!(found.stdout, "['.git'] False\n", "{mode:?}: {found}");
    }
}

/// A directory that holds a repository is moved as any other; its guards move with it, and what is made in its place is new.
#[test]
fn directory_that_contains_a_repository_can_be_moved() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write("lib/file", "");
        let git = |words: &[&str]| {
            let mut git = place.command("git");
            git.args(["-C", "lib", "-c", "user.name=a", "-c", "user.email=a@b"]).args(words);
            assert!(git.status().unwrap().success(), "{words:?}");
        };
        git(&["init", "-q"]);
        let hook = place.script("lib/.git/hooks/post-commit", "#!/bin/sh\nexit 0\n");
        git(&["add", "."]);
        git(&["commit", "-qm", "x"]);
        let hook = hook.strip_prefix(place.project.join("lib")).unwrap().to_owned();
        let script = "mkdir -p deep/er && mv lib deep/er/lib2 && cd deep/er/lib2 && git status --short; sleep 0.3; \
                      for path in .git/hooks/post-commit .git/config; do echo evil >>$path && echo written; done; \
                      echo x >new && git add new && git -c user.name=a -c user.email=a@b commit -qm y && git log --oneline | wc -l; \
                      cd ../../..; git init -q lib && echo evil >lib/.git/hooks/post-commit; mv deep back; ls back/er/lib2";
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", script])).expect_code(0);
        assert_eq!(outcome.stdout.split_whitespace().collect::<Vec<_>>(), ["2", "file", "new"], "{outcome}");
        let moved = place.project.join("back/er/lib2");
        assert_eq!(std::fs::read_to_string(moved.join(&hook)).unwrap(), "#!/bin/sh\nexit 0\n", "{outcome}");
        assert!(!std::fs::read_to_string(moved.join(".git/config")).unwrap().contains("evil"), "{outcome}");
        assert!(!place.project.join("lib").join(&hook).exists(), "{outcome}");
    }
}

/// After a moment it is guarded as those are that were there before.
#[test]
fn the_configuration_of_a_repository_made_inside_may_be_changed() {
    if !has("git") {
        return skip("git is not installed");
    }
    for mode in Mode::all() {
        let place = Place::new(mode);
        sh(
            &place,
            "git init -q -b main .; git config user.email a@b.example; git config user.name A; echo 1 > f; git add f; git commit -qm f",
        );
        let script = "set -e; git clone -q . cl; sleep 3; cd cl; git config log.date iso; git remote add up ../x; \
            git checkout -qb g; git branch -m h; git push -qu origin HEAD:other; git config alias.st 'status -sb'; \
            git config branch.h.merge; if git config core.fsmonitor ./x 2>/dev/null; then echo open; fi";
        let outcome = inside(&place, &["--quiet"], script).expect_code(0);
        assert_eq!(outcome.stdout, "refs/heads/other\n", "{mode:?}: {outcome}");
        let said =
            sh(&place, "cd cl; git config log.date; git config remote.up.url; git config alias.st").stdout;
        assert_eq!(said, "iso\n../x\nstatus -sb\n", "{mode:?}");
    }
}

#[test]
fn a_sparse_checkout_is_set_inside() {
    if !has("git") {
        return skip("git is not installed");
    }
    for mode in Mode::all() {
        let place = Place::new(mode);
        sh(
            &place,
            "git init -q -b main .; git config user.email a@b.example; git config user.name A; mkdir d e; echo 1 > d/f; echo 1 > e/f; sleep 1.1; git add .; git commit -qm f",
        );
        let outcome = inside(&place, &["--quiet"], "git status --short && git sparse-checkout set d && ls")
            .expect_code(0);
        assert_eq!(outcome.stdout, "d\n", "{mode:?}: {outcome}");
        assert_eq!(sh(&place, "git sparse-checkout list; ls").stdout, "d\nd\n", "{mode:?}");
    }
}

/// A mount point cannot be renamed from inside, which the kernel says as EBUSY.
#[test]
fn rename_of_a_guarded_repository_is_reported() {
    if !has("git") {
        return skip("git is not installed");
    }
    for mode in Mode::all() {
        let place = Place::new(mode);
        sh(&place, "git init -q .");
        let outcome = inside(&place, &[], "mkdir src; mv src src2 && mv .git .git2");
        assert!(outcome.code != 0 && place.project.join("src2").exists(), "{mode:?} {outcome}");
        assert!(outcome.stderr.contains("refused to change .git: "), "{mode:?} {outcome}");
        assert_eq!(outcome.stderr.matches("refused to change").count(), 1, "{mode:?} {outcome}");
    }
}
