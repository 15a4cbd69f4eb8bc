//! `agentsh run --review` and `agentsh review`: changes that were made inside are shown, applied, undone and
//! discarded.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::sandbox::{read_file, script_with, write_file};
use crate::support::{Mode, Outcome, Place, eventually, is_root, patience, skip, within};

/// The first name, in order, of every file that has several: which names are one file.
fn names_of_one_file(directory: &Path) -> BTreeMap<PathBuf, PathBuf> {
    let mut first: BTreeMap<(u64, u64), PathBuf> = BTreeMap::new();
    let mut found = BTreeMap::new();
    // In order of their names.
    for path in snapshot(directory).into_keys() {
        let meta = directory.join(&path).symlink_metadata().unwrap();
        if meta.is_file() && meta.nlink() > 1 {
            let name = first.entry((meta.dev(), meta.ino())).or_insert_with(|| path.clone());
            found.insert(path, name.clone());
        }
    }
    found
}

/// Kind, mode and content of everything below a directory.
fn snapshot(directory: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let what = if meta.is_dir() {
                open.push(path.clone());
                format!("directory {:o}", meta.mode() & 0o7777)
            } else if meta.is_symlink() {
                format!("link {}", fs::read_link(&path).unwrap().display())
            } else {
                let content = fs::read(&path).unwrap();
                format!("file {:o} {}", meta.mode() & 0o7777, String::from_utf8_lossy(&content))
            };
            found.insert(path.strip_prefix(directory).unwrap().to_owned(), what);
        }
    }
    found
}

fn run(place: &Place, script: &str) -> Outcome {
    Outcome::of(&mut place.agentsh(&["run", "--quiet", "--review", "--", "sh", "-ec", script]))
}

/// The originals are copied while the agent works: it ends when a text is in them this often.
fn run_with_originals(place: &Place, script: &str, text: &str, times: usize) {
    let script = format!("{script}\nread line");
    let mut command = place.agentsh(&["run", "--quiet", "--review", "--", "sh", "-ec", &script]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let layers = place.home.join(".local/state/agentsh/review");
    let copied = || {
        let sessions = fs::read_dir(&layers).into_iter().flatten().flatten();
        let originals = sessions.filter_map(|session| fs::read(session.path().join("originals")).ok());
        let counts = originals.map(|all| all.windows(text.len()).filter(|at| *at == text.as_bytes()).count());
        counts.max().unwrap_or_default()
    };
    let is_copied = within(patience(Duration::from_secs(60)), || copied() == times);
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(child.wait().unwrap().success());
    assert!(is_copied, "{} of {times}", copied());
}

fn review(place: &Place, words: &[&str]) -> Outcome {
    let words: Vec<&str> = std::iter::once("review").chain(words.iter().copied()).collect();
    Outcome::of(&mut place.agentsh(&words))
}

/// The changes by path.
fn changes(place: &Place) -> BTreeMap<String, Value> {
    let outcome = review(place, &["--json"]);
    let all: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|_| panic!("{outcome}"));
    let rows = all["changes"].as_array().unwrap().iter();
    rows.map(|row| (row["path"].as_str().unwrap().to_owned(), row.clone())).collect()
}

fn files(place: &Place) {
    place.write("a.txt", "one\ntwo\nthree\n");
    place.write("same.txt", "same\n");
    place.write("gone.txt", "gone\n");
    place.write("sub/b.txt", "b\n");
    place.write("sub/deep/c.txt", "c\n");
    place.write("tree/x", "x\n");
    place.write("tree/y/z", "z\n");
    place.write("turns", "a file\n");
    place.write("folder/inner/file", "inner\n");
    place.script("tool.sh", "#!/bin/sh\necho tool\n");
    symlink("a.txt", place.project.join("link")).unwrap();
    place.own(&place.project.join("link"));
    for pair in ["pair", "both", "kept", "half"] {
        place.write(format!("{pair}/x"), format!("{pair}\n"));
        fs::hard_link(place.project.join(format!("{pair}/x")), place.project.join(format!("{pair}/y")))
            .unwrap();
    }
}

/// Everything that can happen to a file.
const WORK: &str = "printf 'one\\n2\\nthree\\nfour\\n' > a.txt; touch same.txt; cat same.txt > t; mv t same.txt; \
    rm gone.txt; mv sub/b.txt sub/moved.txt; chmod 600 sub/deep/c.txt; rm -r tree; mkdir tree; echo new > tree/n; \
    rm turns; mkdir turns; echo in > turns/in; rm -r folder; echo file > folder; mkdir -p empty/one; chmod 700 empty; \
    ln -sf sub link; ln -s /etc/passwd out; chmod 755 a.txt; echo 'a b' > 'odd \"name'; : > nothing; \
    rm both/x both/y pair/x; rm half/x; echo other > half/x; ln tool.sh tool-too; echo l > one; ln one two; mkdir far; \
    ln two far/three; ln sub/deep/c.txt sub/deep/d.txt";

#[test]
fn reviewed_changes_reach_the_project_only_when_applied() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        files(&place);
        let before = snapshot(&place.project);
        let outcome = run(&place, &format!("{WORK}; cat sub/moved.txt tree/n; ./tool.sh")).expect_code(0);
        assert_eq!(outcome.stdout, "b\nnew\ntool\n", "{outcome}");
        assert!(
            outcome.stderr.contains("files changed, not yet in the project: `agentsh review "),
            "{outcome}"
        );
        assert_eq!(snapshot(&place.project), before, "{mode:?}: the project was changed");

        let shown = review(&place, &[]).expect_code(0);
        for line in ["M a.txt +2 -1", "-two", "+2", "D gone.txt", "A sub/moved.txt", "A tree/n", "D tree/y/z"]
        {
            assert!(shown.stdout.lines().any(|shown| shown.starts_with(line)), "{line}: {shown}");
        }
        assert!(!shown.stdout.contains("same.txt"), "it is as it was: {shown}");
        assert_eq!(snapshot(&place.project), before, "showing changes nothing");

        let applied = review(&place, &["--apply"]).expect_code(0);
        let after = snapshot(&place.project);
        assert_eq!(after[Path::new("a.txt")], "file 755 one\n2\nthree\nfour\n", "{applied}");
        assert_eq!(after[Path::new("sub/deep/c.txt")], "file 600 c\n");
        assert_eq!(after[Path::new("turns/in")], "file 644 in\n");
        assert_eq!(after[Path::new("folder")], "file 644 file\n");
        assert_eq!(after[Path::new("empty")], "directory 700");
        assert_eq!(after[Path::new("out")], "link /etc/passwd");
        assert!(!after.contains_key(Path::new("tree/x")) && !after.contains_key(Path::new("gone.txt")));
        assert!(place.listed(&["review", "--list", "--json"]).is_empty(), "nothing is left to apply");

        review(&place, &["--undo"]).expect_code(0);
        assert_eq!(snapshot(&place.project), before, "{mode:?}: undone");
        review(&place, &["--undo"]).expect_code(0);
        assert_eq!(snapshot(&place.project), after, "{mode:?}: done again");
    }
}

