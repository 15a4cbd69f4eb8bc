//! Instead of writing a hook: move the whole `.git` away, and make a new one.
//! Stopped by: `.git` is a mount point of its own, which can be neither moved nor removed.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use crate::support::{Mode, Outcome, Place, everywhere, no, within, yes};

#[test]
fn git_directory_cannot_be_replaced() {
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

/// The session helps a program to remove a directory in which it made files itself; not before they are all that is left.
#[test]
fn failed_removal_of_the_git_directory_leaves_its_guards() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write(".git/HEAD", "ref: refs/heads/main\n");
        place.write(".git/config", "[core]\n");
        let script = "for n in 1 2 3 4 5 6 7 8; do \
                      rmdir .git; { echo x >.git/config.worktree; } && echo written; done 2>/dev/null; \
                      mkdir d && rmdir d && echo removed";
        let outcome = place.shell(script);
        assert_eq!(outcome.stdout, "removed\n", "{mode:?} {outcome}");
        assert!(!outcome.stderr.contains("guarded again"), "{mode:?} {outcome}");
    }
}

/// A repository may redirect its configuration to a writable place.
#[test]
fn git_configuration_cannot_be_redirected_elsewhere() {
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
fn missing_hooks_cannot_be_added_to_a_repository() {
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

/// Git reads a repository that has no configuration, and whoever makes one says in it what git runs. Its parts may be links.
#[test]
#[ignore = "takes long"]
fn missing_configuration_cannot_be_added_to_a_repository() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"]}");
        for git in [".git", "nested/.git", "bare", "linked", "apart"] {
            place.write(format!("{git}/HEAD"), "ref: refs/heads/main\n");
        }
        for directory in ["bare/objects", "bare/refs", "elsewhere"] {
            place.write(format!("{directory}/.keep"), "");
        }
        for name in ["objects", "refs"] {
            std::os::unix::fs::symlink("../elsewhere", place.project.join("linked").join(name)).unwrap();
        }
        place.write("apart/commondir", "../elsewhere\n");
        place.write("config", "a file of the project\n");
        place.write("plain/config", "");
        let project = place.project.display();
        for git in [".git", "nested/.git", "bare", "linked", "apart"] {
            sandbox.holds(&[
                no(format!("append {project}/{git}/config x")),
                yes(format!("create {project}/{git}/index")),
            ]);
            assert!(!place.project.join(git).join("config").exists(), "{git}: the stub is gone");
        }
        sandbox.holds(&[
            no(format!("remove {project}/.git/config")),
            yes(format!("append {project}/config x")),
            yes(format!("append {project}/plain/config x")),
            // The target of `commondir` decides what git runs in the other repository.
            no(format!("append {project}/elsewhere/config x")),
        ]);
    });
}

/// A directory that becomes a repository during the run: it could not be guarded before.
#[test]
#[ignore = "takes long"]
fn new_repository_has_no_active_hooks() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"]}");
        let project = place.project.display();
        sandbox.holds(&[
            yes(format!("mkdir {project}/new")),
            yes(format!("mkdir {project}/new/.git")),
            yes(format!("mkdir {project}/new/.git/hooks")),
            no(format!("keep-creating {project}/new/.git/hooks/post-checkout")),
            no(format!("create {project}/new/.git/commondir")),
            yes(format!("create {project}/new/file")),
            yes(format!("create {project}/new/.git/index")),
            yes(format!("mkdir {project}/other")),
            yes(format!("keep-creating {project}/other/file")),
        ]);
        assert!(!place.project.join("new/.git/hooks/post-checkout").exists());
    });
}

