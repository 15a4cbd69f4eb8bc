//! What each agent needs to be launched with its MCP servers replaced by bridges: where its configuration
//! stands, how a replacement is handed to it, what of its home it may see, and which model it talks to.
//!
//! The adapters read files and nothing else: they start no process, change nothing, and return a [`Launch`].

pub mod agreement;
mod claude;
mod codex;
mod endpoint;
mod error;
pub mod expand;
mod generic;
mod json;
mod launch;
mod plugins;
mod project_files;
mod read;
mod servers;
mod walk;

use std::path::Path;

pub use error::AgentError;
pub use launch::{
    Access, Context, Declared, Endpoint, HomeState, InjectedFile, Launch, Origin, RemoteKind, Scheme, Scope,
    StateKind, Transport,
};

/// Which adapter serves a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Claude,
    Codex,
    Generic,
}

/// Reads the agent's configuration and says how to launch it with bridges in place of its servers.
///
/// # Errors
/// When a file that is the user's own word cannot be read or understood, or when the command line cannot be
/// rewritten safely. A bad file that came with the project never stops the launch: it ends in
/// [`Launch::refused`] or [`Launch::notes`].
pub fn adapt(kind: Kind, context: &Context<'_>) -> Result<Launch, AgentError> {
    adapt_in(kind, context, Path::new("/etc"))
}

/// The adapter for a program, from its name as typed or from the path it resolved to.
#[must_use]
pub fn kind_of(program: &str) -> Kind {
    let name = program.rsplit('/').next().unwrap_or(program);
    let under = |part: &str| program.contains(part);
    if matches!(name, "claude" | "claude.exe")
        || under("/@anthropic-ai/claude-code/")
        || under("/claude/versions/")
    {
        Kind::Claude
    } else if name == "codex" || under("/@openai/codex/") || name.starts_with("codex-x86_64-") {
        Kind::Codex
    } else {
        Kind::Generic
    }
}

/// Variables (names and `*` globs) that the agent itself needs, beyond the standard ones.
#[must_use]
pub fn own_environment(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Claude => claude::OWN_ENVIRONMENT,
        Kind::Codex => codex::OWN_ENVIRONMENT,
        Kind::Generic => &[],
    }
}

/// `adapt` with the system's configuration directory as a parameter.
fn adapt_in(kind: Kind, context: &Context<'_>, etc: &Path) -> Result<Launch, AgentError> {
    match kind {
        Kind::Claude => claude::adapt(context, etc),
        Kind::Codex => codex::adapt(context, etc),
        Kind::Generic => generic::adapt(context),
    }
}

#[cfg(test)]
mod tests;
