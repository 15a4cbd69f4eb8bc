//! `node [flags] entry args`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::command::Command;
use super::context::{Context, Target};
use super::file::Role;
use super::node_line::{self, Preload, Program};
use super::search::{self, Found};
use super::{Launcher, PinError, node_tree, package};

pub(super) fn resolve(
    context: &mut Context<'_>,
    command: &Command,
    found: &Found,
) -> Result<Target, PinError> {
    let mut line = node_line::parse(&command.args)?;
    context.interpreter(found)?;
    let mut argv = vec![found.path.clone().into_os_string()];
    for preload in &line.preloads {
        if let Some(word) = pin_preload(context, command, preload)?
            && let Some(flag) = line.flags.get_mut(preload.flag)
        {
            let prefix = flag.as_bytes().get(..preload.prefix).unwrap_or_default();
            let mut whole = OsStr::from_bytes(prefix).to_owned();
            whole.push(word);
            *flag = whole;
        }
    }
    let flagged = !line.flags.is_empty();
    argv.append(&mut line.flags);
    let identity = match &line.program {
        Program::Entry(word) if search::is_made_up(word) => {
            context.note("the program text that node reads from a descriptor");
            argv.push(word.clone());
            format!("stdin:{}", found.real.display())
        }
        Program::Entry(word) => {
            let entry = entry(&search::absolute(&command.cwd, Path::new(word)))?;
            context.file(&entry, Role::Entry)?;
            if flagged {
                argv.push("--".into());
            }
            let identity = node_tree::pin(context, &entry)?;
            argv.push(entry.into_os_string());
            behind_runner(context, command, &identity, &line.rest)?.unwrap_or(identity)
        }
        Program::Inline(text) => {
            context.inline(text.as_bytes());
            context.note("what the inline program text loads");
            format!("inline:{}", found.real.display())
        }
        Program::Tests => {
            context.note("the tests that node --test runs");
            format!("tests:{}", found.real.display())
        }
        Program::Stdin => {
            context.note("the program text that node reads from its standard input");
            format!("stdin:{}", found.real.display())
        }
    };
    if context.variable("NODE_OPTIONS").is_some() {
        context.note("what NODE_OPTIONS makes node load");
    }
    if context.variable("NODE_PATH").is_some() {
        context.note("what node finds through NODE_PATH");
    }
    argv.append(&mut line.rest);
    Ok(Target { launcher: Launcher::Node, identity, program: found.real.clone(), argv })
}

/// Packages that run the file they are given: a pin of `tsx` pins no more than a pin of `node`.
fn behind_runner(
    context: &mut Context<'_>,
    command: &Command,
    identity: &str,
    rest: &[OsString],
) -> Result<Option<String>, PinError> {
    const RUNNERS: [&str; 7] = ["tsx", "ts-node", "nodemon", "esno", "babel-node", "vite-node", "jiti"];
    let name = identity.strip_prefix("npm:").and_then(|name| name.split('@').next()).unwrap_or_default();
    if !RUNNERS.contains(&name) {
        return Ok(None);
    }
    for word in rest {
        if let Ok(found) = search::file(&search::absolute(&command.cwd, Path::new(word))) {
            context.file(&found.real, Role::Entry)?;
            return node_tree::pin(context, &found.real).map(Some);
        }
    }
    context.note(format!("what {name} starts"));
    Ok(None)
}

/// The file that Node runs for the word `path`: itself, with an ending, or the main file of a directory. The
/// result has no links in it.
pub(super) fn entry(path: &Path) -> Result<PathBuf, PinError> {
    match with_endings(path)? {
        Some(file) => Ok(file),
        None => directory_entry(path),
    }
}

fn directory_entry(directory: &Path) -> Result<PathBuf, PinError> {
    let missing = |path: &Path| PinError::io(path, std::io::Error::from(std::io::ErrorKind::NotFound));
    if search::directory(directory).is_none() {
        return Err(missing(directory));
    }
    if let Some(main) = package::read(directory)?.and_then(|package| package.main) {
        let main = search::absolute(directory, Path::new(&main));
        for candidate in [main.clone(), main.join("index")] {
            if let Some(file) = with_endings(&candidate)? {
                return Ok(file);
            }
        }
    }
    let index = directory.join("index");
    with_endings(&index)?.ok_or_else(|| missing(&index.with_extension("js")))
}

fn with_endings(path: &Path) -> Result<Option<PathBuf>, PinError> {
    for ending in ["", ".js", ".json", ".node"] {
        let mut candidate = path.as_os_str().to_owned();
        candidate.push(ending);
        let candidate = PathBuf::from(candidate);
        match search::file(&candidate) {
            Ok(found) => return Ok(Some(found.real)),
            Err(error) if error.is_absent() => {}
            Err(PinError::NotRegular { kind: "directory", .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Pins a module that is loaded before the entry. Returns the word to use instead, when it was a path.
fn pin_preload(
    context: &mut Context<'_>,
    command: &Command,
    preload: &Preload,
) -> Result<Option<OsString>, PinError> {
    let module = preload.module.as_str();
    if preload.settings {
        // Such a file may set NODE_OPTIONS, which loads code.
        return match search::file(&search::absolute(&command.cwd, Path::new(module))) {
            Ok(found) => {
                context.file(&found.real, Role::Entry)?;
                context.show(&found.real);
                Ok(Some(found.real.into_os_string()))
            }
            Err(error) if error.is_absent() && preload.optional => Ok(None),
            Err(error) => Err(error),
        };
    }
    if module.starts_with("data:") {
        context.inline(module.as_bytes());
        return Ok(None);
    }
    if module.starts_with("node:") {
        return Ok(None);
    }
    if let Some(path) = module.strip_prefix("file://") {
        if path.contains('%') || !path.starts_with('/') {
            return Err(PinError::Unsupported {
                what: format!("the module {module}"),
                instead: "write a plain path".to_owned(),
            });
        }
        let file = search::file(Path::new(path))?;
        context.file(&file.real, Role::Entry)?;
        node_tree::pin(context, &file.real)?;
        return Ok(None);
    }
    if module.contains("://") {
        return Err(PinError::RemoteCode { what: module.to_owned() });
    }
    if module.starts_with(['.', '/']) {
        let file = entry(&search::absolute(&command.cwd, Path::new(module)))?;
        context.file(&file, Role::Entry)?;
        node_tree::pin(context, &file)?;
        return Ok(Some(file.into_os_string()));
    }
    package_preload(context, &command.cwd, module)?;
    Ok(None)
}

/// A module by its package's name: node looks for it from the working directory upwards. Which file of the
/// package it takes does not matter here, the whole of it is pinned.
fn package_preload(context: &mut Context<'_>, cwd: &Path, module: &str) -> Result<(), PinError> {
    let parts = if module.starts_with('@') { 2 } else { 1 };
    let name: PathBuf = Path::new(module).iter().take(parts).collect();
    for directory in cwd.ancestors() {
        let root = directory.join("node_modules").join(&name);
        if let Some(root) = search::directory(&root) {
            node_tree::pin(context, &root.join("package.json"))?;
            return Ok(());
        }
    }
    Err(PinError::ModuleNotFound {
        module: module.to_owned(),
        searched: format!("node_modules from {} upwards", cwd.display()),
    })
}
