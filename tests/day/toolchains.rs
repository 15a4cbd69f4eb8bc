//! Programs on PATH work inside; what they fetch stays with the project.

use crate::support::{Mode, Outcome, Place};

fn place(mode: Mode) -> Place {
    let place = Place::new(mode);
    let home = place.home.display().to_string();
    place.set("PATH", format!("{home}/.cargo/bin:{home}/.nvm/versions/node/v1/bin:{home}/own:/usr/bin:/bin"));
    place.set("NVM_DIR", format!("{home}/.nvm"));
    place.script(
        place.home.join(".rustup/toolchains/stable/bin/rustc"),
        "#!/bin/sh\necho rustc from the toolchain\n",
    );
    place.script(
        place.home.join(".cargo/bin/rustc"),
        "#!/bin/sh\nexec ~/.rustup/toolchains/stable/bin/rustc \"$@\"\n",
    );
    place.write(place.home.join(".cargo/credentials.toml"), "token = secret\n");
    place.script(place.home.join(".nvm/versions/node/v1/bin/node"), "#!/bin/sh\necho node of $NVM_DIR\n");
    place.script(place.home.join("own/tool"), "#!/bin/sh\necho own tool\n");
    place
}

fn inside(place: &Place, script: &str) -> Outcome {
    Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "sh", "-c", script]))
}

#[test]
fn programs_on_path_work_inside() {
    for mode in Mode::all() {
        let place = place(mode);
        let outcome = inside(&place, "rustc; node; tool").expect_code(0);
        let node = format!("node of {}/.nvm", place.home.display());
        assert_eq!(outcome.stdout, format!("rustc from the toolchain\n{node}\nown tool\n"), "{outcome}");
    }
}

/// Agents start their commands with a login shell, whose profile sets a PATH of the system alone.
#[test]
fn login_shell_has_the_path_of_the_user() {
    let place = place(Mode::Invoker);
    let outcome =
        inside(&place, "echo \"$PATH\"; bash -lc 'echo \"$PATH\"'; sh -lc 'echo \"$PATH\"'").expect_code(0);
    let mut lines = outcome.stdout.lines();
    let own = lines.next().unwrap();
    assert!(own.contains(place.home.to_str().unwrap()) && lines.clone().count() == 2, "{outcome}");
    assert!(lines.all(|line| line == own), "{outcome}");
}

#[test]
fn toolchain_is_read_only_and_its_credentials_are_hidden() {
    for mode in Mode::all() {
        let place = place(mode);
        let script = "cat ~/.cargo/credentials.toml; echo evil > ~/.cargo/bin/rustc; echo evil > ~/own/tool; \
                      echo evil > ~/.rustup/toolchains/stable/bin/rustc; mv ~/own ~/own2; rustc";
        let outcome = inside(&place, script);
        assert_eq!(outcome.stdout, "rustc from the toolchain\n", "{outcome}");
        let tool = std::fs::read_to_string(place.home.join("own/tool")).unwrap();
        assert!(tool.contains("own tool") && !outcome.stderr.contains("secret"), "{outcome}");
    }
}

/// Files next to an installation are not shown with it, and neither are configurations that contain a token.
#[test]
fn files_beside_an_installed_program_are_not_shown() {
    for mode in Mode::all() {
        let place = place(mode);
        let home = place.home.display().to_string();
        place.set("PATH", format!("{home}/.cargo/bin:{home}/mine/tool/bin:/usr/bin:/bin"));
        place.script(place.home.join("mine/tool/bin/tool"), "#!/bin/sh\ncat ~/mine/tool/lib/data\n");
        place.write(place.home.join("mine/tool/lib/data"), "data\n");
        for secret in [".env", ".npmrc", ".git/config", ".ssh/id", "settings.toml"] {
            place.write(place.home.join("mine/tool").join(secret), "SECRET\n");
        }
        place.write(place.home.join(".cargo/config.toml"), "[registries.own]\ntoken = \"SECRET\"\n");
        place.write(place.home.join(".julia/servers/one/auth.toml"), "SECRET\n");
        place.write(place.home.join(".julia/packages/p"), "package\n");
        let script = "tool; cat ~/.julia/packages/p; cd ~ && grep -rs SECRET mine .cargo .julia";
        let outcome = inside(&place, script);
        assert_eq!(outcome.stdout, "data\npackage\n", "{mode:?} {outcome}");
        place.write(place.home.join(".cargo/config.toml"), "[build]\njobs = 2\n");
        let outcome = inside(&place, "cat ~/.cargo/config.toml");
        assert_eq!(outcome.stdout, "[build]\njobs = 2\n", "the twin {mode:?} {outcome}");
    }
}