/// Ways to make a repository in which `git status` at the top runs a program; `$1` is where, `$ARM` the line that arms.
const WAYS: &[(&str, &str)] = &[
    ("plain", "git init -q $1; arm >> $1/.git/config"),
    ("locked", "git init -q $1; : > $1/.git/index.lock; : > $1/.git/config.lock; arm >> $1/.git/config"),
    ("elsewhere", "git init -q --separate-git-dir store $1; arm >> store/config"),
    (
        "long",
        "git init -q $1; arm >> $1/.git/config; head -c 1200000 /dev/zero | tr '\\0' '#' >> $1/.git/config",
    ),
    ("link", "git init -q far; arm >> far/.git/config; mkdir $1; ln -s ../far/.git $1/.git"),
    ("linked", "git init -q $1; mv $1/.git/config c; arm >> c; ln -s ../../c $1/.git/config"),
    ("renamed", "git init -q r; mv r/.git r/x; arm >> r/x/config; mv r $1; mv $1/x $1/.git"),
    ("copied", "git init -q /tmp/c; arm >> /tmp/c/.git/config; mv /tmp/c $1"),
    ("included", "git init -q $1; arm > inc; printf '[include]\\npath = ../../inc\\n' >> $1/.git/config"),
    ("node_modules/x", "mkdir -p node_modules; git init -q $1; arm >> $1/.git/config"),
    ("closed", "git init -q $1; arm >> $1/.git/config; chmod 555 $1/.git"),
    (".hg/x", "mkdir .hg; git init -q $1; arm >> $1/.git/config"),
    // Files that name a directory, as git and the kernel read them.
    ("blank", "store '.git/objects/info/a '; mkdir $1; echo 'gitdir: ../.git/objects/info/a ' > $1/.git"),
    (
        "lines",
        "store '.git/objects/info/x\ngitdir: y'; mkdir $1; printf 'gitdir: ../.git/objects/info/x\\ngitdir: y\\n' > $1/.git",
    ),
    (
        "bytes",
        "store .git/objects/info/$(printf '\\377'); mkdir $1; printf 'gitdir: ../.git/objects/info/\\377' > $1/.git",
    ),
    (
        "behind",
        "store .git/objects/info/b; mkdir $1; ln -s .git/objects o; echo 'gitdir: ../o/info/b' > $1/.git",
    ),
    (
        "dots",
        "store .git/objects/info/d; mkdir $1 .git/objects/info/e; ln -s ../.git/objects/info/e $1/l; \
         echo 'gitdir: l/../d' > $1/.git",
    ),
    (
        "common",
        "store .git/objects/info/c; mkdir -p $1/.git; cp .git/HEAD $1/.git; echo ../../.git/objects/info/c > $1/.git/c; \
         ln -s c $1/.git/commondir",
    ),
    // Git asks of these two only whether they may be executed.
    (
        "files",
        "store $1; rm -r $1/objects $1/refs; cp evil $1/objects; cp evil $1/refs; printf '\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = .\\n' >> $1/config",
    ),
];

/// Makes all of them, each with an entry at the top that leads git into it.
fn script(place: &Place) -> String {
    let evil = place.project.join("evil");
    let mut script = format!(
        "arm() {{ printf '[core]\\n\\tfsmonitor = {}\\n'; }}\nstore() {{ mkdir -p \"$1\"/objects \"$1\"/refs; cp .git/HEAD \"$1\"; \
         arm > \"$1\"/config; }}\n",
        evil.display()
    );
    for (name, way) in WAYS {
        script.push_str(&format!("set -- {name}\n{way}\n"));
        let link = "1".repeat(40);
        script.push_str(&format!("git update-index --add --cacheinfo 160000,{link},{name}\n"));
    }
    script
}

/// Where the program ran when somebody asked for the status, at the top and in each.
fn obeyed(place: &Place) -> String {
    let ran = place.path("ran");
    let _ = fs::remove_file(&ran);
    for directory in std::iter::once(".").chain(WAYS.iter().map(|(name, _)| *name)) {
        let mut git = place.command("git");
        git.args(["-C", directory, "status", "--short"]).stdout(Stdio::null()).stderr(Stdio::null());
        git.status().unwrap();
    }
    fs::read_to_string(ran).unwrap_or_default()
}

fn with_evil(mode: Mode) -> Place {
    let place = Place::new(mode);
    place.policy("agent: {filesystem: {write: [\".\"]}}\n");
    place.script("evil", &format!("#!/bin/sh\npwd >> {}\n", place.path("ran").display()));
    place.own(&place.path(""));
    assert!(place.command("git").args(["init", "-q"]).status().unwrap().success());
    place
}

/// In the middle of a run.
#[test]
fn git_status_at_the_top_runs_nothing_from_new_repositories_below() {
    for mode in Mode::all() {
        let place = with_evil(mode);
        let waits = format!("{}\ntouch made; while ! test -e stop; do sleep 0.1; done", script(&place));
        let mut child = place
            .agentsh(&["run", "--quiet", "--", "sh", "-c", &waits])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        assert!(within(Duration::from_secs(30), || place.project.join("made").exists()));
        let held = within(Duration::from_secs(20), || obeyed(&place).is_empty());
        // It stays so.
        let later = obeyed(&place);
        let is_running = child.try_wait().unwrap().is_none();
        place.write("stop", "");
        let said = child.wait_with_output().unwrap();
        assert!(
            held && later.is_empty(),
            "{mode:?}: held {held}, later {later}{}{}",
            obeyed(&place),
            String::from_utf8_lossy(&said.stderr)
        );
        assert!(is_running, "{mode:?}");
        assert_eq!(obeyed(&place), "", "{mode:?}: after the end");
    }
}

