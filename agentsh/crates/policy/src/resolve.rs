//! The defaults below all layers, as a [`Policy`].

use super::diagnostic::{PolicyError, Source};
use super::model::Ruled;
use super::read::{self, RawPolicy};
use super::sections::{McpPolicy, Policy, ProcessPolicy, RawProcess};
use super::table::Entries;
use crate::types::RuleRef;

/// Longest line on the wire that is read when no policy says otherwise.
pub const DEFAULT_MAX_LINE_BYTES: u64 = 16 << 20;

/// Reads a policy from text, with nothing below it. `name` is the file as messages show it, or `built-in:NAME`.
///
/// The policy's own `tests:` are not run here: see [`super::tests::run`].
///
/// # Errors
/// [`PolicyError::Invalid`] with every mistake that could be found.
pub fn parse(name: &str, text: &str) -> Result<Policy, PolicyError> {
    let raw = read::read(Source { name, text }, true).map_err(PolicyError::Invalid)?;
    Ok(Policy::of_layers(name.to_owned(), [&raw]))
}

impl Policy {
    /// Nothing but defaults.
    #[must_use]
    pub(super) fn nothing() -> Self {
        let mut agent = ProcessPolicy::default();
        agent.filesystem.write = project("agent.filesystem.write");
        let mcp = McpPolicy { max_line_bytes: DEFAULT_MAX_LINE_BYTES, ..McpPolicy::default() };
        Self { source: "defaults".to_owned(), agent, mcp, ..Self::default() }
    }

    /// Each layer over the one before it.
    pub(super) fn of_layers<'r>(source: String, layers: impl IntoIterator<Item = &'r RawPolicy>) -> Self {
        let mut policy = Self { source, ..Self::nothing() };
        layers.into_iter().for_each(|layer| layer.merge(&mut policy));
        policy.find_warnings();
        policy
    }

    /// Entries without effect, over all layers.
    pub(super) fn find_warnings(&mut self) {
        let mut warnings = Vec::new();
        self.mcp.warn(&mut warnings);
        self.agent.warn(&mut warnings);
        self.agent_only.warn(&mut warnings);
        Self::warn(self, &mut warnings);
        for warning in warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }
}

impl ProcessPolicy {
    /// The rights of a server that no policy mentions.
    #[must_use]
    pub fn server_default() -> Self {
        let mut process = Self::default();
        process.filesystem.read = project("sandbox.mcp.servers.filesystem.read");
        process
    }
}

/// The rights of a profile, with the defaults of a server for the rest.
pub(super) fn profile_process(raw: &RawProcess) -> ProcessPolicy {
    let mut process = ProcessPolicy::server_default();
    raw.merge(&mut process);
    process
}

fn project(key: &str) -> Entries<String> {
    vec![Ruled { value: ".".to_owned(), rule: RuleRef::default_rule(key) }].into()
}