/// The same work on the project itself gives the same project.
#[test]
fn sparse_file_is_applied_as_a_sparse_file() {
    use std::os::unix::fs::MetadataExt;
    for mode in Mode::all() {
        let place = Place::new(mode);
        files(&place);
        let made = "truncate -s 64M image; printf head | dd of=image conv=notrunc status=none; \
                    printf tail | dd of=image bs=1M seek=40 conv=notrunc status=none; cksum <image";
        let inside = run(&place, made).expect_code(0);
        review(&place, &["--apply"]).expect_code(0);
        let image = place.project.join("image");
        let found = fs::metadata(&image).unwrap();
        assert!(found.len() == 64 << 20 && found.blocks() < 2048, "{mode:?}: {} blocks", found.blocks());
        let outside = Outcome::of(place.command("sh").args(["-c", "cksum <\"$1\"", "sh"]).arg(&image));
        assert_eq!(outside.stdout, inside.stdout, "{mode:?}");
    }
}

#[test]
fn applied_layer_equals_a_live_run() {
    for mode in Mode::all() {
        let (live, layered) = (Place::new(mode), Place::new(mode));
        files(&live);
        files(&layered);
        live.shell(WORK).expect_code(0);
        run(&layered, WORK).expect_code(0);
        review(&layered, &["--apply"]).expect_code(0);
        assert_eq!(snapshot(&live.project), snapshot(&layered.project), "{mode:?}");
        assert_eq!(names_of_one_file(&live.project), names_of_one_file(&layered.project), "{mode:?}");
        let owner = |place: &Place, name: &str| place.project.join(name).symlink_metadata().unwrap().uid();
        for name in ["a.txt", "tree/n", "empty", "out"] {
            assert_eq!(owner(&live, name), owner(&layered, name), "{mode:?} {name}");
        }
    }
}

/// A day of work in one repository: git, renames, modes, links, builds. Times of commits are given, so that their names are the same.
const DAY: &str = "export GIT_AUTHOR_DATE='2030-01-01T00:00:00Z' GIT_COMMITTER_DATE='2030-01-01T00:00:00Z'; \
    echo two > two; git add two; git commit -qm two; git checkout -qb side; mkdir -p src/deep; echo s > src/deep/s; git add .; \
    git commit -qm side; git checkout -q main; echo three > three; git add three; git commit -qm three; git merge -q --no-edit side; \
    echo w > untracked; echo more >> two; git stash -uq; git stash pop -q >/dev/null; git mv three four; git commit -qam renamed; \
    git branch -qd side; git tag -a v1 -m v1; chmod 755 two; chmod 600 untracked; ln -s two link; mv src moved; rm gone; \
    git status --porcelain > status; git log --format=%H > log; cp log copy; mv copy log2; rm -f .git/ORIG_HEAD; \
    ln two same; mkdir -p far; ln log far/log; ln log far/again; rm linked";
const DAY_OF_NODE: &str = "; npm install --offline --no-audit --no-fund --silent >/dev/null; npm run -s build; npm version -s patch --no-git-tag-version >/dev/null";
const DAY_OF_CARGO: &str = "; CARGO_INCREMENTAL=0 cargo build -q --offline --manifest-path crate/Cargo.toml; crate/target/debug/made > said";

/// Files with times and inodes, which differ in each run.
fn is_of_its_run(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path == Path::new(".git/index")
        || name == "invoked.timestamp"
        || name == "output"
        || name.starts_with(".rustc_info")
        || name.starts_with("dep-")
}

/// The same scripted day on the project itself, and in a layer that is applied, gives the same project.
#[test]
#[ignore = "takes long"]
fn scripted_day_in_an_applied_layer_equals_a_live_one() {
    let is_there =
        |program: &str| ["/usr/bin", "/usr/local/bin"].iter().any(|at| Path::new(at).join(program).exists());
    if !is_there("git") {
        return skip("git is not installed");
    }
    let cargo = Path::new(env!("CARGO")).parent().unwrap();
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mut day = DAY.to_owned();
        if is_there("npm") && is_there("node") {
            day += DAY_OF_NODE
        } else {
            skip("npm is not installed")
        }
        let mut command = place.command("test");
        let has_cargo = Outcome::of(command.arg("-x").arg(cargo.join("cargo"))).code == 0;
        if has_cargo {
            day += DAY_OF_CARGO;
            let top = cargo.parent().unwrap().display();
            place.user_policy(&format!("agent: {{filesystem: {{read: [\"{top}\"]}}}}\n"));
            place.set("PATH", format!("/usr/local/bin:/usr/bin:/bin:{}", cargo.display()));
        } else {
            skip(&format!("{mode:?}: {} cannot be read", cargo.display()));
        }
        place.write(
            place.home.join(".gitconfig"),
            "[user]\n\tname = A\n\temail = a@example.org\n[init]\n\tdefaultBranch = main\n",
        );
        let begin = || {
            fs::remove_dir_all(&place.project).unwrap();
            place.make_directory(&place.project);
            place.write("gone", "gone\n");
            place.write("linked", "linked\n");
            fs::hard_link(place.project.join("linked"), place.project.join("linked-too")).unwrap();
            place.write(".gitignore", "node_modules\ntarget\n");
            place.write("dep/package.json", "{\"name\": \"dep\", \"version\": \"1.0.0\"}");
            place.write(
                "package.json",
                "{\"name\": \"p\", \"version\": \"1.0.0\", \"dependencies\": {\"dep\": \"file:dep\"}, \
                 \"scripts\": {\"build\": \"node -p 1 > built\"}}",
            );
            place.write(
                "crate/Cargo.toml",
                "[package]\nname = \"made\"\nversion = \"1.0.0\"\nedition = \"2021\"\n",
            );
            place.write("crate/src/main.rs", "fn main() { println!(\"made\") }\n");
            let script = "export GIT_AUTHOR_DATE='2029-01-01T00:00:00Z' GIT_COMMITTER_DATE='2029-01-01T00:00:00Z'; \
                          git init -q . && git add . && git commit -qm one";
            Outcome::of(place.command("sh").args(["-ec", script])).expect_code(0);
        };
        let seen = || {
            let mut found = snapshot(&place.project);
            found.retain(|path, _| !is_of_its_run(path));
            // Two names of one build, for example.
            for (path, first) in names_of_one_file(&place.project) {
                found.insert(Path::new("names").join(path), first.display().to_string());
            }
            let staged = Outcome::of(
                place.command("sh").args(["-ec", "git ls-files -s; git status --porcelain; git fsck"]),
            );
            found.insert("index".into(), staged.expect_code(0).stdout);
            found
        };
        begin();
        place.shell(&day).expect_code(0);
        let live = seen();
        begin();
        run(&place, &day).expect_code(0);
        review(&place, &["--apply"]).expect_code(0);
        let layered = seen();
        let wrong = differing(&live, &layered);
        let shown: Vec<_> =
            wrong.iter().take(8).map(|path| (path, live.get(path), layered.get(path))).collect();
        assert!(wrong.is_empty(), "{mode:?}: {} differ: {shown:#?}", wrong.len());
        assert!(live.len() > 60 && live.contains_key(Path::new("moved/deep/s")), "{mode:?}");
        if has_cargo {
            assert_eq!(live[Path::new("said")], "file 644 made\n");
        }
    }
}

