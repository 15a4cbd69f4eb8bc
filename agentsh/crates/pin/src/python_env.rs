//! The Python installation of an interpreter, and what can be loaded from it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::command::Command;
use super::context::Context;
use super::file::{Role, is_distribution};
use super::search::{self, Found};
use super::tree::{Code, Selection};
use super::{PinError, python};

/// The code that Python loads.
pub(super) static MODULES: Code = Code {
    endings: &["py", "pyc", "so", "pth", "zip", "egg"],
    names: &[],
    tries_exact_names: false,
    installed: None,
};

#[derive(Debug)]
pub(super) struct Installation {
    /// The executed program: inside a virtual environment the link there, else the interpreter itself.
    pub program: PathBuf,
    /// Minor version of Python 3; None if it is unknown.
    pub minor: Option<u32>,
    /// Directories with the standard library, in Python's order.
    pub library: Vec<PathBuf>,
    /// Directories with installed packages, in Python's order.
    pub sites: Vec<PathBuf>,
}

/// Pins interpreter, environment, and every library that is not the distribution's.
pub(super) fn pin(
    context: &mut Context<'_>,
    found: &Found,
    user_site: bool,
) -> Result<Installation, PinError> {
    let venv = environment_of(&found.path)?;
    let program = match (&venv, found.path.file_name()) {
        (Some(venv), Some(name)) => venv.join("bin").join(name),
        _ => found.real.clone(),
    };
    let settings = match &venv {
        Some(venv) => search::text(&venv.join("pyvenv.cfg"), 1 << 16)?.unwrap_or_default(),
        None => String::new(),
    };
    let settings = pyvenv_settings(&settings);
    // An environment may hold a copy of the interpreter: the library is where the original is.
    let copied = venv.as_ref().is_some_and(|venv| found.real.starts_with(venv));
    let home = settings.get("home").filter(|_| copied).and_then(|home| search::directory(Path::new(home)));
    let binaries = home.as_deref().or(found.real.parent());
    let prefix = binaries.and_then(Path::parent).unwrap_or(Path::new("/")).to_owned();
    let minor = minor_version(&found.real, venv.as_deref().unwrap_or(&prefix));
    if home.is_some() && !context.is_personal(&prefix) {
        context.show(&prefix);
    }
    context.interpreter(found)?;
    let mut installation = Installation { program, minor, library: Vec::new(), sites: Vec::new() };
    let mut system_sites = true;
    if let Some(venv) = &venv {
        system_sites = settings
            .get("include-system-site-packages")
            .is_some_and(|word| word.eq_ignore_ascii_case("true"));
        context.tree("venv", venv, Selection::default())?;
        installation.sites.extend(versioned(&venv.join("lib"), minor, "site-packages"));
    }
    for library in versioned(&prefix.join("lib"), minor, "") {
        if !is_distribution(&library) {
            context.tree("python-library", &library, Selection::default())?;
        }
        installation.library.push(library.clone());
        installation.library.extend(search::directory(&library.join("lib-dynload")));
    }
    shared_library(context, &prefix)?;
    if system_sites {
        system(context, &mut installation, &prefix, user_site && venv.is_none())?;
    }
    linked_sources(context, &mut installation)?;
    Ok(installation)
}

/// User-wide and system-wide packages.
fn system(
    context: &mut Context<'_>,
    installation: &mut Installation,
    prefix: &Path,
    user_site: bool,
) -> Result<(), PinError> {
    let minor = installation.minor;
    if user_site {
        for site in versioned(&context.request.home.join(".local/lib"), minor, "site-packages") {
            context.tree("user-site", &site, Selection::default())?;
            installation.sites.push(site);
        }
    }
    let mut sites = Vec::new();
    if prefix == Path::new("/usr") {
        sites.extend(versioned(Path::new("/usr/local/lib"), minor, "dist-packages"));
        sites.extend(search::directory(Path::new("/usr/lib/python3/dist-packages")));
    }
    sites.extend(versioned(&prefix.join("lib"), minor, "site-packages"));
    for site in sites {
        if !is_distribution(&site) {
            context.tree("site-packages", &site, Selection::default())?;
        }
        installation.sites.push(site);
    }
    Ok(())
}

/// An interpreter that is a small program around `libpythonX.so`.
fn shared_library(context: &mut Context<'_>, prefix: &Path) -> Result<(), PinError> {
    let Ok(entries) = std::fs::read_dir(prefix.join("lib")) else { return Ok(()) };
    let mut libraries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    libraries.retain(|path| {
        let name = search::file_name(path);
        name.starts_with("libpython3") && name.contains(".so") && !is_distribution(path)
    });
    libraries.sort();
    for library in libraries {
        if let Ok(found) = search::file(&library)
            && !is_distribution(&found.real)
        {
            context.file(&found.real, Role::Interpreter)?;
        }
    }
    Ok(())
}

