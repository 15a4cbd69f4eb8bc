//! Git, as its users use it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::has;
use crate::support::{Mode, Outcome, Place};

const MINE: &str = "[user]\n\tname = Ada Example\n\temail = ada@example.org\n[alias]\n\tst = status --short\n\
                    \tevil = !touch stolen\n[core]\n\teditor = false\n\thooksPath = ~/hooks\n[init]\n\tdefaultBranch = trunk\n\
                    [credential]\n\thelper = store\n[commit]\n\tgpgSign = true\n[includeIf \"gitdir:~/project/\"]\n\
                    \tpath = work.inc\n";

/// A place with a repository for each mode; none without git.
fn repositories() -> impl Iterator<Item = (Mode, Place)> {
    let modes = if has("git") { Mode::all() } else { Vec::new() };
    modes.into_iter().map(|mode| {
        let place = Place::new(mode);
        repository(&place);
        (mode, place)
    })
}

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
    for (_, place) in repositories() {
        let script = "set -e; echo two > file; git commit -qam two; git log -1 --format='%an %ae'; git st; \
                      git evil 2>/dev/null && echo aliased; git config credential.helper || git config core.editor || true; git config core.hooksPath";
        let outcome = inside(&place, &place.project, script).expect_code(0);
        assert_eq!(outcome.stdout, "Ada Example ada@work.example\n~/hooks\n", "{outcome}");
        assert!(!place.project.join("stolen").exists());
        let log = outside(&place, "git log -1 --format=%an");
        assert_eq!(log.stdout, "Ada Example\n");
    }
}

/// Stubs are ignored besides them.
#[test]
fn files_that_the_user_has_git_ignore_are_ignored_inside() {
    for (_, place) in repositories() {
        place.write(place.home.join(".config/git/ignore"), "*.log");
        // A stub is made for what the user has.
        std::fs::create_dir_all(place.home.join(".claude")).unwrap();
        place.write(place.project.join("a.log"), "x");
        let outcome = inside(&place, &place.project, "git status --short; ls -A").expect_code(0);
        assert!(!outcome.stdout.contains("?? ") && outcome.stdout.contains(".claude"), "{outcome}");
    }
}

/// cargo makes no repository in one that libgit2 sees.
#[test]
fn libgit2_sees_the_repository() {
    for (mode, place) in repositories() {
        super::use_tools(&place);
        let words = "command -v cargo >/dev/null || exit 9; cargo new -q --lib made; test -e made/Cargo.toml && test ! -e made/.git";
        let outcome = inside(&place, &place.project, words);
        // An ordinary user may not read the toolchain of root.
        assert!(outcome.code == 0 || (outcome.code == 9 && mode != Mode::Invoker), "{mode:?} {outcome}");
    }
}

#[test]
fn a_user_who_signs_commits_is_told_that_agents_do_not() {
    for (_, place) in repositories() {
        let commit = ["run", "--", "git", "commit", "-q", "--allow-empty", "-m", "x"];
        let is_told = || {
            let outcome = Outcome::of(&mut place.agentsh(&commit)).expect_code(0);
            outcome.stderr.contains("git inside does not sign commits and tags (commit.gpgSign")
        };
        assert!(is_told());
        outside(&place, "git config --global commit.gpgSign false");
        assert!(!is_told());
    }
}

