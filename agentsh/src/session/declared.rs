//! Servers as somebody's configuration, or the policy, declares them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::remote;
use agentsh_base::types::ServerId;

/// A server that is a program of this machine.
#[derive(Clone, Debug)]
pub struct Declaration {
    pub id: ServerId,
    pub command: String,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub cwd: Option<PathBuf>,
    /// The user wrote it; false for a file that came with the project.
    pub users_word: bool,
    /// It came with the project, and the user has agreed to that file as it is.
    pub agreed: bool,
    /// `FILE:LINE` where it stands; None for a command line.
    pub place: Option<String>,
}

impl Declaration {
    /// Whether what the user's policy gives to this name is meant for this server. Anybody can choose a name.
    #[must_use]
    pub fn has_grants_by_name(&self) -> bool {
        self.users_word || self.agreed
    }
}

/// What an agent's server is: a command, or a URL.
#[derive(Clone, Debug)]
pub enum Declared {
    Command(Declaration),
    Url(remote::Declaration),
}
