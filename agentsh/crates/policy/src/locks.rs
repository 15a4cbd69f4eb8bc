//! Sections that an organisation locks: the layers above it can take away from them, and not add.

use crate::keys::Key;
use crate::model::Ruled;
use crate::sections::{Policy, RawAgent, RawMcp, RawProcess, RawRoot};

/// Paths of keys, such as `agent.network` or `sandbox.mcp.denied_tools`. A path locks the whole section that it lies in, and
/// all sections that lie below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locks(pub Vec<Ruled<String>>);

/// Where the sections of each part stand.
pub const AGENT: &str = "agent";
pub const MCP: &str = "sandbox.mcp";
pub const ROOT: &str = "";

impl Locks {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The path that locks a section.
    pub(crate) fn of(&self, place: &str, keys: &[Key]) -> Option<&Ruled<String>> {
        self.0.iter().find(|lock| keys.iter().any(|key| touches(&lock.value, place, key.name)))
    }

    /// Whether this path is locked.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        self.0.iter().any(|lock| is_within(path, &lock.value) || is_within(&lock.value, path))
    }

    /// Whether everything that the other one locks is locked here as well.
    #[must_use]
    pub fn cover(&self, other: &Self) -> bool {
        other.0.iter().all(|lock| self.0.iter().any(|own| is_within(&lock.value, &own.value)))
    }
}

/// Whether a path names a section at all.
pub(crate) fn is_section(path: &str) -> bool {
    let agent = RawProcess::keys().into_iter().chain(RawAgent::keys()).map(|key| (AGENT, key.name));
    let mcp = RawMcp::keys().into_iter().map(|key| (MCP, key.name));
    let root = RawRoot::keys().into_iter().map(|key| (ROOT, key.name));
    let mut all = agent.chain(mcp).chain(root);
    all.any(|(place, key)| touches(path, place, key))
}

fn touches(lock: &str, place: &str, key: &str) -> bool {
    let path = if place.is_empty() { key.to_owned() } else { format!("{place}.{key}") };
    is_within(&path, lock) || is_within(lock, &path)
}

/// Whether a path is the other one, or lies below it.
fn is_within(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl Policy {
    /// Whether an organisation locks this section, so that nobody here can open it.
    #[must_use]
    pub fn is_locked(&self, path: &str) -> bool {
        self.organisation.as_ref().is_some_and(|found| found.locks.has(path))
    }
}