#[test]
fn fetched_packages_stay_in_the_projects_own_cache() {
    for mode in Mode::all() {
        let place = place(mode);
        let script = "mkdir -p ~/.cargo/registry/cache && echo crate > ~/.cargo/registry/cache/a.crate";
        inside(&place, script).expect_code(0);
        let outcome = inside(&place, "cat ~/.cargo/registry/cache/a.crate").expect_code(0);
        assert_eq!(outcome.stdout, "crate\n", "{outcome}");
        assert!(!place.home.join(".cargo/registry").exists());
        // Another project has one of its own.
        let other = place.home.join("other");
        place.make_directory(&other);
        let words = ["run", "--quiet", "--", "sh", "-c", "ls ~/.cargo/registry"];
        let outcome = Outcome::of(place.agentsh(&words).current_dir(&other)).expect_code(0);
        assert_eq!(outcome.stdout, "", "{outcome}");
    }
}

/// The user's own cache is there from the start, below what the project writes.
#[test]
fn users_package_cache_is_shown_and_not_changed() {
    for mode in Mode::all() {
        let place = place(mode);
        let lower = place.home.join(".cargo/registry");
        let of_user = place.write(lower.join("cache/user.crate"), "fetched outside\n");
        place.write(lower.join("index/config"), "index\n");
        let script = "cat ~/.cargo/registry/cache/user.crate; cd ~/.cargo/registry; echo poison > cache/user.crate; \
                      echo new > cache/new.crate; rm -r index; mkdir -p src/a; mv src/a src/b; ls";
        let outcome = inside(&place, script).expect_code(0);
        assert_eq!(outcome.stdout, "fetched outside\ncache\nsrc\n", "{mode:?} {outcome}");
        assert_eq!(std::fs::read_to_string(&of_user).unwrap(), "fetched outside\n", "{outcome}");
        assert!(lower.join("index/config").exists() && !lower.join("cache/new.crate").exists(), "{outcome}");
        let outcome = inside(&place, "cd ~/.cargo/registry; cat cache/*; ls").expect_code(0);
        assert_eq!(outcome.stdout, "new\npoison\ncache\nsrc\n", "it is there next time: {outcome}");
        // Another project has the user's, and nothing of this one's.
        let other = place.home.join("other");
        place.make_directory(&other);
        let words = ["run", "--quiet", "--", "sh", "-c", "cat ~/.cargo/registry/cache/*"];
        let outcome = Outcome::of(place.agentsh(&words).current_dir(&other)).expect_code(0);
        assert_eq!(outcome.stdout, "fetched outside\n", "{outcome}");
    }
}

/// Two runs at once in one project: a layer is mounted once, and both have what the user has.
#[test]
fn concurrent_runs_have_separate_cache_layers() {
    let place = place(Mode::Invoker);
    place.write(place.home.join(".cargo/registry/cache/user.crate"), "of the user\n");
    let words = ["run", "--quiet", "--", "sh", "-c", "echo ready > started; read line; true"];
    let mut command = place.agentsh(&words);
    let mut first = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    assert!(crate::support::eventually(|| place.project.join("started").exists()));
    let outcome =
        inside(&place, "cat ~/.cargo/registry/cache/user.crate; echo x > ~/.cargo/registry/cache/x")
            .expect_code(0);
    assert_eq!(outcome.stdout, "of the user\n", "{outcome}");
    drop(first.stdin.take());
    assert!(first.wait().unwrap().success());
}

/// A path that a policy hides is not shown through a cache.
#[test]
fn package_cache_hidden_by_policy_is_not_shown() {
    for mode in Mode::all() {
        let place = place(mode);
        place.write(place.home.join(".cargo/registry/cache/user.crate"), "hidden\n");
        place.user_policy("agent: {filesystem: {deny: [\"~/.cargo/registry/cache\"]}}\n");
        let outcome = inside(&place, "cat ~/.cargo/registry/cache/user.crate; true");
        assert_eq!(outcome.stdout, "", "{outcome}");
    }
}

