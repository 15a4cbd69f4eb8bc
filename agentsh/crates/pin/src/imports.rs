//! The files of a project that a script's imports can mean. A project is worked on all day: of its code only what the
//! script loads is pinned, so that an edit elsewhere does not stop the next start.
//!
//! Imports are read without a parser: what looks like one counts, also in a comment, and strings that name code do too.
//! Where the name of a module is computed, there is no answer, and all code of the directory is pinned.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use super::tree::Code;
use super::{file, search};

/// More is no script and its modules: then all code of the directory is pinned.
const MAX_FILES: usize = 2000;
const MAX_FILE_BYTES: u64 = 4 << 20;
/// The longest string in which a file is looked for.
const MAX_NAME: usize = 200;

/// How a language names the code that it loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    /// Files by `./` and `../`; all else is in `node_modules`.
    Node,
    /// Modules below the directory of the script, before those of the library.
    Python,
}

/// Paths are relative to the directory of the script.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Imports {
    /// Paths of files up to the first dot of their names: an import leaves the ending out, or names another one.
    stems: BTreeSet<PathBuf>,
    /// Directories of which all code counts.
    whole: BTreeSet<PathBuf>,
    /// A new file next to the script takes the place of a module that is installed.
    shadows: bool,
}

impl Imports {
    pub fn file(&self, relative: &Path, code: &Code) -> bool {
        code.has(relative) && (self.stems.contains(&stem(relative)) || self.is_whole(relative))
    }

    /// Whether a directory has files that count; a package next to the script may count by its name alone.
    pub fn directory(&self, relative: &Path) -> bool {
        let leads = |places: &BTreeSet<PathBuf>| {
            places.range(relative.to_owned()..).next().is_some_and(|place| place.starts_with(relative))
        };
        leads(&self.stems) || leads(&self.whole) || self.is_whole(relative)
    }

    pub fn may_be_shadow(&self, relative: &Path) -> bool {
        self.shadows && is_one_name(relative)
    }

    pub fn is_whole(&self, relative: &Path) -> bool {
        relative.ancestors().any(|above| self.whole.contains(above))
    }

    /// A file whose presence decides what other imports mean, whatever is in it.
    pub fn is_shadow(&self, relative: &Path, code: &Code) -> bool {
        let module = match relative.parent() {
            Some(package) if is_one_name(package) => stem(relative).ends_with("__init__"),
            parent => parent.is_none_or(|parent| parent.as_os_str().is_empty()),
        };
        self.shadows && module && code.has(relative)
    }
}

fn is_one_name(relative: &Path) -> bool {
    relative.components().count() == 1
}

fn stem(path: &Path) -> PathBuf {
    let name = path.file_name().map_or("", |name| name.to_str().unwrap_or(""));
    match name.char_indices().skip(1).find(|(_, letter)| *letter == '.') {
        Some((dot, _)) => path.with_file_name(name.get(..dot).unwrap_or(name)),
        None => path.to_owned(),
    }
}

/// What `entry` and all that it imports below `root` can mean; None if that cannot be told.
pub(super) fn of(root: &Path, entry: &Path, code: &Code) -> Option<Imports> {
    let inside = entry.strip_prefix(root).ok()?;
    let imports = Imports { shadows: code.language == Language::Python, ..Imports::default() };
    let mut search = Search { root, code, imports, names: BTreeMap::new(), waiting: Vec::new() };
    search.add(stem(inside));
    let mut read = 0;
    while let Some(waiting) = search.waiting.pop() {
        for path in search.files_of(&waiting) {
            read += 1;
            if read > MAX_FILES {
                return None;
            }
            let text = text_of(&root.join(&path))?;
            match code.language {
                Language::Python => search.python(&path, &text)?,
                Language::Node => search.node(&path, &text)?,
            }
        }
    }
    Some(search.imports)
}

fn text_of(path: &Path) -> Option<String> {
    let real = std::fs::canonicalize(path).ok()?;
    let mut bytes = Vec::new();
    file::open(&real).ok()?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return None;
    }
    // What is compiled names what it loads in strings, if at all; it changes only when it is built.
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

struct Search<'a> {
    root: &'a Path,
    code: &'a Code,
    imports: Imports,
    /// The files of each directory that was looked at, by their stems.
    names: BTreeMap<PathBuf, BTreeMap<PathBuf, Vec<PathBuf>>>,
    waiting: Vec<PathBuf>,
}

