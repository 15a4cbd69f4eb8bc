//! Why an agent cannot be launched.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("cannot read {}: {source}; make it readable, or move it away", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: not a regular file; put a plain file there, or remove it", path.display())]
    NotAFile { path: PathBuf },
    #[error("{}: larger than {limit} bytes; shorten it", path.display())]
    TooLarge { path: PathBuf, limit: u64 },
    #[error("{}:{line}: {what}; {fix}", path.display())]
    Config { path: PathBuf, line: u64, what: String, fix: String },
    #[error("command line of the agent: {what}; {fix}")]
    CommandLine { what: String, fix: String },
    #[error("cannot write the agent's configuration: {what}")]
    Render { what: String },
}
