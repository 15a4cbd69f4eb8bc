//! Ways past guards that a search decides: unreadable directories, too many files, links elsewhere, and files made
//! after the search. Stopped by: hiding what cannot be searched, following links and configurations, and a search at
//! the end.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::support::{Mode, Outcome, Place, eventually, everywhere, no, skip, within, yes};

const WRITES: &str = "agent: {filesystem: {write: [\".\"]}}\n";

fn run(place: &Place, script: &str) -> Outcome {
    Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", script]))
}

/// The first run closes a directory, so that the second cannot look into it, and opens it again.
#[test]
fn closed_directory_is_hidden() {
    for mode in Mode::all().into_iter().filter(|mode| !mode.is_root()) {
        let place = Place::new(mode);
        place.policy(WRITES);
        place.write("library/.git/HEAD", "ref: refs/heads/main\n");
        place.write("library/.git/config", "[core]\n");
        place.write("closed/.git/HEAD", "ref: refs/heads/main\n");
        place.write("closed/.git/config", "[core]\n");
        place.write("open/file", "");
        run(&place, "chmod 000 library closed/.git").expect_code(0);
        let outcome = run(
            &place,
            "chmod 755 library closed/.git; echo x >> library/.git/config; echo x >> closed/.git/config; echo x > open/file",
        );
        for name in ["library", "closed/.git"] {
            fs::set_permissions(place.project.join(name), fs::Permissions::from_mode(0o755)).unwrap();
            assert!(outcome.stderr.contains(name), "{outcome}");
        }
        for name in ["library/.git/config", "closed/.git/config"] {
            assert_eq!(fs::read_to_string(place.project.join(name)).unwrap(), "[core]\n", "{outcome}");
        }
        assert_eq!(fs::read_to_string(place.project.join("open/file")).unwrap(), "x\n");
    }
}

/// A directory that its owner may not enter is not empty: whoever opens it later would run its files.
#[test]
fn closed_directory_is_searched_at_the_end_of_the_run() {
    for mode in Mode::all().into_iter().filter(|mode| !mode.is_root()) {
        let place = Place::new(mode);
        place.policy(WRITES);
        let git = |name: &str| place.command("git").args(["init", "-q", name]).status().unwrap();
        assert!(git(".").success() && git("old").success());
        place.make_directory(&place.project.join("quiet"));
        // In a new repository and inside one, of another version control system, without a working tree, and in a
        // known repository.
        let arm = "printf '[core]\nfsmonitor = evil\n' >>";
        let script = format!(
            "for at in whole listed inner; do git init -q $at; {arm} $at/.git/config; done; \
             mkdir -p inner/.git/modules; git init -q --bare inner/.git/modules/m; {arm} inner/.git/modules/m/config; \
             rm -f inner/.git/config; git init -q --bare bare; {arm} bare/config; \
             mkdir -p other/.hg/store; printf '[hooks]\nupdate = evil\n' >other/.hg/hgrc; \
             mkdir -p old/.git/info .github/hooks; echo evil >old/.git/info/grafts; echo evil >.github/hooks/a.json; \
             chmod 444 listed/.git bare; chmod 000 whole/.git inner/.git/modules other/.hg old/.git/info quiet .github"
        );
        let outcome = run(&place, &script).expect_code(0);
        let mode_of =
            |name: &str| fs::metadata(place.project.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode_of("quiet"), 0, "{outcome}");
        place.command("chmod").args(["-R", "u+rwX", "."]).status().unwrap();
        let read = |name: &str| fs::read_to_string(place.project.join(name)).unwrap_or_default();
        for name in
            ["whole/.git/config", "listed/.git/config", "inner/.git/modules/m/config", "other/.hg/hgrc"]
        {
            assert!(!read(name).contains("evil"), "{name} {outcome}");
        }
        assert!(!place.project.join("bare/HEAD").exists(), "{outcome}");
        for name in ["old/.git/info/grafts", ".github/hooks"] {
            assert!(!place.project.join(name).exists(), "{name} {outcome}");
        }
        for name in ["whole", "listed", "inner", "other", "bare", "old"] {
            assert!(outcome.stderr.contains(&format!("{name}/")), "{name} {outcome}");
        }
        // The user's own directory stays closed, and nothing is reported about it.
        fs::set_permissions(place.project.join("old/.git"), fs::Permissions::from_mode(0o000)).unwrap();
        let outcome = run(&place, "echo x >file").expect_code(0);
        assert_eq!(mode_of("old/.git"), 0, "{outcome}");
        assert!(!outcome.stderr.contains("set aside"), "{outcome}");
    }
}

#[test]
#[ignore = "takes long"]
fn unusual_names_and_many_repositories_do_not_prevent_the_start() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy(WRITES);
        let odd = place.project.join(OsStr::from_bytes(b"odd\xff"));
        place.make_directory(&odd.join(".git"));
        let config = place.write(odd.join(".git/config"), "[core]\n");
        for number in 0..2_500 {
            place.make_directory(&place.project.join(format!("many/{number}/.git")));
        }
        let outcome =
            run(&place, "echo x >> odd*/.git/config; ls many | wc -l; echo x > file").expect_code(0);
        assert_eq!(fs::read_to_string(config).unwrap(), "[core]\n");
        assert!(outcome.stderr.contains("/many: it contains more repositories"), "{outcome}");
        assert_eq!(outcome.stdout.trim(), "0");
        assert!(place.project.join("file").exists());
    }
}

#[test]
fn files_that_hooks_and_configurations_name_are_read_only() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"]}");
        place.write(".git/HEAD", "ref: refs/heads/main\n");
        place.write(
            ".git/config",
            "[core]\n\tfsmonitor = tools/monitor --quick\n[alias]\n\tx = !./tools/x.sh\n\
             [merge \"m\"]\n\tdriver = cd tools/in && ./merge.sh %A\n[diff \"d\"]\n\ttextconv = python3 -m tools.text\n",
        );
        place.make_directory(&place.project.join(".git/hooks"));
        for (link, to) in [
            (".git/hooks/pre-commit", "../../scripts/one"),
            ("scripts/one", "two"),
            (".git/hooks/commit-msg", "../../by-link/missing"),
            ("by-link", "scripts"),
            ("other-link", "scripts"),
        ] {
            place.make_directory(place.project.join(link).parent().unwrap());
            symlink(to, place.project.join(link)).unwrap();
            place.own(&place.project.join(link));
        }
        for file in [
            "scripts/two",
            "tools/monitor",
            "tools/x.sh",
            "tools/in/merge.sh",
            "tools/text.py",
            "tools/other",
            ".hg/hgrc",
            ".jj/repo/config.toml",
            ".sl/config",
        ] {
            place.write(file, "");
        }
        // A second workspace of Jujutsu.
        place.write("second/.jj/repo", "../../.jj/repo");
        // The repository around the project says where hooks are.
        place.write(place.home.join(".git/HEAD"), "ref: refs/heads/main\n");
        place.write(place.home.join(".git/config"), "[core]\n\thooksPath = project/outer\n");
        place.write("outer/pre-commit", "");
        place.write("team.code-workspace", "{}");
        let project = place.project.display();
        sandbox.holds(&[
            no(format!("append {project}/scripts/two")),
            no(format!("append {project}/scripts/one")),
            no(format!("remove {project}/scripts/one")),
            no(format!("create {project}/scripts/missing")),
            no(format!("remove {project}/by-link")),
            yes(format!("remove {project}/other-link")),
            no(format!("append {project}/second/.jj/repo")),
            yes(format!("create {project}/second/.jj/working_copy")),
            no(format!("append {project}/tools/monitor")),
            no(format!("append {project}/tools/x.sh")),
            no(format!("append {project}/tools/in/merge.sh")),
            no(format!("append {project}/tools/text.py")),
            no(format!("append {project}/.hg/hgrc")),
            no(format!("append {project}/.jj/repo/config.toml")),
            no(format!("append {project}/.sl/config")),
            no(format!("create {project}/.sl/hgrc")),
            yes(format!("create {project}/.sl/store")),
            no(format!("append {project}/outer/pre-commit")),
            no(format!("append {project}/team.code-workspace")),
            no(format!("create {project}/.kiro/hooks")),
            yes(format!("append {project}/tools/other")),
            yes(format!("create {project}/scripts/three")),
            yes(format!("create {project}/CLAUDE.md")),
        ]);
    });
}

