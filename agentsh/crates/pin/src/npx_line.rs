//! The command lines of `npx`, `npm exec`, `pnpm dlx`, `yarn dlx` and `bunx`.

use std::ffi::OsString;

use super::PinError;
use super::semver::{Range, Version};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// The package that brings the command, and others that are to be installed next to it.
    pub package: Spec,
    pub beside: Vec<Spec>,
    /// Command of the package; None is the one named like the package.
    pub command: Option<String>,
    pub rest: Vec<OsString>,
    /// `-p PKG COMMAND`: the command may come from any of the packages.
    pub explicit: bool,
    /// `--no-install`: what is installed here and nothing else.
    pub only_installed: bool,
}

/// `name`, `name@1.2.3`, `@scope/name@^1`, `name@latest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spec {
    pub name: String,
    pub wanted: Option<String>,
}

impl Spec {
    pub fn parse(text: &str) -> Result<Self, PinError> {
        let at = text.char_indices().skip(1).find(|(_, letter)| *letter == '@').map(|(at, _)| at);
        let (name, wanted) = match at {
            Some(at) => (text.get(..at).unwrap_or_default(), text.get(at + 1..)),
            None => (text, None),
        };
        if text.contains(':') || text.contains(".git") || name.starts_with(['.', '/', '~']) {
            return Err(PinError::RemoteCode { what: text.to_owned() });
        }
        let plain = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~!'()*".contains(&byte))
        };
        let valid = match name.strip_prefix('@') {
            Some(scoped) => scoped.split_once('/').is_some_and(|(scope, name)| plain(scope) && plain(name)),
            // `user/repository` is a Git repository on GitHub.
            None if name.contains('/') => return Err(PinError::RemoteCode { what: text.to_owned() }),
            None => plain(name),
        };
        if !valid {
            return Err(PinError::Unsupported {
                what: format!("the package name {text:?}"),
                instead: "write it as npm lists it".to_owned(),
            });
        }
        let wanted = wanted.filter(|wanted| !wanted.is_empty()).map(str::to_owned);
        Ok(Self { name: name.to_owned(), wanted })
    }

    /// A tag (`latest`) is satisfied by anything: which version it means, only the registry knows.
    pub fn satisfied_by(&self, version: &str) -> bool {
        let Some(wanted) = &self.wanted else { return true };
        match (Range::parse(wanted), Version::parse(version)) {
            (None, _) => true,
            (Some(range), Some(version)) => range.matches(&version),
            (Some(_), None) => wanted == version,
        }
    }

    pub fn text(&self) -> String {
        match &self.wanted {
            Some(wanted) => format!("{}@{wanted}", self.name),
            None => self.name.clone(),
        }
    }
}

/// None when these words do not look for a package (`npm install`, `npm run`): then it is a plain program.
pub(super) fn parse(launcher: &str, args: &[OsString]) -> Result<Option<Line>, PinError> {
    let words: Vec<&str> = args.iter().map(|arg| arg.to_str().unwrap_or_default()).collect();
    let skip = match (launcher, words.first().copied()) {
        ("npx" | "pnpx" | "bunx", _) => 0,
        ("npm", Some("exec" | "x")) | ("pnpm" | "yarn", Some("dlx")) | ("bun", Some("x")) => 1,
        _ => return Ok(None),
    };
    let unsupported = |what: &str, instead: &str| PinError::Unsupported {
        what: format!("{launcher} {what}"),
        instead: instead.to_owned(),
    };
    let (mut packages, mut index, mut closed) = (Vec::new(), skip, false);
    let mut only_installed = false;
    while let Some(word) = words.get(index) {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) if word.starts_with("--") => (name, Some(value)),
            _ => (*word, None),
        };
        match name {
            "--" => {
                closed = true;
                index += 1;
                break;
            }
            "-p" | "--package" => {
                let value = match value {
                    Some(value) => value,
                    None => {
                        index += 1;
                        words.get(index).copied().unwrap_or_default()
                    }
                };
                packages.push(Spec::parse(value)?);
            }
            "--no" | "--no-install" => only_installed = true,
            "-y" | "--yes" | "-q" | "--quiet" | "--silent" | "-s" | "--prefer-offline" | "--offline"
            | "--prefer-online" | "--ignore-scripts" | "--bun" | "--verbose" | "-d" | "--ignore-existing" => {
            }
            "--registry" | "--loglevel" | "--cache" | "--userconfig" | "--prefix" => {
                if matches!(name, "--prefix" | "--userconfig" | "--cache") {
                    return Err(unsupported(name, "set the place in npm's own configuration"));
                }
                index += usize::from(value.is_none());
            }
            "-c" | "--call" => {
                return Err(unsupported(name, "name the package's command instead of shell text"));
            }
            _ if name.starts_with('-') => {
                return Err(unsupported(
                    name,
                    "this flag is not known; leave it out or put it after the package",
                ));
            }
            _ => break,
        }
        index += 1;
    }
    let Some(word) = words.get(index) else {
        return Err(unsupported("without a package", "name one"));
    };
    // `npm exec pkg -- args`: npm itself takes the first `--` away.
    let mut rest = args.get(index + 1..).unwrap_or_default().to_vec();
    if launcher == "npm" && !closed {
        if let Some(at) = rest.iter().position(|word| word == "--") {
            if rest.iter().take(at).any(|word| word.to_string_lossy().starts_with('-')) {
                return Err(unsupported("exec with flags after the package", "put `--` before them"));
            }
            rest.remove(at);
        } else if rest.iter().any(|word| word.to_string_lossy().starts_with('-')) {
            return Err(unsupported("exec with flags after the package", "put `--` before them"));
        }
    }
    if packages.is_empty() {
        return Ok(Some(Line {
            package: Spec::parse(word)?,
            beside: Vec::new(),
            command: None,
            rest,
            explicit: false,
            only_installed,
        }));
    }
    let package = packages.remove(0);
    Ok(Some(Line {
        package,
        beside: packages,
        command: Some((*word).to_owned()),
        rest,
        explicit: true,
        only_installed,
    }))
}