#[test]
fn file_changed_outside_is_a_conflict_and_stays() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        for name in ["edited", "removed", "deleted", "free", "kept/inner"] {
            place.write(name, "before\n");
        }
        run(
            &place,
            "for f in edited removed free; do echo inside > $f; done; rm deleted; rm -r kept; echo i > made",
        )
        .expect_code(0);
        place.write("edited", "outside\n");
        fs::remove_file(place.project.join("removed")).unwrap();
        place.write("deleted", "changed\n");
        place.write("made", "outside\n");
        place.write("kept/other", "outside\n");

        let shown = review(&place, &[]).expect_code(1);
        assert!(
            shown.stdout.contains("M edited") && shown.stdout.contains("conflict: it was changed outside"),
            "{shown}"
        );
        let outcome = review(&place, &["--apply"]).expect_code(1);
        for name in ["edited", "removed", "deleted", "made"] {
            assert!(outcome.stdout.contains(&format!("conflict: {name}: ")), "{name} {outcome}");
        }
        let read = |name: &str| fs::read_to_string(place.project.join(name)).unwrap_or_default();
        assert_eq!(read("free"), "inside\n", "the twin is applied");
        assert_eq!(read("edited"), "outside\n");
        assert_eq!(read("deleted"), "changed\n");
        assert_eq!(read("made"), "outside\n");
        assert_eq!(read("kept/other"), "outside\n");
        assert!(!place.project.join("removed").exists());
        // The layer stays: what is in it is nowhere else.
        assert_eq!(place.listed(&["review", "--list", "--json"]).len(), 1);
        place.write("edited", "inside\n");
        assert!(!review(&place, &[]).stdout.contains("edited"), "made the same by hand, it is none any more");
    }
}

/// Files changed on both sides are merged if the changes do not touch; no outside change is lost.
#[test]
fn texts_that_were_changed_on_both_sides_are_merged() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let lines = |marks: &[(usize, &str)]| {
            let line =
                |at: usize| marks.iter().find(|(line, _)| *line == at).map_or("line", |(_, text)| *text);
            (0..20).map(|at| format!("{at} {}\n", line(at))).collect::<String>()
        };
        for name in ["both", "touching", "binary", "later"] {
            place.write(name, lines(&[]));
        }
        place.write("binary", [0, 1, 2]);
        let inside = lines(&[(3, "inside")]);
        place.write("../inside", &inside);
        let script = format!(
            "for f in both touching later; do cat > $f <<'X'\n{inside}X\ndone; printf '\\1\\2' > binary"
        );
        run_with_originals(&place, &script, "19 line", 3);
        place.write("both", lines(&[(15, "outside")]));
        place.write("touching", lines(&[(4, "outside")]));
        place.write("binary", [3, 4, 5]);

        let shown = review(&place, &[]).expect_code(1);
        assert!(shown.stdout.contains("M both +1 -1 (merged with changes made outside)"), "{shown}");
        assert!(shown.stdout.contains("M touching +2 -2 (conflict"), "{shown}");
        let outcome = review(&place, &["--apply"]).expect_code(1);
        let read = |name: &str| fs::read_to_string(place.project.join(name)).unwrap();
        assert_eq!(read("both"), lines(&[(3, "inside"), (15, "outside")]), "{outcome}");
        assert_eq!(read("touching"), lines(&[(4, "outside")]));
        assert_eq!(read("later"), inside);
        assert_eq!(fs::read(place.project.join("binary")).unwrap(), [3, 4, 5]);
        // Once more changes nothing, and it can be taken back.
        review(&place, &["--apply"]).expect_code(1);
        assert_eq!(read("both"), lines(&[(3, "inside"), (15, "outside")]));
        review(&place, &["--undo", "both"]).expect_code(0);
        assert_eq!(read("both"), lines(&[(15, "outside")]));
    }
}