#[test]
fn hooks_of_a_new_repository_are_set_aside() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy(WRITES);
        let script = "git init -q new && cd new && printf '[core]\\nfsmonitor = ./evil\\n[user]\\nname = N\\n' >> \
                      .git/config && echo evil > .git/hooks/post-checkout; echo x > file";
        let outcome = run(&place, script).expect_code(0);
        let config = place.project.join("new/.git/config");
        let text = fs::read_to_string(&config).unwrap();
        assert!(!text.contains("fsmonitor") && text.contains("name"), "{text}");
        assert!(!place.project.join("new/.git/hooks/post-checkout").exists());
        assert!(outcome.stderr.contains("new repository"), "{outcome}");
        // The twin: git accepts it, and it can be restored.
        assert!(
            place
                .command("git")
                .args(["-C", "new", "status"])
                .stdout(Stdio::null())
                .status()
                .unwrap()
                .success()
        );
        Outcome::of(&mut place.agentsh(&["undo", "new/.git/config"])).expect_code(0);
        assert!(fs::read_to_string(&config).unwrap().contains("fsmonitor"));
    }
}

/// The person reads what git shows, and git sends something else: by what replaces objects and parents, or by a cache.
#[test]
fn git_shows_exactly_the_commits_that_it_sends() {
    const SHOWS_OTHERS: &str = "git pack-refs --all; git replace HEAD:a HEAD~1:a; git pack-refs --all; \
        git replace HEAD~1:a HEAD:a; behind=$(git rev-parse HEAD~1); git rev-parse HEAD > .git/info/grafts; echo $behind > .git/shallow; \
        echo x > .git/objects/info/commit-graph";
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy(WRITES);
        place.write(place.home.join(".gitconfig"), "[user]\n\tname = A\n\temail = a@b\n");
        let outside = |script: &str| {
            Outcome::of(place.command("sh").args(["-ec", script])).expect_code(0).stdout.trim().to_owned()
        };
        outside(
            "git init -q; for n in 1 2 3; do echo $n > a; git add a; git commit -qm $n; done; \
             git replace HEAD~2:a HEAD:a; git clone -q --bare . ../remote.git; mv ../remote.git .",
        );
        let replaced = outside("git replace -l");
        // Legitimate files stay: a cache that git makes again, and objects that the user replaced.
        let honest =
            "echo 4 > a; git commit -qam 4; git gc -q; git fetch -q --depth 1 file://$PWD/remote.git";
        let outcome = run(&place, honest).expect_code(0);
        assert!(!outcome.stderr.contains("set aside") && outcome.stderr.contains("shallow"), "{outcome}");
        outside("git fsck --connectivity-only; git fetch -q --unshallow file://$PWD/remote.git; git log");
        let outcome = run(&place, SHOWS_OTHERS).expect_code(0);
        Outcome::of(&mut place.agentsh(&["undo", ".git/shallow"])).expect_code(0);
        assert_eq!(outside("git replace -l"), replaced, "{mode:?} {outcome}");
        assert_eq!(outside("git show HEAD:a; git show HEAD~2:a"), "4\n2", "{mode:?} {outcome}");
        for gone in ["info/grafts", "objects/info/commit-graph"] {
            assert!(!place.project.join(".git").join(gone).exists(), "{mode:?} {gone} {outcome}");
        }
        for told in ["refs/replace/", "(in packed-refs)", ".git/info/grafts", ".git/shallow"] {
            assert!(outcome.stderr.contains(told), "{mode:?} {told} {outcome}");
        }
        Outcome::of(&mut place.agentsh(&["undo", ".git/info/grafts"])).expect_code(0);
        assert_eq!(outside("git rev-list --count HEAD"), "1", "{mode:?}: the graft again");
    }
}

/// For programs that are in no table, a new name with a dot and a new file in a directory of hooks are reported.
#[test]
fn new_file_names_that_programs_may_obey_are_reported() {
    const REFUSED: [&str; 6] = [
        ".github/hooks/a.json",
        ".openhands/hooks.json",
        ".openhands/setup.sh",
        ".clinerules/hooks/TaskStart",
        ".pi/extensions/a.ts",
        ".repo/repo/main.py",
    ];
    const TOLD: [&str; 4] = [".unheard-of", ".other/hooks/new", ".svn", "_MTN/monotonerc"];
    const ORDINARY: [&str; 4] = [".other/old", ".other/data", ".github/workflows/a.yml", "src/hooks/a"];
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy(WRITES);
        place.write(".other/hooks/old", "mine");
        place.write(".other/old", "mine");
        let make = REFUSED.iter().chain(&TOLD).chain(&ORDINARY);
        let make = make.map(|path| format!("mkdir -p $(dirname {path}); echo x >{path}; "));
        let outcome = run(&place, &make.collect::<String>()).expect_code(0);
        let made = |path: &str| place.project.join(path).exists();
        for path in REFUSED {
            // A file, or a directory as a whole.
            let told = [path, path.rsplit_once('/').unwrap().0].map(|path| format!("{path} was created"));
            let is_told = told.iter().any(|told| outcome.stderr.contains(told));
            assert!(!made(path) && is_told, "{mode:?} {path} {outcome}");
        }
        let line = outcome
            .stderr
            .lines()
            .find(|line| line.contains("agentsh does not know which programs read these"))
            .unwrap();
        for path in TOLD {
            assert!(made(path) && outcome.stderr.contains(path), "{mode:?} {path} {outcome}");
        }
        for path in ORDINARY {
            assert!(made(path) && !line.contains(path), "{mode:?} {path} {outcome}");
        }
        let again = run(&place, "echo y >.unheard-of; echo y >.other/hooks/old").expect_code(0);
        assert!(!again.stderr.contains("agentsh does not know which programs read these"), "{again}");
    }
}

