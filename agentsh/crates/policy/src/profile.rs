//! Profiles of well-known servers: what a package needs, by the package that will really be loaded.
//!
//! A profile is below what the user's own policy says about a server and above the defaults of a server that
//! no rule mentions. A policy inside the project narrows it like everything else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use agentsh_base::words;

use super::builtin_profiles::PROFILES;
use super::diagnostic::{Diagnostic, PolicyError, Source, closest};
use super::explain::Answer;
use super::model::{DataSink, DataSource, PolicyTest, Ruled, WrittenLayer};
use super::path::PathContext;
use super::sections::{McpPolicy, Policy, ProcessPolicy};
use super::{read_profile, search};
use crate::types::{RuleRef, ServerId};

/// The needs of one package.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerProfile {
    /// Name of its file without `.yaml`.
    pub name: String,
    /// `built-in:servers/NAME.yaml`, or a file of the user.
    pub file: String,
    pub why: String,
    pub packages: Vec<Ruled<Package>>,
    pub process: ProcessPolicy,
    /// A directory that is kept from run to run.
    pub state: Option<Ruled<State>>,
    /// Grants by the server's own configuration if the user wrote it.
    pub opened: Vec<Ruled<ProfileGrant>>,
    /// The label of the server's results.
    pub source: Option<Ruled<DataSource>>,
    /// The destination of data that the server receives.
    pub sink: Option<Ruled<DataSink>>,
    /// Whether the package works only when its own scripts run at installation.
    pub install_scripts: Option<Ruled<bool>>,
    pub tests: Vec<PolicyTest>,
    /// The reason of each entry, by the id of its rule.
    pub reasons: BTreeMap<String, String>,
    text: String,
}

words! {
    #[derive(PartialOrd, Ord)]
    pub enum Registry {
        Npm = "npm",
        Pypi = "pypi",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    pub registry: Registry,
    /// The name in the registry; Python names in lower case with `-`.
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Variable to the file in the directory that it names; an empty file means the directory itself.
    pub env: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileGrant {
    pub from: ConfigPlace,
    pub what: What,
}

/// The place of a value in a server's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigPlace {
    /// `--db-path VALUE` or `--db-path=VALUE`
    Option(String),
    Env(String),
    /// Every argument that is a URL of this scheme.
    Url(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The directory of the file that the value names, which need not exist yet: writable.
    Directory,
    /// The path itself: writable.
    Path,
    /// The host of a URL, or `host:port`, or a host alone with the port given here.
    Host { port: u16, any_tcp: bool },
}

impl Package {
    /// From the identity of a pinned program (`npm:@scope/name@1.2.3`, `pypi:name@1.2`); None for anything else.
    #[must_use]
    pub fn of_identity(identity: &str) -> Option<Self> {
        let (kind, rest) = identity.split_once(':')?;
        let (_, registry) = *Registry::WORDS.iter().find(|(word, _)| *word == kind)?;
        let at = rest.char_indices().skip(1).find(|(_, letter)| *letter == '@').map(|(at, _)| at);
        let name = rest.get(..at.unwrap_or(rest.len()))?;
        (!name.starts_with('/') && !name.is_empty()).then(|| Self::new(registry, name))
    }

    /// From what a package manager is asked for: `name`, `@scope/name@^1`, `name[extra]>=2`.
    #[must_use]
    pub fn of_spec(registry: Registry, spec: &str) -> Self {
        let end = spec.char_indices().skip(1).find(|(_, letter)| "@=<>!~[".contains(*letter));
        Self::new(registry, spec.get(..end.map_or(spec.len(), |(at, _)| at)).unwrap_or_default())
    }

    #[must_use]
    pub fn new(registry: Registry, name: &str) -> Self {
        let name = match registry {
            Registry::Npm => name.to_owned(),
            Registry::Pypi => {
                let parts: Vec<&str> = name.split(['-', '_', '.']).filter(|part| !part.is_empty()).collect();
                parts.join("-").to_lowercase()
            }
        };
        Self { registry, name }
    }
}

impl std::fmt::Display for Package {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.registry.as_str(), self.name)
    }
}

/// The profile of a package: the user's own (`servers/*.yaml` next to `policy.yaml`), else the built-in one.
///
/// # Errors
/// When a file of the user cannot be read or used, or fails its own tests.
pub fn of_package(package: &Package, config_home: &Path) -> Result<Option<ServerProfile>, PolicyError> {
    let is_for = |profile: &ServerProfile| profile.packages.iter().any(|entry| entry.value == *package);
    for file in own_files(config_home)? {
        if let Some(profile) = own(&file)?.filter(is_for) {
            return Ok(Some(profile));
        }
    }
    // Only texts that mention the name are read: this is on the way of every start.
    let mentions = |text: &str| match package.registry {
        Registry::Npm => text.contains(&package.name),
        Registry::Pypi => true,
    };
    for (name, text) in PROFILES.iter().filter(|(_, text)| mentions(text)) {
        let profile = builtin(name, text)?;
        if is_for(&profile) {
            return Ok(Some(profile));
        }
    }
    Ok(None)
}

