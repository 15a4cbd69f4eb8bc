//! Work with policies: explain, check, change, generate from a journal, sign.

pub mod allow;
pub mod bundle;
pub mod check;
pub mod content;
pub mod edit;
pub mod explain;
pub mod flow;
pub mod generate;
pub mod init;
mod lint;
mod listing;
pub mod minisign;
mod package;
pub mod profiles;
pub mod reference;
pub mod replay;
pub mod show;
mod tools;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use clap::Args;

use agentsh_policy::{PathContext, Policy, PolicyError, Search};
use agentsh_terminal::output::Failure;

#[derive(Debug, Args)]
pub struct PolicySelection {
    /// A policy file, or the name of a built-in policy
    #[arg(long, value_name = "FILE|NAME")]
    policy: Option<String>,
    /// The agent whose built-in policy is used if there is no other
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = agentsh_policy::AGENTS)]
    agent: String,
    /// The profile of a server's package; `explain` finds that of a pinned or configured server by itself
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
}

impl PolicySelection {
    /// The policy in force here, for any agent.
    pub fn in_force() -> Self {
        Self { policy: None, agent: "default".to_owned(), profile: None }
    }
}

/// The project, home and environment in which the command runs.
#[derive(Clone, Debug)]
pub struct CommandContext {
    pub project: PathBuf,
    /// The working directory: paths of a question are relative to it.
    pub directory: PathBuf,
    pub home: PathBuf,
    /// The directory of the machine-wide policy.
    pub system: PathBuf,
    /// `$XDG_CONFIG_HOME`, by default `~/.config`.
    pub config_home: PathBuf,
    /// The directory with the pins: `$XDG_STATE_HOME/agentsh`, by default `~/.local/state/agentsh`.
    pub state: PathBuf,
    /// The environment, which tells where toolchains are.
    pub env: BTreeMap<String, String>,
}

impl CommandContext {
    /// From the environment of this process.
    ///
    /// # Errors
    /// When the working directory no longer exists.
    pub fn from_environment() -> io::Result<Self> {
        let home = std::env::home_dir().unwrap_or_else(|| PathBuf::from("/nonexistent"));
        // The specification of XDG asks to ignore a path that is not absolute.
        let base = |name: &str, default: &str| {
            let configured = std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
            configured.unwrap_or_else(|| home.join(default))
        };
        let config_home = base("XDG_CONFIG_HOME", ".config");
        let state = base("XDG_STATE_HOME", ".local/state").join("agentsh");
        let (directory, system) = (std::env::current_dir()?, agentsh_policy::SYSTEM_FILE.into());
        let project = agentsh_host::context::project_of(&directory, &home);
        let variables = std::env::vars_os();
        let mut env = variables
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        agentsh_host::context::without_shims(&mut env);
        Ok(Self { project, directory, home, system, config_home, state, env })
    }

    /// The policy in force here, for any agent.
    ///
    /// # Errors
    /// A policy that cannot be read.
    pub fn in_force(&self) -> Result<Policy, PolicyError> {
        self.policy(&PolicySelection::in_force())
    }

    /// The policy that a question is about.
    ///
    /// # Errors
    /// A policy that cannot be read.
    pub fn policy(&self, which: &PolicySelection) -> Result<Policy, PolicyError> {
        agentsh_policy::load(&self.search(which.policy.clone(), &which.agent))
    }

    pub fn search(&self, explicit: Option<String>, agent: &str) -> Search {
        Search {
            explicit,
            project: self.project.clone(),
            config_home: self.config_home.clone(),
            system: self.system.clone(),
            state: self.state.clone(),
            agent: agent.to_owned(),
            ..Search::default()
        }
    }

    pub fn context(&self) -> PathContext {
        PathContext { home: self.home.clone(), project: self.project.clone() }
    }
}

fn policy_failure(error: PolicyError) -> Failure {
    Failure::Rendered(error.render())
}