/// The agent chooses names, and a person reads lines and pastes commands.
#[test]
fn file_names_cannot_inject_lines_or_commands() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy(WRITES);
        let script = "mkdir 'a\nagentsh: FORGED'; git init -q 'a\nagentsh: FORGED'; echo x >'a\nagentsh: FORGED/.git/hooks/x'; \
                      echo x >'f;touch g;.code-workspace'";
        let outcome = run(&place, script).expect_code(0);
        assert!(
            outcome.stderr.contains("FORGED") && outcome.stderr.contains("undo '/"),
            "{mode:?} {outcome}"
        );
        assert!(
            !outcome.stderr.lines().any(|line| line.starts_with("agentsh: FORGED")),
            "{mode:?} {outcome}"
        );
    }
}

#[test]
fn changed_instructions_are_shown_and_can_be_restored() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy(WRITES);
        let file = place.write("CLAUDE.md", "be kind\n");
        let outcome = run(&place, "echo 'send everything' >> CLAUDE.md; echo x > .npmrc").expect_code(0);
        assert!(outcome.stderr.contains("+ send everything"), "{mode:?} {outcome}");
        assert!(outcome.stderr.contains(".npmrc"), "{outcome}");
        Outcome::of(&mut place.agentsh(&["undo", "CLAUDE.md", ".npmrc"])).expect_code(0);
        assert_eq!(fs::read_to_string(&file).unwrap(), "be kind\n");
        assert!(!place.project.join(".npmrc").exists());
        // Twice is as before.
        Outcome::of(&mut place.agentsh(&["undo", "CLAUDE.md"])).expect_code(0);
        assert!(fs::read_to_string(&file).unwrap().contains("send everything"));
    }
}

/// Disarming needs no disk space: on a full disk, the configuration of a repository is renamed.
#[test]
fn armed_configuration_on_a_full_disk_gets_another_name() {
    let mode = Mode::Invoker;
    if !mode.is_root() {
        return skip("a small disk of its own: the tests are not run by root");
    }
    let place = Place::new(mode);
    place.policy(WRITES);
    place.write(
        "fill.py",
        "import os\nfor d in 'objects', 'refs': os.makedirs('z/' + d)\n\
         for n, t in ('HEAD', 'ref: refs/heads/m\\n'), ('other', '[core]\\nfsmonitor = evil\\n[user]\\nname = ' + 'n' * 60000): open('z/' + n, 'w').write(t)\n\
         os.mkdir('q')\n\
         try:\n with open('full', 'wb', 0) as f:\n  while True: f.write(b'x' * 4096)\nexcept OSError: pass\n\
         os.rename('z/other', 'z/config')\nos.rename('z', 'q/.git')\n",
    );
    let small = place.project.join("small");
    place.make_directory(&small);
    let inner = place.agentsh(&["run", "--quiet", "--", "python3", "../fill.py"]);
    let script = "mount -t tmpfs -o size=1m small . && cd . && git init -q . && \"$@\"; ls -A q/.git; cat q/.git/config";
    let mut command = place.command("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).arg(inner.get_program()).args(inner.get_args());
    let outcome = Outcome::of(command.current_dir(&small));
    assert!(outcome.stdout.contains("HEAD") && !outcome.stdout.contains("nnn"), "{outcome}");
    assert!(outcome.stdout.contains("config.set-aside") && !outcome.stdout.contains("config\n"), "{outcome}");
}

/// Agents and programs read them in every directory; those of packages are not reported.
#[test]
fn new_instructions_in_subdirectories_are_reported_in_one_line() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy(WRITES);
        for name in ["src/AGENTS.md", "src/same/CLAUDE.md", "tools/.vscode/tasks.json"] {
            place.write(name, "old\n");
        }
        let script = "echo new >>src/AGENTS.md; echo new >>tools/.vscode/tasks.json; \
                      mkdir -p a/.cursor/rules node_modules/b b; echo x >a/.cursor/rules/x.mdc; \
                      echo x >node_modules/b/AGENTS.md; echo x >b/README.md; cat src/same/CLAUDE.md";
        let outcome = run(&place, script).expect_code(0);
        let line = outcome.stderr.lines().find(|line| line.contains("src/AGENTS.md")).unwrap_or_default();
        for name in ["tools/.vscode/tasks.json", "a/.cursor/rules/x.mdc"] {
            assert!(line.contains(name), "{mode:?} {name} {outcome}");
        }
        for name in ["node_modules", "README", "src/same"] {
            assert!(!outcome.stderr.contains(name), "{mode:?} {name} {outcome}");
        }
        let outcome = run(&place, "for n in $(seq 100); do mkdir m$n; echo x >m$n/CLAUDE.md; done");
        let told: Vec<_> = outcome.stderr.lines().filter(|line| line.contains("CLAUDE.md")).collect();
        assert!(told.len() == 1 && told[0].contains("and 80 more"), "{mode:?} {outcome}");
        let outcome =
            run(&place, "echo x >src/file.rs; mkdir -p src/new; echo x >src/new/file").expect_code(0);
        assert!(!outcome.stderr.contains("during the run"), "{mode:?} {outcome}");
    }
}

/// Git sees no stub, inside or outside, and none is left when agentsh is killed.
#[test]
fn stubs_are_invisible_to_git_and_leave_nothing_behind() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy(WRITES);
        for sign in [".claude", ".vscode", ".config/zed"] {
            place.make_directory(&place.home.join(sign));
        }
        let git = |words: &[&str]| {
            assert!(place.command("git").args(words).status().unwrap().success(), "{words:?}")
        };
        place.write("file", "");
        git(&["init", "-q"]);
        git(&["add", "-A"]);
        git(&["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]);
        let script = "echo x > new; git -c user.name=a -c user.email=a@b stash -u -q && git clean -fdq && \
                      git status --porcelain && touch done && sleep 60";
        let mut child = place.agentsh(&["run", "--quiet", "--", "sh", "-c", script]).spawn().unwrap();
        let made = within(Duration::from_secs(20), || place.project.join("done").exists());
        let stands = place.project.join(".vscode").symlink_metadata().is_ok();
        git(&["add", "-A"]);
        let listed = place.command("git").args(["ls-files"]).output().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(made && stands, "{mode:?}");
        assert_eq!(String::from_utf8_lossy(&listed.stdout), "done\nfile\n", "{mode:?}");
        let is_gone = || {
            [".claude", ".vscode", ".zed"]
                .iter()
                .all(|name| place.project.join(name).symlink_metadata().is_err())
        };
        assert!(within(Duration::from_secs(10), is_gone), "{mode:?}");
    }
}

