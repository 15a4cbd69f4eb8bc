//! Resolves a command to what the kernel executes: follows wrappers, launchers and shebang lines to a program with an
//! entry file.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::context::{Context, Target};
use super::file::{self, Role};
use super::search::{self, Found};
use super::tree::Selection;
use super::{Launcher, MAX_INTERPRETERS, PinError, node, npx, package, python, python_env, runtimes, uv};
use crate::wsl;

/// The kernel reads no more of a shebang line.
const SHEBANG_BYTES: usize = 256;

#[derive(Clone, Debug)]
pub(super) struct Command {
    pub word: OsString,
    pub args: Vec<OsString>,
    pub cwd: PathBuf,
    pub path_env: OsString,
    /// Interpreters that were followed so far.
    pub depth: usize,
}

impl Command {
    /// Another command in the same surroundings.
    pub fn next(&self, word: impl Into<OsString>, args: Vec<OsString>) -> Self {
        Self { word: word.into(), args, ..self.clone() }
    }

    pub fn find(&self) -> Result<Found, PinError> {
        search::command(&self.word, &self.cwd, &self.path_env)
    }

    /// Argument as text; empty when there is none or it is not UTF-8.
    pub fn arg(&self, index: usize) -> &str {
        self.args.get(index).and_then(|arg| arg.to_str()).unwrap_or_default()
    }
}

pub(super) fn resolve(context: &mut Context<'_>, command: Command) -> Result<Target, PinError> {
    let mut found = command.find()?;
    if let Some(real) = python_env::behind_shim(context, &found, &command)? {
        found = real;
    }
    // The name that was asked for decides first: package managers hand themselves out as links to scripts.
    if let Some(target) = launcher(context, &command, &found)? {
        return Ok(target);
    }
    if let Some(line) = shebang_line(&found.real)? {
        return script(context, &command, &found, &line);
    }
    program(context, &command, &found)
}

/// Programs that look for a package and start something of it.
fn launcher(context: &mut Context<'_>, command: &Command, found: &Found) -> Result<Option<Target>, PinError> {
    match search::file_name(&found.path) {
        "npx" | "pnpx" | "bunx" | "npm" | "pnpm" | "yarn" => npx::resolve(context, command, found),
        "bun" if command.arg(0) == "x" => npx::resolve(context, command, found),
        "uvx" | "uv" => uv::resolve(context, command, found),
        "pipx" => uv::resolve_pipx(context, command, found),
        _ => Ok(None),
    }
}

/// A program that the kernel runs itself.
fn program(context: &mut Context<'_>, command: &Command, found: &Found) -> Result<Target, PinError> {
    let is = |test: fn(&str) -> bool| found.names().into_iter().any(test);
    if is(|name| name == "env") {
        return env(context, command, found);
    }
    if is(|name| name == "node" || name == "nodejs") {
        return node::resolve(context, command, found);
    }
    if is(python::is_python) {
        return python::resolve(context, command, found);
    }
    if is(|name| name == "bun") {
        return runtimes::bun(context, command, found);
    }
    if is(|name| name == "deno") {
        return runtimes::deno(context, command, found);
    }
    if is(is_shell) {
        return shell(context, command, found);
    }
    if is(|name| matches!(name, "docker" | "podman" | "nerdctl")) {
        context.note("the container's image and all that runs inside it");
    }
    if is(|name| matches!(name, "volta-shim" | "mise" | "asdf" | "rustup" | "snap" | "proto")) {
        let what = found.path.display();
        context.note(format!("the program that {what} chooses to start"));
    }
    if let Some(name) = found.names().into_iter().find(|name| OTHER_INTERPRETERS.contains(name)) {
        return other_interpreter(context, command, found, name);
    }
    if let Some(name) = found.names().into_iter().find(|name| WRAPPERS.contains(name)) {
        context.note(format!("the program that {name} starts (name it as the command itself)"));
    }
    direct(context, command, found)
}

