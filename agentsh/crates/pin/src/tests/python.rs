use std::fs;

use super::super::{Launcher, PinError, TreeSource};
use super::{Machine, argv, text};

const NO_CACHE: &str = "/dev/null/pycache";

#[test]
fn a_virtual_environment_keeps_its_own_path() {
    let machine = Machine::new();
    machine.venv("project/.venv", "server", "1.0.0", "server");
    let script = machine.file("tool/main.py", "x");
    machine.file("tool/helper.py", "x");
    let resolved = machine.ok(&[".venv/bin/python", "-u", &text(&script), "a"]);
    assert_eq!(resolved.launcher, Launcher::Python);
    let python = machine.at("project/.venv/bin/python");
    assert_eq!(resolved.program, python);
    assert_eq!(argv(&resolved), [text(&python), "-u".into(), text(&script), "a".into()]);
    assert_eq!(resolved.files[0].path, machine.at("opt/bin/python3.12"));
    let trees: Vec<&str> = resolved.trees.iter().map(|tree| tree.name.as_str()).collect();
    assert_eq!(trees, ["venv", "python-library", "script"]);
    assert_eq!(resolved.env["PYTHONPYCACHEPREFIX"], NO_CACHE);
    assert_eq!(resolved.read_roots, [machine.at("opt"), machine.at("project/.venv"), machine.at("tool")]);
}

#[test]
fn cached_bytecode_is_neither_hashed_nor_read() {
    let machine = Machine::new();
    machine.venv("project/.venv", "server", "1.0.0", "server");
    let line = [".venv/bin/python", "-I", "-m", "server"];
    let before = machine.ok(&line);
    let cache = "project/.venv/lib/python3.12/site-packages/server/__pycache__";
    machine.file(&format!("{cache}/__main__.cpython-312.pyc"), "x");
    let after = machine.ok(&line);
    assert_eq!(before.digest, after.digest);
    // `-I` ignores the variable.
    assert!(argv(&after).windows(2).any(|pair| pair == ["-X", "pycache_prefix=/dev/null/pycache"]));
    assert!(matches!(
        machine.err(&[".venv/bin/python", "-X", "pycache_prefix=/tmp", "x.py"]),
        PinError::Unsupported { .. }
    ));
    // A compiled module next to the sources is code.
    machine.file("project/.venv/lib/python3.12/site-packages/server/extra.pyc", "x");
    assert_ne!(before.digest, machine.ok(&line).digest);
}

#[test]
fn a_module_of_the_working_directory_is_the_one_that_runs() {
    let machine = Machine::new();
    machine.venv("project/.venv", "server", "1.0.0", "server");
    let resolved = machine.ok(&[".venv/bin/python", "-m", "server", "a"]);
    assert_eq!(
        (resolved.launcher, resolved.identity.as_str()),
        (Launcher::PythonModule, "python-module:server")
    );
    // A later file of the working directory cannot take its place.
    assert_eq!(argv(&resolved)[1..], ["-P", "-m", "server", "a"]);
    let shadow = machine.file("project/server.py", "hostile");
    let resolved = machine.ok(&[".venv/bin/python", "-m", "server", "a"]);
    assert_eq!(argv(&resolved)[1..], ["-m", "server", "a"]);
    assert!(resolved.files.iter().any(|file| file.path == shadow));
    let resolved = machine.ok(&[".venv/bin/python", "-P", "-m", "server"]);
    assert!(!resolved.files.iter().any(|file| file.path == shadow));
    assert!(matches!(machine.err(&[".venv/bin/python", "-m", "absent"]), PinError::ModuleNotFound { .. }));
    assert!(matches!(machine.err(&[".venv/bin/python", "-m", "../x"]), PinError::Unsupported { .. }));
}

#[test]
fn user_packages_sources_in_place_and_archives_are_covered() {
    let machine = Machine::new();
    machine.venv("unused", "server", "1.0.0", "server");
    let main = machine.file("home/.local/lib/python3.12/site-packages/tool/__main__.py", "x");
    machine.file("home/.local/lib/python3.12/site-packages/tool/__init__.py", "");
    machine.file("work/src/inplace/__main__.py", "x");
    machine.file("work/src/inplace/__init__.py", "");
    let link = format!("# comment\n{}\n", machine.at("work/src").display());
    machine.file("home/.local/lib/python3.12/site-packages/inplace.pth", &link);
    let resolved = machine.ok(&["python3.12", "-m", "tool"]);
    assert!(resolved.files.iter().any(|file| file.path == main));
    let trees: Vec<&str> = resolved.trees.iter().map(|tree| tree.name.as_str()).collect();
    assert_eq!(trees, ["python-library", "user-site", "sources:inplace.pth"]);
    machine.ok(&["python3.12", "-m", "inplace"]);
    assert!(machine.resolve(&["python3.12", "-s", "-m", "tool"]).is_err());

    let archive = machine.file("project/app.pyz", "PK");
    assert!(machine.ok(&["python3.12", "app.pyz"]).files.iter().any(|file| file.path == archive));
    machine.file("project/dir/__main__.py", "x");
    assert!(machine.ok(&["python3.12", "dir"]).trees.iter().any(|tree| tree.name == "script"));
    let inline = machine.ok(&["python3.12", "-c", "import x", "a"]);
    assert!(inline.identity.starts_with("inline:"));
    assert_ne!(inline.digest, machine.ok(&["python3.12", "-c", "import y", "a"]).digest);
}

