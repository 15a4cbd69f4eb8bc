//! Labels of a server: whether its data is private, and whether it sends data out. A copy that was found is refused only
//! if the labels say so. They alone refuse a call whose data no search can see: 16 of 207 attempts.
//!
//! Numbers: none here; the limits for calls that are small enough to pass are the caller's. Cost: a comparison for each
//! result that is found. They remember nothing. They miss a server with a wrong label: one that is said to stay here, and
//! sends data out.

use agentsh_policy::profile::Package;
use agentsh_policy::{ServerPolicy, ServerProfile};

pub use crate::policy::{DataSink as Sink, DataSource as Source};

/// The purpose of a well-known server: some pairs belong together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    #[default]
    Other,
    /// Reads a repository and its history.
    Repository,
    /// Hosts repositories, their issues and their requests.
    Forge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Labels {
    pub source: Source,
    pub sink: Sink,
    pub role: Role,
}

/// A server's statements about its tools, as far as they make it more suspicious. Claims that a tool only reads, destroys
/// nothing or stays inside are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// `openWorldHint: true`: it deals with the world outside.
    pub open_world: bool,
}

const LOCAL: Labels = Labels { source: Source::Private, sink: Sink::Local, role: Role::Other };
const REPOSITORY: Labels = Labels { role: Role::Repository, ..LOCAL };
const SERVICE: Labels = Labels { sink: Sink::External, ..LOCAL };
const FORGE: Labels = Labels { role: Role::Forge, ..SERVICE };
const WEB: Labels = Labels { source: Source::Public, ..SERVICE };

impl Default for Labels {
    /// Unknown: private, and it leaves.
    fn default() -> Self {
        Self { source: Source::Private, sink: Sink::External, role: Role::Other }
    }
}

impl Labels {
    /// The labels of a server: those of the policy, else those of the pinned package, else the strictest.
    #[must_use]
    pub fn resolve(source: Option<Source>, sink: Option<Sink>, package: Option<&str>) -> Self {
        let known = package.and_then(of_package).unwrap_or_default();
        Self { source: source.unwrap_or(known.source), sink: sink.unwrap_or(known.sink), role: known.role }
    }

    /// The labels from the policy, the pinned package and its profile.
    #[must_use]
    pub fn of_server(
        entry: Option<&ServerPolicy>,
        package: Option<&Package>,
        profile: Option<&ServerProfile>,
    ) -> Self {
        let source = entry.and_then(|entry| entry.source.as_ref());
        let source = source.or(profile.and_then(|profile| profile.source.as_ref()));
        let sink = entry.and_then(|entry| entry.sink.as_ref());
        let sink = sink.or(profile.and_then(|profile| profile.sink.as_ref()));
        let package = package.map(|package| package.name.as_str());
        Self::resolve(source.map(|source| source.value), sink.map(|sink| sink.value), package)
    }

    /// Whether prose and code go from this server to the other one on an ordinary day: a repository and its forge. Secrets
    /// and personal data do not.
    #[must_use]
    pub fn shares_with(self, other: Self) -> bool {
        self.source == Source::Shareable || (self.role, other.role) == (Role::Repository, Role::Forge)
    }

    /// The labels of a server with these annotations: data given to any of its tools may leave by that one. Never less strict
    /// than without them.
    #[must_use]
    pub fn with_annotations(self, says: Annotations) -> Self {
        Self { sink: if says.open_world { Sink::External } else { self.sink }, ..self }
    }
}

/// Servers whose behaviour is known, by the name of the package that was pinned: what a server calls itself counts for
/// nothing.
const TOOL_LABELS: [(&str, Labels); 26] = [
    ("@modelcontextprotocol/server-filesystem", LOCAL),
    ("@modelcontextprotocol/server-memory", LOCAL),
    ("@modelcontextprotocol/server-sequential-thinking", LOCAL),
    ("@modelcontextprotocol/server-postgres", LOCAL),
    ("@modelcontextprotocol/server-redis", LOCAL),
    ("@modelcontextprotocol/server-sqlite", LOCAL),
    ("mcp-server-git", REPOSITORY),
    ("mcp-server-sqlite", LOCAL),
    ("mcp-server-time", LOCAL),
    ("@modelcontextprotocol/server-github", FORGE),
    ("@modelcontextprotocol/server-gitlab", FORGE),
    ("@modelcontextprotocol/server-slack", SERVICE),
    ("@modelcontextprotocol/server-gdrive", SERVICE),
    ("@modelcontextprotocol/server-google-maps", WEB),
    ("@modelcontextprotocol/server-brave-search", WEB),
    ("@modelcontextprotocol/server-puppeteer", SERVICE),
    ("@modelcontextprotocol/server-everything", SERVICE),
    ("@playwright/mcp", SERVICE),
    ("@notionhq/notion-mcp-server", SERVICE),
    ("@sentry/mcp-server", SERVICE),
    ("@upstash/context7-mcp", WEB),
    ("mcp-server-fetch", WEB),
    ("mcp-server-sentry", SERVICE),
    ("firecrawl-mcp", WEB),
    ("tavily-mcp", WEB),
    ("exa-mcp-server", WEB),
];

/// The labels of a package, with or without a version behind its name.
fn of_package(package: &str) -> Option<Labels> {
    let at = package.char_indices().skip(1).find(|(_, character)| matches!(character, '@' | '='));
    let name = at.map_or(package, |(at, _)| &package[..at]);
    TOOL_LABELS.iter().find(|(known, _)| *known == name).map(|(_, labels)| *labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_wins_over_the_package_and_the_package_over_nothing() {
        let known = Labels::resolve(None, None, Some("@modelcontextprotocol/server-filesystem@2025.1.1"));
        assert_eq!(known, Labels { source: Source::Private, sink: Sink::Local, role: Role::Other });
        assert_eq!(Labels::resolve(None, Some(Sink::External), Some("mcp-server-git")).sink, Sink::External);
        assert_eq!(Labels::resolve(Some(Source::Public), None, None).source, Source::Public);
        assert_eq!(Labels::resolve(None, None, Some("filesystem")), Labels::default());
    }

    #[test]
    fn git_server_shares_with_a_forge_but_not_the_reverse() {
        let of = |package| Labels::resolve(None, None, Some(package));
        let (git, forge) = (of("mcp-server-git"), of("@modelcontextprotocol/server-github"));
        assert!(git.shares_with(forge) && !forge.shares_with(git));
        assert!(!git.shares_with(of("@modelcontextprotocol/server-slack")));
        assert!(!of("@modelcontextprotocol/server-filesystem").shares_with(forge));
        assert!(!git.shares_with(of("@evil/server-github")));
    }

    #[test]
    fn tool_hints_never_lower_suspicion() {
        let local = Labels { sink: Sink::Local, ..Labels::default() };
        assert_eq!(local.with_annotations(Annotations { open_world: true }).sink, Sink::External);
        for labels in [local, Labels::default()] {
            assert_eq!(labels.with_annotations(Annotations::default()), labels);
        }
    }
}