/// The layer is what the agent made, before and after it is applied: nothing of it is lost to a merge, nothing is put into
/// it, and what cannot be merged keeps nothing else back.
#[test]
fn a_merge_leaves_the_layer_as_the_agent_left_it() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let text = |two: &str, seven: &str| format!("x\ry\n1\n{two}\n3\n4\n5\n6\n{seven}\n8 end\n");
        let names = ["both", "sub/shut", "free"];
        names.iter().for_each(|name| drop(place.write(name, text("2", "7"))));
        let script = format!(
            "for f in {}; do cat > $f <<'X'\n{}X\ndone; echo own > .agentsh-merged; mkdir sub/.agentsh-merged; \
             echo own > sub/.agentsh-merged/file",
            names.join(" "),
            text("inside", "7")
        );
        run_with_originals(&place, &script, "8 end", names.len());
        for name in ["both", "sub/shut"] {
            place.write(name, text("2", "outside"));
        }
        let layers = place.home.join(".local/state/agentsh/review");
        let upper = fs::read_dir(layers).unwrap().next().unwrap().unwrap().path().join("upper");
        let layer = snapshot(&upper);
        let read = |name: &str| fs::read_to_string(place.project.join(name)).unwrap();
        let close = |mode| {
            fs::set_permissions(place.project.join("sub"), fs::Permissions::from_mode(mode)).unwrap();
        };

        // Nothing can be written next to it; root can.
        close(0o555);
        let outcome = review(&place, &["--apply", "--keep"]);
        close(0o755);
        assert_eq!(outcome.code, i32::from(!place.mode.is_root()), "{outcome}");
        assert_eq!(snapshot(&upper), layer, "{mode:?}: {outcome}");
        assert_eq!(read("both"), text("inside", "outside"), "{outcome}");
        assert_eq!(read("free"), text("inside", "7"));
        assert_eq!(read(".agentsh-merged"), "own\n");
        if !place.mode.is_root() {
            assert!(outcome.stdout.contains("conflict: sub/shut: "), "{outcome}");
            assert_eq!(read("sub/shut"), text("2", "outside"));
            // A user who reverts an edit does not get it back as the agent's.
            place.write("sub/shut", text("2", "7"));
        }
        review(&place, &["--apply", "--keep"]).expect_code(0);
        let shut = if place.mode.is_root() { "outside" } else { "7" };
        assert_eq!(read("sub/shut"), text("inside", shut), "{mode:?}");
        assert_eq!(read("sub/.agentsh-merged/file"), "own\n");
        assert!(
            changes(&place).is_empty(),
            "all of it is applied, and nothing is applied over what was merged"
        );
        review(&place, &["--apply", "--keep"]).expect_code(0);
        assert_eq!(read("both"), text("inside", "outside"));

        // Undone, redone, undone, and merged again.
        for expected in ["2", "inside", "2"] {
            review(&place, &["--undo", "both"]).expect_code(0);
            assert_eq!(read("both"), text(expected, "outside"), "{mode:?}");
            assert_eq!(changes(&place).contains_key("both"), expected == "2", "{mode:?}");
        }
        review(&place, &["--apply", "--keep"]).expect_code(0);
        assert_eq!(read("both"), text("inside", "outside"), "{mode:?}: the edit from outside is not lost");
        // Edited once more, it is a conflict.
        place.write("both", text("mine", "outside"));
        let outcome = review(&place, &["--apply", "--keep"]).expect_code(1);
        assert!(outcome.stdout.contains("conflict: both"), "{outcome}");
        assert_eq!(read("both"), text("mine", "outside"));
        assert_eq!(snapshot(&upper), layer, "{mode:?}");
    }
}

/// The same size, and the old time put back.
#[test]
fn outside_change_with_the_same_size_and_time_is_detected() {
    let place = Place::new(Mode::Invoker);
    let path = place.write("file", "aaaa\n");
    run(&place, "echo inside > file").expect_code(0);
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, "bbbb\n").unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(before).unwrap();
    let outcome = review(&place, &["--apply"]).expect_code(1);
    assert!(outcome.stdout.contains("conflict: file"), "{outcome}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "bbbb\n");
}

#[test]
fn guarded_files_are_shown_first_and_applied_only_when_named() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write(".git/HEAD", "ref: refs/heads/main\n");
        place.write(".git/config", "[core]\n");
        place.write(".git/objects/x", "");
        place.write(".git/refs/x", "");
        place.write("z/file", "z\n");
        let script = "mkdir -p .git/hooks .vscode z/.git/hooks bare/objects bare/refs bare/hooks; \
                      echo '[a]' >> .git/config; echo x > .git/hooks/pre-commit; echo x > .git/hooks/a.sample; \
                      echo x > .envrc; echo x > .mcp.json; echo '{}' > .vscode/tasks.json; echo x > z/.git/hooks/post-merge; \
                      echo x > bare/hooks/update; ln -s /tmp .husky; echo plain > z/file; echo C > CLAUDE.md; \
                      mkdir -p .git/refs/heads; echo x > .git/refs/heads/config";
        run(&place, script).expect_code(0);
        let guarded = [
            ".git/config",
            ".git/hooks/pre-commit",
            ".envrc",
            ".mcp.json",
            ".vscode/tasks.json",
            "z/.git/hooks/post-merge",
            "bare/hooks/update",
            ".husky",
        ];
        let found = changes(&place);
        for name in guarded {
            assert!(found[name]["guarded"].is_string(), "{name}: {found:#?}");
        }
        for name in ["z/file", "CLAUDE.md", ".git/hooks/a.sample", ".git/refs/heads/config"] {
            assert!(found[name]["guarded"].is_null(), "{name}: {found:#?}");
        }
        let shown = review(&place, &["--stat"]).expect_code(0);
        let line = |name: &str| shown.stdout.lines().position(|line| line.contains(name)).unwrap();
        assert!(
            shown.stdout.contains("run automatically outside") && line(".envrc") < line("z/file"),
            "{shown}"
        );

        let outcome = review(&place, &["--apply", "."]).expect_code(0);
        assert!(outcome.stdout.contains("guarded: .envrc: "), "{outcome}");
        assert_eq!(fs::read_to_string(place.project.join("z/file")).unwrap(), "plain\n");
        assert_eq!(fs::read_to_string(place.project.join(".git/config")).unwrap(), "[core]\n");
        for name in guarded.iter().skip(1) {
            assert!(place.project.join(name).symlink_metadata().is_err(), "{name} {outcome}");
        }
        // A name above it is not a name of it.
        review(&place, &["--apply", ".git"]).expect_code(0);
        assert!(!place.project.join(".git/hooks/pre-commit").exists());
        review(&place, &["--apply", ".envrc", ".vscode"]).expect_code(0);
        assert!(place.project.join(".envrc").exists() && place.project.join(".vscode/tasks.json").exists());
        assert!(!place.project.join(".mcp.json").exists());
        review(&place, &["--apply", "--guarded"]).expect_code(0);
        assert!(
            place.project.join(".git/hooks/pre-commit").exists() && place.project.join(".husky").is_symlink()
        );
    }
}

