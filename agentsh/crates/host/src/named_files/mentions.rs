//! Paths that configurations of shells and other programs, and variables of the environment, mention: what they load, and what
//! they start.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use agentsh_base::small_file;
use agentsh_sandbox::cached_host::CachedHost;
use agentsh_sandbox::host::{Host, normalised_path};
use agentsh_sandbox::spec::{LOADS_VARIABLES, NamedKind};

use super::NamedFiles;

/// Below the home, of shells: they mention many files that nobody starts.
const OF_SHELLS: [&str; 10] = [
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zprofile",
    ".zshenv",
    ".config/fish/config.fish",
];
/// Of other programs.
const OF_PROGRAMS: [&str; 21] = [
    ".inputrc",
    ".ssh/config",
    ".ssh/rc",
    ".gnupg/gpg.conf",
    ".gnupg/gpg-agent.conf",
    ".npmrc",
    ".cargo/config.toml",
    ".config/direnv/direnvrc",
    ".direnvrc",
    ".tmux.conf",
    ".config/tmux/tmux.conf",
    ".vimrc",
    ".config/nvim/init.lua",
    ".config/nvim/init.vim",
    ".emacs",
    ".emacs.d/init.el",
    ".config/emacs/init.el",
    ".gdbinit",
    ".config/Code/User/settings.json",
    ".config/Code/User/tasks.json",
    ".config/zed/settings.json",
];
/// Of agents: what their hooks start. Servers are not among it: what they run is pinned, and who develops one writes it.
const OF_AGENTS: [&str; 3] = [".claude/settings.json", ".codex/config.toml", ".gemini/settings.json"];
/// Directories of them, also of drop-ins.
const DIRECTORIES: [&str; 5] = [
    ".config/autostart",
    ".config/environment.d",
    ".config/fish/conf.d",
    ".config/fish/functions",
    ".config/systemd/user",
];
/// Of one configuration, of files in one directory, and of files that others load.
const MAX_BYTES: u64 = 1 << 20;
const MAX_ENTRIES: usize = 200;
const MAX_LOADED: usize = 100;
/// Values of one variable, bytes of a line when they are in it, and lines of which there are so many ways to read them.
const MAX_VALUES: usize = 16;
const MAX_LINE_BYTES: usize = 16 << 10;

/// Words behind which one file is read.
const READ_NEXT: [&str; 2] = ["source", "."];
/// The same in files of projects, which are in many languages: Ruby, Elixir, Emacs Lisp, GHCi, LLDB, Perl, Lua, psql, SQLite.
const LOAD_NEXT: [&str; 12] = [
    "load",
    "require",
    "require_relative",
    "import",
    "import_file",
    "load-file",
    ":script",
    "do",
    "dofile",
    "use",
    "\\i",
    ".read",
];
/// In `.envrc`, by direnv-stdlib(1): what is behind these words.
const DIRENV: [(&[&str], Use); 4] = [
    (&["source_env", "source_env_if_exists"], Use::ReadNext),
    // By default `.env`.
    (&["dotenv", "dotenv_if_exists"], Use::Variables),
    (&["PATH_add"], Use::Commands),
    (&STARTERS, Use::Started),
];
const STARTERS: [&str; 12] =
    ["direnv_load", "sh", "bash", "zsh", "fish", "python", "python3", "node", "ruby", "perl", "deno", "bun"];
/// What these load of the directory, next to what `.direnv` holds; `use flake` and `load_prefix` of the directory that they name.
const DIRENV_LOADS: [(&str, &str, &[&str]); 6] = [
    ("use", "flake", &["flake.nix", "flake.lock", "devshell.toml"]),
    ("use", "nix", &["shell.nix", "default.nix"]),
    ("use", "guix", &["guix.scm", "manifest.scm"]),
    ("use", "vim", &[".vimrc.local"]),
    ("layout", "go", &["bin"]),
    ("load", "prefix", &["bin"]),
];
/// Directories that package managers fill with commands, also with those that others have.
const OF_PACKAGES: [&str; 5] = ["node_modules", ".venv", "venv", "vendor", "target"];
/// Words of a statement all of whose files are read.
const READ_ALL: [&str; 4] = ["eval", "include", "source-file", "runtime"];
/// Names of lists of directories from which programs load code.
const SEARCHED: [&str; 5] = ["runtimepath", "rtp", "packpath", "load-path", "fpath"];
/// The same, for commands.
const COMMANDS: [&str; 4] = ["PATH", "path", "fish_user_paths", "fish_add_path"];