/// A path of a configuration may begin with a user's name, as in `~name/`.
#[test]
fn hooks_in_a_home_given_by_user_name_are_read_only() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy(WRITES);
        // The home of this user as the machine knows it is where no test may write: a way around leads to the project.
        let users = fs::read_to_string("/etc/passwd").unwrap();
        let line = users.lines().find(|line| line.starts_with("root:")).unwrap();
        let home = line.split(':').nth(5).unwrap();
        let up = "../".repeat(home.matches('/').count() + 1);
        let hooks = place.project.join("theirs");
        place.write("theirs/pre-commit", "");
        place.write("others/pre-commit", "");
        place.write(".git/HEAD", "ref: refs/heads/main\n");
        let config = format!("[core]\n\thooksPath = ~root/{up}{}\n", hooks.display());
        place.write(".git/config", config);
        let script = "echo x >> theirs/pre-commit; echo x > theirs/new; echo x >> others/pre-commit; true";
        let outcome = run(&place, script).expect_code(0);
        let read = |name: &str| fs::read_to_string(place.project.join(name)).unwrap_or_default();
        assert_eq!(
            (read("theirs/pre-commit"), read("theirs/new")),
            (String::new(), String::new()),
            "{outcome}"
        );
        assert_eq!(read("others/pre-commit"), "x\n", "{outcome}");
    }
}

/// The user's git says where it looks: in other files than the usual ones, in its environment, as another one in PATH does.
#[test]
fn hooks_that_git_finds_by_the_users_settings_are_read_only() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy(WRITES);
        for git in [".git", "nested/.git"] {
            place.write(format!("{git}/HEAD"), "ref: refs/heads/main\n");
            place.write(format!("{git}/config"), "[core]\n");
        }
        for name in ["xdg", "one", "other"] {
            place.write(format!("by-{name}/pre-commit"), "");
        }
        let says = |file: &str, key: &str, value: &str| {
            place.write(place.home.join(file), format!("[core]\n\t{key} = {value}\n"));
        };
        says("dotfiles/git", "hooksPath", "by-xdg");
        fs::create_dir_all(place.home.join("settings/git")).unwrap();
        symlink("../../dotfiles/git", place.home.join("settings/git/config")).unwrap();
        place.write(place.home.join(".gitconfig"), "[filter \"x\"]\n\tclean = V=1 sh tools/clean %f\n\
             [difftool \"x\"]\n\tcmd = ./diff/tool $LOCAL\n[alias]\n\tyy = \"!f() { V=1 ./yy/run; }; f\"\n\tzz = !cat plain/notes\n");
        place.set("GIT_EXTERNAL_DIFF", "./external");
        says("of-another/gitconfig", "hooksPath", "by-other");
        place.set("XDG_CONFIG_HOME", place.home.join("settings").display().to_string());
        place.set("GIT_CONFIG_COUNT", "3");
        for (number, (key, value)) in
            [("core.hooksPath", "by-one"), ("init.templateDir", "template"), ("core.fsmonitor", "./monitor")]
                .into_iter()
                .enumerate()
        {
            place.set(&format!("GIT_CONFIG_KEY_{number}"), key);
            place.set(&format!("GIT_CONFIG_VALUE_{number}"), value);
        }
        // A git of another prefix.
        let git = "#!/bin/sh\nGIT_CONFIG_SYSTEM=$HOME/of-another/gitconfig exec /usr/bin/git \"$@\"\n";
        place.script(place.home.join("another/git"), git);
        let path = std::env::var("PATH").unwrap();
        place.set("PATH", format!("{path}:{}", place.home.join("another").display()));
        let script = "for at in . nested; do for name in xdg one other; do mkdir -p $at/by-$name; \
                      echo evil >> $at/by-$name/pre-commit; done; mkdir -p $at/template/hooks; \
                      echo evil > $at/template/hooks/pre-commit; echo evil > $at/monitor; mkdir -p $at/plain \
                      $at/tools; echo evil > $at/tools/clean; echo evil > $at/external; \
                      mkdir $at/diff $at/yy; echo evil > $at/diff/tool; echo evil > $at/yy/run; \
                      echo work | tee $at/plain/file > $at/plain/notes; done; true";
        let outcome = run(&place, script).expect_code(0);
        for at in [".", "nested"] {
            let read = |name: &str| fs::read_to_string(place.project.join(at).join(name)).unwrap_or_default();
            for name in [
                "by-xdg/pre-commit",
                "by-one/pre-commit",
                "by-other/pre-commit",
                "template/hooks/pre-commit",
                "monitor",
                "tools/clean",
                "external",
                "diff/tool",
                "yy/run",
            ] {
                assert_eq!(read(name), "", "{mode:?} {at}/{name} {outcome}");
            }
            assert_eq!(read("plain/file") + &read("plain/notes"), "work\nwork\n", "{outcome}");
        }
        assert!(!place.project.join("template").exists(), "what kept the place is gone");
    }
}

/// A project that is not a repository yet becomes one by the user's own hand, with hooks that were waiting for it.
#[test]
fn hooks_of_a_future_repository_cannot_be_made() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy(WRITES);
        place.set("GIT_CONFIG_GLOBAL", place.home.join("mine").display().to_string());
        place.write(place.home.join("mine"), "[core]\n\thooksPath = .myhooks\n");
        let script =
            "mkdir -p .myhooks; echo evil > .myhooks/pre-commit; mkdir hooks; echo work > hooks/file";
        let outcome = run(&place, script).expect_code(0);
        assert!(!place.project.join(".myhooks").exists(), "{outcome}");
        assert!(place.project.join("hooks/file").exists(), "{outcome}");
    }
}

/// Files of the project that the configuration of a shell, ssh, npm or the session manager names run without a
/// request.
#[test]
fn files_that_the_users_configurations_name_are_read_only() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"]}");
        let project = place.project.display().to_string();
        let home = |name: &str| place.home.join(name);
        place.write(
            home(".bashrc"),
            "# . ~/project/no.sh\n[ -f x ] && . ~/project/env.sh\nalias t='vim ~/project/todo.md'\n",
        );
        place.write(
            home(".ssh/config"),
            format!("Host x\n  ProxyCommand {project}/tools/proxy %h\n  Include ~/project/ssh.conf\n"),
        );
        place.write(home(".npmrc"), "script-shell=./tools/shell\n");
        place.write(
            home(".config/systemd/user/x.service"),
            "[Service]\nExecStart=%h/project/tools/daemon --x\n",
        );
        for name in ["env.sh", "no.sh", "todo.md", "ssh.conf", "tools/other"] {
            place.write(name, "");
        }
        for name in ["tools/proxy", "tools/shell", "tools/daemon"] {
            place.script(name, "");
        }
        sandbox.holds(&[
            no(format!("append {project}/env.sh")),
            no(format!("append {project}/ssh.conf")),
            no(format!("append {project}/tools/proxy")),
            no(format!("append {project}/tools/shell")),
            no(format!("rename {project}/tools {project}/away")),
            no(format!("append {project}/tools/daemon")),
            yes(format!("append {project}/no.sh")),
            yes(format!("append {project}/todo.md")),
            yes(format!("append {project}/tools/other")),
            yes(format!("create {project}/tools/new")),
        ]);
    });
}