/// Interpreters that run a file from their arguments; what that file loads is not followed.
const OTHER_INTERPRETERS: &[&str] = &[
    "ruby", "perl", "php", "lua", "luajit", "java", "dotnet", "pypy", "pypy3", "Rscript", "julia", "tclsh",
    "guile", "elixir", "escript", "wasmtime", "wasmer", "groovy", "scala", "racket", "awk", "gawk", "make",
    "qjs",
];
/// They start another command.
const WRAPPERS: &[&str] = &[
    "timeout",
    "nice",
    "nohup",
    "setsid",
    "stdbuf",
    "time",
    "sudo",
    "doas",
    "xargs",
    "xvfb-run",
    "tini",
    "dumb-init",
    "poetry",
    "pdm",
    "hatch",
    "rye",
    "go",
    "cargo",
    "just",
    "flatpak",
    "nix",
    "systemd-run",
    "unshare",
    "chroot",
];

/// Interpreters that may get their program as text: the letters of those options, of options with a value in the same word,
/// and of options with a value in the same word or the next.
const TEXT_OPTIONS: &[(&str, &str, &str, &str)] = &[
    ("perl", "eE", "DFMVimx", "I"),
    ("ruby", "e", "FKTWix", "CEIr"),
    ("php", "BERr", "", "Scdtz"),
    ("Rscript", "e", "", ""),
];

fn other_interpreter(
    context: &mut Context<'_>,
    command: &Command,
    found: &Found,
    name: &str,
) -> Result<Target, PinError> {
    let mut target = direct(context, command, found)?;
    for word in program_words(name, &command.args).iter().filter(|word| !search::is_made_up(word)) {
        let path = search::absolute(&command.cwd, Path::new(word));
        if let Ok(entry) = search::file(&path) {
            context.file(&entry.real, Role::Entry)?;
            context.show(&entry.real);
            target.identity = format!("file:{}", entry.real.display());
            break;
        }
    }
    context.note(format!("what {name} loads in addition to the program text it is given"));
    Ok(target)
}

/// The words among which the first file is the program. Other files are data: what an interpreter gets to read or to change,
/// or what `make` is to make.
fn program_words(name: &str, args: &[OsString]) -> Vec<OsString> {
    if matches!(name, "awk" | "gawk" | "make") {
        let mut words = args.iter();
        let mut files = Vec::new();
        while let Some(word) = words.next() {
            match word.to_str().unwrap_or_default() {
                "-f" | "--file" | "--makefile" => files.extend(words.next().cloned()),
                text => {
                    let attached =
                        ["--file=", "--makefile=", "-f"].iter().find_map(|flag| text.strip_prefix(flag));
                    files.extend(attached.map(OsString::from));
                }
            }
        }
        return files;
    }
    match TEXT_OPTIONS.iter().find(|(other, ..)| *other == name) {
        Some((_, text, attached, valued)) if has_text(args, text, attached, valued) => Vec::new(),
        _ => args.to_vec(),
    }
}

/// Whether one of the options in front of the first argument gives program text.
fn has_text(args: &[OsString], text: &str, attached: &str, valued: &str) -> bool {
    let mut words = args.iter();
    while let Some(letters) = words.next().and_then(|word| word.to_str()?.strip_prefix('-')) {
        if letters.starts_with('-') {
            continue;
        }
        let stop = letters
            .find(|letter| text.contains(letter) || attached.contains(letter) || valued.contains(letter));
        let Some(rest) = stop.and_then(|at| letters.get(at..)) else { continue };
        if rest.starts_with(|letter| text.contains(letter)) {
            return true;
        }
        if rest.len() == 1 && rest.starts_with(|letter| valued.contains(letter)) {
            words.next();
        }
    }
    false
}