impl Search<'_> {
    fn add(&mut self, stem: PathBuf) {
        if self.imports.stems.insert(stem.clone()) {
            self.waiting.push(stem);
        }
    }

    fn files_of(&mut self, stem: &Path) -> Vec<PathBuf> {
        let directory = stem.parent().unwrap_or(Path::new("")).to_owned();
        let known = self.names.entry(directory).or_insert_with_key(|directory| {
            let mut files: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
            for entry in std::fs::read_dir(self.root.join(directory)).into_iter().flatten().flatten() {
                let path = directory.join(entry.file_name());
                if self.code.has(&path) && self.root.join(&path).is_file() {
                    files.entry(self::stem(&path)).or_default().push(path);
                }
            }
            files
        });
        known.get(stem).cloned().unwrap_or_default()
    }

    /// A module and the packages that it is in, below `base`.
    fn module<'a>(&mut self, base: &Path, parts: impl IntoIterator<Item = &'a str>) {
        let mut place = base.to_owned();
        for part in parts {
            place.push(part);
            self.add(place.clone());
            self.add(place.join("__init__"));
        }
        self.add(place.join("__main__"));
    }

    fn python(&mut self, path: &Path, text: &str) -> Option<()> {
        let package = path.parent().unwrap_or(Path::new(""));
        self.add(package.join("__init__"));
        let tokens = python_tokens(text);
        let mut rest = tokens.as_slice();
        while let Some((token, after)) = rest.split_first() {
            rest = after;
            match *token {
                "exec"
                | "execfile"
                | "__import__"
                | "__path__"
                | "runpy"
                | "pkgutil"
                | "addsitedir"
                | "spec_from_file_location" => return None,
                "importlib" if !matches!(after, [".", "metadata" | "resources", ..]) => return None,
                "sys" if after.starts_with(&[".", "path"]) => return None,
                "import" => rest = self.import(after),
                "from" => rest = self.import_from(package, after),
                _ => {}
            }
        }
        for name in quoted(text) {
            self.python_string(package, name);
        }
        Some(())
    }

    /// `import a.b as c, d`
    fn import<'t>(&mut self, tokens: &'t [&'t str]) -> &'t [&'t str] {
        let mut rest = tokens;
        loop {
            let (parts, after) = dotted(rest);
            if parts.is_empty() {
                return after;
            }
            self.module(Path::new(""), parts);
            rest = match after {
                ["as", _, ",", after @ ..] | [",", after @ ..] => after,
                _ => return after,
            };
        }
    }

    /// `from .a import (b as c, d)`
    fn import_from<'t>(&mut self, package: &Path, tokens: &'t [&'t str]) -> &'t [&'t str] {
        let dots = tokens.iter().take_while(|token| **token == ".").count();
        let (parts, after) = dotted(tokens.get(dots..).unwrap_or_default());
        let ["import", names @ ..] = after else { return after };
        let base = match dots {
            0 => Some(Path::new("")),
            dots => package.ancestors().nth(dots - 1),
        };
        let Some(base) = base else { return names };
        self.module(base, parts.iter().copied());
        let place = parts.iter().fold(base.to_owned(), |place, part| place.join(part));
        let names = names.strip_prefix(&["("]).unwrap_or(names);
        let mut rest = names;
        while let [name, after @ ..] = rest {
            if is_word(name) {
                self.module(&place, [*name]);
            }
            rest = match after {
                ["as", _, ",", after @ ..] | [",", after @ ..] => after,
                _ => return after,
            };
        }
        rest
    }

    /// `uvicorn.run("package.module:app")`, `subprocess.run([…, "worker.py"])`. Who gets the name of a package looks into it.
    fn python_string(&mut self, package: &Path, name: &str) {
        let module = name.split_once(':').map_or(name, |(module, _)| module);
        if module.split('.').all(is_word) {
            let path: PathBuf = module.split('.').collect();
            self.module(Path::new(""), module.split('.'));
            if self.root.join(&path).join("__init__.py").is_file() {
                self.imports.whole.insert(path);
            }
        }
        self.path_string(package, name);
    }

    /// A file of code by its path from the file that names it, or from the directory of the script.
    fn path_string(&mut self, from: &Path, name: &str) {
        if self.code.has(Path::new(name)) {
            for base in [from, Path::new("")] {
                if let Some(path) = inside(&base.join(name)) {
                    self.add(stem(&path));
                }
            }
        }
    }

    fn node(&mut self, path: &Path, text: &str) -> Option<()> {
        let from = path.parent().unwrap_or(Path::new(""));
        for directory in from.ancestors() {
            self.imports.whole.insert(directory.join("node_modules"));
            for name in self.code.names {
                self.add(stem(&directory.join(name)));
            }
        }
        if path.extension() == Some(OsStr::new("json")) {
            // These give names to files, or say where names lead.
            let is_map = ["\"imports\"", "\"exports\"", "\"paths\"", "\"baseUrl\""]
                .iter()
                .any(|key| text.contains(key));
            let is_plain =
                ["package.json", "tsconfig.json", "jsconfig.json"].contains(&search::file_name(path));
            let is_read = self.code.names.contains(&search::file_name(path));
            return (!is_read || is_plain && !is_map).then_some(());
        }
        if path.extension() == Some(OsStr::new("toml")) || has_computed_name(text) {
            return None;
        }
        for name in quoted(text) {
            if name.starts_with("./") || name.starts_with("../") || name == "." || name == ".." {
                let Some(path) = inside(&from.join(name)) else { continue };
                self.add(stem(&path));
                self.add(path.join("index"));
                self.add(path.join("package"));
            }
            self.path_string(from, name);
        }
        Some(())
    }
}

/// `import(NAME)` and `require(NAME)`, where NAME is no plain string.
fn has_computed_name(text: &str) -> bool {
    ["import", "require"].iter().any(|word| {
        text.match_indices(word).any(|(at, _)| {
            let before = text.get(..at).and_then(|before| before.chars().next_back());
            let after = text.get(at + word.len()..).unwrap_or_default().trim_start();
            let Some(argument) = after.strip_prefix('(') else { return false };
            let argument = argument.trim_start();
            let quote = argument.chars().next().filter(|quote| matches!(quote, '"' | '\'' | '`'));
            let string = quote.and_then(|quote| argument.get(1..)?.split_once(quote));
            let is_plain = string.is_some_and(|(name, rest)| {
                !name.contains("${") && !name.contains('\\') && rest.trim_start().starts_with([')', ','])
            });
            !before.is_some_and(is_letter) && !is_plain
        })
    })
}

/// Without `.` and `..`; None if it leads out of the directory.
fn inside(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            Component::ParentDir if plain.pop() => {}
            _ => return None,
        }
    }
    Some(plain)
}