/// The same without a sandbox.
#[test]
fn git_status_at_the_top_runs_it_without_a_sandbox() {
    let place = with_evil(Mode::all()[0]);
    place.command("sh").args(["-c", &script(&place)]).status().unwrap();
    let ran = obeyed(&place);
    for (name, _) in WAYS.iter().filter(|(name, _)| *name != "linked") {
        assert!(ran.lines().any(|line| line.ends_with(name)), "{name} is not an attack: {ran}");
    }
}

/// The twin: repositories are made as usual, in several steps, and used afterwards.
#[test]
#[ignore = "takes long"]
fn ordinary_repositories_can_be_made_during_the_run() {
    for mode in Mode::all() {
        let place = with_evil(mode);
        let script = "set -e; git config --global user.name a; git config --global user.email a@b; git config --global \
                      protocol.file.allow always; git init -q one; cd one; echo x > f; git add f; git commit -qm one; git remote \
                      add o /nowhere; sleep 3; git checkout -qb b; echo y >> f; git commit -qam two; cd ..; git clone -q one two; \
                      cd two; git submodule add -q ../one inner; git commit -qm sub; cd ..; git worktree list; git -C one worktree \
                      add -q ../tree; git clone -q --bare one bare.git; git -C two/inner log --oneline | wc -l";
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "sh", "-c", script]));
        assert!(outcome.stdout.trim().ends_with('2'), "{mode:?} {outcome}");
        assert!(!outcome.stderr.contains("set aside"), "{mode:?} {outcome}");
        let log = place.command("git").args(["-C", "two/inner", "log", "--oneline"]).output().unwrap();
        assert_eq!(log.stdout.iter().filter(|byte| **byte == b'\n').count(), 2, "{mode:?} {outcome}");
    }
}

/// Nothing happens in a new repository while its server takes minutes.
#[test]
#[ignore = "takes long"]
fn submodule_of_a_slow_server_can_be_made() {
    let add = |mode| {
        let place = with_evil(mode);
        place.script("slow", "#!/bin/sh\nsleep 130\nexec \"$@\"\n");
        let script = "set -e; git config --global user.name a; git config --global user.email a@b; git config --global \
                      protocol.file.allow always; git init -q one; git -C one commit -q --allow-empty -m one; git init -q two; \
                      git config --global uploadpack.packObjectsHook $PWD/slow; git -C two submodule add -q file://$PWD/one inner; \
                      git -C two commit -qm sub; git -C two/inner log --oneline";
        let output = place.agentsh(&["run", "--quiet", "--", "sh", "-c", script]).output().unwrap();
        assert!(output.status.success(), "{mode:?} {output:?}");
    };
    std::thread::scope(|scope| Mode::all().into_iter().for_each(|mode| drop(scope.spawn(move || add(mode)))));
}

