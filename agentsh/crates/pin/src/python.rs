//! `python script.py`, `python -m module`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::command::Command;
use super::context::{Context, Target};
use super::file::{Role, is_distribution};
use super::python_env::{self, Installation, MODULES};
use super::python_line::{self, Program};
use super::search::{self, Found};
use super::tree::Selection;
use super::{Launcher, PinError, node_tree, python_package};

/// A directory that cannot exist. Python takes compiled modules only from below it, so none is ever taken: one
/// that was planted in `__pycache__` with its source's timestamp would run instead of the pinned source.
const NO_CACHE: &str = "/dev/null/pycache";
/// First minor version of Python 3 with `-P`.
const SAFE_PATH_SINCE: u32 = 11;

pub(super) fn is_python(name: &str) -> bool {
    name.strip_prefix("python")
        .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
}

pub(super) fn resolve(
    context: &mut Context<'_>,
    command: &Command,
    found: &Found,
) -> Result<Target, PinError> {
    let line = python_line::parse(&command.args)?;
    let installation = python_env::pin(context, found, !line.no_user_site)?;
    context.set("PYTHONPYCACHEPREFIX", NO_CACHE);
    context.set("PYTHONDONTWRITEBYTECODE", "1");
    for name in ["PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"] {
        if context.variable(name).is_some() {
            context.note(format!("what Python finds through {name}"));
        }
    }
    let mut argv = vec![installation.program.clone().into_os_string()];
    argv.extend(line.flags);
    if line.no_environment {
        argv.extend([OsString::from("-X"), format!("pycache_prefix={NO_CACHE}").into()]);
    }
    let mut launcher = Launcher::Python;
    let identity = match line.program {
        Program::Script(word) if search::is_made_up(&word) => {
            context.note("the program text that Python reads from a descriptor");
            argv.push(word);
            format!("stdin:{}", found.real.display())
        }
        Program::Script(word) => {
            let path = search::absolute(&command.cwd, Path::new(&word));
            let script = script(context, &path, line.safe_path)?;
            let package = python_package::identity(&installation.sites, &script);
            let identity = package.unwrap_or_else(|| format!("file:{}", script.display()));
            argv.push(script.into_os_string());
            identity
        }
        Program::Module(name) => {
            launcher = Launcher::PythonModule;
            let (in_cwd, main) = module(context, command, &installation, &name, line.safe_path)?;
            let package = python_package::identity(&installation.sites, &main).filter(|_| !in_cwd);
            // The working directory comes first for `-m`: a file there would shadow what was pinned.
            if !in_cwd && !line.safe_path {
                if installation.minor.is_some_and(|minor| minor >= SAFE_PATH_SINCE) {
                    argv.push("-P".into());
                } else {
                    context.note("modules in the working directory, which this Python searches first");
                }
            }
            argv.extend([OsString::from("-m"), OsString::from(&name)]);
            package.unwrap_or_else(|| format!("python-module:{name}"))
        }
        Program::Inline(text) => {
            context.inline(text.as_bytes());
            context.note("what the inline program text loads");
            argv.extend(["-c".into(), text]);
            format!("inline:{}", found.real.display())
        }
        Program::Stdin => {
            context.note("the program text that Python reads from its standard input");
            argv.push("-".into());
            format!("stdin:{}", found.real.display())
        }
    };
    argv.extend(line.rest);
    Ok(Target { launcher, identity, program: installation.program, argv })
}

/// A file, or a directory or archive with a `__main__`. Returns the word for the command line.
fn script(context: &mut Context<'_>, path: &Path, safe_path: bool) -> Result<PathBuf, PinError> {
    if let Some(directory) = search::directory(path) {
        let main = search::file(&directory.join("__main__.py"))?;
        context.file(&main.real, Role::Entry)?;
        if context.holds_project(&directory) {
            context.show_script(&main.real, &directory);
        } else {
            context.tree("script", &directory, Selection::default())?;
        }
        return Ok(directory);
    }
    let script = search::file(path)?.real;
    context.file(&script, Role::Entry)?;
    let archive = script.extension().is_some_and(|suffix| suffix == "pyz" || suffix == "zip");
    match script.parent() {
        Some(directory) if !archive && !safe_path && !is_distribution(directory) => {
            node_tree::scripts(context, directory, &script, &MODULES)?;
        }
        _ => context.show(&script),
    }
    Ok(script)
}