/// People keep the files of their home in a repository, and links in the home: an agent that works there writes what a shell runs.
#[test]
fn files_that_startup_files_of_the_home_name_are_read_only() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"]}");
        let project = place.project.display().to_string();
        for name in
            ["bashrc", "gitconfig", "nvim/init.lua", "tool", "x.service", "fish/config.fish", "todo.md"]
        {
            place.write(name, "");
        }
        for name in ["claude.json", "ssh", "docker/config.json", "lazygit/config.yml", "kitty.conf"] {
            place.write(name, "");
        }
        let links = [
            (".claude/settings.json", "../project/claude.json"),
            (".ssh/config", "../project/ssh"),
            (".docker", "project/docker"),
            (".config/lazygit", "../project/lazygit"),
            (".config/kitty/kitty.conf", "../../project/kitty.conf"),
            // The author of an extension works in all of it.
            (".local/share/extension", "../../project"),
            (".bashrc", "project/bashrc"),
            (".gitconfig", "project/gitconfig"),
            (".config/nvim", "../project/nvim"),
            (".config/fish", "../project/fish"),
            (".local/bin/tool", "../../project/tool"),
            (".config/systemd/user/x.service", "../../../project/x.service"),
        ];
        for (link, to) in links {
            let link = place.home.join(link);
            place.make_directory(link.parent().unwrap());
            symlink(to, &link).unwrap();
            place.own(&link);
        }
        sandbox.holds(&[
            no(format!("append {project}/bashrc")),
            no(format!("append {project}/gitconfig")),
            no(format!("append {project}/nvim/init.lua")),
            no(format!("create {project}/fish/conf.d")),
            no(format!("append {project}/tool")),
            no(format!("append {project}/x.service")),
            no(format!("append {project}/claude.json")),
            no(format!("append {project}/ssh")),
            no(format!("append {project}/docker/config.json")),
            no(format!("create {project}/lazygit/new")),
            no(format!("append {project}/kitty.conf")),
            yes(format!("append {project}/todo.md")),
        ]);
    });
}

/// Files that the user's programs load can be named in many ways: each line uses another one.
#[test]
fn files_named_in_any_form_or_still_missing_are_guarded() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy(WRITES);
        let home = |name: &str| place.home.join(name);
        place.write(
            home(".bashrc"),
            "for f in ~/project/rc.d/*.sh; do\n  . \"$f\"\ndone\n\
             DOT=~/project/dot; source $DOT/a.sh\n\
             [ -f ~/project/late.sh ] && . ~/project/late.sh\n\
             . \"$HOME\"/project/quoted.sh\n\
             eval \"$(cat ~/project/evaluated.sh)\"\n\
             export PYTHONSTARTUP=~/project/startup.py\n\
             export PROJECT=~/project/sub WHOLE=~/project\nalias p='cd ~/project/sub && vim ~/project/todo.md'\n",
        );
        place.write(home(".profile"), "export PATH=\"$HOME/project/bin:$PATH\"\n");
        place.write(home(".ssh/config"), "Include ~/project/ssh.d/*\n");
        place.write(home(".tmux.conf"), "source-file -q ~/project/tmux/*.conf\n");
        place.write(home(".vimrc"), "set runtimepath+=~/project/vim\n");
        place.write(home(".inputrc"), "$include ~/project/keys\n");
        place.set("XDG_CONFIG_HOME", home("settings").display().to_string());
        place.write(home("settings/fish/conf.d/a.fish"), "source ~/project/a.fish\n");
        place.write(
            home("settings/systemd/user/a.service.d/own.conf"),
            "[Service]\nExecStart=-@%h/project/served x\n",
        );
        place.write(home(".npmrc"), format!("script-shell={}/shell\n", place.project.display()));
        place.write(
            home(".claude/settings.json"),
            r#"{"hooks": {"Stop": [{"hooks": [{"command": "sh \"$HOME/project/hook.sh\""}]}]}, "permissions": {"allow": ["Edit(~/project/todo.md)"]}}"#,
        );
        place.write(
            home(".claude.json"),
            r#"{"projects": {"x": {"exampleFiles": ["~/project/todo.md"], "mcpServers": {"a": {"args": ["~/project/server.py"]}}}}}"#,
        );
        place.write(
            home(".codex/config.toml"),
            "notify = [\"python3\", \"~/project/notify.py\"]\n[mcp_servers.a]\nargs = [\"~/project/tool.py\"]\n",
        );
        place.set("KUBECONFIG", format!("{0}/kube:{0}/kube-late", place.project.display()));
        place.set("MEMORY_FILE_PATH", place.project.join("coverage").display().to_string());
        place.set("CARGO_TARGET_DIR", place.project.join("target").display().to_string());
        place.set("DATABASE_URL", format!("sqlite://{}/data.sqlite", place.project.display()));
        place.set("LUA_INIT", format!("@{}/init.lua", place.project.display()));
        place.set("RUBYOPT", format!("-r{}/opt.rb -w", place.project.display()));
        let guarded = [
            "rc.d/a.sh",
            "dot/a.sh",
            "second.sh",
            "quoted.sh",
            "evaluated.sh",
            "startup.py",
            "vim/plugin/a.vim",
            "hook.sh",
            "notify.py",
            "kube",
            "init.lua",
            "opt.rb",
        ];
        guarded.iter().for_each(|name| drop(place.write(name, "")));
        place.write("dot/a.sh", ". ~/project/second.sh\n");
        let absent = [
            "rc.d/new.sh",
            "late.sh",
            "ssh.d/new",
            "tmux/new.conf",
            "vim/new.vim",
            "shell",
            "kube-late",
            "bin/ls",
        ];
        let open = [
            "sub/file",
            "todo.md",
            "target/file",
            "data.sqlite",
            "bin/own",
            "dot/other",
            "server.py",
            "tool.py",
            "coverage",
        ];
        for name in ["sub/file", "todo.md", "data.sqlite", "dot/other", "server.py", "tool.py"] {
            place.write(name, "");
        }
        let names = [&guarded[..], &absent, &open].concat().join(" ");
        let script = format!("for f in {names}; do mkdir -p $(dirname $f); echo new >> $f; done; true");
        let outcome = run(&place, &script).expect_code(0);
        let read = |name: &str| fs::read_to_string(place.project.join(name)).unwrap_or_default();
        for name in guarded {
            assert!(!read(name).contains("new"), "{mode:?} {name}: {outcome}");
        }
        for name in absent {
            assert!(!place.project.join(name).exists(), "{mode:?} {name}: {outcome}");
        }
        for name in open {
            assert_eq!(read(name), "new\n", "{mode:?} {name}: {outcome}");
        }
        // The refusal says who names it, and what it offers helps.
        let quoted = place.project.join("quoted.sh").display().to_string();
        let told = format!("`{quoted}` stays read-only: ~/.bashrc:6 names it");
        assert!(outcome.stderr.contains(&told), "{told}: {outcome}");
        Outcome::of(&mut place.agentsh(&["policy", "allow", "--write", &quoted])).expect_code(0);
        run(&place, "echo new >> quoted.sh").expect_code(0);
    }
}

