//! Where agentsh may be started.

use std::path::Path;

use crate::support::{Mode, Outcome, Place};

fn run_in(place: &Place, directory: &Path) -> Outcome {
    Outcome::of(
        place.agentsh(&["run", "--quiet", "--", "sh", "-c", "echo ran > made; pwd"]).current_dir(directory),
    )
}

/// Missing files there cannot be guarded: a sandbox could make keys, programs and files that run at the next login.
#[test]
fn project_cannot_be_the_home() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let outcome = run_in(&place, &place.home);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (125, ""), "{outcome}");
        assert!(outcome.stderr.contains("it is your home directory"), "{outcome}");
        place.policy(&format!("agent: {{filesystem: {{write: [\".\", {:?}]}}}}\n", place.home));
        let outcome = run_in(&place, &place.project);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (125, ""), "{outcome}");
        assert!(outcome.stderr.contains("contains the whole home directory"), "{outcome}");
    }
}

/// In a directory of the home, guarded names are guarded even if the files are missing.
#[test]
fn missing_startup_files_of_a_granted_directory_are_not_made() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy("agent: {filesystem: {write: [\".\", \"~/.config\", \"~/notes\"]}}\n");
        place.write(place.home.join(".config/app/settings"), "");
        place.write(place.home.join("notes/today"), "");
        let script = "cd ~/.config; mkdir -p autostart systemd/user fish Code/User 2>/dev/null; \
                      touch autostart/x systemd/user/x fish/config.fish Code/User/x 2>/dev/null; \
                      touch app/made ../notes/made && echo made";
        let outcome =
            Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "sh", "-c", script])).expect_code(0);
        assert_eq!(outcome.stdout, "made\n", "{outcome}");
        assert!(place.home.join(".config/app/made").exists() && place.home.join("notes/made").exists());
        for missing in ["autostart", "systemd", "fish", "Code"] {
            assert!(!place.home.join(".config").join(missing).exists(), "{missing} {outcome}");
        }
    }
}

/// The stubs of agentsh are not what changed it.
#[test]
fn script_with_stubs_beside_it_starts() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write("s.sh", "echo ran");
        let outcome =
            Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "/bin/sh", "s.sh"])).expect_code(0);
        assert_eq!(outcome.stdout, "ran\n", "{outcome}");
        if std::path::Path::new("/usr/bin/python3").exists() {
            place.write("s.py", "print('ran')");
            let outcome =
                Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "/usr/bin/python3", "s.py"]))
                    .expect_code(0);
            assert_eq!(outcome.stdout, "ran\n", "{outcome}");
        }
    }
}

/// agentsh writes there during every session, and no sandbox shows it.
#[test]
fn the_state_directory_in_a_project_is_no_part_of_a_program() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write("s.py", "import os; print(os.listdir('state/agentsh'), os.listdir('state/own'))");
        place.write("state/own/kept.py", "");
        for _ in 0..2 {
            let mut run = place.agentsh(&["run", "--quiet", "--", "/usr/bin/python3", "s.py"]);
            let outcome = Outcome::of(run.env("XDG_STATE_HOME", place.project.join("state"))).expect_code(0);
            assert_eq!(outcome.stdout, "[] ['kept.py']\n", "{mode:?} {outcome}");
        }
        assert!(place.project.join("state/agentsh/agentsh.db").exists());
    }
}

#[test]
fn project_cannot_be_a_system_directory() {
    let place = Place::new(Mode::Invoker);
    for directory in ["/", "/usr", "/etc", "/tmp", "/proc", "/var"] {
        let outcome = run_in(&place, Path::new(directory));
        assert_eq!((outcome.code, outcome.stdout.as_str()), (125, ""), "{directory} {outcome}");
        assert!(outcome.stderr.contains("cannot be a project"), "{outcome}");
    }
    let above = place.path("x").parent().unwrap().to_owned();
    assert_eq!(run_in(&place, &above).code, 125, "it contains the home");
}

#[test]
fn project_can_have_an_unusual_name() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let directory = place.home.join("a b/ü'\"$(x)\n");
        place.make_directory(&directory);
        let outcome = run_in(&place, &directory).expect_code(0);
        assert_eq!(
            outcome.stdout.trim_end_matches('\n'),
            directory.display().to_string().trim_end_matches('\n')
        );
        assert!(directory.join("made").exists());
    }
}