/// Hooks outside of the project are not seen inside. The user is told, and what is shown runs.
#[test]
fn hooks_outside_the_project_are_named_and_run_once_they_are_shown() {
    if !has("git") {
        return;
    }
    for mode in Mode::all() {
        for scope in ["--global", "--local"] {
            let place = Place::new(mode);
            place.write(place.home.join(".gitconfig"), "[user]\n\tname = A\n\temail = a@b.example\n");
            outside(&place, "git init -q -b main .; echo one >file; git add file; git commit -qm one");
            place.write(place.home.join("hooks/pre-commit"), "#!/bin/sh\ntouch ran\n");
            outside(
                &place,
                &format!("chmod +x ~/hooks/pre-commit; git config {scope} core.hooksPath ~/hooks"),
            );
            let hooks = place.home.join("hooks").display().to_string();
            let commits = |more: &[&str]| {
                let script = "echo two >>file; git commit -qam two; test ! -e ran || echo ran";
                let words = [&["run"], more, &["--", "sh", "-ec", script]].concat();
                Outcome::of(&mut place.agentsh(&words)).expect_code(0)
            };
            let told = format!("the agent does not get {hooks}: git's hooks are there");
            let outcome = commits(&[]);
            assert!(
                outcome.stderr.contains(&told) && outcome.stdout.is_empty(),
                "{mode:?} {scope} {outcome}"
            );
            let outcome = commits(&["--read", &hooks]);
            assert!(!outcome.stderr.contains(&told), "{mode:?} {scope} {outcome}");
            assert_eq!(outcome.stdout, "ran\n", "{mode:?} {scope} {outcome}");
        }
    }
}