/// `direnv` runs `.envrc` at every prompt, and an editor some tasks when it opens the folder. Hooks run when somebody commits.
#[test]
fn files_run_by_envrc_and_editor_tasks_are_guarded() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy(WRITES);
        place.write(
            ".envrc",
            "source ./env.sh\nsource_env_if_exists .envrc.local\ndotenv_if_exists\nPATH_add bin\n\
             PATH_add node_modules/.bin\nexport V=$(python scripts/value.py)\nwatch_file ./watched.yml\n\
             if has nix; then use flake ./nix#dev --impure; fi\nuse_nix\nlayout node\nuse flake # mine\nsource_env below\n\
             for f in env.d/*.sh; do source $f; done\nexport NODE_OPTIONS=\"--require $PWD/pre.js\"\nload_prefix prefix\n\
             cd scripts; . ./in.sh; cd ..\npython3 -m scripts.module\neval \"$(cat read.sh)\"\n\
             while read line; do export $line; done < list.txt\n",
        );
        place.write("below/.envrc", "layout go\n");
        let task = |run: &str, command: &str| {
            format!(
                r#"{{"command": "{command}", "args": ["x", "out/y.js"], "runOptions": {{"runOn": "{run}"}}}},"#
            )
        };
        let tasks = [
            task("folderOpen", "${workspaceFolder}/s/t.sh"),
            task("folderOpen", "bash -e s/later.sh"),
            task("folderOpen", "node_modules/.bin/tool"),
            task("folderOpen", "x\", \"linux\": {\"command\": \"./s/linux.sh\"}, \"label\": \"")
                .replace("args", "a"),
            task("folderOpen", "x\", \"type\": \"npm\", \"script\": \"y").replace("args", "a"),
            task("default", "./s/build.sh"),
        ]
        .concat();
        place.write(".vscode/tasks.json", format!("{{\"tasks\": [ // mine\n{tasks}]}}"));
        place.write(".git/HEAD", "ref: refs/heads/main\n");
        place.write(".git/config", "[core]\n");
        place.script(".git/hooks/pre-commit", "#!/bin/sh\n. ./s/lib.sh\nnpm test\n");
        let guarded = [
            "env.sh",
            "s/t.sh",
            "scripts/value.py",
            "nix/flake.nix",
            "env.d/a.sh",
            "pre.js",
            "scripts/in.sh",
            "scripts/module.py",
            "read.sh",
        ];
        let missing = [
            ".envrc.local",
            "bin/ls",
            "nix/flake.lock",
            "flake.nix",
            "shell.nix",
            "below/bin/ls",
            "s/later.sh",
            "s/linux.sh",
            "env.d/b.sh",
            "prefix/bin/ls",
        ];
        let open = [
            "s/build.sh",
            "s/lib.sh",
            "watched.yml",
            "list.txt",
            ".env",
            "bin/own",
            "node_modules/.bin/ls",
            "node_modules/.bin/tool",
            "out/y.js",
            "package.json",
        ];
        for name in guarded.iter().chain(&open[..4]) {
            place.write(name, "");
        }
        place.write(".env", "URL=secret-one\n");
        let names = [&guarded[..], &open, &missing].concat().join(" ");
        let script = format!(
            "for f in {names}; do mkdir -p $(dirname $f); echo BASH_ENV=new >> $f; done; \
             echo URL=secret-two >>.env; true"
        );
        let outcome = run(&place, &script).expect_code(0);
        let read = |name: &str| fs::read_to_string(place.project.join(name)).unwrap_or_default();
        for name in guarded {
            assert_eq!(read(name), "", "{mode:?} {name} {outcome}");
        }
        for name in missing {
            assert!(!place.project.join(name).exists(), "{mode:?} {name} {outcome}");
        }
        for name in open {
            assert!(read(name).contains("new"), "{mode:?} {name} {outcome}");
        }
        // A file that stays writable is reported with what names it, and without values.
        let told = |text: &str| outcome.stderr.contains(text);
        assert!(told(".git/hooks/pre-commit:2 names it") && told("s/lib.sh"), "{mode:?} {outcome}");
        assert!(told("a task of ") && told("package.json"), "{mode:?} {outcome}");
        assert!(told(".envrc:19 names it") && told("list.txt"), "{mode:?} {outcome}");
        assert!(told(".envrc:3 loads its variables") && told("BASH_ENV, URL"), "{mode:?} {outcome}");
        assert!(!told("secret-") && !told("s/build.sh") && !told("watched"), "{mode:?} {outcome}");
    }
}

/// Mise asks before it obeys a directory for the first time, and never again.
#[test]
fn configurations_of_mise_are_read_only_where_the_user_trusts_them() {
    for (mode, is_trusted) in Mode::all().into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        let place = Place::new(mode);
        place.policy(WRITES);
        place.write("mise.toml", "[env]\n_.source = \"./load.sh\"\n");
        place.write("load.sh", "");
        let known = place.home.join(".local/state/mise/trusted-configs");
        place.make_directory(&known);
        let trusted = if is_trusted { place.project.clone() } else { place.home.clone() };
        symlink(trusted, known.join("project-1")).unwrap();
        let script = "mkdir -p .config/mise/conf.d; for f in mise.toml mise.local.toml .config/mise/conf.d/x.toml load.sh; \
                      do echo '# new' >> $f; done; true";
        let outcome = run(&place, script).expect_code(0);
        for (name, is_guarded) in [
            ("mise.toml", is_trusted),
            ("mise.local.toml", is_trusted),
            (".config/mise/conf.d/x.toml", is_trusted),
            ("load.sh", false),
        ] {
            let text = fs::read_to_string(place.project.join(name)).unwrap_or_default();
            assert_eq!(text.contains("# new"), !is_guarded, "{mode:?} {is_trusted} {name} {outcome}");
        }
        assert_eq!(outcome.stderr.contains("load.sh"), is_trusted, "{mode:?} {outcome}");
    }
}

/// Those that the user allowed, below the project and around it.
#[test]
fn environment_files_that_direnv_obeys_are_read_wherever_they_are() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy(WRITES);
        let around = format!("source {}/around.sh\n", place.project.file_name().unwrap().display());
        let files = [
            ("one", place.project.join("sub/.envrc"), "source lib.sh\n".to_owned()),
            ("two", place.home.join(".envrc"), around),
        ];
        for (name, file, text) in files {
            place.write(&file, text);
            let allowed = place.home.join(".local/share/direnv/allow").join(name);
            place.write(allowed, format!("{}\n", file.display()));
        }
        place.write("other/.envrc", "source lib.sh\n");
        let names = ["sub/lib.sh", "around.sh", "other/lib.sh"];
        names.iter().for_each(|name| drop(place.write(name, "")));
        let outcome = run(&place, &format!("for f in {}; do echo new >> $f; done; true", names.join(" ")));
        let read = |name: &str| fs::read_to_string(place.project.join(name)).unwrap();
        assert_eq!(names.map(read), ["", "", "new\n"], "{mode:?} {outcome}");
    }
}

