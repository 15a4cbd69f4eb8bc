use super::super::{Launcher, PinError, Role, TreeSource};
use super::{Machine, argv, text};

#[test]
fn node_pins_interpreter_entry_and_package() {
    let machine = Machine::new();
    machine.file("app/package.json", r#"{"name":"app"}"#);
    let entry = machine.file("app/dist/index.js", "main");
    machine.file("app/dist/package.json", r#"{"type":"module"}"#);
    machine.file("app/node_modules/dep/index.js", "dep");
    machine.file("app/node_modules/dep/LICENSE", "installed, whatever it is");
    machine.file("app/results.json", "written by whoever works there");
    machine.file("app/.git/config", "not loaded");
    let resolved = machine.ok(&["node", "--no-warnings", &text(&entry), "--user", "arg"]);
    assert_eq!(resolved.launcher, Launcher::Node);
    assert_eq!(resolved.identity, format!("file:{}", entry.display()));
    let node = text(&machine.at("opt/bin/node"));
    assert_eq!(argv(&resolved), [&node, "--no-warnings", "--", &text(&entry), "--user", "arg"]);
    let roles: Vec<Role> = resolved.files.iter().map(|file| file.role).collect();
    assert_eq!(roles, [Role::Interpreter, Role::Entry]);
    let tree = &resolved.trees[0];
    assert_eq!((tree.name.as_str(), &tree.root), ("package", &machine.at("app")));
    let names: Vec<String> = tree.manifest.keys().map(|path| text(path)).collect();
    let wanted = [
        "dist/index.js",
        "dist/package.json",
        "node_modules/dep/LICENSE",
        "node_modules/dep/index.js",
        "package.json",
    ];
    assert_eq!(names, wanted);
    assert_eq!(resolved.read_roots, [machine.at("app"), machine.at("opt")]);
}

#[test]
fn node_finds_the_entry_as_node_does() {
    let machine = Machine::new();
    machine.file("project/app/package.json", r#"{"name":"a","main":"lib/start"}"#);
    let main = machine.file("project/app/lib/start.js", "x");
    assert_eq!(argv(&machine.ok(&["node", "app"]))[1], text(&main));
    assert_eq!(argv(&machine.ok(&["node", "./app/lib/start"]))[1], text(&main));
    let index = machine.file("project/plain/index.js", "x");
    assert_eq!(argv(&machine.ok(&["node", "plain/"]))[1], text(&index));
    assert!(machine.resolve(&["node", "missing.js"]).is_err());
    machine.file("project/broken/package.json", "{");
    machine.file("project/broken/x.js", "");
    assert!(matches!(machine.err(&["node", "broken/x.js"]), PinError::BadManifest { .. }));
}

#[test]
fn ancestors_node_modules_belong_to_a_workspace_package() {
    let machine = Machine::new();
    machine.file("mono/packages/server/package.json", r#"{"name":"server"}"#);
    let entry = machine.file("mono/packages/server/index.js", "x");
    machine.file("mono/packages/shared/index.js", "shared");
    machine.link("mono/node_modules/shared", "../packages/shared");
    machine.file("mono/node_modules/dep/index.js", "x");
    let resolved = machine.ok(&["node", &text(&entry)]);
    let trees: Vec<&str> = resolved.trees.iter().map(|tree| tree.name.as_str()).collect();
    assert_eq!(trees, ["package", "../../node_modules", "../../node_modules/shared"]);
}

#[test]
fn preloaded_modules_and_settings_are_pinned_too() {
    let machine = Machine::new();
    machine.file("project/main.js", "x");
    let hook = machine.file("hooks/hook.js", "x");
    let import = machine.file("hooks2/import.mjs", "x");
    let settings = machine.file("project/.env", "NODE_OPTIONS=--require ./evil.js");
    machine.package("project/node_modules", "tracer", "1.0.0");
    let import_flag = format!("--import={}", import.display());
    let line = [
        "node",
        "-r",
        "../hooks/hook.js",
        &import_flag,
        "--env-file=.env",
        "--require",
        "tracer/x",
        "main.js",
    ];
    let resolved = machine.ok(&line);
    for path in [&hook, &import, &settings] {
        assert!(resolved.files.iter().any(|file| file.path == *path), "{}", path.display());
    }
    assert_eq!(argv(&resolved)[2..4], [text(&hook), import_flag]);
    assert!(resolved.trees.iter().any(|tree| tree.root == machine.at("project/node_modules")));
    assert!(matches!(
        machine.err(&["node", "--import", "https://x/y.js", "main.js"]),
        PinError::RemoteCode { .. }
    ));
    assert!(matches!(machine.err(&["node", "-r", "missing", "main.js"]), PinError::ModuleNotFound { .. }));
    assert!(matches!(machine.err(&["node", "--run", "start"]), PinError::Unsupported { .. }));
}

#[test]
fn inline_code_is_hashed_and_reported_as_inline() {
    let machine = Machine::new();
    let one = machine.ok(&["node", "-e", "one", "arg"]);
    assert!(one.identity.starts_with("inline:") && one.unpinned.is_some());
    assert_eq!(one.digest, machine.ok(&["node", "-e", "one", "other"]).digest);
    assert_ne!(one.digest, machine.ok(&["node", "-e", "two", "arg"]).digest);
    assert_ne!(one.digest, machine.ok(&["node", "-p", "-e", "two"]).digest);
    let node = text(&machine.at("opt/bin/node"));
    for line in [
        &["-", "a"][..],
        &["--test"],
        &["--no-warnings", "--test", "--test-only", "a.js"],
        &["-e", "one", "--", "-x"],
        &["-e", "one", "-", "x"],
    ] {
        let resolved = machine.ok(&[&["node"], line].concat());
        assert!(resolved.unpinned.is_some(), "{line:?}");
        assert_eq!(argv(&resolved), [&[node.as_str()], line].concat(), "{line:?}");
    }
}

#[test]
fn script_without_a_package_is_pinned_with_the_code_beside_it() {
    let machine = Machine::new();
    let entry = machine.file("tool/main.js", "x");
    machine.file("tool/lib/util.mjs", "x");
    machine.file("tool/notes.txt", "not loaded");
    machine.file("tool/node_modules/dep/index", "installed");
    let resolved = machine.ok(&["node", &text(&entry)]);
    let names: Vec<String> = resolved.trees[0].manifest.keys().map(|path| text(path)).collect();
    assert_eq!(
        (names.as_slice(), resolved.trees.len()),
        (&["lib/util.mjs", "main.js", "node_modules/dep/index"].map(str::to_owned)[..], 1)
    );

    let entry = machine.file("home/server.js", "x");
    machine.file("home/private.json", "{}");
    let resolved = machine.ok(&["node", &text(&entry)]);
    assert!(resolved.trees.is_empty() && resolved.unpinned.is_some());
    assert_eq!(resolved.read_roots, [entry, machine.at("opt")]);
}

#[test]
fn shebang_lines_are_followed() {
    let machine = Machine::new();
    let cli = machine.package("project/node_modules", "tool", "1.0.0");
    let node = text(&machine.at("opt/bin/node"));
    let resolved = machine.ok(&["./node_modules/.bin/tool", "x"]);
    assert_eq!((resolved.launcher, resolved.identity.as_str()), (Launcher::Shebang, "npm:tool@1.0.0"));
    assert_eq!(argv(&resolved), [node.clone(), text(&cli), "x".into()]);

    let script = machine.program("s/run", "#!/usr/bin/env -S A=1 node --no-warnings\n");
    let resolved = machine.ok(&[&text(&script), "x"]);
    assert_eq!(argv(&resolved), [node, "--no-warnings".into(), "--".into(), text(&script), "x".into()]);
    assert_eq!(resolved.worded["A"], "1");

    // An interpreter that is a script itself, as far as the limit.
    machine.program("chain/0", &format!("#!{}\n", machine.at("opt/bin/sh").display()));
    for level in 1..6 {
        let text = format!("#!{}\n", machine.at(&format!("chain/{}", level - 1)).display());
        machine.program(&format!("chain/{level}"), &text);
    }
    assert!(machine.resolve(&[&text(&machine.at("chain/3"))]).is_ok());
    assert!(matches!(machine.err(&[&text(&machine.at("chain/5"))]), PinError::TooManyInterpreters { .. }));
    machine.program("chain/self", &format!("#!{}\n", machine.at("chain/self").display()));
    assert!(matches!(machine.err(&[&text(&machine.at("chain/self"))]), PinError::TooManyInterpreters { .. }));
    machine.program("project/mine", "\u{7f}ELF");
    for near in ["#!mine\n", "#! ./mine\n"] {
        let script = machine.program("s/near", near);
        assert_eq!(argv(&machine.ok(&[&text(&script)])), ["./mine".into(), text(&script)]);
    }
    for absent in ["#!node\n", "#!./node\n", "#!/bin/sh\r\n"] {
        let script = machine.program("s/absent", absent);
        assert!(matches!(machine.err(&[&text(&script)]), PinError::NoInterpreter { .. }), "{absent:?}");
    }
    for bad in ["#!/a\0b\n", &format!("#!/{}", "a".repeat(300))] {
        let script = machine.program("s/bad", bad);
        assert!(matches!(machine.err(&[&text(&script)]), PinError::BadScript { .. }), "{bad:?}");
    }
}

#[test]
fn npx_takes_the_installed_package() {
    let machine = Machine::new();
    machine.program("opt/bin/npx", "#!/usr/bin/env node\n");
    let name = "@scope/server";
    let missing = machine.err(&["npx", "-y", name, "/data"]).to_string();
    assert!(missing.contains("run `npx -y @scope/server /data` once yourself"), "{missing}");

    for (hash, version) in [("aa", "1.2.0"), ("bb", "1.10.0"), ("cc", "2.0.0-beta.1")] {
        machine.package(&format!("home/.npm/_npx/{hash}/node_modules"), name, version);
    }
    let pick = |spec: &str| machine.ok(&["npx", "-y", spec, "/data"]).identity;
    assert_eq!(pick("@scope/server@1.2.0"), "npm:@scope/server@1.2.0");
    assert_eq!(pick("@scope/server@^1"), "npm:@scope/server@1.10.0");
    assert_eq!(pick("@scope/server@~1.2.0"), "npm:@scope/server@1.2.0");
    assert_eq!(pick("@scope/server"), "npm:@scope/server@2.0.0-beta.1");
    assert!(matches!(machine.err(&["npx", "@scope/server@3.0.0"]), PinError::PackageNotInstalled { .. }));

    let resolved = machine.ok(&["npx", "-p", "@scope/server@1.2.0", "server", "--flag"]);
    let entry = machine.at("home/.npm/_npx/aa/node_modules/@scope/server/cli.js");
    assert_eq!(resolved.launcher, Launcher::Npx);
    assert_eq!(argv(&resolved), [text(&machine.at("opt/bin/node")), text(&entry), "--flag".into()]);
    assert_eq!(resolved.trees[0].root, machine.at("home/.npm/_npx/aa/node_modules"));

    // Nearer installations win: global, then the project's own.
    machine.package("opt/lib/node_modules", name, "1.5.0");
    assert_eq!(pick(name), "npm:@scope/server@1.5.0");
    machine.package("project/node_modules", name, "1.4.0");
    assert_eq!(pick(name), "npm:@scope/server@1.4.0");
}

/// A well-known name gives more than another: it must be the name under which the package came, and all that runs.
#[test]
fn package_name_in_a_manifest_alone_gives_no_profile() {
    let machine = Machine::new();
    machine.program("opt/bin/npx", "#!/usr/bin/env node\n");
    machine.package("home/.npm/_npx/aa/node_modules", "server", "1.0.0");
    machine.package("home/.npm/_npx/aa/node_modules", "other", "1.0.0");
    let plain = machine.ok(&["npx", "-y", "server"]);
    assert_eq!((plain.identity.as_str(), plain.has_additions), ("npm:server@1.0.0", false));
    assert!(machine.ok(&["npx", "-y", "-p", "server", "-p", "other", "server"]).has_additions);
    let entry = text(&machine.at("home/.npm/_npx/aa/node_modules/server/cli.js"));
    let loaded = machine.ok(&["node", "--import=data:text/javascript,0", &entry]);
    assert_eq!((loaded.identity.as_str(), loaded.has_additions), ("npm:server@1.0.0", true));
    let manifest = "home/.npm/_npx/aa/node_modules/other/package.json";
    machine.file(manifest, r#"{"name": "server", "version": "1.0.0", "bin": {"other": "cli.js"}}"#);
    let identity = machine.ok(&["npx", "-y", "-p", "other", "other"]).identity;
    assert!(identity.starts_with("file:"), "{identity}");
}

#[test]
fn npx_equivalents_find_the_same_package() {
    let machine = Machine::new();
    for name in ["npm", "pnpm", "yarn", "bunx", "pnpx", "npx"] {
        machine.program(&format!("opt/bin/{name}"), "#!/usr/bin/env node\n");
    }
    machine.package("project/node_modules", "server", "1.0.0");
    let lines: [&[&str]; 8] = [
        &["npm", "exec", "--yes", "--", "server", "--x"],
        &["npm", "exec", "server", "--", "--x"],
        &["npm", "x", "--package=server", "--", "server", "--x"],
        &["pnpm", "dlx", "server", "--x"],
        &["yarn", "dlx", "-q", "server", "--x"],
        &["bunx", "server", "--x"],
        &["bun", "x", "server", "--x"],
        &["npx", "--no-install", "server", "--x"],
    ];
    for line in lines {
        let resolved = machine.ok(line);
        assert_eq!(resolved.launcher, Launcher::Npx, "{line:?}");
        assert_eq!(argv(&resolved).last().unwrap(), "--x", "{line:?}");
        assert_eq!(argv(&resolved).len(), 3, "{line:?}");
    }
    assert!(machine.ok(&["npm", "run", "start"]).unpinned.unwrap().contains("npm"));
    for bad in [["npx", "https://x/y.tgz"], ["npx", "github:a/b"], ["npx", "a/b"], ["npx", "./here"]] {
        assert!(matches!(machine.err(&bad), PinError::RemoteCode { .. }), "{bad:?}");
    }
    for bad in [&["npx", "-c", "rm"][..], &["npx"], &["npx", "--strange", "server"], &["npx", "../.."]] {
        assert!(machine.resolve(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn a_missing_package_may_be_left_to_its_launcher() {
    let mut machine = Machine::new();
    machine.program("opt/bin/npx", "#!/usr/bin/env node\n");
    machine.accept_missing = true;
    let resolved = machine.ok(&["npx", "-y", "server"]);
    assert!(resolved.unpinned.unwrap().contains("download"));
}

#[test]
fn a_manifest_cannot_point_out_of_its_package() {
    let machine = Machine::new();
    machine.program("opt/bin/npx", "#!/usr/bin/env node\n");
    machine.file("project/evil.js", "x");
    let manifest = r#"{"name":"p","version":"1.0.0","bin":"../../evil.js"}"#;
    machine.file("project/node_modules/p/package.json", manifest);
    assert!(matches!(machine.err(&["npx", "p"]), PinError::BadManifest { .. }));
}

#[test]
fn a_global_package_is_pinned_with_the_neighbours_it_declares() {
    let machine = Machine::new();
    machine.program("opt/bin/npx", "#!/usr/bin/env node\n");
    machine.package("opt/lib/node_modules", "server", "1.0.0");
    machine.package("opt/lib/node_modules", "unrelated", "1.0.0");
    let ws = r#"{"name":"ws","version":"8.0.0","peerDependencies":{"bufferutil":"*"}}"#;
    machine.file("opt/lib/node_modules/server/node_modules/ws/package.json", ws);
    let before = machine.ok(&["npx", "server"]);
    assert_eq!(before.trees.len(), 1);
    machine.file("opt/lib/node_modules/unrelated/more.js", "x");
    assert_eq!(before.digest, machine.ok(&["npx", "server"]).digest);
    machine.file("opt/lib/node_modules/bufferutil/index.js", "x");
    let after = machine.ok(&["npx", "server"]);
    assert_eq!(after.trees[1].name, "../bufferutil");
    assert_ne!(before.digest, after.digest);
}

#[test]
fn lock_files_give_versions_but_do_not_replace_hashes() {
    let machine = Machine::new();
    machine.program("opt/bin/npx", "#!/usr/bin/env node\n");
    machine.package("project/node_modules", "server", "1.0.0");
    let lock = r#"{"packages":{"":{},"node_modules/server":{"version":"1.0.0","integrity":"sha512-x"},
        "node_modules/server/node_modules/@a/foo":{"name":"evil","version":"2.0.0"},
        "node_modules/server/node_modules/@a/own":{"version":"3.0.0"}}}"#;
    machine.file("project/node_modules/.package-lock.json", lock);
    let before = machine.ok(&["npx", "server"]);
    assert_eq!(before.trees[0].source, TreeSource::NpmLock);
    assert_eq!(before.trees[0].packages["server"].version, "1.0.0");
    let name = |place: &str| before.trees[0].packages[place].name.as_str();
    assert_eq!(name("server/node_modules/@a/foo"), "evil", "an alias is called by what lies there");
    assert_eq!(name("server/node_modules/@a/own"), "@a/own");
    machine.file("project/node_modules/server/extra.js", "same lock, other bytes");
    assert_ne!(before.digest, machine.ok(&["npx", "server"]).digest);
}

#[test]
fn bun_and_deno_run_files_and_nothing_from_the_network() {
    let machine = Machine::new();
    let entry = machine.file("project/x.ts", "x");
    for line in [&["bun", "x.ts", "a"][..], &["bun", "run", "x.ts", "a"], &["bun", "--smol", "./x.ts", "a"]] {
        let resolved = machine.ok(line);
        assert_eq!(resolved.launcher, Launcher::Bun);
        let words = argv(&resolved);
        assert_eq!(words[words.len() - 2..], [text(&entry), "a".into()], "{line:?}");
    }
    let resolved = machine.ok(&["deno", "run", "--allow-read", "x.ts", "a"]);
    assert_eq!(argv(&resolved)[1..], ["run".into(), "--allow-read".into(), text(&entry), "a".into()]);
    for remote in ["https://deno.land/x.ts", "npm:server", "jsr:@a/b"] {
        assert!(matches!(machine.err(&["deno", "run", remote]), PinError::RemoteCode { .. }), "{remote}");
    }
    assert!(matches!(machine.err(&["deno", "run", "--watch", "x.ts"]), PinError::Unsupported { .. }));
    machine.file("project/package.json", r#"{"name":"p","scripts":{"start":"rm"}}"#);
    assert!(matches!(machine.err(&["bun", "run", "start"]), PinError::Unsupported { .. }));
}

#[test]
fn shells_containers_and_env_say_what_is_not_pinned() {
    let machine = Machine::new();
    let inline = machine.ok(&["sh", "-c", "node x.js"]);
    assert!(inline.identity.starts_with("inline-shell:"));
    assert_ne!(inline.digest, machine.ok(&["sh", "-c", "node y.js"]).digest);
    assert_ne!(inline.digest, machine.ok(&["sh", "-ec", "node x.js"]).digest);
    assert!(inline.unpinned.is_some());
    let script = machine.file("project/run.sh", "node x.js");
    let resolved = machine.ok(&["sh", "-e", "run.sh", "a"]);
    assert_eq!(argv(&resolved)[2..], [text(&script), "a".into()]);
    assert!(resolved.unpinned.is_some());
    assert!(machine.ok(&["docker", "run", "image"]).unpinned.unwrap().contains("image"));

    let entry = machine.file("project/main.js", "x");
    let resolved = machine.ok(&["env", "A=1", "B=x=y", "node", "main.js"]);
    assert_eq!((resolved.worded["A"].as_str(), resolved.worded["B"].as_str()), ("1", "x=y"));
    assert_eq!(argv(&resolved)[1], text(&entry));
    assert!(machine.ok(&["env"]).program.ends_with("env"), "alone it is just a program");
    for bad in [&["env", "--block-signal", "node"][..], &["env", "-S", "\"node"], &["env", "-S", "$X"]] {
        assert!(machine.resolve(bad).is_err(), "{bad:?}");
    }
    let elsewhere = machine.program("other/bin/node", "\u{7f}ELF other");
    let path = format!("PATH={}", machine.at("other/bin").display());
    assert_eq!(machine.ok(&["env", &path, "node", "main.js"]).program, elsewhere);
}

#[test]
fn env_takes_variables_away_and_chooses_the_directory() {
    let mut machine = Machine::new();
    machine.env.insert("A".to_owned(), "outside".to_owned());
    machine.file("project/sub/main.js", "x");
    let node = text(&machine.at("opt/bin/node"));
    for line in [
        &["env", "-u", "A", "B=1", &node][..],
        &["env", "-uA", "B=1", &node],
        &["env", "--unset=A", "B=1", &node],
        &["env", "-i", "B=1", &node],
        &["env", "-", "B=1", &node],
        &["env", "A=2", "env", "-i", "B=1", &node],
    ] {
        let resolved = machine.ok(line);
        assert!(resolved.removes("A") && !resolved.removes("B"), "{line:?}");
        assert_eq!(resolved.worded.keys().collect::<Vec<_>>(), ["B"], "{line:?}");
    }
    assert!(!machine.ok(&["env", "-i", "A=1", &node]).removes("A"), "what is set stays");
    assert!(!machine.ok(&["env", "-u", "A", &node]).removes("C"));
    for line in [
        &["env", "-C", "sub", &node, "main.js"][..],
        &["env", "-Csub", &node, "main.js"],
        &["env", "--chdir=sub", &node, "main.js"],
        &["env", "-iS", "--chdir sub", &node, "main.js"],
    ] {
        let resolved = machine.ok(line);
        assert_eq!(resolved.cwd, Some(machine.at("project/sub")), "{line:?}");
        assert_eq!(argv(&resolved)[1], text(&machine.at("project/sub/main.js")), "{line:?}");
    }
    // Without PATH neither env nor agentsh looks into the caller's.
    for line in [&["env", "-i", "node"][..], &["env", "-u", "PATH", "node"]] {
        assert_ne!(
            machine.resolve(line).map(|resolved| resolved.program).ok(),
            Some(machine.at("opt/bin/node"))
        );
    }
}

#[test]
fn shell_options_take_their_words_and_arguments_stay_as_typed() {
    let machine = Machine::new();
    machine.program("opt/bin/zsh", "\u{7f}ELF zsh");
    let script = machine.file("project/s.sh", "x");
    for line in [
        &["sh", "s.sh", "-s"][..],
        &["sh", "-euo", "pipefail", "s.sh"],
        &["sh", "-oO", "a", "b", "s.sh"],
        &["sh", "+o", "posix", "--", "s.sh"],
        &["sh", "--rcfile", "x", "-", "s.sh"],
        &["zsh", "-opipefail", "s.sh"],
        &["zsh", "-eo", "pipefail", "s.sh"],
    ] {
        let resolved = machine.ok(line);
        assert!(
            resolved.files.iter().any(|file| file.path == script && file.role == Role::Entry),
            "{line:?}"
        );
        let typed =
            line[1..].iter().map(|word| if *word == "s.sh" { text(&script) } else { (*word).to_owned() });
        assert_eq!(argv(&resolved)[1..], typed.collect::<Vec<_>>(), "{line:?}");
    }
    for line in
        [&["sh", "-s", "s.sh"][..], &["sh", "-xs", "--", "s.sh", "x"], &["sh", "-s", "one"], &["sh", "-"]]
    {
        let resolved = machine.ok(line);
        assert!(resolved.files.iter().all(|file| file.role != Role::Entry), "{line:?}");
        assert_eq!(argv(&resolved), line, "{line:?}");
        assert!(resolved.unpinned.unwrap().contains("standard input"), "{line:?}");
    }
    assert!(machine.ok(&["sh", "-euo", "pipefail", "-c", "x"]).identity.starts_with("inline-shell:"));
}

#[test]
fn data_of_a_program_text_is_neither_pinned_nor_shown() {
    let machine = Machine::new();
    for name in ["perl", "ruby", "awk", "make", "php"] {
        machine.program(&format!("opt/bin/{name}"), &format!("\u{7f}ELF {name}"));
    }
    let (data, script) = (machine.file("project/b.txt", "x"), machine.file("project/run", "x"));
    let pins = |line: &[&str]| -> Vec<std::path::PathBuf> {
        let files = machine.ok(line).files.into_iter();
        files.filter(|file| file.role == Role::Entry).map(|file| file.path).collect()
    };
    for line in [
        &["perl", "-pi", "-e", "s/a/b/", "b.txt"][..],
        &["perl", "-i.bak", "-pe", "s/a/b/", "b.txt"],
        &["perl", "-I", "lib", "-0777ne", "print", "b.txt"],
        &["perl", "-F:", "-lane", "print", "b.txt"],
        &["ruby", "-r", "json", "-pe", "x", "b.txt"],
        &["php", "-d", "a=b", "-r", "x", "b.txt"],
        &["awk", "-F", ":", "{print}", "b.txt"],
        &["make", "b.txt"],
    ] {
        assert_eq!(pins(line), [data.clone()][..0], "{line:?}");
    }
    for line in [
        &["perl", "-n", "run", "b.txt"][..],
        &["perl", "-Mre", "-i.e", "run", "-e", "b.txt"],
        &["ruby", "-E", "utf-8", "run", "b.txt"],
        &["php", "-S", "localhost:1", "run"],
        &["awk", "-v", "a=1", "-f", "run", "b.txt"],
        &["awk", "-frun", "b.txt"],
        &["make", "--file=run", "b.txt"],
    ] {
        assert_eq!(pins(line), std::slice::from_ref(&script), "{line:?}");
    }
}

#[test]
fn programs_that_run_what_they_are_given_are_looked_through_or_named() {
    let machine = Machine::new();
    machine.program("opt/bin/npx", "#!/usr/bin/env node\n");
    machine.package("project/node_modules", "tsx", "4.0.0");
    let entry = machine.file("app/server.ts", "x");
    let resolved = machine.ok(&["npx", "tsx", "../app/server.ts"]);
    assert!(resolved.files.iter().any(|file| file.path == entry));
    assert!(resolved.trees.iter().any(|tree| tree.root == machine.at("app")));
    assert!(machine.ok(&["npx", "tsx", "absent.ts"]).unpinned.is_some());

    machine.program("opt/bin/ruby", "\u{7f}ELF ruby");
    machine.program("opt/bin/timeout", "\u{7f}ELF timeout");
    let script = machine.program("app/server.rb", "#!/usr/bin/env ruby\n");
    for line in [&["ruby", "-w", "../app/server.rb"][..], &["../app/server.rb"]] {
        let resolved = machine.ok(line);
        assert!(
            resolved.files.iter().any(|file| file.path == script && file.role == Role::Entry),
            "{line:?}"
        );
        assert!(resolved.unpinned.is_some(), "{line:?}");
    }
    assert!(machine.ok(&["timeout", "5", "node", "x.js"]).unpinned.unwrap().contains("timeout"));
}

/// Node loads `./a` before `./a.js`: whatever has no ending and the name of code runs.
#[test]
fn a_file_without_an_ending_in_place_of_code_changes_the_pin() {
    for (known, new, counts) in [
        ("lib.js", "lib", true),
        ("config.json", "config", true),
        ("lib.js", "Makefile", false),
        ("lib.js", "libs", false),
    ] {
        let machine = Machine::new();
        machine.file("tool/main.js", "require('./lib'); require('./config')");
        machine.file(&format!("tool/{known}"), "{}");
        let line = ["node", &text(&machine.at("tool/main.js"))];
        let before = machine.ok(&line);
        machine.file(&format!("tool/{new}"), "hostile");
        assert_eq!(machine.ok(&line).digest != before.digest, counts, "{new}");
        assert_eq!(before.unchanged_since().is_err(), counts, "{new}");
    }
}
