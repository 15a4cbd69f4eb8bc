//! Small trees in temporary directories: no network, no real package manager.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

mod files;
mod lines;
mod node;
mod python;
mod tampering;
mod trees;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::{NoCache, PinError, Request, Resolved, resolve};

/// A machine: `bin` is PATH, `home`, and a `project` to be in.
struct Machine {
    directory: tempfile::TempDir,
    path: OsString,
    env: BTreeMap<String, String>,
    accept_missing: bool,
    not_below: Option<PathBuf>,
}

impl Machine {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("opt/bin").into_os_string();
        let machine = Self { directory, path, env: BTreeMap::new(), accept_missing: false, not_below: None };
        for name in ["opt/bin", "home", "project"] {
            fs::create_dir_all(machine.at(name)).unwrap();
        }
        for name in ["node", "env", "sh", "bun", "deno", "npm-shim", "docker"] {
            machine.program(&format!("opt/bin/{name}"), &format!("\u{7f}ELF {name}"));
        }
        machine
    }

    fn at(&self, path: &str) -> PathBuf {
        fs::canonicalize(self.directory.path()).unwrap().join(path)
    }

    fn file(&self, path: &str, text: &str) -> PathBuf {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn program(&self, path: &str, text: &str) -> PathBuf {
        let path = self.file(path, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn link(&self, path: &str, target: impl AsRef<Path>) -> PathBuf {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, &path).unwrap();
        path
    }

    /// An installed package with one command, `cli.js`, and its link in `.bin`.
    fn package(&self, modules: &str, name: &str, version: &str) -> PathBuf {
        let short = name.rsplit('/').next().unwrap();
        let manifest = format!(r#"{{"name":"{name}","version":"{version}","bin":{{"{short}":"cli.js"}}}}"#);
        self.file(&format!("{modules}/{name}/package.json"), &manifest);
        self.link(&format!("{modules}/.bin/{short}"), format!("../{name}/cli.js"));
        let text = format!("#!/usr/bin/env node\n// {name} {version}\n");
        self.program(&format!("{modules}/{name}/cli.js"), &text)
    }

    /// A Python environment with one package that brings a command.
    fn venv(&self, root: &str, package: &str, version: &str, command: &str) -> PathBuf {
        self.program("opt/bin/python3.12", "\u{7f}ELF python");
        self.file("opt/lib/python3.12/json.py", "library");
        self.file(&format!("{root}/pyvenv.cfg"), "home = /opt/bin\nversion = 3.12.1\n");
        let _ = fs::create_dir_all(self.at(&format!("{root}/bin")));
        let _ = symlink(self.at("opt/bin/python3.12"), self.at(&format!("{root}/bin/python")));
        let _ = symlink("python", self.at(&format!("{root}/bin/python3")));
        let site = format!("{root}/lib/python3.12/site-packages");
        self.file(&format!("{site}/{package}/__init__.py"), "");
        self.file(&format!("{site}/{package}/__main__.py"), "main");
        self.file(&format!("{site}/{package}-{version}.dist-info/METADATA"), version);
        let python = self.at(&format!("{root}/bin/python"));
        self.program(&format!("{root}/bin/{command}"), &format!("#!{}\nimport {package}\n", python.display()))
    }

    fn resolve(&self, line: &[&str]) -> Result<Resolved, PinError> {
        self.resolve_in("project", line)
    }

    fn resolve_in(&self, cwd: &str, line: &[&str]) -> Result<Resolved, PinError> {
        let args: Vec<String> = line.iter().skip(1).map(|word| (*word).to_owned()).collect();
        let request = Request {
            program: line[0],
            args: &args,
            cwd: &self.at(cwd),
            path_env: &self.path,
            home: &self.at("home"),
            project: &self.at("project"),
            env: &self.env,
            store: None,
            accept_missing_package: self.accept_missing,
            not_below: self.not_below.as_deref(),
            hidden: None,
        };
        resolve(&request, &mut NoCache, &mut |_| ())
    }

    fn ok(&self, line: &[&str]) -> Resolved {
        self.resolve(line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    fn err(&self, line: &[&str]) -> PinError {
        match self.resolve(line) {
            Ok(resolved) => panic!("{line:?} was resolved: {resolved:?}"),
            Err(error) => error,
        }
    }
}

fn argv(resolved: &Resolved) -> Vec<String> {
    resolved.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
