//! A layer made so that applying it does more than write files of the project: links in the way, hooks, set-id bits,
//! pipes and sockets, names that draw on the terminal. Stopped by: names are opened below the project without
//! following links, what runs automatically has to be named, modes are cut to permissions, and only files, links and
//! directories are made.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Stdio;

use crate::support::{Mode, Outcome, Place, eventually};

fn run(place: &Place, script: &str) -> Outcome {
    let words = ["run", "--quiet", "--review", "--", "sh", "-c", script];
    Outcome::of(&mut place.agentsh(&words)).expect_code(0)
}

fn review(place: &Place, words: &[&str]) -> Outcome {
    let words: Vec<&str> = std::iter::once("review").chain(words.iter().copied()).collect();
    Outcome::of(&mut place.agentsh(&words))
}

/// Where the layer of the only session lies.
fn upper(place: &Place) -> PathBuf {
    let session = fs::read_dir(place.home.join(".local/state/agentsh/review")).unwrap().next().unwrap();
    session.unwrap().path().join("upper")
}

/// A directory of the project that became a link out of it while the layer waited.
#[test]
fn review_apply_does_not_follow_a_directory_that_became_a_symlink() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write("dir/file", "project\n");
        let victim = place.write(place.home.join("victim/file"), "victim\n");
        run(&place, "echo inside > dir/file; echo x > dir/new; rm -f dir/none; echo fine > fine");
        fs::rename(place.project.join("dir"), place.project.join("moved")).unwrap();
        symlink(victim.parent().unwrap(), place.project.join("dir")).unwrap();
        place.own(&place.project.join("dir"));
        let outcome = review(&place, &["--apply", "--guarded"]).expect_code(1);
        assert_eq!(fs::read_to_string(&victim).unwrap(), "victim\n", "{outcome}");
        assert_eq!(fs::read_dir(victim.parent().unwrap()).unwrap().count(), 1, "{outcome}");
        assert_eq!(fs::read_to_string(place.project.join("fine")).unwrap(), "fine\n", "the twin");
    }
}

/// A link that the layer itself brought, and a directory under the same name afterwards.
#[test]
fn a_link_that_was_applied_is_replaced_and_not_followed() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let victim = place.write(place.home.join("victim/file"), "victim\n");
        let script = format!(
            "ln -s {} trap; read line; rm trap; mkdir trap; echo owned > trap/file; echo x > trap/other; : > ready; read line",
            victim.parent().unwrap().display()
        );
        let mut command = place.agentsh(&["run", "--quiet", "--review", "--", "sh", "-c", &script]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        assert!(eventually(|| review(&place, &["--stat"]).stdout.contains("A trap")));
        review(&place, &["--apply", "trap"]).expect_code(0);
        assert!(place.project.join("trap").is_symlink());
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"on\n").unwrap();
        assert!(eventually(|| review(&place, &["--stat"]).stdout.contains("ready")));
        let outcome = review(&place, &["--apply"]);
        drop(input);
        child.wait().unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "victim\n", "{outcome}");
        assert_eq!(fs::read_dir(victim.parent().unwrap()).unwrap().count(), 1, "{outcome}");
        assert!(!place.project.join("trap").is_symlink(), "{outcome}");
        assert_eq!(
            fs::read_to_string(place.project.join("trap/file")).unwrap(),
            "owned\n",
            "the twin: {outcome}"
        );
    }
}

#[test]
fn hooks_are_not_applied_unless_they_are_named() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        for name in [".git/HEAD", ".git/config", ".git/objects/x", ".git/refs/x", ".git/hooks/x.sample"] {
            place.write(name, "");
        }
        run(
            &place,
            "echo evil > .git/hooks/post-checkout; chmod 755 .git/hooks/post-checkout; echo fine > fine",
        );
        let hook = place.project.join(".git/hooks/post-checkout");
        review(&place, &["--apply"]).expect_code(0);
        review(&place, &["--apply", ".", ".git"]).expect_code(0);
        assert!(!hook.exists() && place.project.join("fine").exists());
        review(&place, &["--apply", ".git/hooks/post-checkout"]).expect_code(0);
        assert_eq!(fs::read_to_string(hook).unwrap(), "evil\n", "the twin: somebody named it");
    }
}