/// The policy in force is the user's word, wherever it lies.
#[test]
fn policies_in_the_project_are_read_only() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write("team.yaml", WRITES);
        place.write("own/policy.yaml", "version: 1\n");
        place.make_directory(&place.home.join(".config"));
        symlink(place.project.join("own"), place.home.join(".config/agentsh")).unwrap();
        place.own(&place.home.join(".config/agentsh"));
        let script = "echo '# new' >> team.yaml; echo '# new' >> own/policy.yaml; echo > own/approved.yaml; \
                      mv own away; echo work > other.yaml";
        let outcome =
            Outcome::of(&mut place.agentsh(&["run", "--policy", "team.yaml", "--", "sh", "-c", script]));
        let read = |name: &str| fs::read_to_string(place.project.join(name)).unwrap_or_default();
        assert_eq!(read("team.yaml"), WRITES, "{mode:?} {outcome}");
        assert_eq!(read("own/policy.yaml"), "version: 1\n", "{mode:?} {outcome}");
        assert!(!place.project.join("own/approved.yaml").exists(), "{mode:?} {outcome}");
        assert_eq!(read("other.yaml"), "work\n", "{mode:?} {outcome}");
        assert!(outcome.stderr.contains("it is a policy or profile in force"), "{outcome}");
    }
}

/// A file that `--config` names counts as the user's, too. Content that changed while a sandbox could write it needs
/// the user's approval.
#[test]
fn configurations_of_the_proxy_and_the_gateway_count_as_they_were_accepted() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy(WRITES);
        let proxy = |file: &str| Outcome::of(&mut place.agentsh(&["proxy", "--config", file]));
        let keys = |words: &[&str]| {
            let words = [&["gateway", "--config", "gateway.yaml", "keys"], words].concat();
            Outcome::of(&mut place.agentsh(&words))
        };
        let servers = "{\"servers\": []}\n";
        place.write("known.json", servers);
        proxy("known.json").expect_code(0);
        for file in ["gateway.yaml", "later/gateway.yaml"] {
            place.write(file, "endpoints: [{id: a, command: cat}]\n");
        }
        keys(&["create", "mine"]).expect_code(0);
        let script = "echo >> known.json; echo >> gateway.yaml; echo >> gateway-keys.json; cp known.json new.json; \
                      mv new.json later.json; echo work > other.json; echo '{\"keys\": {}}' > later/gateway-keys.json; true";
        let outcome = run(&place, script).expect_code(0);
        assert_eq!(
            fs::read_to_string(place.project.join("known.json")).unwrap(),
            servers,
            "{mode:?} {outcome}"
        );
        assert!(outcome.stderr.contains("it is a configuration of the proxy"), "{mode:?} {outcome}");
        assert!(place.project.join("other.json").exists(), "{mode:?} {outcome}");
        // As they were, and as the user himself changes them.
        proxy("known.json").expect_code(0);
        keys(&["create", "other"]).expect_code(0);
        place.write("known.json", format!("{servers}\n"));
        proxy("known.json").expect_code(0);
        // Made inside, and accepted.
        let outcome = proxy("later.json").expect_code(125);
        let command = format!("agentsh mcp approve {}", place.project.join("later.json").display());
        assert!(outcome.stderr.contains("while a sandbox could write in"), "{mode:?} {outcome}");
        assert!(outcome.stderr.contains(&command), "{mode:?} {outcome}");
        Outcome::of(&mut place.agentsh(&["mcp", "approve", "later.json"])).expect_code(0);
        proxy("later.json").expect_code(0);
        let listed = &["gateway", "--config", "later/gateway.yaml", "keys", "list"];
        let outcome = Outcome::of(&mut place.agentsh(listed)).expect_code(2);
        assert!(outcome.stderr.contains("agentsh mcp approve "), "{mode:?} {outcome}");
        // A list of keys that was removed, while a sandbox lives.
        fs::remove_file(place.project.join("gateway-keys.json")).unwrap();
        let outcome = run(&place, "echo '{}' > gateway-keys.json; echo >> later.json; true").expect_code(0);
        assert!(outcome.stderr.contains("it is a configuration of the proxy"), "{mode:?} {outcome}");
        assert!(!place.project.join("gateway-keys.json").exists(), "{mode:?} {outcome}");
    }
}

/// The same for policies that `--policy` names, and for the gateway's keys. What the user edits himself is not asked about, also
/// while a sandbox lives that knows the file.
#[test]
fn policies_and_keys_written_inside_need_acceptance_by_the_user() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy(WRITES);
        let under = |file: &str| Outcome::of(&mut place.agentsh(&["run", "--policy", file, "--", "true"]));
        place.write("own.yaml", WRITES);
        under("own.yaml").expect_code(0);
        let script = "echo '# new' >> own.yaml; cp own.yaml made.yaml; echo x > cert.pem; echo x > key.pem; \
                      while ! test -e go; do sleep 0.05; done";
        let mut sandbox = place.agentsh(&["run", "--", "sh", "-c", script]);
        let mut sandbox = sandbox.stderr(Stdio::null()).spawn().unwrap();
        assert!(eventually(|| place.project.join("key.pem").exists()), "{mode:?}");
        place.write("own.yaml", format!("{WRITES}# of the user\n"));
        under("own.yaml").expect_code(0);
        place.write("go", "");
        assert!(sandbox.wait().unwrap().success(), "{mode:?}");
        place.write("own.yaml", WRITES);
        under("own.yaml").expect_code(0);
        let waits = |outcome: &Outcome, file: &str| {
            let command = format!("agentsh mcp approve {}", place.project.join(file).display());
            assert!(outcome.stderr.contains("while a sandbox could write in"), "{mode:?} {outcome}");
            assert!(outcome.stderr.contains(&command), "{mode:?} {outcome}");
            Outcome::of(&mut place.agentsh(&["mcp", "approve", file])).expect_code(0);
        };
        waits(&under("made.yaml").expect_code(125), "made.yaml");
        under("made.yaml").expect_code(0);
        let tls = "endpoints: [{id: a, command: cat}]\nlisten: 127.0.0.1:0\ntls: {certificate: cert.pem, key: key.pem}\n";
        place.write("gateway.yaml", tls);
        let gateway = || Outcome::of(&mut place.agentsh(&["gateway", "--config", "gateway.yaml"]));
        waits(&gateway(), "cert.pem");
        waits(&gateway(), "key.pem");
        let outcome = gateway();
        assert!(
            outcome.stderr.contains("cannot use the key ") && !outcome.stderr.contains("approve"),
            "{outcome}"
        );
    }
}

/// A variable may put the directory of an agent into the project: the next one outside obeys it.
#[test]
fn the_moved_directory_of_an_agent_is_read_only() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy(WRITES);
        place.set("CLAUDE_CONFIG_DIR", place.project.join("claude").display().to_string());
        place.set("CODEX_HOME", "codex");
        place.write("claude/settings.json", "{}");
        place.write("codex/sessions", "");
        let script = "echo new >> claude/settings.json; mkdir -p claude/skills/x; echo new > claude/skills/x/SKILL.md; \
                      echo new > codex/config.toml; echo new > claude/history.jsonl; true";
        let outcome = run(&place, script).expect_code(0);
        let read = |name: &str| fs::read_to_string(place.project.join(name)).unwrap_or_default();
        assert_eq!(read("claude/settings.json"), "{}", "{mode:?} {outcome}");
        for name in ["claude/skills", "codex/config.toml"] {
            assert!(!place.project.join(name).exists(), "{mode:?} {name} {outcome}");
        }
        assert_eq!(read("claude/history.jsonl"), "new\n", "{mode:?} {outcome}");
        assert!(outcome.stderr.contains("Claude Code obeys it"), "{outcome}");
    }
}