#[test]
fn console_scripts_run_in_their_environment() {
    let machine = Machine::new();
    let script = machine.venv("project/.venv", "server", "1.0.0", "mcp-server");
    machine.link("opt/bin/mcp-server", &script);
    let python = text(&machine.at("project/.venv/bin/python"));
    let resolved = machine.ok(&["mcp-server", "--x"]);
    assert_eq!(resolved.launcher, Launcher::Shebang);
    assert_eq!(argv(&resolved), [python.clone(), text(&script), "--x".into()]);
    assert!(resolved.trees.iter().any(|tree| tree.name == "venv"));

    let headers = [
        "'''exec' \"$(dirname -- \"$(realpath -- \"$0\")\")\"/'python' \"$0\" \"$@\"".to_owned(),
        format!("'''exec' {python} \"$0\" \"$@\""),
        format!("'''exec' \"{python}\" \"$0\" \"$@\""),
    ];
    for header in headers {
        machine.program("project/.venv/bin/mcp-server", &format!("#!/bin/sh\n{header}\n' '''\nimport x\n"));
        let resolved = machine.ok(&["mcp-server", "--x"]);
        assert_eq!(argv(&resolved), [python.clone(), text(&script), "--x".into()], "{header}");
    }
}

#[test]
fn uvx_takes_an_installed_tool_or_a_cached_environment() {
    let machine = Machine::new();
    machine.program("opt/bin/uvx", "\u{7f}ELF uvx");
    machine.program("opt/bin/uv", "\u{7f}ELF uv");
    let missing = machine.err(&["uvx", "mcp-server-git", "--repo", "."]);
    assert!(missing.to_string().contains("run `uvx mcp-server-git --repo .` once yourself"), "{missing}");
    let cache = "home/.cache/uv/archive-v0";
    machine.venv(&format!("{cache}/one"), "mcp_server_git", "1.2.0", "mcp-server-git");
    machine.venv(&format!("{cache}/two"), "mcp_server_git", "1.10.0", "mcp-server-git");
    let identity = |line: &[&str]| {
        let resolved = machine.ok(line);
        assert_eq!(resolved.launcher, Launcher::Uvx, "{line:?}");
        assert_eq!(argv(&resolved).last().unwrap(), "-x", "{line:?}");
        resolved.identity
    };
    assert_eq!(identity(&["uvx", "mcp-server-git", "-x"]), "pypi:mcp-server-git@1.10.0");
    assert_eq!(identity(&["uvx", "mcp-server-git@1.2.0", "-x"]), "pypi:mcp-server-git@1.2.0");
    assert_eq!(identity(&["uvx", "mcp-server-git==1.2.0", "-x"]), "pypi:mcp-server-git@1.2.0");
    assert_eq!(
        identity(&["uvx", "--from", "mcp_server.git[x]<1.3", "mcp-server-git", "-x"]),
        "pypi:mcp-server-git@1.2.0"
    );
    assert_eq!(
        identity(&["uv", "tool", "run", "--python", "3.12", "mcp-server-git", "-x"]),
        "pypi:mcp-server-git@1.10.0"
    );
    machine.venv("home/.local/share/uv/tools/other", "other", "3.0", "other");
    assert_eq!(identity(&["uvx", "other", "-x"]), "pypi:other@3.0");
    assert!(matches!(machine.err(&["uvx", "other@4"]), PinError::PackageNotInstalled { .. }));
    assert!(matches!(machine.err(&["uvx", "--from", "git+https://x/y", "y"]), PinError::RemoteCode { .. }));
    assert!(matches!(machine.err(&["uvx", "--strange", "y"]), PinError::Unsupported { .. }));
}

#[test]
fn uv_run_uses_the_projects_environment() {
    let machine = Machine::new();
    machine.program("opt/bin/uv", "\u{7f}ELF uv");
    machine.file("app/pyproject.toml", "[project]");
    machine.file("app/uv.lock", "version = 1\n[[package]]\nname = \"server\"\nversion = \"1.0.0\"\n");
    let script = machine.file("app/main.py", "x");
    let directory = text(&machine.at("app"));
    let line = ["uv", "--directory", &directory, "run", "main.py", "a"];
    assert!(matches!(machine.err(&line), PinError::PackageNotInstalled { .. }));
    machine.venv("app/.venv", "server", "1.0.0", "server");
    let resolved = machine.ok(&line);
    let python = text(&machine.at("app/.venv/bin/python"));
    assert_eq!(argv(&resolved), [python.clone(), text(&script), "a".into()]);
    assert_eq!(resolved.cwd, Some(machine.at("app")));
    assert_eq!(resolved.env["VIRTUAL_ENV"], text(&machine.at("app/.venv")));
    assert_eq!(resolved.trees[0].source, TreeSource::UvLock);
    assert_eq!(resolved.trees[0].packages["server"].version, "1.0.0");
    let resolved = machine.ok(&["uv", "run", "--project", &directory, "server", "a"]);
    assert_eq!(argv(&resolved)[0], python);
    let resolved = machine.ok(&["uv", "run", "--project", &directory, "-m", "server", "a"]);
    assert_eq!(argv(&resolved)[1..], ["-P", "-m", "server", "a"]);
    assert!(machine.ok(&["uv", "sync"]).unpinned.is_some());
}