#[test]
fn run_in_a_subdirectory_shows_the_whole_repository() {
    for (_, place) in repositories() {
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

/// Another user's repository above the project adds nothing to what was asked for, and the home is never a project.
#[test]
fn repository_that_contains_the_home_is_not_the_project() {
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

/// Conditions, encodings and consent are git's own: the same answer for every repository, wherever it is asked.
#[test]
fn every_repository_has_the_identity_that_it_has_outside() {
    if !has("git") {
        return;
    }
    const CONDITIONS: &str = "[user]\n\tname = \"J\u{f6}rg\"\n\temail = home@example.org\n\
        [includeIf \"gitdir:~/project/**\"]\n\tpath = project.inc\n\
        [includeIf \"gitdir/i:./PROJECT/upper/\"]\n\tpath = ~/upper.inc\n\
        [includeIf \"onbranch:release/*\"]\n\tpath = release.inc\n\
        [includeIf \"hasconfig:remote.*.url:https://work.example/**\"]\n\tpath = work.inc\n\
        [safe]\n\tdirectory = /nowhere\n[author]\n\tname = Pen\n[pretty]\n\tone = %an\n";
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.set("GIT_COMMITTER_EMAIL", "caller@example.org");
        // ISO 8859-1, as it was written twenty years ago.
        let text: Vec<u8> = CONDITIONS.chars().map(|letter| u8::try_from(letter).unwrap()).collect();
        place.write(place.home.join(".gitconfig"), text);
        for name in ["project", "upper", "release", "work", "own"] {
            let include = format!("[user]\n\temail = {name}@example.org\n");
            place.write(place.home.join(format!("{name}.inc")), include);
        }
        outside(
            &place,
            "git init -q -b main .; git init -q -b main upper; git init -q -b release/1 below; git init -q -b main far; \
             git -C far remote add origin https://work.example/x; \
             git config include.path '~/own.inc'",
        );
        let ask = "for at in . upper below far; do git -C $at config user.email; git -C $at config user.name; done; \
                   git config safe.directory; git config pretty.one; git var GIT_AUTHOR_IDENT | cut -d'>' -f1; \
                   git var GIT_COMMITTER_IDENT | cut -d'>' -f1; git -C upper checkout -q -b release/2; git -C upper config user.email; \
                   git -C upper checkout -q --orphan main";
        let expected = Outcome::of(place.command("sh").args(["-c", ask]));
        assert!(
            expected.stdout.contains("work@example.org") && expected.stdout.contains("release@example.org")
        );
        let found = inside(&place, &place.project, ask);
        assert_eq!(found.stdout, expected.stdout, "{mode:?} {found}");
    }
}

/// CI systems give git its settings by variables; what starts a program or holds a secret is named.
#[test]
fn settings_of_git_in_variables_count_inside() {
    for (mode, place) in repositories() {
        outside(
            &place,
            "git config --global --unset user.email; git config --global --unset includeIf.gitdir:~/project/.path; \
                         mkdir .claude; git config user.name Local",
        );
        place.set("EMAIL", "ada@mail.example");
        let settings = [
            ("user.name", "Runner"),
            ("url.https://user:pa55@h.example/.insteadOf", "work:"),
            ("alias.who", "log -1 --format='%an %ae %ce'"),
        ];
        place.set("GIT_CONFIG_COUNT", "3");
        for (index, (key, value)) in settings.iter().enumerate() {
            place.set(&format!("GIT_CONFIG_KEY_{index}"), *key);
            place.set(&format!("GIT_CONFIG_VALUE_{index}"), *value);
        }
        let script =
            "git -c commit.gpgSign=false commit -q --allow-empty -m x && git who && git status --short";
        let expected = outside(&place, script).stdout;
        assert!(expected.starts_with("Runner ada@mail.example ada@mail.example"), "{expected}");
        let found = Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", script])).expect_code(0);
        assert_eq!(found.stdout, expected, "{mode:?} {found}");
        assert!(found.stderr.contains("git inside does not have url.insteadof of your variables"), "{found}");
        assert!(!found.stderr.contains("pa55"), "{found}");
    }
}

/// A submodule, `--separate-git-dir`, and a link as Google's repo tool makes them: told with the option that shows it, usable
/// with it, and guarded as any other repository.
#[test]
fn repository_outside_the_project_is_shown_after_consent() {
    if !has("git") {
        return;
    }
    const MAKE: &str = "git init -q -b main lib && git -C lib commit -q --allow-empty -m one; \
        git init -q -b main super && git -C super -c protocol.file.allow=always submodule --quiet add \"$HOME/lib\" sub; \
        mkdir dirs && git init -q -b main --separate-git-dir dirs/sep.git sep; \
        mkdir -p client/.repo/projects client/.repo/project-objects/p.git client/p; \
        git init -q -b main client/.repo/projects/p.git --bare; cd client/.repo/projects/p.git; \
        git config core.bare false; \
        for part in objects hooks; do mv $part ../../project-objects/p.git/$part; \
        ln -s ../../project-objects/p.git/$part $part; done; ln -s ../.repo/projects/p.git ../../../p/.git";
    const WORK: &str = "set -e; echo new >made; git add made; git commit -qm inside; git log -1 --format=%s; \
        directory=$(git rev-parse --git-dir); \
        (echo evil >$directory/hooks/post-commit; echo evil >>$directory/config; rm -rf .git; mv $directory/hooks x; \
        ln -sfn /tmp .git) 2>/dev/null || true";
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write(place.home.join(".gitconfig"), "[user]\n\tname = Ada\n\temail = ada@example.org\n");
        let mut make = place.command("sh");
        Outcome::of(make.args(["-ec", MAKE]).current_dir(&place.home)).expect_code(0);
        for project in ["super/sub", "sep", "client/p"] {
            let at = place.home.join(project);
            let unshown = inside(&place, &at, "git status");
            assert!(unshown.code != 0 && unshown.stderr.contains("--agree"), "{mode:?} {project} {unshown}");
            let words = ["run", "--quiet", "--agree", "--", "sh", "-c", WORK];
            let outcome = Outcome::of(place.agentsh(&words).current_dir(&at)).expect_code(0);
            assert_eq!(outcome.stdout, "inside\n", "{mode:?} {project} {outcome}");
            let look = "git log -1 --format=%s; d=$(git rev-parse --git-dir); ls $d/hooks/post-commit; grep evil $d/config";
            let left = Outcome::of(place.command("sh").args(["-c", look]).current_dir(&at));
            assert_eq!(left.stdout, "inside\n", "{mode:?} {project} {left}");
        }
    }
}

/// With any kind of file at a guarded name the run starts, and the files next to it are there.
#[test]
fn unusual_files_at_guarded_names_do_not_prevent_the_start() {
    for mode in Mode::all() {
        for (make, after) in [
            ("ln -s .cursor .cursor", ""),
            ("ln -s b .vscode; ln -s .vscode b", ""),
            ("mkfifo .vscode .mcp.json CLAUDE.md", ""),
            ("mkdir .vscode .claude; : >.envrc", "chmod 0 .vscode .claude .envrc"),
            ("ln -s /nonexistent .husky; ln -s nowhere .envrc", ""),
            ("mkdir .mcp.json .envrc; : >.vscode; : >.husky", ""),
            ("mkdir .git; ln -s hooks .git/hooks", ""),
            ("ln -s .git .git", ""),
            ("mkfifo .git", ""),
        ] {
            let place = Place::new(mode);
            place.write("file", "here\n");
            outside(&place, make);
            outside(&place, after);
            let outcome = inside(&place, &place.project, "cat file").expect_code(0);
            assert_eq!(outcome.stdout, "here\n", "{mode:?} {make} {outcome}");
            let is_told = outcome.stderr.contains("/.git: it is a link that leads nowhere");
            assert_eq!(is_told, make == "ln -s .git .git", "{mode:?} {make} {outcome}");
            outside(&place, "chmod -R u+rwX . 2>/dev/null || true");
        }
    }
}

/// A process inside can remove what it made, although it is guarded: a clone, a working tree, a submodule. The project's own
/// repository stays.
#[test]
fn repositories_made_inside_can_be_removed_and_moved() {
    if !has("git") {
        return;
    }
    const GUARDED: &str = "guarded() { for _ in $(seq 100); do for at; do (: >>$at) 2>/dev/null && { sleep 0.1; continue 2; }; \
        done; return 0; done; echo \"no guard: $*\"; exit 1; }\n";
    const SCRIPT: &str = "set -e; mkdir tmp; git clone -q . tmp/one; git clone -q . clean; git clone -q . moved; git clone -q . parts; \
        git -C moved worktree add -q ../moved-tree; git worktree add -q tree; git init -q bare.git --bare; git clone -q . own; \
        guarded tmp/one/.git/config clean/.git/config moved/.git/config moved-tree/.git tree/.git bare.git/config own/.git/config \
            parts/.git/config; \
        rm -rf tmp; git worktree remove tree; mv moved further; mv own/.git own/store; rm -r bare.git; \
        rm -rf parts/.git/hooks parts/.git/config; rm -rf parts; rm -rf further moved-tree own; git clean -ffdxq -e old; git status --short; \
        git clone -q . tmp; git -C tmp log --format=%s; rm -rf tmp; ls; \
        (mv old/.git old/x; rm .git/config; rm -r .git/hooks) 2>/dev/null || true";
    for mode in Mode::all() {
        let place = Place::new(mode);
        repository(&place);
        outside(
            &place,
            "git init -q old; echo old/ >.git/info/exclude; mkdir -p old/.git/hooks; : >old/.git/hooks/mine",
        );
        let outcome = inside(&place, &place.project, &format!("{GUARDED}{SCRIPT}"));
        assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "one\nfile\nold\n"), "{mode:?} {outcome}");
        for kept in ["old/.git/config", "old/.git/hooks/mine", ".git/config", ".git/hooks"] {
            assert!(place.project.join(kept).exists(), "{mode:?} {kept} {outcome}");
        }
    }
}