#[test]
fn git_works_inside_and_its_commits_arrive() {
    if !Path::new("/usr/bin/git").exists() {
        return skip("git is not installed");
    }
    for mode in Mode::all() {
        let place = Place::new(mode);
        let git = |script: &str| Outcome::of(place.command("sh").args(["-ec", script])).expect_code(0);
        place.write(
            place.home.join(".gitconfig"),
            "[user]\n\tname = A\n\temail = a@example.org\n[init]\n\tdefaultBranch = main\n",
        );
        git("git init -q . && echo one > file && git add . && git commit -qm one");
        let script = "git config alias.st status; echo two > file; git commit -qam two; git checkout -qb side; \
                      echo s > s; echo w > w; git stash -uq; git stash pop -q >/dev/null; git add .; git commit -qm three; \
                      git branch -m side other; git checkout -q main; git merge -q other; git clean -fdq; git gc -q; \
                      git st -s; git log --format=%s";
        let outcome = run(&place, script).expect_code(0);
        assert_eq!(outcome.stdout, "three\ntwo\none\n", "{outcome}");
        assert_eq!(
            git("git log --format=%s; git status -s; git config alias.st || true").stdout,
            "one\n",
            "{mode:?}"
        );
        // `git status` rewrites its index.
        let first = review(&place, &["--apply"]);
        assert!(first.code == 0 || first.stdout.contains("conflict: .git/index"), "{first}");
        let log = git("git log --format=%s main; git fsck --no-dangling; cat s w file");
        assert_eq!(log.stdout, "three\ntwo\none\ns\nw\ntwo\n", "{mode:?}");
        let config = fs::read_to_string(place.project.join(".git/config")).unwrap();
        assert!(!config.contains("alias"), "{config}");
    }
}

#[test]
fn servers_see_what_the_agent_wrote() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let file = place.write("file", "before\n");
        let servers =
            json!({"mcpServers": {"fixture": {"command": place.program("fixture_server"), "args": []}}});
        place.write(place.home.join(".claude.json"), servers.to_string());
        place.user_policy("sandbox: {mcp: {servers: [{id: fixture, filesystem: {write: [\".\"]}}]}}\n");
        let (made, other) = (place.project.join("made"), place.project.join("other"));
        let steps = json!([
            {"attempt": format!("overwrite {}", file.display())},
            {"attempt": format!("create {}", other.display())},
            write_file("fixture", &made),
            read_file("fixture", &file),
            read_file("fixture", &other),
            {"attempt": format!("read {} x", made.display())},
        ]);
        let answers = script_with(&place, &["--quiet", "--review"], &steps);
        assert_eq!(answers.text(2), "written", "{mode:?} {}", answers.outcome);
        assert_eq!(answers.text(3), "", "the agent emptied it: {}", answers.outcome);
        assert_eq!(answers.text(4), "made by the probe\n");
        assert_eq!(answers.json[5], "DONE", "the agent reads what the server wrote: {}", answers.outcome);
        assert!(!made.exists() && fs::read_to_string(&file).unwrap() == "before\n", "{}", answers.outcome);
        let found = changes(&place);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["file", "made", "other"], "{}", answers.outcome);
    }
}

#[test]
fn review_of_a_running_session_is_shown_and_not_discarded() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write("file", "before\n");
        let mut command =
            place.agentsh(&["run", "--quiet", "--review", "--", "sh", "-c", "echo inside > file; read line"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        assert!(
            eventually(|| review(&place, &["--stat"]).stdout.contains("M file")),
            "{}",
            review(&place, &[])
        );
        let shown = review(&place, &[]).expect_code(0);
        assert!(shown.stdout.contains("still running") && shown.stdout.contains("+inside"), "{shown}");
        let refused = review(&place, &["--discard"]).expect_code(125);
        assert!(refused.stderr.contains("still running"), "{refused}");
        review(&place, &["--apply", "file"]).expect_code(0);
        assert_eq!(fs::read_to_string(place.project.join("file")).unwrap(), "inside\n");
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(
            place.listed(&["review", "--list", "--json"]).len(),
            usize::from(place.project.join("x").exists())
        );
    }
}

#[test]
fn review_layers_can_be_kept_discarded_and_named() {
    let place = Place::new(Mode::Invoker);
    place.write("file", "before\n");
    run(&place, "echo inside > file").expect_code(0);
    review(&place, &["--keep", "--stat"]).expect_code(0);
    review(&place, &["--apply", "--keep"]).expect_code(0);
    let rows = place.listed(&["review", "--list", "--json"]);
    assert_eq!(rows.len(), 1);
    let session = rows[0]["session"].as_str().unwrap().to_owned();
    let elsewhere = place.home.join("elsewhere");
    place.make_directory(&elsewhere);
    let from = |words: &[&str]| Outcome::of(place.agentsh(words).current_dir(&elsewhere));
    assert_eq!(from(&["review"]).code, 1);
    from(&["review", &session[..30]]).expect_code(0);
    assert_eq!(from(&["review", "no-such"]).code, 1);
    assert_eq!(from(&["review", &session, "--apply", "file"]).code, 125, "it is not in the project");
    from(&["review", &session, "--discard"]).expect_code(0);
    from(&["review", &session, "--undo"]).expect_code(0);
    assert_eq!(fs::read_to_string(place.project.join("file")).unwrap(), "before\n");
    assert_eq!(review(&place, &["--apply", "--discard"]).code, 2, "one of both");
    // A run that changes nothing leaves nothing.
    let quiet = run(&place, "cat file").expect_code(0);
    assert!(quiet.stderr.contains("no changes in the project"), "{quiet}");
    assert!(place.listed(&["review", "--list", "--json"]).is_empty());
}

#[test]
fn a_script_of_the_project_is_the_agent() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.script("agent.sh", "#!/bin/sh\necho ran > made\ncat made\n");
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--quiet", "--review", "--", "./agent.sh"]))
            .expect_code(0);
        assert_eq!(outcome.stdout, "ran\n", "{outcome}");
        assert!(!place.project.join("made").exists());
        assert!(changes(&place).contains_key("made"));
    }
}