fn direct(context: &mut Context<'_>, command: &Command, found: &Found) -> Result<Target, PinError> {
    of_linux(&found.real, wsl::current().is_some())?;
    context.file(&found.real, Role::Executable)?;
    context.show(&found.real);
    // A native program inside a package loads files of the package.
    let mut identity = format!("file:{}", found.real.display());
    if let Some(package) = package::enclosing(&found.real)?.filter(package::Package::is_installed) {
        context.tree("package", &package.root, Selection::default())?;
        identity = package.identity();
    }
    Ok(Target {
        launcher: Launcher::Direct,
        identity,
        program: found.real.clone(),
        // As typed, because programs print it and look themselves up by it.
        argv: command_words(Path::new(&command.word), &command.args),
    })
}

/// WSL hands programs of Windows to Windows, which starts them outside of every sandbox.
pub(super) fn of_linux(path: &Path, is_wsl: bool) -> Result<(), PinError> {
    const PORTABLE_EXECUTABLE: &[u8] = b"MZ";
    if !is_wsl {
        return Ok(());
    }
    let mut head = Vec::new();
    let file = file::open(path)?;
    file.take(2).read_to_end(&mut head).map_err(|source| PinError::io(path, source))?;
    if head == PORTABLE_EXECUTABLE {
        return Err(PinError::Unsupported {
            what: format!("{}, a program of Windows,", path.display()),
            instead: "Windows would start it outside of every sandbox; install the one for Linux in here"
                .to_owned(),
        });
    }
    Ok(())
}

pub(super) fn command_words(first: &Path, rest: &[OsString]) -> Vec<OsString> {
    std::iter::once(first.as_os_str().to_owned()).chain(rest.iter().cloned()).collect()
}

/// `env [-i] [-u NAME] [-C DIR] [-S STRING] NAME=VALUE... COMMAND ARGS...`
fn env(context: &mut Context<'_>, command: &Command, found: &Found) -> Result<Target, PinError> {
    let unsupported = |what: &str| PinError::Unsupported {
        what: format!("env {what}"),
        instead: "leave that word out, or start the whole line by `sh -c`".to_owned(),
    };
    let mut next = with_more_depth(command, &found.path)?;
    let mut words = std::collections::VecDeque::from(command.args.clone());
    while let Some(word) = words.pop_front() {
        let text = word.to_str().unwrap_or_default();
        if text == "--" {
            continue;
        }
        if !text.starts_with('-') {
            match text.split_once('=') {
                Some(("", _)) => return Err(unsupported(text)),
                Some((name, value)) => {
                    if name == "PATH" {
                        next.path_env = value.into();
                    }
                    context.set_by_words(name, value);
                    continue;
                }
                None => {
                    next.word = word;
                    next.args = words.into();
                    return resolve(context, next);
                }
            }
        }
        let (option, value) = env_option(text).ok_or_else(|| unsupported(text))?;
        if option == 'i' {
            context.clear();
            next.path_env = PATH_WITHOUT_VARIABLE.into();
            // `-iS`: other letters in the same word.
            if let Some(rest) = value.filter(|rest| !rest.is_empty()) {
                words.push_front(format!("-{rest}").into());
            }
            continue;
        }
        let value = value.filter(|value| !value.is_empty()).map(OsString::from);
        let value = value.or_else(|| words.pop_front()).unwrap_or_default();
        match option {
            'S' => split(&value, &found.path)?.into_iter().rev().for_each(|word| words.push_front(word)),
            'C' => {
                next.cwd = search::absolute(&next.cwd, Path::new(&value));
                context.cwd = Some(next.cwd.clone());
            }
            _ => {
                if value == "PATH" {
                    next.path_env = PATH_WITHOUT_VARIABLE.into();
                }
                context.unset_variable(value.to_str().ok_or_else(|| unsupported(text))?);
            }
        }
    }
    // `env` alone starts nothing and prints its environment.
    direct(context, command, found)
}

/// Where `execvp` looks if PATH is not set.
const PATH_WITHOUT_VARIABLE: &str = "/bin:/usr/bin";

