//! The contribution of one feature, and the order in which features override each other.

use std::collections::BTreeMap;
use std::path::PathBuf;

use agentsh_base::words;

use super::{CacheLayer, Grant, RelocatedPath};
use crate::policy::{HostRule, Ruled};
use crate::report::Enforcement;
use crate::types::RuleRef;

words! {
    /// The contributors. **This is the table of precedence**: contributions are applied from top to bottom, and a later
    /// one overrides an earlier one (its file lies on top, its variable replaces), except as noted.
    #[derive(PartialOrd, Ord)]
    pub enum Feature: word {
        /// Policy files and flags. Granted paths stay as on the host: files of features marked
        /// [`Feature::yields_to_policy`] do not cover them.
        Policy = "filesystem",
        /// The profile of a server's package. Its variables are defaults.
        Profile = "profile",
        /// A server's command line paths and `env` block: the user wrote them for this server.
        Declaration = "command line of the server",
        /// The targets of PATH, read-only, without credentials.
        Toolchains = "toolchains",
        /// Repositories next to the project that the user approved.
        Repositories = "repositories next to the project",
        /// Package caches of the project. After the toolchains, because they are in their directories.
        Caches = "caches",
        /// The agent's account and settings in the home.
        AgentHome = "the agent's own files",
        /// The agent's bridges and model endpoint. Overrides the agent's own settings.
        Adapter = "agent",
        /// Variables that the program's interpreter or package needs.
        Program = "program",
        /// The contents of every sandbox: HOME, the bridge socket; and agentsh's records, which no sandbox sees.
        Sandbox = "sandbox",
        /// The harmless part of the user's git configuration.
        GitIdentity = "git identity",
        /// Package registries of the project's lock files. An existing rule decides.
        Registries = "registries",
        /// Remotes of the repository. An existing rule decides.
        Remotes = "remotes",
        /// Placeholders for secrets. After everything that sets variables, to replace secrets in values. Its hosts come
        /// first, because a secret is used only where requests are inspected.
        Credentials = "credentials",
        /// The ssh agent. An existing rule decides about its hosts.
        Ssh = "ssh",
        /// Certificate authorities, after the rules with TLS inspection are known.
        Trust = "certificate authorities",
        /// Placeholders for model keys. The last variables, so that no feature restores a key.
        ModelKeys = "keys of the model",
        /// Hosts that no rule opens: the registry and fleet server that judge this sandbox.
        ClosedHosts = "closed hosts",
        /// The files with which `doctor` tests a layer.
        Probe = "doctor",
    }
}

impl Feature {
    /// Where the user granted or denied a path, no generated file covers it.
    #[must_use]
    pub fn yields_to_policy(self) -> bool {
        matches!(self, Self::GitIdentity | Self::Registries | Self::Credentials | Self::Ssh | Self::Caches)
    }

    /// Whether its files and state lift the built-in masks there.
    #[must_use]
    pub fn lifts_masks(self) -> bool {
        matches!(self, Self::AgentHome | Self::Credentials | Self::Ssh)
    }

    /// The rule shown for it if no policy line applies.
    #[must_use]
    pub fn rule(self) -> RuleRef {
        RuleRef { id: self.word().to_owned(), file: "built-in".to_owned(), line: 0 }
    }
}

/// A generated file inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub path: PathBuf,
    pub content: Vec<u8>,
    pub mode: u32,
    /// Appended to earlier features' content of the same file.
    pub appends: bool,
}

impl File {
    #[must_use]
    pub fn new(path: PathBuf, content: impl Into<Vec<u8>>, mode: u32) -> Self {
        Self { path, content: content.into(), mode, appends: false }
    }

    #[must_use]
    pub fn appended(path: PathBuf, content: impl Into<Vec<u8>>, mode: u32) -> Self {
        Self { appends: true, ..Self::new(path, content, mode) }
    }
}

/// One change of the program's environment.
#[derive(Clone, PartialEq, Eq)]
pub enum EnvChange {
    /// Passes stripped variables that match a pattern.
    Pass(String),
    /// Sets a variable if unset.
    Default(String, String),
    Set(String, String),
    /// Sets a variable if set.
    Replace(String, String),
    /// Sets a variable if unset or unchanged from the caller's.
    ReplaceInherited(String, String),
    /// In every value.
    Scrub {
        secret: String,
        placeholder: String,
    },
}

/// The contribution of one feature to one sandbox.
#[derive(Clone)]
pub struct Contribution {
    pub by: Feature,
    pub grants: Vec<Ruled<Grant>>,
    /// The program's own files, bound even inside a mask.
    pub own: Vec<Ruled<Grant>>,
    pub hidden: Vec<Ruled<PathBuf>>,
    pub unmasked: Vec<PathBuf>,
    pub files: Vec<File>,
    pub environment: Vec<EnvChange>,
    pub links: BTreeMap<PathBuf, PathBuf>,
    pub elsewhere: Vec<RelocatedPath>,
    pub beyond_landlock: Vec<RelocatedPath>,
    pub caches: Vec<CacheLayer>,
    pub hosts: Vec<HostRule>,
    /// Ports of the host's loopback.
    pub loopback: Vec<Ruled<u16>>,
    /// Hosts and ports that no rule opens.
    pub closed: Vec<Ruled<(String, u16)>>,
    pub notices: Vec<String>,
    pub enforcement: Vec<Enforcement>,
}

impl Contribution {
    #[must_use]
    pub fn new(by: Feature) -> Self {
        Self {
            by,
            grants: Vec::new(),
            own: Vec::new(),
            hidden: Vec::new(),
            unmasked: Vec::new(),
            files: Vec::new(),
            environment: Vec::new(),
            links: BTreeMap::new(),
            elsewhere: Vec::new(),
            beyond_landlock: Vec::new(),
            caches: Vec::new(),
            hosts: Vec::new(),
            loopback: Vec::new(),
            closed: Vec::new(),
            notices: Vec::new(),
            enforcement: Vec::new(),
        }
    }

    /// Grants without a policy line: the feature is the rule.
    #[must_use]
    pub fn granting(mut self, grants: impl IntoIterator<Item = Grant>) -> Self {
        let rule = self.by.rule();
        self.grants.extend(grants.into_iter().map(|value| Ruled { value, rule: rule.clone() }));
        self
    }

    /// Like [`Self::granting`], for the program's own files.
    #[must_use]
    pub fn with_own_files(mut self, own: impl IntoIterator<Item = Grant>) -> Self {
        let rule = self.by.rule();
        self.own.extend(own.into_iter().map(|value| Ruled { value, rule: rule.clone() }));
        self
    }

    #[must_use]
    pub fn hiding(mut self, hidden: impl IntoIterator<Item = PathBuf>) -> Self {
        let rule = self.by.rule();
        self.hidden.extend(hidden.into_iter().map(|value| Ruled { value, rule: rule.clone() }));
        self
    }

    #[must_use]
    pub fn setting(mut self, env: impl IntoIterator<Item = (String, String)>) -> Self {
        self.environment.extend(env.into_iter().map(|(name, value)| EnvChange::Set(name, value)));
        self
    }
}