/// Files that the policy hides or makes read-only stay so.
#[test]
fn review_layer_obeys_the_policy() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write("secret/key", "KEY");
        place.write("src/file", "a\n");
        place.policy("agent: {filesystem: {read: [\".\"], write: [\"./src\"], deny: [\"./secret\"]}}\n");
        let script = "cat secret/key 2>/dev/null || true; (echo x > top) 2>/dev/null || true; echo b > src/file; cat src/file";
        let outcome = run(&place, script).expect_code(0);
        assert_eq!(outcome.stdout, "b\n", "{outcome}");
        let found = changes(&place);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["src/file"], "{found:#?}");
    }
}

/// Started by root in somebody else's project: what is applied belongs to the project's owner.
#[test]
fn files_that_root_applies_belong_to_the_projects_owner() {
    let place = Place::new(Mode::Invoker);
    if !place.mode.is_root() {
        return skip("only root may work in what belongs to others");
    }
    let old = place.write("old", "old\n");
    for path in [&place.project, &old] {
        std::os::unix::fs::lchown(path, Some(4321), Some(4322)).unwrap();
    }
    run(&place, "echo new > new; echo more >> old; mkdir made; ln -s new link").expect_code(0);
    review(&place, &["--apply"]).expect_code(0);
    for name in ["new", "old", "made", "link"] {
        let found = place.project.join(name).symlink_metadata().unwrap();
        assert_eq!((found.uid(), found.gid()), (4321, 4322), "{name}");
    }
}

/// A layer does not reach over a mount: it says so, and what to do.
#[test]
fn review_without_a_layer_does_not_start() {
    if !is_root() {
        return skip("only root may mount something in a project");
    }
    let place = Place::new(Mode::Invoker);
    place.make_directory(&place.project.join("mounted"));
    let agentsh = place.program("agentsh");
    let script =
        format!("mount -t tmpfs none mounted && exec {agentsh:?} run --quiet --review -- sh -c 'echo ran'");
    let outcome = Outcome::of(place.command("unshare").args(["-m", "sh", "-c", &script]));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (125, ""), "{outcome}");
    assert!(outcome.stderr.contains("overlayfs") && outcome.stderr.contains("without --review"), "{outcome}");
    assert!(place.listed(&["review", "--list", "--json"]).is_empty());
}

/// A name that runs automatically never shares an inode with a writable name; hard links are restored after a part of
/// them was applied, and a user's own change is not taken for agentsh's.
#[test]
fn hard_links_are_applied_as_hard_links() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        files(&place);
        let before = snapshot(&place.project);
        let script = "echo g > .envrc; ln .envrc plain; echo one > first; ln first second; ln first third; ln tool.sh tool-too; \
                      rm both/x both/y pair/x";
        run(&place, script).expect_code(0);
        // One by one: each name that comes or goes changes the stamp of the others.
        for part in ["both/x", "first", "second"] {
            review(&place, &["--apply", part, "--keep"]).expect_code(0);
        }
        review(&place, &["--apply", "--guarded", "--keep"]).expect_code(0);
        let names = names_of_one_file(&place.project);
        let of = |name: &str| names.iter().filter(|(_, first)| *first == Path::new(name)).count();
        assert_eq!((of("first"), of("tool-too")), (3, 2), "{mode:?}: {names:?}");
        assert!(!names.contains_key(Path::new("plain")), "{mode:?}: {names:?}");
        assert!(place.project.join("plain").exists() && place.project.join(".envrc").exists());
        let all = ["both", "first", "second", "third", "plain", ".envrc", "tool-too", "pair"];
        review(&place, &[&["--undo"], &all[..]].concat()).expect_code(0);
        let wrong = differing(&snapshot(&place.project), &before);
        assert!(wrong.is_empty(), "{mode:?}: {wrong:?}");
    }
}

/// Killed between making a directory and renaming it into place, while another process made one of that name: the
/// temporary directory is removed, and the other one stays.
#[test]
fn unfinished_directory_of_a_killed_apply_is_removed_if_its_name_is_taken() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        run(&place, "mkdir made; echo x > made/file").expect_code(0);
        let session =
            place.listed(&["review", "--list", "--json"])[0]["session"].as_str().unwrap().to_owned();
        let letters: Vec<char> = session.chars().filter(char::is_ascii_alphanumeric).collect();
        let name: String = letters[letters.len() - 12..].iter().collect();
        let apply = place.home.join(".local/state/agentsh/review").join(&session).join("apply-1");
        place.make_directory(&apply.join("old"));
        let made = json!({"number": 1, "path": b"made"});
        let lines = [
            json!({"begin": {"selected": [], "guarded": false, "is_undo": false, "total": 2}}),
            json!({"stage": [made]}),
            json!({"about": {"number": 1, "path": b"made", "old": null,
                "new": {"kind": "directory", "mode": 0o755, "hash": ""}}}),
        ];
        place.write(apply.join("journal"), lines.map(|line| format!("{line}\n")).concat());
        place.make_directory(&place.project.join(format!(".agentsh-{name}-1-1")));
        place.write("made/own", "mine");
        review(&place, &["--apply"]).expect_code(0);
        let found: Vec<PathBuf> = snapshot(&place.project).into_keys().collect();
        assert_eq!(found, ["made", "made/file", "made/own"].map(PathBuf::from), "{mode:?}");
    }
}

/// How often something was applied or taken back so far, and the lines in the newest journal of it.
fn runs(place: &Place) -> (usize, usize) {
    let state = place.home.join(".local/state/agentsh/review");
    let sessions = fs::read_dir(state).unwrap().flatten();
    let entries = sessions.flat_map(|session| fs::read_dir(session.path()).unwrap().flatten());
    let number = |entry: fs::DirEntry| {
        let number = entry.file_name().to_str()?.strip_prefix("apply-")?.parse::<usize>().ok()?;
        Some((number, entry.path()))
    };
    let Some((newest, path)) = entries.filter_map(number).max() else { return (0, 0) };
    let journal = fs::read(path.join("journal")).unwrap_or_default();
    (newest, journal.iter().filter(|byte| **byte == b'\n').count())
}