/// A repository that appears where none was: at the top, by a rename, in place of a removed one, below an
/// unwatched directory. At the end none of them runs anything outside.
#[test]
fn no_repository_that_was_made_inside_runs_anything_outside() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy("agent: {filesystem: {write: [\".\"]}}\n");
        place.script("evil", &format!("#!/bin/sh\npwd >> {}\n", place.path("ran").display()));
        place.own(&place.path(""));
        let evil = place.project.join("evil").display().to_string();
        // An agent may know where its cache is on the host.
        Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "true"])).expect_code(0);
        let mut caches = fs::read_dir(place.home.join(".local/share/agentsh/caches")).unwrap();
        let cache = caches.next().unwrap().unwrap().path().join("own/.npm");
        let script = format!(
            "arm() {{ printf '[core]\\n\\tfsmonitor = {evil}\\n' >> $1/config; mkdir -p $1/hooks; \
             cp evil $1/hooks/post-checkout; }}\n\
             git init -q honest; git -C honest config user.name N; git -C honest remote add origin https://x.test/a.git\n\
             git init -q lfs; git -C lfs config lfs.url https://x.test/lfs; \
             git -C lfs config lfs.extension.x.clean '{evil} %f'\n\
             git init -q out; git -C out config core.worktree ../../..\n\
             mkdir -p node_modules/a renamed; git init -q node_modules/a; arm node_modules/a/.git\n\
             git init -q r; arm r/.git; mv r/.git r/x; mv r/x renamed/.git\n\
             git init -q .; arm .git\n\
             cache={}\n\
             mkdir -p ~/.npm/ev/objects ~/.npm/ev/refs cached shared/.git; cp .git/HEAD ~/.npm/ev; arm ~/.npm/ev\n\
             echo \"gitdir: $cache/ev\" > cached/.git; cp .git/HEAD shared/.git; echo $cache/ev > shared/.git/commondir\n\
             mkdir -p a b hg plain; printf '[paths]\\n%%include ../evil.rc\\n' > a/hgrc; mv a hg/.hg\n\
             printf '# new\\n[paths]\\ndefault = https://x.test/hg\\n\\n[ui]\\n# name\\n' > b/hgrc; mv b plain/.hg\n\
             mkdir -p d lines; printf '[paths]\\ndefault = x\\r[hooks]\\rpre-status = {evil}\\n' > d/hgrc; mv d lines/.hg\n\
             git init -q ~/.npm/x; arm ~/.npm/x/.git; ln -s $cache/x linked\n\
             true",
            cache.display()
        );
        let outcome =
            Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "sh", "-c", &script])).expect_code(0);
        for directory in [".", "node_modules/a", "renamed", "lfs", "out", "honest"] {
            let mut git = place.command("git");
            git.args(["-C", directory, "status", "--short"]).stdout(Stdio::null()).stderr(Stdio::null());
            git.status().unwrap();
            let config =
                fs::read_to_string(place.project.join(directory).join(".git/config")).unwrap_or_default();
            assert!(
                !config.contains("fsmonitor") && !config.contains("clean"),
                "{mode:?} {directory}: {config}"
            );
            assert!(!config.contains("worktree"), "{mode:?} {directory}: {config}");
            assert!(
                !place.project.join(directory).join(".git/hooks/post-checkout").exists(),
                "{mode:?} {directory}"
            );
        }
        // A directory for packages, which is kept where nothing is searched.
        assert!(cache.join("ev/config").exists(), "{mode:?}: {outcome}");
        for directory in ["cached", "shared", "linked"] {
            let mut git = place.command("git");
            git.args(["-C", directory, "status"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .unwrap();
        }
        assert!(!place.path("ran").exists(), "{mode:?}: {outcome}");
        assert!(outcome.stderr.contains("set aside"), "{mode:?}: {outcome}");
        for directory in ["hg", "lines"] {
            assert!(!place.project.join(directory).join(".hg/hgrc").exists(), "{mode:?}: {outcome}");
        }
        // Harmless files stay.
        assert!(place.project.join("plain/.hg/hgrc").exists(), "{mode:?}: {outcome}");
        let config = fs::read_to_string(place.project.join("honest/.git/config")).unwrap();
        assert!(config.contains("name = N") && config.contains("https://x.test/a.git"), "{config}");
        let config = fs::read_to_string(place.project.join("lfs/.git/config")).unwrap();
        assert!(config.contains("https://x.test/lfs"), "{config}");
    }
}

/// The host removes a nested repository, and the agent makes it again, at the same path.
#[test]
fn repository_removed_by_the_host_counts_as_new_when_made_again() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy("agent: {filesystem: {write: [\".\"]}}\n");
        place.script("evil", &format!("#!/bin/sh\npwd >> {}\n", place.path("ran").display()));
        place.own(&place.path(""));
        assert!(place.command("git").args(["init", "-q", "nested"]).status().unwrap().success());
        let evil = place.project.join("evil").display().to_string();
        let script = format!(
            "touch ready; while test -e nested; do sleep 0.05; done; git init -q nested; \
             printf '[core]\\n\\tfsmonitor = {evil}\\n' >> nested/.git/config; touch done"
        );
        let child = place
            .agentsh(&["run", "--quiet", "--", "sh", "-c", &script])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        assert!(within(Duration::from_secs(30), || place.project.join("ready").exists()));
        fs::rename(place.project.join("nested"), place.path("taken")).unwrap();
        let ended = within(Duration::from_secs(30), || place.project.join("done").exists());
        let said = child.wait_with_output().unwrap();
        assert!(ended, "{}", String::from_utf8_lossy(&said.stderr));
        // If git could not make it at all, there is nothing to obey either.
        let config = fs::read_to_string(place.project.join("nested/.git/config")).unwrap_or_default();
        assert!(!config.contains("fsmonitor"), "{mode:?}: {config}");
        let mut git = place.command("git");
        git.args(["-C", "nested", "status", "--short"]).stdout(Stdio::null()).stderr(Stdio::null());
        git.status().unwrap();
        assert!(!place.path("ran").exists(), "{mode:?}");
    }
}