#[test]
fn project_can_be_outside_the_home_or_behind_a_symlink() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let elsewhere = place.path("elsewhere");
        place.make_directory(&elsewhere);
        run_in(&place, &elsewhere).expect_code(0);
        assert!(elsewhere.join("made").exists(), "{mode:?}");
        std::os::unix::fs::symlink(&elsewhere, place.home.join("link")).unwrap();
        std::fs::remove_file(elsewhere.join("made")).unwrap();
        run_in(&place, &place.home.join("link")).expect_code(0);
        assert!(elsewhere.join("made").exists(), "{mode:?}");
    }
}

/// A closed directory of root's, which the sandbox id could not even enter.
#[test]
fn a_private_project_is_fully_usable() {
    use std::os::unix::fs::PermissionsExt;
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write("old", "old");
        for path in [&place.project, &place.home] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
        }
        std::fs::set_permissions(place.project.join("old"), std::fs::Permissions::from_mode(0o600)).unwrap();
        let outcome =
            place.shell("cat old; echo new >> old; rm old; echo x > new; chmod 700 new; mv new newer");
        assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "old"), "{mode:?} {outcome}");
        assert!(place.project.join("newer").exists());
    }
}

/// Started by root in somebody else's project: it is fully usable, and what is made there belongs to the project's
/// owner.
#[test]
fn a_project_of_another_owner_is_writable_for_root() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let place = Place::new(Mode::Invoker);
    if !place.mode.is_root() {
        return crate::support::skip("only root may work in what belongs to others");
    }
    let old = place.write("old", "old\n");
    let private = place.write("private/key", "inside\n");
    for path in [&place.project, &old, &place.project.join("private"), &private] {
        std::os::unix::fs::lchown(path, Some(4321), Some(4322)).unwrap();
    }
    std::fs::set_permissions(place.project.join("private"), PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::set_permissions(&private, PermissionsExt::from_mode(0o600)).unwrap();
    let outcome = place.shell("echo new >new && echo more >>old && mkdir made && cat private/key && id -u");
    assert_eq!(outcome.code, 0, "{outcome}");
    assert!(outcome.stdout.contains("inside") && !outcome.stdout.contains("\n0\n"), "{outcome}");
    for name in ["new", "old", "made"] {
        let found = place.project.join(name).metadata().unwrap();
        assert_eq!((found.uid(), found.gid()), (4321, 4322), "{name}");
    }
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "old\nmore\n");
}

/// `/srv/site` of `root:www-data`: its files have a group that is neither root's nor the owner's.
#[test]
fn a_project_of_another_group_is_writable_for_root() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
    let place = Place::new(Mode::Invoker);
    if !place.mode.is_root() {
        return crate::support::skip("only root may give files to another group");
    }
    for owner in [0, 4321] {
        let (old, private) = (place.write("old", "old\n"), place.write("private", "of nobody here"));
        let _ = std::fs::remove_file(place.project.join("new"));
        for path in [&place.project, &old] {
            lchown(path, Some(owner), Some(4323)).unwrap();
        }
        lchown(&private, Some(4324), Some(4323)).unwrap();
        std::fs::set_permissions(&private, PermissionsExt::from_mode(0o600)).unwrap();
        let outcome = place.shell("echo new >new && echo more >>old && ! cat private");
        assert_eq!((outcome.code, outcome.stdout.as_str()), (0, ""), "{owner} {outcome}");
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "old\nmore\n");
        assert_eq!(place.project.join("new").metadata().unwrap().uid(), owner);
    }
}

/// A script next to the project: the files around it are not shown with it, and the project stays as writable as it is.
#[test]
fn script_above_the_project_is_shown_without_its_directory() {
    let script = "import os, sys\nopen('made', 'w').write('x')\nprint(sorted(os.listdir('..')))\n";
    for mode in Mode::all() {
        let place = Place::new(mode);
        let beside = place.home.join("work");
        let project = beside.join("project");
        place.make_directory(&project);
        place.write(beside.join("private"), "SECRET\n");
        place.write(beside.join("package.json"), "{\"name\": \"all\"}\n");
        place.write(beside.join("tools/helper.js"), "module.exports = 'helped';\n");
        let node = "require('fs').writeFileSync('made', 'x');console.log(require('fs').readdirSync('..').sort().join());";
        let runs = [
            ("python3", "../x.py", script, "['project', 'x.py']\n"),
            ("python3", "../dir/main.py", script, "['dir', 'project']\n"),
            ("node", "../x.js", node, "package.json,project,x.js\n"),
            (
                "node",
                "../tools/x.js",
                &format!("console.log(require('./helper'));{node}"),
                "helped\npackage.json,project,tools\n",
            ),
        ];
        for (program, word, text, expected) in runs {
            if !Path::new("/usr/bin").join(program).exists() {
                eprintln!("skipped: no {program}");
                continue;
            }
            place.write(project.join(word), text);
            let mut command = place.agentsh(&["run", "--quiet", "--", program, word]);
            let outcome = Outcome::of(command.current_dir(&project)).expect_code(0);
            assert_eq!(outcome.stdout, expected, "{mode:?} {program} {word} {outcome}");
            assert_eq!(std::fs::read_to_string(project.join("made")).unwrap(), "x", "{outcome}");
            std::fs::remove_file(project.join("made")).unwrap();
            let is_alone = !["../tools/x.js", "../dir/main.py"].contains(&word);
            assert_eq!(outcome.stderr.contains("only the script in"), is_alone, "{word} {outcome}");
            std::fs::remove_file(project.join(word)).unwrap();
        }
    }
}

