//! What one feature gives to one sandbox, and the order in which features win over each other.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{CacheLayer, Grant, RelocatedPath};
use crate::policy::{HostRule, Ruled};
use crate::report::Enforcement;
use crate::types::RuleRef;

/// Who contributes. **This is the table of precedence**: contributions are applied from top to bottom, a later one wins over
/// an earlier one (its file lies on top, its variable replaces), except where its line says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// What people wrote: policy files and flags. What it grants stays as it is on the host: files of features marked
    /// [`Feature::yields_to_grants`] do not cover it.
    Policy,
    /// The profile of a server's package. Its variables are defaults.
    Profile,
    /// Paths on a server's command line, and its own `env` block: the user wrote them for this server.
    Declaration,
    /// What PATH leads to, read-only, without its credentials.
    Toolchains,
    /// Repositories beside the project that the user agreed to.
    Repositories,
    /// Package caches of the project's own. After the toolchains, in whose directories they lie.
    Caches,
    /// The agent's account and settings in the home.
    AgentHome,
    /// What makes the agent use agentsh's bridges, and where its model is. Over the agent's own settings.
    Adapter,
    /// What the interpreter or package of the program needs in its environment.
    Program,
    /// What every sandbox has: HOME, the socket of the bridge; and what none has: agentsh's own records.
    Sandbox,
    /// The harmless part of the user's git configuration.
    GitIdentity,
    /// Package registries of the project's lock files. They give way to nothing and replace nothing.
    Registries,
    /// Remotes of the project's repository. A rule that is there already decides.
    Remotes,
    /// Placeholders for secrets. After everything that sets variables, because secrets in values are replaced. Its hosts
    /// come before all others: a secret goes only where requests can be read.
    Credentials,
    /// The ssh agent. A rule that is there already decides about its hosts.
    Ssh,
    /// Certificate authorities, once it is known which rules want TLS inspected.
    Trust,
    /// Placeholders for the keys of the model. Last of the variables: no later feature puts a key back.
    ModelKeys,
    /// Places that no rule opens: the registry, and the fleet server, that judge this sandbox.
    ClosedHosts,
    /// What `doctor` places to try a layer.
    Probe,
}

impl Feature {
    /// The user granted a path himself: it is there as it is, and no generated file covers it.
    #[must_use]
    pub fn yields_to_grants(self) -> bool {
        matches!(self, Self::GitIdentity | Self::Credentials | Self::Ssh | Self::Caches)
    }

    /// Whether its generated files and its own state lift the built-in masks at their place.
    #[must_use]
    pub fn lifts_masks(self) -> bool {
        matches!(self, Self::AgentHome | Self::Credentials | Self::Ssh)
    }

    /// The rule that stands for it where no line of a policy does.
    #[must_use]
    pub fn rule(self) -> RuleRef {
        let id = match self {
            Self::Policy => "filesystem",
            Self::Profile => "profile",
            Self::Declaration => "command line of the server",
            Self::Toolchains => "toolchains",
            Self::Repositories => "repositories next to the project",
            Self::Caches => "caches",
            Self::AgentHome => "the agent's own files",
            Self::Adapter => "agent",
            Self::Program => "program",
            Self::Sandbox => "sandbox",
            Self::GitIdentity => "git identity",
            Self::Registries => "registries",
            Self::Remotes => "remotes",
            Self::Credentials => "credentials",
            Self::Ssh => "ssh",
            Self::Trust => "certificate authorities",
            Self::ModelKeys => "keys of the model",
            Self::ClosedHosts => "closed hosts",
            Self::Probe => "doctor",
        };
        RuleRef { id: id.to_owned(), file: "built-in".to_owned(), line: 0 }
    }
}

/// A generated file inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub path: PathBuf,
    pub content: Vec<u8>,
    pub mode: u32,
    /// Goes behind what earlier features say in the same file.
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

/// One step on the way to the environment of the program.
#[derive(Clone, PartialEq, Eq)]
pub enum EnvChange {
    /// Passes what the policy stripped, by a glob of names.
    Pass(String),
    /// Where it is not set.
    Default(String, String),
    Set(String, String),
    /// Only where it is set.
    Replace(String, String),
    /// Where it is not set, or says what it says outside.
    ReplaceInherited(String, String),
    /// In every value.
    Scrub {
        secret: String,
        placeholder: String,
    },
}

/// What one feature gives to one sandbox.
#[derive(Clone)]
pub struct Contribution {
    pub by: Feature,
    pub grants: Vec<Ruled<Grant>>,
    /// The program's own files: bound even inside a mask.
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
    /// Host and port that no rule opens.
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

    /// Grants without a line in a policy: the feature itself is the rule.
    #[must_use]
    pub fn granting(mut self, grants: impl IntoIterator<Item = Grant>) -> Self {
        let rule = self.by.rule();
        self.grants.extend(grants.into_iter().map(|value| Ruled { value, rule: rule.clone() }));
        self
    }

    /// As [`Self::granting`], for the program's own files.
    #[must_use]
    pub fn owning(mut self, own: impl IntoIterator<Item = Grant>) -> Self {
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