fn is_letter(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '$'
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_letter)
}

/// `a.b.c` at the start of `tokens`, and what follows it.
fn dotted<'t>(tokens: &'t [&'t str]) -> (Vec<&'t str>, &'t [&'t str]) {
    let (mut parts, mut rest) = (Vec::new(), tokens);
    while let [part, after @ ..] = rest {
        if !is_word(part) || *part == "import" {
            break;
        }
        parts.push(*part);
        rest = after;
        match after {
            [".", after @ ..] => rest = after,
            _ => break,
        }
    }
    (parts, rest)
}

/// Words and signs; a line break in parentheses or behind a backslash ends no import, so no line break is a token.
fn python_tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    for line in text.lines() {
        let code = line.split('#').next().unwrap_or_default();
        let mut rest = code;
        while let Some(first) = rest.chars().next() {
            let end = match is_letter(first) {
                true => rest.find(|letter| !is_letter(letter)).unwrap_or(rest.len()),
                false => first.len_utf8(),
            };
            let (token, after) = rest.split_at(end);
            if !token.trim().is_empty() && token != "\\" {
                tokens.push(token);
            }
            rest = after;
        }
    }
    tokens
}

/// What is between two equal quotes on one line, for each quote: which of them begins a string is not looked for.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices(['"', '\'', '`']).filter_map(|(at, quote)| {
        let rest = text.get(at + 1..)?;
        let end = rest
            .bytes()
            .take(MAX_NAME)
            .position(|byte| quote.as_bytes().first() == Some(&byte) || byte == b'\n' || byte == b'\\')?;
        let name = rest.get(..end)?;
        (rest.as_bytes().get(end) == quote.as_bytes().first() && !name.is_empty()).then_some(name)
    })
}
