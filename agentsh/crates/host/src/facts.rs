//! Facts that are fixed before anything starts.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Instant;

use agentsh_base::remedy::{self, Allow};
use agentsh_base::types::{RuleRef, SessionId};
use agentsh_policy::{PathContext, Policy, ProcessPolicy};

use crate::context::Context;

/// The backend that checks connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// The strongest that is available here.
    #[default]
    Auto,
    Ebpf,
    Userns,
}

/// The host, the policy and the command line.
pub struct Facts {
    pub id: SessionId,
    pub context: Context,
    pub policy: Policy,
    pub allow_degraded: bool,
    /// Hosts that no rule names are reached, to write down what was needed.
    pub learns: bool,
    /// The requested backend for connections.
    pub backend: Backend,
    /// False where the current directory is not a project (a client that starts its servers in `/`).
    pub project_shown: bool,
    /// Changes of the project are reviewed afterwards.
    pub is_reviewed: bool,
    /// Missing files that programs look for are reported, which takes time.
    pub tells_files: bool,
    pub started: Instant,
    /// The project's commit at the start, if it is a repository with one. Its content is untrusted.
    pub head: Option<String>,
}

impl Facts {
    /// The command that adds a piece of policy, if typed where the session was started. None if there is no such command.
    #[must_use]
    pub fn allowing(&self, change: &str) -> Option<Allow> {
        let allow = remedy::parse(change)?;
        let is_at_top = self.context.directory == self.context.project;
        Some(if is_at_top { allow } else { allow.in_project(&self.context.project) })
    }

    /// The remedy for a piece of policy: the command that adds it, or the text itself.
    #[must_use]
    pub fn remedy<'t>(&self, change: &'t str) -> Cow<'t, str> {
        let command = self.allowing(change).and_then(|allow| allow.line());
        command.map_or(Cow::Borrowed(change), |command| Cow::Owned(format!("`{command}`")))
    }

    /// The directories that paths of a policy are relative to.
    #[must_use]
    pub fn paths(&self) -> PathContext {
        self.context.paths()
    }

    /// Where a program starts unless its declaration says otherwise.
    #[must_use]
    pub fn workdir(&self) -> PathBuf {
        if self.project_shown { self.context.directory.clone() } else { PathBuf::from("/tmp") }
    }

    /// Programs that may be executed; empty for all that can be seen.
    #[must_use]
    pub fn executable_paths(&self, process: &ProcessPolicy) -> Vec<PathBuf> {
        if !lists_programs(process) {
            return Vec::new();
        }
        process
            .exec
            .allow
            .iter()
            .map(|entry| agentsh_policy::place::resolve(entry.value.trim_end_matches("/**"), &self.paths()))
            .chain([PathBuf::from("/lib64"), PathBuf::from("/lib")])
            .collect()
    }
}

/// Whether the policy says which programs may run, and not just that all may.
#[must_use]
pub fn lists_programs(process: &ProcessPolicy) -> bool {
    let everything = |rule: &RuleRef, value: &str| value == "**" || value == "/**" || rule.id.is_empty();
    !process.exec.allow.iter().all(|entry| everything(&entry.rule, &entry.value))
}