/// What was there before goes as a whole: a nested repository, a submodule, a working tree, and directories around them. What of it
/// git on the host would obey can be restored.
#[test]
fn nested_repositories_from_before_the_run_can_be_removed() {
    for (mode, place) in repositories() {
        outside(
            &place,
            "git clone -q . vendor/nested; git -C vendor/nested config alias.x '!true'; echo mine >vendor/nested/.git/hooks/mine; \
             for name in husky own; do git init -q vendor/$name; mkdir vendor/$name/hooks; echo '#!/bin/sh' >vendor/$name/hooks/pre-commit; \
             git -C vendor/$name config core.hooksPath hooks; done; echo '*' >vendor/husky/hooks/.gitignore; \
             for name in deinit gone; do git -c protocol.file.allow=always submodule --quiet add \"$PWD/vendor/nested\" libs/$name; done; \
             git add -A libs .gitmodules; git -c commit.gpgSign=false commit -qm subs; git worktree add -q tree; git clone -q --bare . bare.git",
        );
        const SCRIPT: &str = "set -e; git submodule deinit -q -f libs/deinit; rm -rf vendor; git worktree remove tree; rm -r bare.git; \
            git rm -qf libs/gone; rm -rf .git/modules/libs/gone; ls -A . libs; git submodule status; git -C .git/modules/libs/deinit log --format=%s";
        let outcome = inside(&place, &place.project, SCRIPT).expect_code(0);
        let left = outcome.stdout.replace(" libs/deinit (heads/main)", "");
        assert!(
            left.starts_with(".:\n.git\n.gitmodules\nfile\nlibs\n\nlibs:\ndeinit\n-")
                && left.ends_with("one\n"),
            "{mode:?} {outcome}"
        );
        assert!(fs::read_dir(place.project.join("libs/deinit")).unwrap().next().is_none(), "{outcome}");
        outside(&place, "git submodule status; git fsck");
        let hook = place.project.join("vendor/nested/.git/hooks/mine");
        Outcome::of(&mut place.agentsh(&["undo", &hook.display().to_string()])).expect_code(0);
        assert_eq!(fs::read_to_string(hook).unwrap(), "mine\n");
    }
}