/// The profile of that name: the user's own, else the built-in one.
///
/// # Errors
/// Like [`of_package`]; also when there is no such profile.
pub fn named(name: &str, config_home: &Path) -> Result<ServerProfile, PolicyError> {
    for file in own_files(config_home)? {
        if file.file_stem().is_some_and(|stem| stem == name)
            && let Some(profile) = own(&file)?
        {
            return Ok(profile);
        }
    }
    if let Some((name, text)) = PROFILES.iter().find(|(known, _)| *known == name) {
        return builtin(name, text);
    }
    let names: Vec<&str> = PROFILES.iter().map(|(known, _)| *known).collect();
    let help = match closest(name, &names) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the built-in ones are {}", names.join(", ")),
    };
    Err(PolicyError::UnknownProfile { name: name.chars().take(80).collect(), help })
}

/// Every profile: the user's own first, then the built-in ones, by name.
///
/// # Errors
/// As for [`of_package`].
pub fn all(config_home: &Path) -> Result<Vec<ServerProfile>, PolicyError> {
    let mut found = Vec::new();
    for file in own_files(config_home)? {
        found.extend(own(&file)?);
    }
    found.extend(builtin_all());
    Ok(found)
}

/// A file that is a profile, without running its tests; None when it is something else.
///
/// # Errors
/// When it is a profile with mistakes.
pub fn parse(file: &str, text: &str) -> Result<Option<ServerProfile>, PolicyError> {
    let source = Source { name: file, text };
    if !read_profile::is_profile(source) {
        return Ok(None);
    }
    let name = Path::new(file).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let mut profile = ServerProfile {
        name: name.unwrap_or_default(),
        file: file.to_owned(),
        text: text.to_owned(),
        ..read_profile::read(source).map_err(PolicyError::Invalid)?
    };
    let own = ServerId(profile.name.clone());
    profile.tests.iter_mut().for_each(|test| test.from = Some(own.clone()));
    Ok(Some(profile))
}

pub(super) fn builtin_all() -> impl Iterator<Item = ServerProfile> {
    // A built-in profile that does not parse fails the unit tests.
    PROFILES.iter().filter_map(|(name, text)| builtin(name, text).ok())
}

fn builtin(name: &str, text: &str) -> Result<ServerProfile, PolicyError> {
    let file = format!("built-in:servers/{name}.yaml");
    parse(&file, text)?.ok_or_else(|| not_a_profile(&file))
}

fn own(file: &Path) -> Result<Option<ServerProfile>, PolicyError> {
    let name = file.display().to_string();
    let Some(text) = search::read_plain(file)? else { return Ok(None) };
    let profile = parse(&name, &text)?.ok_or_else(|| not_a_profile(&name))?;
    profile.tested().map(Some)
}

fn own_files(config_home: &Path) -> Result<Vec<PathBuf>, PolicyError> {
    let directory = config_home.join("agentsh").join("servers");
    let entries = match std::fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            let (file, why) = (directory.display().to_string(), error.to_string());
            return Err(PolicyError::Unreadable { file, why });
        }
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|suffix| suffix == "yaml" || suffix == "yml"));
    files.sort();
    Ok(files)
}

fn not_a_profile(file: &str) -> PolicyError {
    let why = "it has no `package:`, so it is not the profile of a server".to_owned();
    PolicyError::Unreadable { file: file.to_owned(), why }
}

impl ServerProfile {
    /// The file as it is written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// `sha256:` of the text.
    #[must_use]
    pub fn digest(&self) -> String {
        WrittenLayer::new("profile", &self.text).hash
    }

    /// Asks every test: the test and its answer.
    #[must_use]
    pub fn answers(&self, context: &PathContext) -> Vec<(PolicyTest, Answer)> {
        let policy = Policy::nothing();
        let asked = self.tests.iter().map(|test| {
            let answer = policy.ask_with(test.from.as_ref(), Some(self), &test.question, context);
            (test.clone(), answer)
        });
        asked.collect()
    }

    /// The profile, when all its tests have the answers that they expect.
    ///
    /// # Errors
    /// [`PolicyError::Invalid`] with one mistake per failed test.
    pub fn tested(self) -> Result<Self, PolicyError> {
        let source = Source { name: &self.file, text: &self.text };
        let failed = |(test, answer): (PolicyTest, Answer)| {
            let wrong = test.expect_allow != answer.allow;
            wrong.then(|| super::tests::Failure { test, answer }.diagnostic(source))
        };
        let mistakes: Vec<Diagnostic> =
            self.answers(&Self::test_context()).into_iter().filter_map(failed).collect();
        if mistakes.is_empty() { Ok(self) } else { Err(PolicyError::Invalid(mistakes)) }
    }

    /// A fixed context: a profile must not be valid only in some projects.
    #[must_use]
    pub fn test_context() -> PathContext {
        PathContext { home: "/home/user".into(), project: "/home/user/src/project".into() }
    }
}

impl McpPolicy {
    /// The rights of a server: the user's policy, else its package's profile, else the defaults, narrowed by the project's
    /// policy.
    #[must_use]
    pub fn process_of(&self, id: &ServerId, profile: Option<&ServerProfile>) -> ProcessPolicy {
        let server = self.servers.get(id);
        let Some(profile) = profile else {
            return server.map_or_else(ProcessPolicy::server_default, |server| server.process.clone());
        };
        let Some(server) = server else { return profile.process.clone() };
        server.over(&profile.process)
    }
}

impl ServerProfile {
    /// The reason that this profile gives for the entry that a rule names.
    #[must_use]
    pub fn reason(&self, rule: &RuleRef) -> Option<&str> {
        if rule.file != self.file { None } else { self.reasons.get(&rule.id).map(String::as_str) }
    }
}