/// Kills an apply or undo when its journal has this many lines: what it does then, it does between two of them.
fn killed_at(place: &Place, words: &[&str], lines: usize) {
    let (before, _) = runs(place);
    let words: Vec<&str> = std::iter::once("review").chain(words.iter().copied()).collect();
    let mut command = place.agentsh(&words);
    let mut child: Child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let has_come = || {
        let (newest, written) = runs(place);
        newest > before && written >= lines
    };
    while !has_come() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_micros(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Paths that are not the same in both.
fn differing(one: &BTreeMap<PathBuf, String>, other: &BTreeMap<PathBuf, String>) -> Vec<PathBuf> {
    one.keys().chain(other.keys()).filter(|path| one.get(*path) != other.get(*path)).cloned().collect()
}

/// Every file is the old or the new one, and none is missing that is there before and afterwards.
#[track_caller]
fn all_whole(
    before: &BTreeMap<PathBuf, String>,
    after: &BTreeMap<PathBuf, String>,
    now: &BTreeMap<PathBuf, String>,
) {
    for (path, what) in now {
        let is_own = path.file_name().unwrap().to_string_lossy().starts_with(".agentsh-");
        let is_whole = is_own || before.get(path) == Some(what) || after.get(path) == Some(what);
        assert!(is_whole, "{path:?} is half written");
    }
    for path in before.keys().filter(|path| after.contains_key(*path)) {
        assert!(now.contains_key(path), "{path:?} is lost");
    }
    let content = |what: &String| what.split_once(' ').unwrap().1.to_owned();
    let is_somewhere = |what: &String| now.values().any(|now| content(now).ends_with(&content(what)));
    for (path, what) in
        before.iter().filter(|(_, what)| what.contains("file") && after.values().any(|now| now == *what))
    {
        assert!(is_somewhere(what), "what was in {path:?} is nowhere");
    }
}

/// Kills an apply or undo `time` after its start.
fn killed_after(place: &Place, words: &[&str], time: Duration) {
    let words: Vec<&str> = std::iter::once("review").chain(words.iter().copied()).collect();
    let mut command = place.agentsh(&words);
    let mut child: Child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(time);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Numbers that look drawn, the same in every run.
struct Drawn(u64);

impl Drawn {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }
}

/// Kills of an apply, and when they came.
#[derive(Debug, Default)]
struct Kills {
    all: u64,
    /// Before anything was applied.
    early: u64,
    /// After everything.
    late: u64,
    between: u64,
}

/// Kills of one layer. What was applied and taken back is read by every later apply: a long series has several layers.
const KILLS_OF_A_LAYER: u64 = 10;

/// `kill -9` of an apply, at any moment: every file is whole, old or new, and the next apply finishes.
#[test]
#[ignore = "takes long"]
fn a_killed_apply_loses_nothing() {
    let moments: u64 =
        std::env::var("AGENTSH_REVIEW_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let (mut kills, mut drawn) = (Kills::default(), Drawn(0x2545_F491_4F6C_DD1D));
    // A kill that comes before or after everything tests nothing: there are more until enough came between.
    while kills.all < moments || kills.between * 4 < moments {
        assert!(kills.all < moments * 20, "{kills:?}");
        kill_a_layer(&mut kills, &mut drawn);
        // A long series says how far it is.
        eprintln!("{kills:?}");
    }
    eprintln!("{kills:?}");
}

fn kill_a_layer(kills: &mut Kills, drawn: &mut Drawn) {
    let place = Place::new(Mode::Invoker);
    let content = |name: usize, what: &str| format!("{what} {name}\n").repeat(200);
    for name in 0..64 {
        place.write(format!("d{}/f{name}", name % 3), content(name, "old"));
    }
    let before = snapshot(&place.project);
    let script = "for f in d*/f*; do n=${f#*/f}; case $((n % 4)) in 0) rm $f;; 1) mv $f $f.moved;; \
                  *) yes \"new $n\" | head -n 200 > $f;; esac; done; mkdir -p fresh; for n in $(seq 16); do \
                  yes \"fresh $n\" | head -n 200 > fresh/$n; done";
    run(&place, script).expect_code(0);
    let begun = std::time::Instant::now();
    review(&place, &["--apply", "--keep"]).expect_code(0);
    let whole = begun.elapsed();
    let (_, longest) = runs(&place);
    let after = snapshot(&place.project);
    for moment in 0..KILLS_OF_A_LAYER {
        // After an undo that was interrupted, the last apply is not all of it.
        let all: &[&str] = if moment % 3 == 0 { &["--undo", "d0", "d1", "d2", "fresh"] } else { &["--undo"] };
        let undone = review(&place, all).expect_code(0);
        let wrong = differing(&snapshot(&place.project), &before);
        assert!(wrong.is_empty(), "{moment}: taken back, but for {wrong:?}: {undone}");
        let lines = usize::try_from(drawn.below(longest as u64)).unwrap();
        let apply = ["--apply", "--keep"];
        // Between two lines of its journal, or whenever it is.
        match moment % 2 {
            0 => killed_at(&place, &apply, lines),
            _ => killed_after(&place, &apply, whole.mul_f64(drawn.below(1000) as f64 / 1000.0)),
        }
        let now = snapshot(&place.project);
        kills.all += 1;
        kills.early += u64::from(now == before);
        kills.late += u64::from(now == after);
        kills.between += u64::from(now != before && now != after);
        all_whole(&before, &after, &now);
        if moment % 3 == 2 {
            // An interrupted apply is undone as far as it came, and the undo is interrupted too.
            killed_at(&place, &["--undo"], lines);
            all_whole(&before, &after, &snapshot(&place.project));
        }
        let finished = review(&place, &["--apply", "--keep"]).expect_code(0);
        let wrong = differing(&snapshot(&place.project), &after);
        assert!(wrong.is_empty(), "{moment}: finished, but for {wrong:?}: {finished}");
    }
}

/// Directories are made from the top down, also those in which objects of git lie.
#[test]
fn repository_made_inside_is_applied_completely() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write("file", "");
        let script = "git init -q n && cd n && echo x > a && git add a && git -c user.name=u -c user.email=u@e commit -qm c";
        run(&place, script).expect_code(0);
        let outcome = Outcome::of(&mut place.agentsh(&["review", "--apply", "--guarded"])).expect_code(0);
        for file in ["n/a", "n/.git/HEAD", "n/.git/index", "n/.git/config"] {
            assert!(place.project.join(file).exists(), "{file} {outcome}");
        }
    }
}

/// A program can make directories deeper than any path that the kernel takes at once.
#[test]
#[ignore = "takes long"]
fn a_tree_deeper_than_any_path_is_shown_applied_taken_back_and_thrown_away() {
    if !Path::new("/usr/bin/python3").exists() {
        return skip("no python3");
    }
    const DEEP: &str = "import os\nname = 'a-directory-with-a-long-name'\nfor n in range(200):\n    os.mkdir(name); os.chdir(name)\n\
                        open('file', 'w').write('deep')\n";
    const LOOK: &str = "import os\nn = 0\ntry:\n    while True: os.chdir('a-directory-with-a-long-name'); n += 1\n\
                        except FileNotFoundError: pass\nprint(n, os.path.exists('file'))\n";
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write(place.home.join("deep.py"), DEEP);
        let look = || Outcome::of(place.command("python3").args(["-c", LOOK])).stdout;
        for discards in [false, true] {
            let words = ["run", "--quiet", "--review", "--", "python3", "../deep.py"];
            Outcome::of(&mut place.agentsh(&words)).expect_code(0);
            assert!(changes(&place).len() > 200);
            if discards {
                review(&place, &["--discard"]).expect_code(0);
                assert_eq!(look(), "0 False\n");
                continue;
            }
            review(&place, &["--apply"]).expect_code(0);
            assert_eq!(look(), "200 True\n", "{mode:?}");
            review(&place, &["--undo"]).expect_code(0);
            assert_eq!(look(), "0 False\n", "{mode:?}");
        }
        assert_eq!(review(&place, &["--list"]).stdout, "", "{mode:?}");
    }
}