/// The letter of an option of `env`, and the rest of its word.
fn env_option(text: &str) -> Option<(char, Option<&str>)> {
    let Some(long) = text.strip_prefix("--") else {
        // A dash alone is `-i`.
        let letters = text.get(1..).filter(|letters| !letters.is_empty()).unwrap_or("i");
        let option = letters.chars().next().filter(|letter| "iuCS".contains(*letter))?;
        return Some((option, letters.get(1..)));
    };
    let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
    let option = match name {
        "ignore-environment" => 'i',
        "unset" => 'u',
        "chdir" => 'C',
        "split-string" => 'S',
        _ => return None,
    };
    Some((option, value))
}

/// `env -S`: blanks separate words, quotes group them. Escapes and `${NAME}` are refused rather than guessed.
fn split(string: &OsStr, path: &Path) -> Result<Vec<OsString>, PinError> {
    let bad = |why| PinError::BadScript { path: path.to_owned(), why };
    let (mut words, mut word, mut quote) = (Vec::new(), None::<Vec<u8>>, None);
    for &byte in string.as_bytes() {
        match (quote, byte) {
            (Some(open), _) if open == byte => quote = None,
            (_, b'\\' | b'$') => return Err(bad("`env -S` with an escape or a variable is not understood")),
            (Some(_), _) => word.get_or_insert_default().push(byte),
            (None, b'"' | b'\'') => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (None, b' ' | b'\t') => words.extend(word.take()),
            (None, _) => word.get_or_insert_default().push(byte),
        }
    }
    if quote.is_some() {
        return Err(bad("a quote of `env -S` is not closed"));
    }
    words.extend(word.take());
    Ok(words.into_iter().map(OsString::from_vec).collect())
}

fn with_more_depth(command: &Command, path: &Path) -> Result<Command, PinError> {
    if command.depth >= MAX_INTERPRETERS {
        return Err(PinError::TooManyInterpreters { path: path.to_owned() });
    }
    Ok(Command { depth: command.depth + 1, ..command.clone() })
}

#[derive(Debug)]
pub(super) struct Shebang {
    pub interpreter: PathBuf,
    /// The rest of the line, one word for the kernel.
    pub argument: Option<OsString>,
    /// First bytes of the file.
    pub head: Vec<u8>,
}

/// None when the file does not begin with `#!` and a name.
pub(super) fn shebang_line(path: &Path) -> Result<Option<Shebang>, PinError> {
    // In one read.
    let mut head = Vec::with_capacity(SHEBANG_BYTES);
    let file = file::open(path)?;
    file.take(SHEBANG_BYTES as u64).read_to_end(&mut head).map_err(|source| PinError::io(path, source))?;
    let Some(line) = head.strip_prefix(b"#!") else { return Ok(None) };
    let bad = |why| PinError::BadScript { path: path.to_owned(), why };
    let line = match line.iter().position(|&byte| byte == b'\n') {
        Some(end) => line.get(..end).unwrap_or_default(),
        None if head.len() == SHEBANG_BYTES => {
            return Err(bad("its #! line is longer than the kernel reads"));
        }
        None => line,
    };
    if line.contains(&0) {
        return Err(bad("its #! line contains a zero byte"));
    }
    // A carriage return is part of a word, as for the kernel.
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = line.iter().position(|byte| !blank(byte));
    let end = line.iter().rposition(|byte| !blank(byte));
    let Some(line) = start.zip(end).and_then(|(start, end)| line.get(start..=end)) else { return Ok(None) };
    let (interpreter, argument) = line.split_at(line.iter().position(blank).unwrap_or(line.len()));
    let argument = argument.iter().position(|byte| !blank(byte)).and_then(|start| argument.get(start..));
    // The kernel looks for a bare name in the working directory.
    let directory = if interpreter.contains(&b'/') { "" } else { "./" };
    Ok(Some(Shebang {
        interpreter: Path::new(directory).join(OsStr::from_bytes(interpreter)),
        argument: argument.map(|argument| OsStr::from_bytes(argument).to_owned()),
        head,
    }))
}