/// Set for what a package manager starts: they name what it builds, and nobody obeys them later.
const OF_BUILDS: [&str; 2] = ["npm_package_", "CARGO_MANIFEST_PATH"];
/// Parts of names of variables for what programs obey. What any other names may be data, unless it can be executed.
const OBEYED: [&str; 20] = [
    "ASKPASS", "BROWSER", "CMD", "COMMAND", "CONFIG", "DOTDIR", "EDITOR", "FLAGS", "HOOK", "INIT",
    "LESSOPEN", "OPTIONS", "OPTS", "PAGER", "PRELOAD", "SHELL", "STARTUP", "VISUAL", "WRAPPER", "_ENV",
];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Writer {
    Shell,
    Program,
    Variable,
    /// Of the project, in whose names no other directory is meant: direnv, a task that starts by itself, and a hook of git.
    Direnv,
    Task,
    Hook,
    /// A file of the project that runs or starts something, in any language.
    Project,
}

/// What the words before a path say of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Mentioned,
    ReadNext,
    ReadAll,
    Searched,
    Commands,
    Started,
    Variables,
}

/// One configuration while it is read.
pub(super) struct Reading {
    writer: Writer,
    /// Where its relative names count from, next to the home and the project.
    base: PathBuf,
    /// Simple assignments, by name.
    variables: BTreeMap<String, Vec<String>>,
    /// What it loads.
    loads: Vec<PathBuf>,
}