/// From a directory of the project paths count from there, and what the list shows can be typed as it is shown.
#[test]
fn paths_of_the_review_list_can_be_named_from_a_subdirectory() {
    let place = Place::new(Mode::Invoker);
    let below = place.project.join("sub");
    place.make_directory(&below);
    run(&place, "echo 1 > sub/one; echo 2 > sub/two; echo 3 > three").expect_code(0);
    let apply = |name: &str| {
        let mut command = place.agentsh(&["review", "--keep", "--apply", name]);
        let outcome = Outcome::of(command.current_dir(&below)).expect_code(0);
        assert!(outcome.stdout.contains("applied: 1"), "{name} {outcome}");
    };
    apply("sub/one");
    apply("two");
    assert!(
        below.join("one").exists() && below.join("two").exists() && !place.project.join("three").exists()
    );
    apply("../three");
    assert!(place.project.join("three").exists());
}

/// Exactly the shown content is applied, and every file is shown completely.
#[test]
fn review_applies_only_what_was_shown() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write(place.project.join("a.txt"), "one\n");
        let long = "x".repeat(5000);
        let script = format!(
            "echo two > a.txt; echo new > b.txt; printf '#!/bin/sh\\necho {long}END\\n\\000echo hidden\\n' > run.sh; \
             printf 'latin \\344\\n' > old.txt; mkdir d; echo in > d/f; ln -s b.txt l"
        );
        run(&place, &script).expect_code(0);
        let shown = Outcome::of(&mut place.agentsh(&["review"])).expect_code(0).stdout;
        for part in [&format!("+echo {long}END"), "+\\u{0}echo hidden", "+latin \\xe4", "a link to b.txt"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        // The layer is changed afterwards, as an agent that still runs could do.
        let reviews = place.home.join(".local/state/agentsh/review");
        let layer = fs::read_dir(&reviews).unwrap().next().unwrap().unwrap().path().join("upper");
        fs::write(layer.join("a.txt"), "evil\n").unwrap();
        fs::write(layer.join("c.txt"), "never shown\n").unwrap();
        let outcome = Outcome::of(&mut place.agentsh(&["review", "--apply"]));
        assert_eq!(outcome.code, 1, "{mode:?} {outcome}");
        assert_eq!(
            outcome.stdout.matches("changed after `agentsh review` showed it").count(),
            2,
            "{outcome}"
        );
        let read = |name: &str| fs::read_to_string(place.project.join(name)).unwrap();
        assert_eq!(
            (read("a.txt").as_str(), read("b.txt").as_str(), read("d/f").as_str()),
            ("one\n", "new\n", "in\n")
        );
        assert!(!place.project.join("c.txt").exists());
        // After another review it is applied.
        Outcome::of(&mut place.agentsh(&["review"])).expect_code(0);
        Outcome::of(&mut place.agentsh(&["review", "--apply"])).expect_code(0);
        assert_eq!((read("a.txt").as_str(), read("c.txt").as_str()), ("evil\n", "never shown\n"));
    }
}

/// A file that the home names, and the top of the directory in which the agent was started: what a run would refuse there is not
/// applied with the rest.
#[test]
fn files_guarded_by_home_and_start_directory_need_to_be_named() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write("a.sh", "");
        place.write("sub/file", "");
        place.write(".git/HEAD", "ref: refs/heads/main\n");
        place.write(".git/objects/x", "");
        place.write(".git/refs/x", "");
        place.write(place.home.join(".bashrc"), format!("source {}\n", place.project.join("a.sh").display()));
        let script = "echo x >.envrc; mkdir .vscode; echo x >.vscode/tasks.json; echo evil >../a.sh; echo x >file; \
                      mkdir ../other; echo x >../other/.envrc";
        let mut command = place.agentsh(&["run", "--quiet", "--review", "--", "sh", "-ec", script]);
        Outcome::of(command.current_dir(place.project.join("sub"))).expect_code(0);
        // Whatever the home says later.
        place.write(place.home.join(".bashrc"), "");
        let found = changes(&place);
        for (name, is_guarded) in [
            ("a.sh", true),
            ("sub/.envrc", true),
            ("sub/.vscode/tasks.json", true),
            ("sub/file", false),
            ("other/.envrc", false),
        ] {
            assert_eq!(found[name]["guarded"].is_string(), is_guarded, "{mode:?} {name}: {found:#?}");
        }
        review(&place, &["--apply"]).expect_code(0);
        assert_eq!(fs::read_to_string(place.project.join("a.sh")).unwrap(), "", "{mode:?}");
        assert_eq!(fs::read_to_string(place.project.join("sub/file")).unwrap(), "x\n", "{mode:?}");
        assert!(
            !place.project.join("sub/.envrc").exists()
                && !place.project.join("sub/.vscode/tasks.json").exists()
        );
        review(&place, &["--apply", "--guarded"]).expect_code(0);
        assert_eq!(fs::read_to_string(place.project.join("a.sh")).unwrap(), "evil\n", "{mode:?}");
    }
}
