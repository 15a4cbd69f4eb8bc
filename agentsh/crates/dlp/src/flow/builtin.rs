//! Servers whose behaviour is known, by the name of the package that was pinned: what a server calls itself counts for
//! nothing.

use super::labels::{Labels, Role, Sink, Source};

const LOCAL: Labels = Labels { source: Source::Private, sink: Sink::Local, role: Role::Other };
const REPOSITORY: Labels = Labels { role: Role::Repository, ..LOCAL };
const SERVICE: Labels = Labels { sink: Sink::External, ..LOCAL };
const FORGE: Labels = Labels { role: Role::Forge, ..SERVICE };
const WEB: Labels = Labels { source: Source::Public, ..SERVICE };

const KNOWN: [(&str, Labels); 26] = [
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
#[must_use]
pub fn labels(package: &str) -> Option<Labels> {
    let at = package.char_indices().skip(1).find(|(_, character)| matches!(character, '@' | '='));
    let name = at.map_or(package, |(at, _)| &package[..at]);
    KNOWN.iter().find(|(known, _)| *known == name).map(|(_, labels)| *labels)
}