#[test]
fn pipx_run_takes_an_installed_application() {
    let machine = Machine::new();
    machine.program("opt/bin/pipx", "\u{7f}ELF pipx");
    assert!(matches!(machine.err(&["pipx", "run", "server"]), PinError::PackageNotInstalled { .. }));
    machine.venv("home/.local/share/pipx/venvs/server", "server", "1.0.0", "server");
    machine.venv("home/.local/pipx/.cache/abc", "server", "2.0.0", "app");
    let resolved = machine.ok(&["pipx", "run", "server", "a"]);
    assert_eq!((resolved.launcher, resolved.identity.as_str()), (Launcher::Pipx, "pypi:server@1.0.0"));
    let resolved = machine.ok(&["pipx", "run", "--spec", "server>=1", "app", "a"]);
    assert_eq!(resolved.identity, "pypi:server@2.0.0");
}

#[test]
fn a_version_shim_is_looked_through() {
    let mut machine = Machine::new();
    let shim = machine.program("home/.pyenv/shims/python", "#!/bin/sh\nexec pyenv\n");
    machine.path = shim.parent().unwrap().as_os_str().to_owned();
    for version in ["3.9.2", "3.11.2", "3.11.10"] {
        machine.program(&format!("home/.pyenv/versions/{version}/bin/python"), "\u{7f}ELF");
    }
    machine.file("tool/main.py", "");
    let chosen = |machine: &Machine| machine.ok(&["python", "../tool/main.py"]).program;
    machine.file("home/.pyenv/version", "3.9.2\n");
    assert_eq!(chosen(&machine), machine.at("home/.pyenv/versions/3.9.2/bin/python"));
    machine.file("project/.python-version", "3.11\n");
    assert_eq!(chosen(&machine), machine.at("home/.pyenv/versions/3.11.10/bin/python"));
    machine.env.insert("PYENV_VERSION".into(), "3.11.2".into());
    assert_eq!(chosen(&machine), machine.at("home/.pyenv/versions/3.11.2/bin/python"));
    machine.env.insert("PYENV_VERSION".into(), "4".into());
    assert!(matches!(machine.err(&["python", "x.py"]), PinError::NotFound { .. }));
    fs::remove_dir_all(machine.at("home/.pyenv/versions")).unwrap();
    machine.file("home/.pyenv/versions", "no directory");
    assert!(machine.ok(&["python", "../tool/main.py"]).unpinned.is_some(), "an ordinary shell script");
}

#[test]
fn an_environment_with_a_copied_interpreter_uses_the_library_of_the_original() {
    let machine = Machine::new();
    machine.venv("project/.venv", "server", "1.0.0", "server");
    fs::remove_file(machine.at("project/.venv/bin/python")).unwrap();
    let copy = machine.program("project/.venv/bin/python", "\u{7f}ELF python");
    let settings = format!("home = {}\n", machine.at("opt/bin").display());
    machine.file("project/.venv/pyvenv.cfg", &settings);
    let resolved = machine.ok(&[".venv/bin/python", "-m", "server"]);
    assert_eq!(resolved.program, copy);
    assert!(resolved.trees.iter().any(|tree| tree.root == machine.at("opt/lib/python3.12")));
    assert!(resolved.read_roots.contains(&machine.at("opt")));
}

#[test]
fn installed_record_names_the_python_package_of_a_program() {
    let machine = Machine::new();
    let command = machine.venv("env", "the_server", "1.2.0", "the-server");
    let site = "env/lib/python3.12/site-packages";
    let line = [command.to_str().unwrap(), "a"];
    let python = machine.at("env/bin/python");
    let module = [python.to_str().unwrap(), "-m", "the_server"];
    assert_eq!(machine.ok(&module).identity, "python-module:the_server");
    let record =
        "the_server/__init__.py,,\nthe_server/__main__.py,sha256=x,4\n../../../bin/the-server,sha256=y,9\n";
    machine.file(
        &format!("{site}/other-3.0.dist-info/RECORD"),
        "other/__main__.py,,\n../../../bin/the-server2,,\n",
    );
    machine.file(&format!("{site}/the_server-1.2.0.dist-info/RECORD"), record);
    for line in [&module[..], &line] {
        assert_eq!(machine.ok(line).identity, "pypi:the_server@1.2.0", "{line:?}");
    }
    // A file of the working directory with that name is not a part of the package.
    machine.file("project/the_server.py", "");
    assert_eq!(machine.ok(&[python.to_str().unwrap(), "-m", "json"]).identity, "python-module:json");
}