/// A submodule and directories around one move as outside: git writes its `.git` file and its configuration again. What is written
/// there otherwise, and a submodule whose configuration names what runs in its working tree, is treated as before.
/// It removes an index below `.git`, and then tries `rmdir .git`.
#[test]
fn git_stash_leaves_the_guards_alone() {
    for (mode, place) in repositories() {
        let script = "set -e; echo two >file; git stash -q; git stash pop -q; cat file";
        let outcome =
            Outcome::of(place.agentsh(&["run", "--", "sh", "-c", script]).current_dir(&place.project));
        let outcome = outcome.expect_code(0);
        assert_eq!(outcome.stdout, "two\n", "{mode:?} {outcome}");
        assert!(!outcome.stderr.contains("guarded again"), "{mode:?} {outcome}");
    }
}

#[test]
fn submodules_can_be_moved() {
    for (mode, place) in repositories() {
        outside(
            &place,
            "git init -q -b main lib; git -C lib -c commit.gpgSign=false commit -q --allow-empty -m lib; \
             for name in libs/one libs/two hooked evil; do git -c protocol.file.allow=always submodule --quiet add \"$PWD/lib\" $name; done; \
             git -C hooked config core.hooksPath ../ev; git -c commit.gpgSign=false commit -qm subs; rm -rf lib",
        );
        let script = "set -e; git mv libs/one libs/uno; mv libs further; mv further libs; git mv libs/two deep; git commit -qam moved; \
             git submodule status; git -C deep commit -q --allow-empty -m more; git -C libs/uno log --format=%s; \
             (mv hooked x || git config -f .git/modules/evil/config core.worktree ../../../deep) 2>/dev/null && exit 1; \
             mv evil worse; (printf 'gitdir: ../fake\\n' >worse/.git; cp -r .git/modules/evil fake; printf '#!/bin/sh\\npwd >>../ran\\n' >fake/run; \
             chmod 755 fake/run; printf '[core]\\nfsmonitor = ../fake/run\\n' >>fake/config) 2>/dev/null || true";
        let outcome = inside(&place, &place.project, script).expect_code(0);
        assert!(
            outcome.stdout.contains(" deep ") && outcome.stdout.contains(" libs/uno "),
            "{mode:?} {outcome}"
        );
        assert!(outcome.stdout.ends_with("lib\n"), "{mode:?} {outcome}");
        let after = outside(
            &place,
            "git status --short deep libs hooked; for name in deep libs/uno hooked worse; do (cd $name; git reset -q) 2>/dev/null || true; \
             done; git -C deep log --format=%s",
        );
        assert_eq!(after.stdout, " M deep\nmore\nlib\n", "{mode:?} {outcome}");
        assert!(place.project.join("hooked/.git").exists(), "{mode:?} {outcome}");
        assert!(!place.project.join("ran").exists(), "{mode:?} {outcome}");
    }
}

