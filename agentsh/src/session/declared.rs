//! A declared server.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::remote;
use agentsh_base::types::ServerId;

/// A server that is a local program.
#[derive(Clone, Debug)]
pub struct Declaration {
    pub id: ServerId,
    pub command: String,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub cwd: Option<PathBuf>,
    /// The user configured it; false for a file of the project.
    pub from_user: bool,
    /// From the project, and the user approved the file's content.
    pub agreed: bool,
    /// `FILE:LINE`; None for a command line.
    pub place: Option<String>,
    /// The id comes from the command, not from the user: programs in other places may have the same.
    pub id_is_derived: bool,
}

impl Declaration {
    /// Whether the user's policy for this name applies. A project can choose any name.
    #[must_use]
    pub fn has_grants_by_name(&self) -> bool {
        self.from_user || self.agreed
    }
}

/// A command or a URL.
#[derive(Clone, Debug)]
pub enum Declared {
    Command(Declaration),
    Url(remote::Declaration),
}