/// The command line that the kernel makes: the interpreter, its one argument, the script, the arguments.
fn script(
    context: &mut Context<'_>,
    command: &Command,
    found: &Found,
    line: &Shebang,
) -> Result<Target, PinError> {
    let mut next = with_more_depth(command, &found.real)?;
    let script = found.real.as_os_str().to_owned();
    if let Some(python) = python_env::behind_shell_header(&found.real, &line.head) {
        // Installers write this header where a path is too long, or has a blank, for a #! line.
        next.word = python.into_os_string();
        next.args = std::iter::once(script).chain(command.args.iter().cloned()).collect();
    } else {
        next.word = line.interpreter.clone().into_os_string();
        let argument = line.argument.iter().cloned();
        next.args = argument.chain([script]).chain(command.args.iter().cloned()).collect();
    }
    if next.word == line.interpreter.as_os_str() && matches!(next.find(), Err(error) if error.is_absent()) {
        return Err(PinError::NoInterpreter {
            path: found.real.clone(),
            interpreter: line.interpreter.clone(),
        });
    }
    let mut target = resolve(context, next)?;
    target.launcher = Launcher::Shebang;
    let known = context.files.iter().any(|file| file.path == found.real && file.role == Role::Entry);
    if !known {
        // An interpreter that is not known by name: its libraries are its own affair.
        context.file(&found.real, Role::Entry)?;
        context.show(&found.real);
        let interpreter = target.program.display().to_string();
        context.note(format!("what {interpreter} loads or starts on behalf of the script"));
        target.identity = format!("file:{}", found.real.display());
    }
    Ok(target)
}

fn is_shell(name: &str) -> bool {
    matches!(name, "sh" | "bash" | "dash" | "zsh" | "ksh" | "mksh" | "fish" | "ash")
}

/// `sh -c TEXT` and `sh script`: what a shell starts cannot be known before it does.
fn shell(context: &mut Context<'_>, command: &Command, found: &Found) -> Result<Target, PinError> {
    let mut target = direct(context, command, found)?;
    if let Some(file) = context.files.iter_mut().find(|file| file.path == found.real) {
        file.role = Role::Interpreter;
    }
    let attaches = found.names().into_iter().any(|name| matches!(name, "zsh" | "ksh" | "mksh"));
    let (mut is_open, mut reads_input) = (true, false);
    let mut words = command.args.iter().enumerate();
    while let Some((index, word)) = words.next() {
        let text = word.to_str().unwrap_or_default();
        let flags = text.strip_prefix(['-', '+']).filter(|_| is_open);
        match flags {
            // A single dash ends the options too.
            Some("-") => is_open = false,
            Some("") if text == "-" => is_open = false,
            Some("-rcfile" | "-init-file") => drop(words.next()),
            Some(flags) if flags.starts_with('-') => {}
            Some(flags) if flags.contains('c') => {
                // The text is the first word after the options, however many there are: all of it is covered.
                for word in command.args.get(index..).unwrap_or_default() {
                    context.inline(word.as_bytes());
                }
                target.identity = format!("inline-shell:{}", found.real.display());
                context.note("what the inline shell text starts");
                return Ok(target);
            }
            Some(flags) => {
                reads_input |= text.starts_with('-') && flags.contains('s');
                // `-euo pipefail`: each takes a word; in these shells the rest of its own, if there is one.
                let takes_word = ['o', 'O'];
                let taken = match flags.find(takes_word) {
                    Some(at) if attaches => usize::from(at + 1 == flags.len()),
                    _ => flags.matches(takes_word).count(),
                };
                words.by_ref().take(taken).for_each(drop);
            }
            None if reads_input || search::is_made_up(word) => break,
            None => {
                let script = search::file(&search::absolute(&command.cwd, Path::new(word)))?;
                context.file(&script.real, Role::Entry)?;
                context.show(&script.real);
                target.identity = format!("file:{}", script.real.display());
                if let Some(word) = target.argv.get_mut(index + 1) {
                    *word = script.real.into_os_string();
                }
                context.note("what the shell script starts");
                return Ok(target);
            }
        }
    }
    context.note("what the shell reads from standard input or another descriptor");
    Ok(target)
}