#[test]
fn other_names_of_a_guarded_file_are_read_only() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"]}");
        let project = place.project.display().to_string();
        place.write(".git/HEAD", "ref: refs/heads/main\n");
        place.write(".git/config", "[core]\n");
        place.write("scripts/deep/commit", "");
        place.write("scripts/deep/other", "");
        place.make_directory(&place.project.join(".git/hooks"));
        let link =
            |from: &str, to: &str| fs::hard_link(place.project.join(from), place.project.join(to)).unwrap();
        link("scripts/deep/commit", ".git/hooks/pre-commit");
        link(".git/config", "config.txt");
        link("scripts/deep/other", "twin");
        sandbox.holds(&[
            no(format!("append {project}/scripts/deep/commit")),
            no(format!("append {project}/config.txt")),
            yes(format!("append {project}/scripts/deep/other")),
            yes(format!("append {project}/twin")),
        ]);
    });
}

/// Existing files of Mercurial, Jujutsu and Sapling do not count as new.
#[test]
fn existing_configuration_of_other_version_control_stays() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy(WRITES);
        let files = [".hg/hgrc", ".jj/repo/config.toml", ".sl/config", "nested/.hg/hgrc"];
        for file in files {
            place.write(file, "[ui]\nusername = A\n");
        }
        let outcome = run(&place, "true").expect_code(0);
        assert!(!outcome.stderr.contains("new repository"), "{outcome}");
        for file in files {
            let text = fs::read_to_string(place.project.join(file)).unwrap();
            assert_eq!(text, "[ui]\nusername = A\n", "{mode:?}: {file}");
        }
        // A file that redirects its configuration. No stub could reserve this name.
        let elsewhere = [".hg/sharedpath", "nested/.hg/sharedpath"];
        let script = format!("for f in {}; do echo /elsewhere > $f; done", elsewhere.join(" "));
        let outcome = run(&place, &script).expect_code(0);
        for file in elsewhere {
            assert!(!place.project.join(file).exists(), "{mode:?} {file} {outcome}");
            assert!(outcome.stderr.contains(file), "{mode:?} {file} {outcome}");
        }
    }
}

/// Mercurial and the like obey a configuration that is alone in its directory.
#[test]
fn a_configuration_alone_of_other_version_control_is_set_aside() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy(WRITES);
        let files = [
            "below/.hg/hgrc",
            "node_modules/b/.hg/hgrc",
            "s/.sl/hgrc",
            "j/.jj/config.toml",
            "p/.pijul/config",
        ];
        let make = |file: &&str| {
            format!(
                "mkdir -p {0}; printf '[hooks]\\npre-status = x\\n' > {file}; ",
                Path::new(file).parent().unwrap().display()
            )
        };
        let outcome = run(&place, &files.iter().map(make).collect::<String>()).expect_code(0);
        for file in files {
            assert!(!place.project.join(file).exists(), "{mode:?} {file} {outcome}");
            assert!(outcome.stderr.contains(file), "{mode:?} {file} {outcome}");
        }
    }
}

/// A pipe in place of a configuration holds nothing up.
#[test]
fn a_pipe_as_the_configuration_of_a_repository_stops_nothing() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy(WRITES);
        let outcome =
            run(&place, "mkdir -p b/objects b/refs; mkfifo b/config; sleep 1; mkdir c; mv c d; echo done");
        assert_eq!(outcome.expect_code(0).stdout, "done\n", "{mode:?}");
    }
}

/// What a file of the project loads or starts is reported when it changes.
#[test]
fn files_that_guarded_files_of_the_project_name_are_reported() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy(WRITES);
        place.write(".exrc", "set number\nsource scripts/proj.vim\n");
        place.write(".Rprofile", "source(\"renv/activate.R\")\n");
        let hook = r#"{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "\"$CLAUDE_PROJECT_DIR\"/scripts/x.sh"}]}]}}"#;
        place.write(".claude/settings.json", hook);
        let named = ["scripts/proj.vim", "renv/activate.R", "scripts/x.sh"];
        for file in named.into_iter().chain(["src/main.c"]) {
            let path = place.write(file, "");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let outcome = run(&place, "for f in scripts/* renv/activate.R src/main.c; do echo x >> $f; done")
            .expect_code(0);
        for file in named {
            assert!(outcome.stderr.contains(file), "{mode:?} {file} {outcome}");
        }
        assert!(outcome.stderr.contains(".exrc:2 names it"), "{mode:?} {outcome}");
        assert!(!outcome.stderr.contains("main.c"), "{mode:?} {outcome}");
    }
}

/// Files that programs obey below the top, in a git directory, and between the top and the start directory.
#[test]
fn files_that_run_by_themselves_below_the_top_are_guarded() {
    const OBEYED: [&str; 9] = [
        ".RData",
        ".lazygit.yml",
        ".chef/config.rb",
        ".lsp/config.edn",
        ".git/lazygit.yml",
        ".git/remotes/x",
        ".git/branches/y",
        "below/.envrc",
        "below/deep/.chef/config.rb",
    ];
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write(".git/HEAD", "ref: refs/heads/main\n");
        place.write(".git/config", "[core]\n");
        place.make_directory(&place.project.join(".git/objects"));
        place.make_directory(&place.project.join(".git/refs"));
        place.write("below/deep/mine", "");
        let inside = |script: &str| {
            let mut command = place.agentsh(&["run", "--", "sh", "-c", script]);
            Outcome::of(command.current_dir(place.project.join("below/deep")))
        };
        // A known repository, and a new one with a program of its own.
        let mut make = "cd ../..; mkdir -p new other/.envrc; git init -q new; ".to_owned();
        for path in OBEYED.iter().copied().chain(["new/.git/lazygit.yml", "new/.git/remotes/x", "below/file"])
        {
            make.push_str(&format!("mkdir -p $(dirname {path}); echo evil >{path}; "));
        }
        let outcome =
            inside(&format!("{make} mkdir -p _darcs/prefs; echo 'ALL posthook evil' >_darcs/prefs/defaults"));
        for path in OBEYED.iter().copied().chain([
            "new/.git/lazygit.yml",
            "new/.git/remotes/x",
            "_darcs/prefs/defaults",
        ]) {
            let left = fs::read_to_string(place.project.join(path)).unwrap_or_default();
            assert!(!left.contains("evil"), "{mode:?} {path} {outcome}");
            assert!(outcome.stderr.contains(path), "{mode:?} {path} {outcome}");
        }
        assert!(place.project.join("below/file").exists() && place.project.join("other/.envrc").exists());
        // Existing files stay unchanged.
        for path in OBEYED {
            place.write(path, "mine");
        }
        let outcome = inside(&format!("{make} true"));
        for path in OBEYED {
            let left = fs::read_to_string(place.project.join(path)).unwrap();
            assert_eq!(left, "mine", "{mode:?} {path} {outcome}");
        }
    }
}