/// Pins what `-m NAME` runs: whether it comes from the working directory, and its file.
fn module(
    context: &mut Context<'_>,
    command: &Command,
    installation: &Installation,
    name: &str,
    safe_path: bool,
) -> Result<(bool, PathBuf), PinError> {
    let plain = |part: &str| {
        !part.is_empty()
            && part.chars().all(|letter| letter.is_alphanumeric() || letter == '_' || letter == '-')
    };
    let parts: Vec<&str> = name.split('.').collect();
    if !parts.iter().all(|part| plain(part)) {
        return Err(PinError::Unsupported {
            what: format!("the module name {name:?}"),
            instead: "write it as Python imports it".to_owned(),
        });
    }
    let cwd = search::directory(&command.cwd).filter(|_| !safe_path);
    let in_cwd = cwd.iter().find_map(|directory| main_file(directory, &parts));
    let is_meant = cwd.as_ref().is_some_and(|directory| context.counts(directory));
    let installed = installation.library.iter().chain(&installation.sites);
    let in_cwd =
        in_cwd.filter(|_| is_meant || !installed.clone().any(|place| main_file(place, &parts).is_some()));
    if let (Some(directory), Some(main)) = (&cwd, &in_cwd) {
        context.file(main, Role::Entry)?;
        node_tree::scripts(context, directory, main, &MODULES)?;
        return Ok((true, main.clone()));
    }
    let places = installation.library.iter().chain(&installation.sites);
    let hit = places.clone().find_map(|directory| Some((directory, main_file(directory, &parts)?)));
    let Some((directory, main)) = hit else {
        let searched: Vec<String> = places.map(|place| place.display().to_string()).collect();
        return Err(PinError::ModuleNotFound { module: name.to_owned(), searched: searched.join(", ") });
    };
    context.file(&main, Role::Entry)?;
    if is_distribution(directory) {
        let names = system_names(directory, parts.first().copied().unwrap_or_default());
        context.tree("module", directory, Selection { names: Some(names), ..Selection::default() })?;
    }
    Ok((false, main))
}

/// The file that `-m a.b` runs if `a` is in `directory`.
fn main_file(directory: &Path, parts: &[&str]) -> Option<PathBuf> {
    let path = parts.iter().fold(directory.to_owned(), |path, part| path.join(part));
    let package = path.join("__main__.py");
    let mut candidates = vec![package.clone(), path.join("__main__.pyc")];
    // A package without `__init__.py` is behind a module of the same name.
    let module = [path.with_added_extension("py"), path.with_added_extension("pyc")];
    if path.join("__init__.py").exists() {
        candidates.extend(module);
    } else {
        candidates.splice(0..0, module);
    }
    candidates.iter().find_map(|candidate| search::file(candidate).ok()).map(|found| found.real)
}

/// In the distribution's library only what belongs to the module itself: the distribution is responsible for the rest.
fn system_names(directory: &Path, module: &str) -> BTreeSet<OsString> {
    let plain = |text: &str| text.to_lowercase().replace(['-', '.'], "_");
    let mut names = BTreeSet::from([OsString::from(module), format!("{module}.py").into()]);
    for path in search::subdirectories(directory) {
        let name = search::file_name(&path);
        let record = name.strip_suffix(".dist-info").or_else(|| name.strip_suffix(".egg-info"));
        let package = record.and_then(|record| record.split('-').next());
        if package.is_some_and(|package| plain(package) == plain(module)) {
            names.insert(name.into());
        }
    }
    names
}
