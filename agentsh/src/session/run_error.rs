//! Why a run or server did not start, and the exit status.

use super::SessionError;
use super::process::ProcessError;
use super::resolving::shell_status;
use agentsh_sandbox::SpawnError;
use agentsh_sandbox::control::Cause;

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Agent(#[from] agentsh_agents::AgentError),
    #[error(transparent)]
    Pin(#[from] agentsh_pin::PinError),
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error("{0}")]
    Refused(String),
    /// A server whose interface was requested.
    #[error("{0}")]
    NotStarted(String),
    /// The command line names something unknown.
    #[error("{0}")]
    Usage(String),
    #[error("cannot {doing}: {source}")]
    Io { doing: &'static str, source: std::io::Error },
    #[error(transparent)]
    Login(#[from] agentsh_broker::logins::flow::FlowError),
    #[error("cannot guard hook files of the project: {0}")]
    Stubs(std::io::Error),
    #[error(transparent)]
    Signals(#[from] super::signals::SignalSetupError),
    #[error("cannot record what happened: {0}")]
    Store(#[from] agentsh_store::StoreError),
}

impl From<ProcessError> for RunError {
    fn from(error: ProcessError) -> Self {
        match error {
            ProcessError::Spawn(error) => error.into(),
            ProcessError::Changed(error) => error.into(),
            ProcessError::Stubs(error) => Self::Stubs(error),
        }
    }
}

/// 127 if the program does not exist, 126 if it cannot be executed, 2 for wrong usage, 125 for agentsh's other errors.
#[must_use]
pub fn exit_code_of(error: &RunError) -> u8 {
    match error {
        RunError::Pin(error) => shell_status(error).unwrap_or(125),
        RunError::Spawn(SpawnError::Init { cause: Cause::Missing, .. }) => 127,
        RunError::Spawn(SpawnError::Init { cause: Cause::NotExecutable, .. }) => 126,
        RunError::Usage(_) => 2,
        _ => 125,
    }
}
