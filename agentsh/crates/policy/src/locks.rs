//! Sections that an organisation locks: higher layers can only narrow them.

use crate::keys::Key;
use crate::model::Ruled;
use crate::sections::{Policy, RawAgent, RawMcp, RawProcess, RawRoot};

/// Paths of keys, such as `agent.network` or `sandbox.mcp.denied_tools`. A path locks the whole section that contains it, and
/// all sections below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locks(pub Vec<Ruled<String>>);

/// The paths of the sections.
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

    /// These locks without the `named` ones. Of a lock that covers more than those, the other sections stay.
    #[must_use]
    pub fn without(&self, named: &Self) -> Self {
        let mut left = Vec::new();
        for lock in &self.0 {
            if !named.has(&lock.value) {
                left.push(lock.clone());
            } else if !named.0.iter().any(|named| is_within(&lock.value, &named.value)) {
                let sections = sections().into_iter().filter(|(place, keys)| {
                    let touched =
                        |lock: &Ruled<String>| keys.iter().any(|key| touches(&lock.value, place, key.name));
                    touched(lock) && !named.0.iter().any(touched)
                });
                let paths =
                    sections.flat_map(|(place, keys)| keys.iter().map(move |key| path(place, key.name)));
                left.extend(paths.map(|path| Ruled { value: path, rule: lock.rule.clone() }));
            }
        }
        Self(left)
    }

    /// Whether everything that the other one locks is locked here as well.
    #[must_use]
    pub fn cover(&self, other: &Self) -> bool {
        other.0.iter().all(|lock| self.0.iter().any(|own| is_within(&lock.value, &own.value)))
    }
}

/// Whether a path names a section at all.
pub(crate) fn is_section(path: &str) -> bool {
    sections().iter().any(|(place, keys)| keys.iter().any(|key| touches(path, place, key.name)))
}

/// Every section: its path, and its keys.
fn sections() -> Vec<(&'static str, &'static [Key])> {
    let agent = RawProcess::sections().into_iter().chain(RawAgent::sections()).map(|keys| (AGENT, keys));
    let mcp = RawMcp::sections().into_iter().map(|keys| (MCP, keys));
    let root = RawRoot::sections().into_iter().map(|keys| (ROOT, keys));
    agent.chain(mcp).chain(root).collect()
}

fn touches(lock: &str, place: &str, key: &str) -> bool {
    let path = path(place, key);
    is_within(&path, lock) || is_within(lock, &path)
}

fn path(place: &str, key: &str) -> String {
    if place.is_empty() { key.to_owned() } else { format!("{place}.{key}") }
}

/// Whether a path equals the other one, or is below it.
fn is_within(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl Policy {
    /// Whether an organisation locks this section, so that no policy here can open it.
    #[must_use]
    pub fn is_locked(&self, path: &str) -> bool {
        self.organisation.as_ref().is_some_and(|found| found.locks.has(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::RuleRef;

    fn locks(paths: &[&str]) -> Locks {
        let rule = |path: &str| RuleRef { id: path.to_owned(), file: "bundle".to_owned(), line: 1 };
        Locks(paths.iter().map(|path| Ruled { value: (*path).to_owned(), rule: rule(path) }).collect())
    }

    #[test]
    fn section_removed_from_a_lock_leaves_the_others_locked() {
        let left = locks(&["agent", "sandbox.mcp.servers"]).without(&locks(&["agent.network"]));
        assert!(!left.has("agent.network"));
        for kept in ["agent.filesystem", "sandbox.mcp.servers"] {
            assert!(left.has(kept), "{kept}: {left:?}");
        }
        assert!(!locks(&["agent"]).cover(&left));
        assert!(locks(&["agent", "sandbox"]).cover(&left));
        assert!(!locks(&["agent.network", "sandbox"]).cover(&left));
        assert!(locks(&["agent.network"]).without(&locks(&["agent"])).is_empty());
        assert!(locks(&["agent"]).without(&locks(&["agent"])).is_empty());
    }
}