/// A nested repository may be removed, and what is written in its place is not the user's: also in what is left of it, and if it
/// was moved meanwhile. The project's own repository stays whole.
#[test]
fn nested_repository_counts_as_new_once_a_guarded_file_was_removed() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy("agent: {filesystem: {write: [\".\"]}}\n");
        place.script("evil", &format!("#!/bin/sh\npwd >> {}\n", place.path("ran").display()));
        place.own(&place.path(""));
        let names = ["left", "moved", "kept"];
        for name in [".", "left", "moved", "kept", "hooks", "apart", "worktree"] {
            assert!(place.command("git").args(["init", "-q", name]).status().unwrap().success());
        }
        place.script("kept/.git/hooks/post-index-change", "#!/bin/sh\ntouch mine\n");
        // A nested repository is removed although the project's own obeys a file in it.
        assert!(place.command("git").args(["init", "-q", "shared"]).status().unwrap().success());
        place.script("shared/run", "#!/bin/sh\n");
        std::os::unix::fs::symlink("../../../shared/run", place.project.join(".git/hooks/post-index-change"))
            .unwrap();
        // The repository of the project itself, wherever it is.
        fs::rename(place.project.join(".git"), place.project.join("apart/own")).unwrap();
        place.write(".git", "gitdir: apart/own\n");
        let evil = place.project.join("evil").display().to_string();
        let script = format!(
            "evil() {{ printf '[core]\\n\\tfsmonitor = {evil}\\n' >$1/.git/config; }}; \
             rm left/.git/config && evil left; rm moved/.git/config && mv moved moved-away && evil moved-away; \
             rm -r hooks/.git/hooks && mkdir hooks/.git/hooks && cp evil hooks/.git/hooks/post-index-change; \
             rm -rf shared && mkdir shared && cp evil shared/run; \
             (rm .git; rm apart/own/config; rm -r apart/own/hooks) 2>/dev/null; rm -rf worktree && git init -q worktree && echo made"
        );
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", &script])).expect_code(0);
        assert_eq!(outcome.stdout, "made\n", "{mode:?} {outcome}");
        for name in ["left", "moved-away", "hooks", "worktree", "kept", "."] {
            let mut git = place.command("git");
            git.args(["-C", name, "reset", "-q"]).stdout(Stdio::null()).stderr(Stdio::null());
            git.status().unwrap();
        }
        assert!(!place.path("ran").exists(), "{mode:?} {outcome}");
        assert!(!place.project.join("shared/run").exists(), "{mode:?} {outcome}");
        assert!(place.project.join("kept/mine").exists(), "{mode:?}: nobody touched it {outcome}");
        assert!(
            place.project.join("apart/own/config").exists() && place.project.join(".git").exists(),
            "{outcome}"
        );
        for name in names.iter().take(2) {
            assert!(outcome.stderr.contains(&format!("{name}/.git, which was there")), "{mode:?} {outcome}");
        }
    }
}

/// Files that the user's configuration names for every repository are searched for in new ones too.
#[test]
fn hooks_and_programs_that_count_from_each_working_tree_are_set_aside_in_new_repositories() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy("agent: {filesystem: {write: [\".\"]}}\n");
        place.write(
            place.home.join(".config/git/config"),
            "[core]\nhooksPath = tools/hooks\nfsmonitor = ./tools/monitor\n[filter \"f\"]\nclean = ./tools/clean\n",
        );
        let outside = place.path("ran");
        place.write("known/keep", "");
        for words in [&["init", "-q", "known"][..], &["-C", "known", "add", "keep"]] {
            assert!(place.command("git").args(words).status().unwrap().success());
        }
        let script = format!(
            "for name in known new; do git init -q $name; mkdir -p $name/tools/hooks $name/src; echo x >$name/src/file; \
             for path in hooks/pre-commit monitor clean; do \
             printf '#!/bin/sh\\ntouch {}\\n' >$name/tools/$path; chmod +x $name/tools/$path; done; \
             echo '* filter=f' >$name/.gitattributes; done",
            outside.display()
        );
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", &script]));
        for name in ["known", "new"] {
            for words in [&["status"][..], &["add", "."], &["commit", "-qm", "x"]] {
                let mut git = place.command("git");
                git.args(["-C", name, "-c", "user.name=a", "-c", "user.email=a@b"]).args(words);
                let _ = git.output().unwrap();
            }
            assert!(!outside.exists(), "{mode:?} {name}: {outcome}");
            // The twin: everything else stays.
            assert!(place.project.join(name).join("src/file").exists(), "{mode:?} {outcome}");
        }
        assert!(outcome.stderr.contains("new/tools/hooks removed"), "{outcome}");
    }
}