/// husky makes the directory of its hooks again at every `npm install`, and git ignores it: inside it is a copy. A directory of hooks
/// that belongs to the project is read-only.
#[test]
fn hooks_that_a_tool_makes_again_are_a_copy_inside() {
    for (mode, place) in repositories() {
        let husky = "git config core.hooksPath .husky/_; rm -f .husky/_/husky.sh; mkdir -p .husky/_; echo '*' >.husky/_/.gitignore; \
            printf '#!/bin/sh\\n. .husky/pre-commit\\n' >.husky/_/pre-commit; chmod 755 .husky/_/pre-commit; : >.husky/_/husky.sh";
        outside(
            &place,
            &format!(
                "{husky}; echo 'echo checked' >.husky/pre-commit; git init -q nested; cd nested; mkdir own; \
            git config core.hooksPath own"
            ),
        );
        // The copy has the hooks before the tool makes them.
        let script = "set -e; echo a >>file; git commit -qam two; echo evil >.husky/_/pre-commit; echo evil >.husky/_/pre-push; ";
        let rest = "; echo b >>file; git commit -qam three; (git status --short | grep -v nested || true); \
            (echo x >.husky/pre-commit; rm -r .husky/_; mv .husky/_ x; echo x >nested/own/pre-commit) 2>/dev/null || ls -A .husky/_";
        let command = format!("{script}{husky}{rest}");
        let mut command = place.agentsh(&["run", "--", "sh", "-c", &command]);
        let outcome = Outcome::of(command.current_dir(&place.project)).expect_code(0);
        let said = outcome.stdout.matches("checked").count() + outcome.stderr.matches("checked").count();
        assert_eq!(said, 2, "{mode:?} {outcome}");
        assert!(outcome.stderr.contains(".husky/_ is a copy inside"), "{mode:?} {outcome}");
        let after = outside(
            &place,
            "cat .husky/_/pre-commit .husky/pre-commit; ls -A .husky/_ nested/own; git config core.hooksPath",
        );
        assert_eq!(
            after.stdout,
            "#!/bin/sh\n. .husky/pre-commit\necho checked\n.husky/_:\n.gitignore\nhusky.sh\npre-commit\n\nnested/own:\n.husky/_\n",
            "{mode:?} {outcome}"
        );
    }
}

/// A configuration that nobody may write to, and one that is a link into the project: git reads it, and changes the first.
#[test]
fn unusual_git_configurations_are_read() {
    for (mode, place) in repositories() {
        outside(
            &place,
            "mkdir closed link; git init -q closed; chmod 400 closed/.git/config; git init -q link; \
                         mv link/.git/config link/own; ln -s ../own link/.git/config; git -C link config user.name Linked",
        );
        let outcome = inside(
            &place,
            &place.project,
            "git -C closed remote add o https://x.example/y && git -C closed remote && stat -c %a closed/.git/config; \
             git -C link config user.name; git -C link status -s; cd link; (echo evil >>own; echo evil >x; mv -f x .git/config) 2>/dev/null",
        );
        assert!(outcome.stdout.starts_with("o\n400\nLinked\n"), "{mode:?} {outcome}");
        assert!(!fs::read_to_string(place.project.join("link/own")).unwrap().contains("evil"), "{mode:?}");
        assert!(place.project.join("link/.git/config").is_symlink(), "{mode:?} {outcome}");
        let mode_of =
            |path: &str| fs::metadata(place.project.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode_of("closed/.git/config"), 0o400, "{mode:?} {outcome}");
    }
}