#[test]
fn set_id_bits_and_special_files_stay_in_the_layer() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        run(
            &place,
            "cp /bin/true tool; chmod 755 tool; mkfifo pipe; truncate -s 1T hole; mkdir dir; echo fine > dir/fine",
        );
        // No program inside may do this; a layer that somebody else wrote to could hold it.
        fs::set_permissions(upper(&place).join("tool"), fs::Permissions::from_mode(0o6755)).unwrap();
        fs::set_permissions(upper(&place).join("dir"), fs::Permissions::from_mode(0o6755)).unwrap();
        let outcome = review(&place, &["--apply", "--guarded"]).expect_code(0);
        let mode_of = |name: &str| fs::metadata(place.project.join(name)).unwrap().mode() & 0o7777;
        assert_eq!((mode_of("tool"), mode_of("dir")), (0o755, 0o755), "{outcome}");
        assert!(place.project.join("pipe").symlink_metadata().is_err(), "{outcome}");
        assert!(outcome.stdout.contains("not applied: pipe"), "{outcome}");
        assert!(outcome.stdout.contains("not applied: hole"), "{outcome}");
        assert!(place.project.join("dir/fine").exists(), "the twin");
    }
}

/// The terminal obeys nothing that the layer says.
#[test]
fn names_and_content_do_not_control_the_terminal() {
    let place = Place::new(Mode::Invoker);
    run(
        &place,
        r#"printf '\033]0;title\007\033[2J\n' > "$(printf 'a\033[2Jb\nc')"; printf 'x\033[31m\n' > text"#,
    );
    for words in [&[][..], &["--json"], &["--stat"], &["--apply"]] {
        let outcome = review(&place, words);
        assert!(
            !outcome.stdout.contains('\u{1b}') && !outcome.stderr.contains('\u{1b}'),
            "{words:?} {outcome:?}"
        );
    }
    assert!(place.project.join("a\u{1b}[2Jb\nc").exists());
}

/// The layer and the project below it are nowhere to be seen inside.
#[test]
fn review_layer_is_visible_only_as_the_project() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write("file", "before\n");
        let state = place.home.join(".local/state/agentsh");
        let script = format!(
            "for d in /.layer /.lower /.upper {} /tmp/.lower; do ls -A $d 2>/dev/null; echo x > $d/file 2>/dev/null; done; \
             cat file; echo inside > file",
            state.display()
        );
        let outcome = run(&place, &script);
        assert_eq!(outcome.stdout, "before\n", "{mode:?} {outcome}");
        assert_eq!(fs::read_to_string(place.project.join("file")).unwrap(), "before\n");
    }
}

/// A repository whose parts are applied one after the other, or are links: none of the applies looks like a whole one.
#[test]
fn parts_of_a_repository_are_guarded_in_every_order() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write("file", "");
        let config = "printf '[core]\\n\\tfsmonitor = ./run\\n' >";
        run(&place, &format!("mkdir one two three elsewhere; echo 'ref: refs/heads/main' > one/HEAD; {config} one/config
            {config} two/config
            echo 'ref: refs/heads/main' > three/HEAD; ln -s ../elsewhere three/objects; ln -s ../elsewhere three/refs
            {config} three/config; echo fine > fine"));
        let outcome = review(&place, &["--apply"]);
        for guarded in ["one/config", "three/config"] {
            assert!(!place.project.join(guarded).exists(), "{guarded} {outcome}");
        }
        assert_eq!(fs::read_to_string(place.project.join("fine")).unwrap(), "fine\n", "the twin {outcome}");
        assert!(place.project.join("two/config").exists(), "nothing says that it is one {outcome}");
        review(&place, &["--discard"]);
        run(
            &place,
            "mkdir -p two/objects two/refs; touch two/objects/x two/refs/x; echo 'ref: refs/heads/main' > two/HEAD",
        );
        let outcome = review(&place, &["--apply"]);
        assert!(!place.project.join("two/HEAD").exists(), "{outcome}");
        assert!(place.project.join("two/objects/x").exists(), "{outcome}");
    }
}