/// A directory of the program that contains the project, as an interpreter's installation may, is mounted below it.
#[test]
fn project_inside_an_installation_stays_writable() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let around = place.home.join("python");
        let project = around.join("work/project");
        place.make_directory(&project);
        place.write(around.join("lib/data"), "data\n");
        place.write(around.join("lib/denied"), "SECRET\n");
        place.make_directory(&around.join("bin"));
        // Known by its name as an interpreter, which brings what is installed around it.
        std::fs::copy("/bin/sh", around.join("bin/node")).unwrap();
        place.own(&around.join("bin/node"));
        place.user_policy("agent: {filesystem: {deny: [~/python/lib/denied]}}\n");
        let text = "cat ../../lib/data; cat ../../lib/denied; echo x > made && cat made\n";
        place.write(project.join("run.js"), text);
        let node = around.join("bin/node");
        let mut command = place.agentsh(&["run", "--quiet", "--", node.to_str().unwrap(), "run.js"]);
        let outcome = Outcome::of(command.current_dir(&project));
        assert_eq!(outcome.stdout, "data\nx\n", "{mode:?} {outcome}");
    }
}

/// An agent may write links into the project: what they lead to is not a part of a program, nor of an installation on PATH.
#[test]
fn links_in_the_project_show_nothing_of_the_home() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write(place.home.join(".ssh/id_rsa"), "SECRET\n");
        place.write(place.home.join("clients/other/lib/customers"), "SECRET\n");
        place.make_directory(&place.home.join("clients/other/bin"));
        place.make_directory(&place.project.join(".venv"));
        for (link, to) in
            [("keys", "../.ssh"), ("other", "../clients/other"), (".venv/bin", "../../clients/other/bin")]
        {
            let to = place.project.join(link).parent().unwrap().join(to);
            assert!(to.is_dir(), "{}", to.display());
            std::os::unix::fs::symlink(to, place.project.join(link)).unwrap();
        }
        let files = [
            place.home.join(".ssh/id_rsa"),
            place.home.join("clients/other/lib/customers"),
            place.project.join("keys/id_rsa"),
        ];
        let script: String = files
            .iter()
            .map(|file| {
                format!("try: print(open({:?}).read())\nexcept OSError as e: print(type(e).__name__)\n", file)
            })
            .collect();
        place.write(place.project.join("run.py"), script);
        let path = format!("{}:/usr/bin:/bin", place.project.join(".venv/bin").display());
        let mut command = place.agentsh(&["run", "--quiet", "--", "python3", "run.py"]);
        let outcome = Outcome::of(command.env("PATH", path));
        assert!(!outcome.stdout.contains("SECRET"), "{mode:?} {outcome}");
        assert_eq!(outcome.stdout.lines().count(), 3, "{mode:?} {outcome}");
    }
}

#[test]
fn approve_without_a_file_shows_what_waits() {
    let place = Place::new(Mode::Invoker);
    let approve = |words: &[&str]| Outcome::of(place.agentsh(&["mcp", "approve"]).args(words)).expect_code(0);
    assert!(approve(&[]).stdout.contains("declares servers"));
    place.write(".mcp.json", r#"{"mcpServers": {"mine": {"command": "python3", "args": ["server.py"]}}}"#);
    let waiting = approve(&[]).stdout;
    let path = place.project.join(".mcp.json");
    assert_eq!(
        waiting,
        format!(
            "server mine: python3 server.py\n{0}: not approved; to approve it: agentsh mcp approve {0}\n",
            path.display()
        )
    );
    approve(&[".mcp.json"]);
    assert!(!approve(&[]).stdout.contains("python3"));
}