impl NamedFiles<'_> {
    pub(super) fn read_configurations(&mut self, host: &CachedHost<'_>) {
        let home = self.context.home.clone();
        let moved = self.context.env.get("XDG_CONFIG_HOME").filter(|path| path.starts_with('/'));
        let place = |path: &str| match (moved, path.strip_prefix(".config/")) {
            (Some(moved), Some(below)) => Path::new(moved).join(below),
            _ => home.join(path),
        };
        let of_shells = OF_SHELLS.iter().map(|path| (Writer::Shell, place(path)));
        let of_programs = OF_PROGRAMS.iter().chain(&OF_AGENTS).map(|path| (Writer::Program, place(path)));
        let mut files: Vec<_> = of_shells.chain(of_programs).filter(|(_, path)| host.is_file(path)).collect();
        let mut directories = DIRECTORIES.map(place).to_vec();
        while let Some(directory) = directories.pop() {
            let names = host.exists(&directory).then(|| host.names(&directory)).flatten().unwrap_or_default();
            let entries = names.into_iter().take(MAX_ENTRIES).map(|(name, _)| directory.join(name));
            let is_dropins = |path: &Path| path.extension().is_some_and(|end| end == "d");
            let (below, entries): (Vec<_>, Vec<_>) = entries.partition(|path| is_dropins(path));
            directories.extend(below.into_iter().filter(|_| !is_dropins(&directory)));
            files.extend(entries.into_iter().map(|path| (Writer::Program, path)));
        }
        self.read_all(files);
        for (name, value) in &self.context.env {
            self.variable(name, value, &format!("the variable {name} names it"));
        }
    }

    /// These, and what they load.
    pub(super) fn read_all(&mut self, mut files: Vec<(Writer, PathBuf)>) {
        let mut known: BTreeSet<PathBuf> = files.iter().map(|(_, path)| path.clone()).collect();
        let mut rest = MAX_LOADED;
        while let Some((writer, file)) = files.pop() {
            for loaded in self.read_file(writer, &file) {
                if rest > 0 && known.insert(loaded.clone()) {
                    rest -= 1;
                    files.push((writer, loaded));
                }
            }
        }
    }

    pub(super) fn reading(&self, writer: Writer, base: &Path) -> Reading {
        let (home, project) = (self.context.home.as_path(), self.context.project.as_path());
        let known =
            [("HOME", home), ("CLAUDE_PROJECT_DIR", project), ("workspaceFolder", project), ("PWD", base)];
        let known = known.map(|(name, path)| (name.to_owned(), vec![path.display().to_string()]));
        Reading { writer, base: base.to_owned(), variables: known.into(), loads: Vec::new() }
    }

    /// What it loads from writable directories.
    fn read_file(&mut self, writer: Writer, file: &Path) -> Vec<PathBuf> {
        let content = small_file::read(file, MAX_BYTES).ok().flatten().unwrap_or_default();
        let text = String::from_utf8_lossy(&content);
        let is_beside = matches!(writer, Writer::Direnv | Writer::Project);
        let base = file.parent().filter(|_| is_beside).unwrap_or(&self.context.project);
        let mut reading = self.reading(writer, base);
        let shown = self.display_path(file);
        let why = |line: usize| format!("{shown}:{line} names it");
        let json =
            file.extension().filter(|end| *end == "json").and_then(|_| serde_json::from_str(&text).ok());
        let is_of_agent = || OF_AGENTS.iter().any(|own| file.ends_with(own));
        if let Some(json) = json.filter(|_| writer == Writer::Project || is_of_agent()) {
            let mut found = Vec::new();
            strings(&json, &mut found);
            for string in found {
                let quoted = Value::from(string).to_string();
                let line = text.lines().position(|line| line.contains(&quoted)).unwrap_or_default();
                self.line(&mut reading, string, &why(line + 1));
            }
            return reading.loads;
        }
        let mut is_server = false;
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with('#'))
        {
            is_server = if line.starts_with('[') { line.starts_with("[mcp_servers") } else { is_server };
            if is_server {
                continue;
            }
            self.line(&mut reading, line, &why(number + 1));
        }
        reading.loads
    }

    pub(super) fn line(&mut self, reading: &mut Reading, line: &str, why: &str) {
        if line.len() > MAX_LINE_BYTES {
            return;
        }
        for statement in self.join_quoted(line).split([';', '|', '&']) {
            for text in self.expand_variables(statement, &reading.variables) {
                self.statement(reading, &text, why);
            }
        }
    }

    /// Removes quotes, and joins the text around them. A quoted blank separates nothing and becomes another character.
    fn join_quoted(&self, line: &str) -> String {
        let mut text = line.replace("\\\"", "").replace(['"', '\''], "").replace("\\ ", "\u{1}");
        // What a command says is not known; it is mostly the directory of the file.
        text = text.replace(")/", ") ./").replace("~+/", "./");
        for of_home in ["${HOME}/", "$HOME/", "%h/"] {
            text = text.replace(of_home, "~/");
        }
        // systemd.service(5): what may stand before the path of a program.
        if let Some((name, value)) = text.split_once('=').filter(|(name, _)| name.starts_with("Exec")) {
            text = format!("{name}={}", value.trim_start_matches(['-', '@', '+', '!', ':']));
        }
        let roots = self.roots.iter().flat_map(|root| [root.display().to_string(), self.display_path(root)]);
        for root in roots.filter(|root| root.contains(' ')) {
            text = text.replace(&root, &root.replace(' ', "\u{1}"));
        }
        text
    }

    /// With the values of variables in their places: one text for each way.
    fn expand_variables(&self, text: &str, variables: &BTreeMap<String, Vec<String>>) -> Vec<String> {
        let mut done = vec![String::new()];
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            done.iter_mut().for_each(|text| text.push_str(before));
            let braced = after.strip_prefix('{');
            let from_name = braced.unwrap_or(after);
            let is_end = |sign: char| !sign.is_ascii_alphanumeric() && sign != '_';
            let (name, tail) = from_name.split_at(from_name.find(is_end).unwrap_or(from_name.len()));
            let tail = if braced.is_some() { tail.strip_prefix('}') } else { Some(tail) };
            let of_environment = || self.context.env.get(name).map(|value| vec![value.clone()]);
            let values = variables.get(name).cloned().or_else(of_environment);
            let is_short = done.iter().map(String::len).sum::<usize>() < MAX_LINE_BYTES;
            match (values, tail) {
                (Some(values), Some(tail)) if is_short && done.len() * values.len() <= MAX_VALUES => {
                    done = done
                        .iter()
                        .flat_map(|text| values.iter().map(move |value| format!("{text}{value}")))
                        .collect();
                    rest = tail;
                }
                _ => {
                    done.iter_mut().for_each(|text| text.push('$'));
                    rest = after;
                }
            }
        }
        done.iter_mut().for_each(|text| text.push_str(rest));
        done
    }

    fn statement(&mut self, reading: &mut Reading, statement: &str, why: &str) {
        let begins = |word: &&str| ["then", "do", "else", "if", "{"].contains(word);
        let tokens: Vec<&str> = statement.split_whitespace().skip_while(begins).collect();
        let assigned = |token: &str| {
            let (name, value) = token.split_once('=')?;
            let is_name =
                !name.is_empty() && name.bytes().all(|sign| sign.is_ascii_alphanumeric() || sign == b'_');
            is_name.then(|| (name.to_owned(), value.to_owned()))
        };
        let mut found = Vec::<(String, String)>::new();
        let mut is_exported = matches!(tokens.first(), Some(&("export" | "declare" | "typeset")));
        for token in &tokens {
            match (assigned(token), found.last_mut()) {
                (Some(one), _) => found.push(one),
                // The quotes are gone: blanks of the value are in them.
                (None, Some((_, value))) if is_exported => *value = format!("{value} {token}"),
                _ => {}
            }
        }
        match tokens.as_slice() {
            ["for", name, "in", values @ ..] => {
                let values = values.iter().take_while(|word| **word != "do").take(MAX_VALUES);
                reading.variables.insert((*name).to_owned(), values.map(|word| (*word).to_owned()).collect());
            }
            ["setenv", name, value] => {
                (found, is_exported) = (vec![((*name).to_owned(), (*value).to_owned())], true)
            }
            ["set", flags, name, values @ ..] if flags.starts_with('-') => {
                is_exported = flags.contains('x');
                found = vec![((*name).to_owned(), values.join(":"))];
            }
            _ => {}
        }
        if is_exported && matches!(reading.writer, Writer::Shell | Writer::Direnv) {
            for (name, value) in &found {
                self.variable(name, value, why);
            }
        }
        reading.variables.extend(found.into_iter().map(|(name, value)| (name, vec![value])));
        if let (Writer::Direnv | Writer::Task, ["cd" | "pushd", directory, ..]) =
            (reading.writer, tokens.as_slice())
        {
            reading.base.push(directory);
        }
        if reading.writer == Writer::Direnv {
            if matches!(tokens.as_slice(), ["watch_file" | "watch_dir", ..]) {
                return;
            }
            self.loaded_by_direnv(reading, &tokens, why);
        }
        self.read_words(reading, statement, why);
    }

    /// `use flake`, which is the function `use_flake`.
    fn loaded_by_direnv(&mut self, reading: &mut Reading, tokens: &[&str], why: &str) {
        let first = tokens.first().map_or(String::new(), |first| first.replacen('_', " ", 1));
        let words: Vec<&str> = first.split(' ').chain(tokens.iter().skip(1).copied()).collect();
        let [verb, what, rest @ ..] = words.as_slice() else { return };
        for (.., names) in DIRENV_LOADS.iter().filter(|(own, of, _)| own == verb && of == what) {
            let is_named = ["flake", "prefix"].contains(what);
            let named = rest.iter().find(|word| is_named && !word.starts_with('-')).unwrap_or(&"");
            let named = named.trim_start_matches("path:").split('#').next().filter(|named| !named.is_empty());
            let directory = named.unwrap_or(".");
            let using = if *names == ["bin"] { Use::Commands } else { Use::Started };
            for name in *names {
                self.mention(reading, &format!("{directory}/{name}"), using, why);
            }
        }
    }

    fn read_words(&mut self, reading: &mut Reading, statement: &str, why: &str) {
        let is_between = |sign: char| sign.is_whitespace() || "`=,:()]}<>".contains(sign);
        let (is_direnv, is_task) = (reading.writer == Writer::Direnv, reading.writer == Writer::Task);
        let is_project = reading.writer == Writer::Project;
        let mut using = if is_task { Use::Started } else { Use::Mentioned };
        let mut is_module = false;
        for word in statement.split(is_between) {
            let word = word.trim_start_matches(['[', '{']);
            if using == Use::Started && std::mem::replace(&mut is_module, word == "-m") {
                self.mention(reading, &format!("{}.py", word.replace('.', "/")), using, why);
                continue;
            }
            let name = word.trim_end_matches(['+', '^', '-']);
            let is_one = |of: &[&str]| of.iter().any(|one| name.eq_ignore_ascii_case(one));
            if COMMANDS.contains(&name) && (name != "path" || reading.writer == Writer::Shell) {
                using = Use::Commands;
            } else if is_one(&SEARCHED) {
                using = Use::Searched;
            } else if is_one(&READ_ALL) {
                using = Use::ReadAll;
            } else if READ_NEXT.contains(&word) || is_project && LOAD_NEXT.contains(&word) {
                using = Use::ReadNext;
            } else if is_project && STARTERS.contains(&word) {
                using = Use::Started;
            } else if (is_direnv || is_task && using == Use::Started)
                && let Some((_, meant)) = DIRENV.iter().find(|(words, _)| words.contains(&word))
            {
                using = *meant;
            } else if word.contains('/')
                || (is_task || using == Use::Started) && word.contains('.')
                || is_direnv && using != Use::Started && !(word.is_empty() || word.starts_with('-'))
            {
                self.mention(reading, word, using, why);
                if matches!(using, Use::ReadNext | Use::Started | Use::Variables) {
                    using = Use::Mentioned;
                }
            } else if (using == Use::ReadNext || is_task) && !word.is_empty() && !word.starts_with('-') {
                using = Use::Mentioned;
            }
        }
        if using == Use::Variables {
            self.mention(reading, ".env", using, why);
        }
    }

    /// The path of a word, up to the first sign that stands for something else. It counts if it is loaded, if a program can be
    /// started there, or if whoever wrote it mentions nothing else.
    fn mention(&mut self, reading: &mut Reading, word: &str, using: Use, why: &str) {
        // An unknown variable is mostly the directory of the file.
        let word =
            word.strip_prefix('$').and_then(|word| word.split_once('/')).map_or(word, |(_, rest)| rest);
        let cut = word.find(['*', '?', '[', '{', '$']).and_then(|end| word.get(..end));
        let Some(base) = cut.map_or(Some(word), |cut| cut.rsplit_once('/').map(|(above, _)| above)) else {
            return;
        };
        let is_of_project =
            matches!(reading.writer, Writer::Direnv | Writer::Task | Writer::Hook | Writer::Project);
        let is_explicit = is_explicit(base) || is_of_project;
        let is_of_packages = |path: &Path| path.iter().any(|part| OF_PACKAGES.iter().any(|of| part == *of));
        for mut path in self.resolve_word(base, &reading.base) {
            let mut found = path.metadata().ok();
            if reading.writer == Writer::Direnv
                && using == Use::ReadNext
                && cut.is_none()
                && found.as_ref().is_some_and(Metadata::is_dir)
            {
                path.push(".envrc");
                found = path.metadata().ok();
            }
            let counts = match &found {
                _ if using == Use::Commands => !(is_of_project && is_of_packages(&path)),
                None if reading.writer == Writer::Task && is_of_packages(&path) => false,
                Some(found) if found.is_file() && cut.is_none() => {
                    using != Use::Mentioned
                        || !matches!(reading.writer, Writer::Shell | Writer::Variable | Writer::Project)
                        || reading.writer == Writer::Variable && is_explicit
                        || is_executable(found)
                }
                Some(found) if found.is_dir() => {
                    using == Use::Searched || cut.is_some() && using != Use::Mentioned
                }
                Some(_) => false,
                None => {
                    is_explicit
                        && (using != Use::Mentioned
                            || cut.is_none() && matches!(reading.writer, Writer::Program | Writer::Variable))
                }
            };
            if !counts {
                continue;
            }
            let kind = match using {
                Use::Variables => NamedKind::Told,
                _ if matches!(reading.writer, Writer::Hook | Writer::Project) => NamedKind::Told,
                // A program may read it in a way that agentsh does not know.
                Use::Mentioned
                    if reading.writer == Writer::Direnv && !found.as_ref().is_some_and(is_executable) =>
                {
                    NamedKind::Told
                }
                Use::Commands => NamedKind::Commands,
                Use::Searched => NamedKind::Directory,
                _ if cut.is_some() => NamedKind::Directory,
                _ => NamedKind::File,
            };
            let loads = if using == Use::Variables {
                why.replace("names it", LOADS_VARIABLES)
            } else {
                why.to_owned()
            };
            self.add(&path, kind, &loads);
            if matches!(using, Use::ReadNext | Use::ReadAll) {
                let entries = || std::fs::read_dir(&path).into_iter().flatten().flatten().take(MAX_ENTRIES);
                match found {
                    Some(found) if found.is_dir() => {
                        reading.loads.extend(entries().map(|entry| entry.path()))
                    }
                    _ => reading.loads.push(path),
                }
            }
        }
    }

    /// A variable that names files names nothing else; any other may hold a command, or options of a program.
    fn variable(&mut self, name: &str, value: &str, why: &str) {
        let is_obeyed = COMMANDS.contains(&name)
            || OBEYED.iter().any(|part| name.contains(part))
            || (name == "ENV" || ["RC", "OPT"].iter().any(|end| name.ends_with(end)))
            || name.starts_with("GIT_");
        if OF_BUILDS.iter().any(|of_builds| name.starts_with(of_builds)) {
            return;
        }
        // `LUA_INIT=@FILE`, `RUBYOPT=-rFILE`.
        let behind = value.strip_prefix('@').or_else(|| value.strip_prefix('-')?.get(1..));
        let is_place = |rest: &&str| is_explicit(rest) || rest.starts_with("./") || rest.starts_with("../");
        let value = behind.filter(is_place).unwrap_or(value);
        let parts: Vec<&str> = value.split(':').filter(|part| !part.is_empty()).collect();
        let is_command = value.contains(' ') && !Path::new(value).exists();
        let is_relative = |part: &str| {
            part.starts_with("./")
                || part.starts_with("../")
                || (name == "ENV" || name.ends_with("_ENV")) && self.context.project.join(part).is_file()
        };
        let is_path = |part: &str| is_explicit(part) || is_relative(part);
        if parts.iter().all(|part| is_path(part)) && !is_command {
            let kind = if COMMANDS.contains(&name) { NamedKind::Commands } else { NamedKind::File };
            for (part, path) in parts
                .iter()
                .flat_map(|part| {
                    self.resolve_word(part, &self.context.project).into_iter().map(move |path| (part, path))
                })
                .collect::<Vec<_>>()
            {
                let counts = match path.metadata() {
                    _ if kind == NamedKind::Commands => true,
                    Ok(found) => found.is_file() && (is_obeyed || is_executable(&found)),
                    Err(_) => is_obeyed && is_explicit(part),
                };
                if counts {
                    self.add(&path, kind, why);
                } else if is_explicit(part) && path.is_file() {
                    self.add(&path, NamedKind::Told, why);
                }
            }
            return;
        }
        let is_scheme = |first: &str| first.bytes().all(|sign| sign.is_ascii_alphanumeric());
        if is_obeyed && (parts.len() < 2 || !parts.first().is_some_and(|first| is_scheme(first))) {
            let writer = if value.starts_with('-') { Writer::Program } else { Writer::Variable };
            let mut reading = self.reading(writer, &self.context.project);
            self.line(&mut reading, value, why);
        }
    }

    /// What a word means, in a directory that a sandbox may write: relative ones count from the home, from the project, or from
    /// `base`.
    fn resolve_word(&self, word: &str, base: &Path) -> Vec<PathBuf> {
        let word = word.replace('\u{1}', " ");
        let context = self.context;
        let mut places = match word.strip_prefix("~/") {
            Some(rest) => vec![context.home.join(rest)],
            None if word.starts_with('/') => vec![PathBuf::from(word)],
            None if word.contains("//") => Vec::new(),
            None => {
                let bases = [&context.home, &context.project, &context.directory, base];
                bases.map(|base| base.join(&word)).into()
            }
        };
        places.iter_mut().for_each(|place| *place = normalised_path(place));
        places.dedup();
        // The machine's own files are many, and no sandbox writes them.
        places.retain(|place| !agentsh_sandbox::layout::is_system(place));
        places.retain(|place| self.is_inside(place) || self.is_inside(&self.real(place)));
        places
    }
}

fn is_executable(found: &Metadata) -> bool {
    found.permissions().mode() & 0o111 != 0
}

/// A path, and no name of something else.
fn is_explicit(word: &str) -> bool {
    word.starts_with("~/") || word.starts_with('/') && !word.starts_with("//")
}

/// The strings of an agent's settings that may be commands.
fn strings<'v>(value: &'v Value, into: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => into.push(text),
        Value::Array(list) => list.iter().for_each(|inner| strings(inner, into)),
        Value::Object(members) => {
            // What is permitted is not started.
            let is_started = |name: &str| !["permissions", "mcpServers"].contains(&name);
            members.iter().filter(|(name, _)| is_started(name)).for_each(|(_, inner)| strings(inner, into));
        }
        _ => {}
    }
}
