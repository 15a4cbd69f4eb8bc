//! `bun` and `deno`: like node, with other command lines.

use std::ffi::OsString;
use std::path::Path;

use super::command::{self, Command};
use super::context::{Context, Target};
use super::file::Role;
use super::search::{self, Found};
use super::{Launcher, PinError, node, node_tree, package};

/// `bun [flags] [run] file args`.
pub(super) fn bun(context: &mut Context<'_>, command: &Command, found: &Found) -> Result<Target, PinError> {
    const FLAGS_WITH_VALUE: &[&str] =
        &["-r", "--preload", "--cwd", "-c", "--config", "--env-file", "--tsconfig-override"];
    let mut line = split_line(command, "bun", FLAGS_WITH_VALUE)?;
    if line.subcommand.is_some_and(|word| word != "run") {
        context.note("what this subcommand of bun starts");
        return plain_target(context, command, found, Launcher::Bun);
    }
    for (flag, value) in &line.values {
        match *flag {
            "-r" | "--preload" => {
                let file = node::entry(&search::absolute(&command.cwd, Path::new(value)))?;
                context.file(&file, Role::Entry)?;
                node_tree::pin(context, &file)?;
            }
            flag => return Err(unsupported("bun", flag)),
        }
    }
    let path = search::absolute(&command.cwd, Path::new(&line.entry));
    let is_file = search::file(&path).is_ok();
    // A word that is not a file is a script of package.json: a line of shell.
    if !is_file && package::read(&command.cwd)?.is_some() && search::directory(&path).is_none() {
        return Err(PinError::Unsupported {
            what: format!("`bun run {}`, a script of package.json,", line.entry.to_string_lossy()),
            instead: "name the file that the script starts".to_owned(),
        });
    }
    let entry = node::entry(&path)?;
    finish(context, found, &mut line, &entry, Launcher::Bun)
}

/// `deno run [flags] file args`.
pub(super) fn deno(context: &mut Context<'_>, command: &Command, found: &Found) -> Result<Target, PinError> {
    const FLAGS_WITH_VALUE: &[&str] = &[
        "-c",
        "--config",
        "--import-map",
        "--cert",
        "-L",
        "--log-level",
        "--location",
        "--seed",
        "--env-file",
        "--preload",
        "--lock",
        "--ext",
    ];
    let mut line = split_line(command, "deno", FLAGS_WITH_VALUE)?;
    if line.subcommand.is_some_and(|word| word != "run") {
        context.note("what this subcommand of deno starts");
        return plain_target(context, command, found, Launcher::Deno);
    }
    let files = ["-c", "--config", "--import-map", "--env-file", "--preload", "--lock"];
    for (flag, value) in line.values.iter().filter(|(flag, _)| files.contains(flag)) {
        if value.to_string_lossy().contains("://") {
            return Err(PinError::RemoteCode { what: format!("{flag} {}", value.to_string_lossy()) });
        }
        let file = search::file(&search::absolute(&command.cwd, Path::new(value)))?;
        context.file(&file.real, Role::Entry)?;
        context.show(&file.real);
    }
    let text = line.entry.to_string_lossy().into_owned();
    let remote = ["http:", "https:", "npm:", "jsr:", "data:", "blob:"];
    if remote.iter().any(|scheme| text.starts_with(scheme)) {
        return Err(PinError::RemoteCode { what: text });
    }
    let path = text.strip_prefix("file://").map_or(text.as_str(), |path| path);
    let entry = search::file(&search::absolute(&command.cwd, Path::new(path)))?.real;
    context.note("modules that the script imports by address, from deno's cache");
    finish(context, found, &mut line, &entry, Launcher::Deno)
}

struct Line<'a> {
    subcommand: Option<&'a str>,
    /// Words before the entry.
    before: Vec<OsString>,
    values: Vec<(&'a str, OsString)>,
    entry: OsString,
    rest: Vec<OsString>,
}

/// The first plain word is the subcommand when it is `run`, or any word that is not a file; the next is the entry.
fn split_line<'a>(
    command: &'a Command,
    program: &str,
    valued: &[&'static str],
) -> Result<Line<'a>, PinError> {
    let mut line = Line {
        subcommand: None,
        before: Vec::new(),
        values: Vec::new(),
        entry: OsString::new(),
        rest: Vec::new(),
    };
    let mut index = 0;
    while let Some(word) = command.args.get(index) {
        let text = word.to_str().unwrap_or_default();
        index += 1;
        if text.starts_with('-') && text != "-" {
            if matches!(text, "-e" | "--eval" | "-p" | "--print" | "--watch" | "--hot") {
                return Err(unsupported(program, text));
            }
            line.before.push(word.clone());
            let (name, value) =
                text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
            if valued.contains(&name) {
                let value = value.map(OsString::from).or_else(|| {
                    index += 1;
                    let next = command.args.get(index - 1).cloned();
                    line.before.extend(next.clone());
                    next
                });
                line.values.push((name, value.ok_or_else(|| unsupported(program, name))?));
            }
            continue;
        }
        let is_file = || search::file(&search::absolute(&command.cwd, Path::new(word))).is_ok();
        if line.subcommand.is_none() && (text == "run" || !text.contains(['.', '/', ':']) && !is_file()) {
            line.subcommand = Some(text);
            line.before.push(word.clone());
            if text == "run" {
                continue;
            }
        } else {
            line.entry = word.clone();
        }
        line.rest = command.args.get(index..).unwrap_or_default().to_vec();
        return Ok(line);
    }
    if line.subcommand.is_none() {
        line.subcommand = Some("");
        return Ok(line);
    }
    Err(unsupported(program, "run without a file"))
}

fn unsupported(program: &str, flag: &str) -> PinError {
    PinError::Unsupported {
        what: format!("{program} {flag}"),
        instead: "start the script file itself, without that".to_owned(),
    }
}

fn finish(
    context: &mut Context<'_>,
    found: &Found,
    line: &mut Line<'_>,
    entry: &Path,
    launcher: Launcher,
) -> Result<Target, PinError> {
    context.interpreter(found)?;
    context.file(entry, Role::Entry)?;
    let identity = node_tree::pin(context, entry)?;
    let mut argv = command::command_words(&found.path, &line.before);
    argv.push(entry.as_os_str().to_owned());
    argv.append(&mut line.rest);
    Ok(Target { launcher, identity, program: found.real.clone(), argv })
}

fn plain_target(
    context: &mut Context<'_>,
    command: &Command,
    found: &Found,
    launcher: Launcher,
) -> Result<Target, PinError> {
    context.interpreter(found)?;
    Ok(Target {
        launcher,
        identity: format!("file:{}", found.real.display()),
        program: found.real.clone(),
        argv: command::command_words(&found.path, &command.args),
    })
}