/// Directories that `.pth` files add: packages that are developed in place.
fn linked_sources(context: &mut Context<'_>, installation: &mut Installation) -> Result<(), PinError> {
    for site in installation.sites.clone() {
        let Ok(entries) = std::fs::read_dir(&site) else { continue };
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.retain(|path| path.extension().is_some_and(|suffix| suffix == "pth"));
        files.sort();
        for file in files {
            let text = search::text(&file, 1 << 20)?.unwrap_or_default();
            let lines = text.lines().map(str::trim_end);
            for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
                if line.starts_with("import ") || line.starts_with("import\t") {
                    if line.contains("__editable__") {
                        context.note(format!("the sources that {} points to", file.display()));
                    }
                    continue;
                }
                let Some(directory) = search::directory(&site.join(line)) else { continue };
                let name = format!("sources:{}", search::file_name(&file));
                let selection = Selection { code: Some(&MODULES), ..Selection::default() };
                context.tree(&name, &directory, selection)?;
                installation.sites.push(directory);
            }
        }
    }
    Ok(())
}

/// `LIB/python3.X/NAME` for the version in use, or for all when it is not known.
fn versioned(lib: &Path, minor: Option<u32>, name: &str) -> Vec<PathBuf> {
    let names: Vec<PathBuf> = match minor {
        Some(minor) => vec![lib.join(format!("python3.{minor}"))],
        None => {
            let mut all = search::subdirectories(lib);
            all.retain(|path| search::file_name(path).starts_with("python3."));
            all
        }
    };
    names.iter().filter_map(|directory| search::directory(&directory.join(name))).collect()
}

fn minor_version(interpreter: &Path, prefix: &Path) -> Option<u32> {
    let of = |path: &Path| search::file_name(path).strip_prefix("python3.")?.parse().ok();
    of(interpreter).or_else(|| {
        let found: Vec<u32> =
            search::subdirectories(&prefix.join("lib")).iter().filter_map(|path| of(path)).collect();
        match found.as_slice() {
            [one] => Some(*one),
            _ => None,
        }
    })
}

/// The virtual environment of a path such as `VENV/bin/python3`. Like Python, links of the last part are not
/// followed: the place under which the interpreter is started decides.
pub(super) fn environment_of(path: &Path) -> Result<Option<PathBuf>, PinError> {
    let Some(root) = path.parent().and_then(Path::parent) else { return Ok(None) };
    match search::file(&root.join("pyvenv.cfg")) {
        Ok(_) => Ok(search::directory(root)),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error),
    }
}

fn pyvenv_settings(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(key, value)| (key.trim().to_lowercase(), value.trim().to_owned())).collect()
}

/// Installers write `#!/bin/sh` and a line that is shell and Python at once where the interpreter's path does not
/// fit on a `#!` line or is to be found relative to the script.
pub(super) fn behind_shell_header(script: &Path, head: &[u8]) -> Option<PathBuf> {
    let head = String::from_utf8_lossy(head);
    let mut lines = head.lines();
    let shell = lines.next()?.trim_end();
    let call = lines
        .next()?
        .strip_prefix("'''exec' ")?
        .split_once(" \"$0\" \"$@\"")
        .filter(|_| shell.ends_with("/sh"))?
        .0;
    let python = match call.strip_prefix("\"$(dirname -- \"$(realpath -- \"$0\")\")\"/") {
        Some(name) => script.parent()?.join(name.trim_matches(['\'', '"'])),
        None if call.contains('$') => return None,
        None => PathBuf::from(call.trim_matches(['\'', '"'])),
    };
    let named = python::is_python(search::file_name(&python));
    (python.is_absolute() && named).then_some(python)
}

/// The program of a pyenv shim: the shim is one script for every name, so pinning it pins nothing.
pub(super) fn behind_shim(
    context: &Context<'_>,
    found: &Found,
    command: &Command,
) -> Result<Option<Found>, PinError> {
    let Some(shims) = found.path.parent().filter(|parent| parent.ends_with("shims")) else { return Ok(None) };
    let Some(root) = shims.parent().filter(|root| root.join("versions").is_dir()) else { return Ok(None) };
    let name = search::file_name(&found.path);
    let mut chosen = context.variable("PYENV_VERSION").map(str::to_owned);
    for directory in command.cwd.ancestors() {
        if chosen.is_none() {
            chosen = search::text(&directory.join(".python-version"), 1 << 16)?;
        }
    }
    if chosen.is_none() {
        chosen = search::text(&root.join("version"), 1 << 16)?;
    }
    let chosen = chosen.unwrap_or_else(|| "system".to_owned());
    for version in chosen.split([':', '\n', ' ']).map(str::trim).filter(|version| !version.is_empty()) {
        if version == "system" {
            let others = search::path_directories(&command.path_env).filter(|directory| directory != shims);
            let path_env = std::env::join_paths(others).unwrap_or_default();
            return search::command(name.as_ref(), &command.cwd, &path_env).map(Some);
        }
        let matching = |path: &PathBuf| {
            let full = search::file_name(path);
            full == version || full.strip_prefix(version).is_some_and(|rest| rest.starts_with('.'))
        };
        let mut versions = search::subdirectories(&root.join("versions"));
        versions.retain(matching);
        let patch = |path: &PathBuf| {
            let last = search::file_name(path).rsplit('.').next();
            last.and_then(|patch| patch.parse::<u64>().ok())
        };
        versions.sort_by_key(patch);
        if let Some(directory) = versions.pop()
            && let Ok(found) =
                search::command(directory.join("bin").join(name).as_os_str(), root, "".as_ref())
        {
            return Ok(Some(found));
        }
    }
    Err(PinError::NotFound { program: format!("{name} (of pyenv version {})", chosen.trim()) })
}