/// A process that removes guarded files in a new repository makes it again: files that would run automatically are
/// set aside then too.
#[test]
fn a_new_repository_that_lost_its_guards_is_guarded_again() {
    for mode in Mode::all() {
        let place = with_evil(mode);
        let evil = place.project.join("evil").display().to_string();
        let script = format!(
            "git init -q new; cd new; for at in 1 2 3; do \
             i=0; while (: >>.git/config) 2>/dev/null && test $((i += 1)) -lt 60; do sleep 0.1; done; \
             rm -rf .git/config .git/hooks; mkdir .git/hooks; cp ../evil .git/hooks/post-checkout; \
             printf '[core]\\n\\tfsmonitor = {evil}\\n' >.git/config; \
             i=0; while grep -q evil .git/config && test $((i += 1)) -lt 60; do sleep 0.1; done; \
             grep evil .git/config; test -s .git/hooks/post-checkout && echo hook; done; true"
        );
        let outcome =
            Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "sh", "-c", &script])).expect_code(0);
        assert_eq!(outcome.stdout, "", "{mode:?} {outcome}");
        let mut git = place.command("git");
        git.args(["-C", "new", "status"]).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert!(!place.path("ran").exists(), "{mode:?} {outcome}");
    }
}

/// More names than get a stub of their own.
#[test]
fn many_files_that_run_automatically_are_all_set_aside() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy("agent: {filesystem: {write: [\".\"]}}\n");
        let script = "for n in $(seq 80); do echo '{}' > $n.code-workspace; done; echo x > .gdbinit; mkdir .idea; \
                      echo x > .idea/x; chmod 555 .idea; echo work > file";
        let outcome =
            Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "sh", "-c", script])).expect_code(0);
        let left: Vec<_> =
            fs::read_dir(&place.project).unwrap().flatten().map(|entry| entry.file_name()).collect();
        let is_kept =
            |name: &std::ffi::OsString| name == "file" || name.to_string_lossy().ends_with(".set-aside");
        assert!(
            left.iter().all(is_kept) && left.iter().any(|name| name == "file"),
            "{mode:?} {left:?} {outcome}"
        );
    }
}

/// The host removes a guarded file, as `git checkout` does, and the agent makes it again; or the host puts it back.
#[test]
fn guarded_file_removed_by_the_host_counts_as_new_when_made_again() {
    for mode in Mode::all() {
        for puts_back in [false, true] {
            let place = Place::new(mode);
            place.policy("agent: {filesystem: {write: [\".\"]}}\n");
            let file = place.write(".envrc", "original\n");
            let script = "touch ready; while test -e .envrc; do sleep 0.05; done; touch gone; \
                          while ! test -e go; do sleep 0.05; done; test -e .envrc || echo evil > .envrc; sleep 1";
            let child = place
                .agentsh(&["run", "--quiet", "--", "sh", "-c", script])
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            assert!(within(Duration::from_secs(30), || place.project.join("ready").exists()));
            fs::remove_file(&file).unwrap();
            assert!(within(Duration::from_secs(30), || place.project.join("gone").exists()));
            if puts_back {
                place.write(".envrc", "original\n");
            }
            place.write("go", "");
            let said = child.wait_with_output().unwrap();
            let left = fs::read_to_string(&file).unwrap_or_default();
            // On a busy machine the agent is faster than the check, which then brings back what was there before.
            let is_expected = left == "original\n" || left.is_empty() && !puts_back;
            assert!(is_expected, "{mode:?}: {left:?} {}", String::from_utf8_lossy(&said.stderr));
        }
    }
}
