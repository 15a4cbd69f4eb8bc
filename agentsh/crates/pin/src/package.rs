//! `package.json`: which package a file belongs to, and which file a package starts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value};

use super::PinError;
use super::search;
use super::tree::Listed;

const MANIFEST_BYTES: u64 = 4 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Package {
    /// Directory that holds `package.json`, without links.
    pub root: PathBuf,
    pub name: Option<String>,
    pub version: Option<String>,
    pub main: Option<String>,
    /// Command name to file.
    pub bins: BTreeMap<String, String>,
    /// Names of all packages that it declares as dependencies.
    pub dependencies: BTreeSet<String>,
    /// For npm's cache: what was asked for, by package name or as the words of the command line.
    pub requested: BTreeSet<String>,
}

impl Package {
    pub fn is_installed(&self) -> bool {
        self.root.iter().any(|part| part == "node_modules")
    }

    /// `npm:NAME@VERSION`. A registry lets anybody write any name into a manifest, and an alias installs one package
    /// under another's name: where the two disagree, the place is the identity.
    pub fn identity(&self) -> String {
        if self.is_installed() && self.installed_name() != self.name {
            return format!("file:{}", self.root.display());
        }
        let name = self.name.clone().unwrap_or_else(|| self.root.display().to_string());
        match &self.version {
            Some(version) => format!("npm:{name}@{version}"),
            None => format!("npm:{name}"),
        }
    }

    /// The name of its directory in `node_modules`.
    fn installed_name(&self) -> Option<String> {
        let mut parts: Vec<String> = Vec::new();
        for part in self.root.iter().rev().take_while(|part| *part != "node_modules") {
            parts.insert(0, part.to_str()?.to_owned());
        }
        Some(parts.join("/"))
    }

    /// The file behind `command`; without a command: the one named like the package, or the only one.
    pub fn bin(&self, command: Option<&str>) -> Option<PathBuf> {
        let file = match command {
            Some(command) => self.bins.get(command)?,
            None => {
                let own = self.name.as_deref().and_then(|name| name.rsplit('/').next());
                let mut files: Vec<&String> = self.bins.values().collect();
                files.dedup();
                let only = if files.len() == 1 { files.pop() } else { None };
                own.and_then(|own| self.bins.get(own)).or(only)?
            }
        };
        // A manifest may not point out of its package.
        let inside = Path::new(file);
        let leaves =
            inside.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir));
        (!leaves).then(|| self.root.join(inside))
    }
}

/// The package whose `package.json` is in `directory`; None when there is none.
pub(super) fn read(directory: &Path) -> Result<Option<Package>, PinError> {
    let path = directory.join("package.json");
    let Some(text) = search::text(&path, MANIFEST_BYTES)? else { return Ok(None) };
    let bad = |why: String| PinError::BadManifest { path: path.clone(), why };
    let value: Value = serde_json::from_str(text.trim_start_matches('\u{feff}'))
        .map_err(|error| bad(format!("is not valid JSON: {error}")))?;
    let Value::Object(object) = value else { return Err(bad("is not a JSON object".to_owned())) };
    let text = |key: &str| object.get(key).and_then(Value::as_str).map(str::to_owned);
    let root = std::fs::canonicalize(directory).map_err(|source| PinError::io(directory, source))?;
    let name = text("name");
    let own = || name.as_deref().and_then(|name| name.rsplit('/').next()).unwrap_or_default().to_owned();
    let bins = match object.get("bin") {
        Some(Value::String(file)) => BTreeMap::from([(own(), file.clone())]),
        Some(Value::Object(files)) => files
            .iter()
            .filter_map(|(command, file)| Some((command.clone(), file.as_str()?.to_owned())))
            .collect(),
        _ => BTreeMap::new(),
    };
    let keys = ["dependencies", "optionalDependencies", "peerDependencies"];
    let dependencies = keys.iter().flat_map(|key| names(&object, key)).collect();
    let packages = object.get("_npx").and_then(|npx| npx.get("packages")).and_then(Value::as_array);
    let requested = packages.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    Ok(Some(Package {
        version: text("version"),
        main: text("main"),
        root,
        bins,
        dependencies,
        requested,
        name,
    }))
}

fn names(object: &Map<String, Value>, key: &str) -> Vec<String> {
    object.get(key).and_then(Value::as_object).map(|map| map.keys().cloned().collect()).unwrap_or_default()
}

/// The nearest package above a file. A `package.json` without a name only says how its directory is to be read
/// (`dist/package.json` with a `type`); it counts when there is nothing better.
pub(super) fn enclosing(file: &Path) -> Result<Option<Package>, PinError> {
    let mut fallback = None;
    for directory in file.ancestors().skip(1) {
        if directory.file_name().is_some_and(|name| name == "node_modules") {
            break;
        }
        if let Some(package) = read(directory)? {
            if package.name.is_some() {
                return Ok(Some(package));
            }
            fallback = fallback.or(Some(package));
        }
    }
    Ok(fallback)
}

/// Names and versions out of an npm lock file (`package-lock.json` or `node_modules/.package-lock.json`), by place. A `name`
/// is there where it is not that of the place, as for `foo -> npm:other`.
pub(super) fn locked(path: &Path) -> Result<Option<BTreeMap<String, Listed>>, PinError> {
    let Some(text) = search::text(path, 64 << 20)? else { return Ok(None) };
    // Only for people: no runtime reads it.
    let Ok(value) = serde_json::from_str::<Value>(&text) else { return Ok(None) };
    let packages = value.get("packages").and_then(Value::as_object);
    let listed = packages.into_iter().flatten().filter_map(|(place, package)| {
        let text = |key: &str| package.get(key).and_then(Value::as_str).map(str::to_owned);
        // A package inside another one is called by its whole place.
        let in_place = || place.rsplit("node_modules/").next().unwrap_or(place).to_owned();
        let listed = Listed { version: text("version")?, name: text("name").unwrap_or_else(in_place) };
        Some((place.strip_prefix("node_modules/").unwrap_or(place).to_owned(), listed))
    });
    Ok(Some(listed.filter(|(place, _)| !place.is_empty()).collect()))
}
