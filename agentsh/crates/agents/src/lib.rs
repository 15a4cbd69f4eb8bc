//! Adapters of agents: where their configuration is, how MCP servers are replaced by bridges, which files of the home
//! they see, and which model they use.
//!
//! The adapters read files and nothing else: they start no process, change nothing, and return a [`Launch`].

mod adapter;
pub mod agreement;
mod aider;
mod amp;
mod claude;
pub mod clients;
mod cline;
mod codex;
mod copilot;
mod cursor;
mod declared;
pub mod dialect;
mod endpoint;
mod error;
pub mod expand;
mod facts;
mod gemini;
mod generic;
mod goose;
pub mod json;
mod launch;
mod opencode;
mod plugins;
pub mod project;
pub mod providers;
mod qwen;
mod read;
mod servers;
mod small_agents;
pub mod trees;
mod walk;

use std::path::{Path, PathBuf};

pub use adapter::{BackgroundHosts, Kind};
pub use error::AgentError;
pub use launch::{
    Access, Context, Declared, Endpoint, Format, HomeState, InjectedFile, KeptFile, Key, Launch, MemoryFiles,
    Origin, RemoteKind, Scheme, Scope, Shape, StateKind, TlsInspection, Transport,
};

/// Reads the agent's configuration and says how to launch it with bridges in place of its servers.
///
/// # Errors
/// When a file of the user cannot be read or understood, or when the command line cannot be rewritten safely. A bad
/// file that came with the project never stops the launch: it ends in [`Launch::refused`] or [`Launch::notes`].
pub fn adapt(kind: Kind, context: &Context<'_>) -> Result<Launch, AgentError> {
    kind.adapt(context, Path::new("/etc"))
}

/// The user's files that the known agents obey, each with the agent. Variables may move them, and they may not exist.
pub fn obeyed_files(context: &Context<'_>) -> impl Iterator<Item = (PathBuf, &'static str)> {
    Kind::all().flat_map(|kind| kind.obeyed_files(context).into_iter().map(move |path| (path, kind.title())))
}

/// A key in lower case, however its words are joined.
fn plain_key(key: &str) -> String {
    key.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

#[cfg(test)]
mod tests;