/// `git clone --shared`, after its remote was removed: what it reads elsewhere is shown once agreed, and only to be read.
#[test]
fn borrowed_git_objects_are_shown_after_consent() {
    for (mode, place) in repositories() {
        outside(&place, "cd ..; git clone -q --shared project borrows; git -C borrows remote remove origin");
        let at = place.home.join("borrows");
        let unshown = inside(&place, &at, "git log --format=%s");
        assert!(
            unshown.code != 0 && unshown.stderr.contains("objects that this repository borrows"),
            "{unshown}"
        );
        let script = "git log --format=%s; echo x >>$(cat .git/objects/info/alternates)/pack/x 2>/dev/null";
        let words = ["run", "--quiet", "--agree", "--", "sh", "-c", script];
        let outcome = Outcome::of(place.agentsh(&words).current_dir(&at));
        assert_eq!(outcome.stdout, "one\n", "{mode:?} {outcome}");
        assert!(!place.project.join(".git/objects/pack/x").exists(), "{mode:?}");
    }
}

/// If root started agentsh, the files have another owner inside. git does not consider them changed, neither
/// inside nor outside afterwards.
#[test]
fn the_index_means_the_same_inside_and_outside() {
    for (mode, place) in repositories() {
        outside(&place, "touch -d '1 hour ago' file; git status");
        let outcome =
            inside(&place, &place.project, "git diff-files; git status -s; echo new >made; git add made")
                .expect_code(0);
        assert_eq!(outcome.stdout, "", "{mode:?}");
        assert_eq!(outside(&place, "git diff-files -- file").stdout, "", "{mode:?} {outcome}");
    }
}

/// What an agent wrote into a configuration does not count as the user's choice, wherever agentsh is started next.
#[test]
fn remotes_added_by_an_agent_need_consent_in_other_directories_too() {
    if !has("git") {
        return;
    }
    let told = |place: &Place, at: &Path| {
        let outcome = inside(place, at, "true").expect_code(0);
        let is_told = outcome.stderr.contains("example/x.git'") && outcome.stderr.contains("stays blocked");
        (is_told, outcome)
    };
    for mode in Mode::all() {
        let place = Place::new(mode);
        repository(&place);
        outside(&place, "git init -q ../next");
        let next = place.home.join("next");
        let made = "git init -q sub; git -C sub remote add o https://made.example/x.git; \
                    git -C ../next remote add o https://next.example/x.git; \
                    git remote add o https://agent.example/x.git";
        let words = ["run", "--quiet", "--write", next.to_str().unwrap(), "--", "sh", "-c", made];
        let outcome = Outcome::of(&mut place.agentsh(&words)).expect_code(0);
        assert!(outcome.stderr.contains("changed where git sends and fetches"), "{mode:?} {outcome}");
        outside(
            &place,
            "git worktree add -q ../tree; mkdir ../moved; git init -q ../own; \
                         git -C ../own remote add o https://own.example/x.git; cp -r . ../copy",
        );
        let moved = place.home.join("moved/project");
        fs::rename(place.project.join("sub"), place.home.join("sub")).unwrap();
        for at in ["project", "sub", "next", "tree", "copy"] {
            let (is_told, outcome) = told(&place, &place.home.join(at));
            assert!(is_told, "{mode:?} {at} {outcome}");
        }
        fs::rename(&place.project, &moved).unwrap();
        let (is_told, outcome) = told(&place, &moved);
        assert!(is_told, "{mode:?} {outcome}");
        // The user's own, and another copy once the user agreed.
        Outcome::of(place.agentsh(&["run", "--quiet", "--agree", "--", "true"]).current_dir(&moved));
        let copy = ["-r", ".", "../../later"];
        Outcome::of(place.command("cp").args(copy).current_dir(&moved)).expect_code(0);
        for at in ["own", "later"] {
            let (is_told, outcome) = told(&place, &place.home.join(at));
            assert!(!is_told, "{mode:?} {at} {outcome}");
        }
    }
}
