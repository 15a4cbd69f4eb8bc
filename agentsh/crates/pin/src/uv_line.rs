//! The command lines of `uvx`, `uv run` and `pipx run`, and the package names on them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::PinError;
use super::search;

/// The words of a launcher up to its command.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub specs: Vec<Spec>,
    pub directory: Option<PathBuf>,
    pub project: Option<PathBuf>,
    pub module: bool,
    pub words: Vec<OsString>,
}

const SPECS: &[&str] = &["--from", "--with", "--spec", "-w"];
const FLAGS_WITH_VALUE: &[&str] = &[
    "--python",
    "-p",
    "--index-url",
    "-i",
    "--extra-index-url",
    "--index",
    "--default-index",
    "--prerelease",
    "--extra",
    "--group",
    "--package",
    "--link-mode",
    "--color",
    "--pip-args",
    "--resolution",
    "--exclude-newer",
    "--only-group",
    "--no-group",
    "--no-extra",
];
const PLAIN: &[&str] = &[
    "-q",
    "--quiet",
    "-v",
    "--verbose",
    "--offline",
    "--no-sync",
    "--frozen",
    "--locked",
    "--no-progress",
    "--no-dev",
    "--all-extras",
    "--all-groups",
    "--no-env-file",
    "--native-tls",
    "--no-config",
    "--refresh",
    "--no-project",
    "--no-cache",
    "-n",
    "--script",
    "-s",
    "--active",
    "--no-python-downloads",
    "--dev",
    "--no-editable",
    "-U",
    "--upgrade",
    "--exact",
    "--isolated",
    "--no-build",
    "--no-default-groups",
    "--system-certs",
    "--managed-python",
];

pub(super) fn parse(launcher: &str, args: &[OsString], cwd: &Path) -> Result<Line, PinError> {
    let mut line = Line::default();
    let mut index = 0;
    while let Some(word) = args.get(index) {
        let text = word.to_str().unwrap_or_default();
        if text == "--" {
            index += 1;
            break;
        }
        if !text.starts_with('-') || text == "-" {
            break;
        }
        index += 1;
        let (name, value) = match text.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value)),
            _ => (text, None),
        };
        let mut take = || {
            value
                .map(str::to_owned)
                .or_else(|| {
                    index += 1;
                    args.get(index - 1).map(|word| word.to_string_lossy().into_owned())
                })
                .unwrap_or_default()
        };
        match name {
            _ if SPECS.contains(&name) => {
                let spec = take();
                for part in spec
                    .split(',')
                    .filter(|_| name != "--spec" && name != "--from")
                    .chain(Some(spec.as_str()).filter(|_| name == "--spec" || name == "--from"))
                {
                    line.specs.push(Spec::parse(part)?);
                }
            }
            "--directory" => line.directory = Some(search::absolute(cwd, Path::new(&take()))),
            "--project" => line.project = Some(search::absolute(cwd, Path::new(&take()))),
            "-m" | "--module" if launcher == "uv run" => {
                line.module = true;
                if let Some(value) = value {
                    line.words.push(value.into());
                }
                break;
            }
            _ if FLAGS_WITH_VALUE.contains(&name) => drop(take()),
            _ if PLAIN.contains(&name) => {}
            _ => {
                return Err(PinError::Unsupported {
                    what: format!("{launcher} {name}"),
                    instead: "this flag is not known; leave it out, or name the installed command itself"
                        .to_owned(),
                });
            }
        }
    }
    line.words.extend(args.get(index..).unwrap_or_default().iter().cloned());
    Ok(line)
}

/// A Python package and the versions that will do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spec {
    /// Lower-case, every run of `-_.` one `_`.
    pub name: String,
    /// `[extra]`, or nothing.
    pub extras: String,
    /// Operator and version; all must hold.
    pub wanted: Vec<(String, String)>,
}

impl Spec {
    pub fn parse(text: &str) -> Result<Self, PinError> {
        let text = text.trim();
        if text.contains("://") || text.starts_with("git+") {
            return Err(PinError::RemoteCode { what: text.to_owned() });
        }
        let end = text.find(|letter: char| !(letter.is_ascii_alphanumeric() || "-_.".contains(letter)));
        let (name, rest) = text.split_at(end.unwrap_or(text.len()));
        let extras_end = rest.find(']').filter(|_| rest.starts_with('[')).map_or(0, |end| end + 1);
        let extras = rest.get(..extras_end).unwrap_or_default().to_owned();
        let rest = rest.get(extras_end..).unwrap_or_default().trim();
        let bad = || PinError::Unsupported {
            what: format!("the package {text:?}"),
            instead: "write a name, with `==VERSION` for a fixed version".to_owned(),
        };
        if name.is_empty() || name.starts_with(['.', '-']) {
            return Err(bad());
        }
        let mut wanted = Vec::new();
        if let Some(version) = rest.strip_prefix('@') {
            if version.trim() != "latest" {
                wanted.push(("==".to_owned(), version.trim().to_owned()));
            }
        } else {
            for part in rest.split(',').map(str::trim).filter(|part| !part.is_empty()) {
                let operator = ["===", "==", ">=", "<=", "~=", "!=", ">", "<"]
                    .into_iter()
                    .find(|operator| part.starts_with(operator))
                    .ok_or_else(bad)?;
                wanted.push((
                    operator.to_owned(),
                    part.get(operator.len()..).unwrap_or_default().trim().to_owned(),
                ));
            }
        }
        Ok(Self { name: normal(name), extras, wanted })
    }

    /// The text for installers.
    pub fn text(&self) -> String {
        let wanted: Vec<String> =
            self.wanted.iter().map(|(operator, version)| format!("{operator}{version}")).collect();
        format!("{}{}{}", self.name.replace('_', "-"), self.extras, wanted.join(","))
    }

    pub fn satisfied_by(&self, version: &str) -> bool {
        self.wanted.iter().all(|(operator, wanted)| {
            let (have, want) = (numbers(version), numbers(wanted));
            match operator.as_str() {
                "==" => match wanted.strip_suffix(".*") {
                    Some(prefix) => have.starts_with(&numbers(prefix)),
                    None => version == wanted,
                },
                "===" => version == wanted,
                "!=" => version != wanted,
                ">=" => have >= want,
                "<=" => have <= want,
                ">" => have > want,
                "<" => have < want,
                "~=" => {
                    have >= want
                        && have.starts_with(want.get(..want.len().saturating_sub(1)).unwrap_or_default())
                }
                _ => false,
            }
        })
    }

    /// Name and version of the installed package in `environment` that satisfies this.
    pub fn installed(&self, environment: &Path) -> Option<String> {
        let sites = search::subdirectories(&environment.join("lib"));
        let sites = sites.iter().filter(|path| search::file_name(path).starts_with("python3."));
        let records = sites.flat_map(|python| search::subdirectories(&python.join("site-packages")));
        records.into_iter().find_map(|record| {
            let (name, version) = search::file_name(&record).strip_suffix(".dist-info")?.split_once('-')?;
            (normal(name) == self.name && self.satisfied_by(version)).then(|| version.to_owned())
        })
    }
}

pub(super) fn normal(name: &str) -> String {
    let parts = name.split(['-', '_', '.']).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("_").to_lowercase()
}

pub(super) fn numbers(version: &str) -> Vec<u64> {
    let parts = version.split('.').map(|part| {
        let end = part.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(part.len());
        part.get(..end).unwrap_or_default().parse().unwrap_or_default()
    });
    let mut numbers: Vec<u64> = parts.collect();
    while numbers.last() == Some(&0) {
        numbers.pop();
    }
    numbers
}