/// Installed by pip into an environment, or by npm next to other packages: PATH leads there, and the programs are complete.
#[test]
fn installed_tools_work_wherever_they_are_installed() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let home = place.home.display().to_string();
        place.script(
            place.home.join("venv/bin/uv"),
            "#!/bin/sh\nmkdir -p ~/.cache/uv; ls ~/.cache/uv; echo > ~/.cache/uv/kept\n",
        );
        place.make_directory(&place.home.join("venv/lib"));
        place.script(
            place.home.join("tools/node_modules/one/cli"),
            "#!/bin/sh\ncat ${0%/*}/../one/data 2>/dev/null || cat ~/tools/node_modules/one/data\n",
        );
        place.write(place.home.join("tools/node_modules/one/data"), "whole\n");
        place.write(place.home.join("tools/private"), "private\n");
        place.make_directory(&place.home.join("tools/node_modules/.bin"));
        let link = place.home.join("tools/node_modules/.bin/one");
        std::os::unix::fs::symlink("../one/cli", &link).unwrap();
        place.own(&link);
        place.set("PATH", format!("{home}/venv/bin:{home}/tools/node_modules/.bin:/usr/bin:/bin"));
        let outcome = inside(&place, "uv; one; cat ~/tools/private 2>/dev/null").stdout;
        assert_eq!(outcome, "whole\n", "{mode:?}");
        // What it fetched is there for the next run in this project, and not outside.
        assert_eq!(inside(&place, "uv").expect_code(0).stdout, "kept\n", "{mode:?}");
        assert!(!place.home.join(".cache/uv").exists());
    }
}

fn link(place: &Place, to: &str, name: &str) {
    let name = place.home.join(name);
    place.make_directory(name.parent().unwrap());
    std::os::unix::fs::symlink(to, &name).unwrap();
    place.own(&name);
}

/// A program of PATH, or its directory, may be a link: what is installed where it leads to comes with it, and nothing else.
#[test]
#[ignore = "takes long"]
fn installation_behind_symlinks_is_complete() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let tool = "#!/bin/sh\nhere=$(readlink -f \"$0\")\ncat \"${here%/*}/../lib/data\"\n";
        place.script(place.home.join("apps/tool-1.2/bin/tool"), tool);
        place.write(place.home.join("apps/tool-1.2/lib/data"), "data\n");
        for hidden in ["apps/tool-1.2/.env", "apps/tool-1.2/lib/denied", "apps/other/lib/data", ".ssh/key"] {
            place.script(place.home.join(hidden), "SECRET\n");
        }
        link(&place, "tool-1.2", "apps/tool");
        link(&place, "../../apps/tool/bin/tool", ".local/bin/tool");
        link(&place, "../../.ssh/key", ".local/bin/key");
        link(&place, "apps/tool/bin", "linked");
        // By the name that the user calls, which is not its path.
        place.user_policy("agent: {filesystem: {deny: [~/apps/tool/lib/denied]}}\n");
        for directory in [".local/bin", "apps/tool/bin", "linked"] {
            let home = place.home.display();
            place.set("PATH", format!("{home}/{directory}:/usr/bin:/bin"));
            let outcome = inside(&place, "tool; cd ~ && grep -rs SECRET . && echo found");
            assert_eq!(outcome.stdout, "data\n", "{mode:?} {directory} {outcome}");
            let outcome = Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "tool"]));
            assert_eq!(outcome.stdout, "data\n", "as the agent, {mode:?} {directory} {outcome}");
            let outcome = inside(&place, "echo x > ~/apps/tool/lib/data; echo x > ~/apps/tool-1.2/bin/tool");
            assert_ne!(outcome.code, 0, "{outcome}");
        }
        assert_eq!(std::fs::read_to_string(place.home.join("apps/tool-1.2/lib/data")).unwrap(), "data\n");
        // What a policy names by way of the link is there, and so is what PATH leads to.
        place.write(place.home.join("apps/tool-1.2/.named"), "named\n");
        place.user_policy("agent: {filesystem: {read: [~/apps/tool/.named]}}\n");
        let home = place.home.display();
        place.set("PATH", format!("{home}/apps/tool/bin:/usr/bin:/bin"));
        let outcome = inside(&place, "tool; cat ~/apps/tool/.named").expect_code(0);
        assert_eq!(outcome.stdout, "data\nnamed\n", "{mode:?} {outcome}");
    }
}

/// A toolchain may be a link as a whole. Its credentials lie elsewhere then, and are hidden there too.
#[test]
fn toolchain_behind_a_symlink_hides_its_credentials() {
    for mode in Mode::all() {
        let place = place(mode);
        place.make_directory(&place.home.join("large"));
        std::fs::rename(place.home.join(".cargo"), place.home.join("large/cargo")).unwrap();
        link(&place, "large/cargo", ".cargo");
        place.write(place.home.join("large/maven/settings.xml"), "secret\n");
        place.write(place.home.join("large/maven/wrapper/a"), "a\n");
        link(&place, "large/maven", ".m2");
        let outcome = inside(
            &place,
            "rustc; cat ~/.cargo/credentials.toml ~/.m2/settings.xml; grep -rs secret ~/large; true",
        );
        assert_eq!(outcome.stdout, "rustc from the toolchain\n", "{mode:?} {outcome}");
    }
}
