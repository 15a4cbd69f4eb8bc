//! The known agents, each with its adapter.

use std::fmt;
use std::path::{Path, PathBuf};

use super::{
    AgentError, Context, Launch, aider, amp, claude, cline, codex, copilot, cursor, gemini, generic, goose,
    opencode, qwen, small_agents,
};

/// Constant facts about one agent.
pub(super) struct Adapter {
    /// Its name in records and policies: one lower-case word.
    pub(super) name: &'static str,
    /// The name for people.
    pub(super) title: &'static str,
    /// Names of its program.
    pub(super) programs: &'static [&'static str],
    /// Parts of the paths of its installations.
    pub(super) installed: &'static [&'static str],
    /// Words of its command line with which it does one task and reads no keys.
    pub(super) headless: &'static [&'static str],
    /// Variables (names and `*` globs) that it needs itself, beyond the standard ones.
    pub(super) environment: &'static [&'static str],
    pub(super) adapt: fn(&Context<'_>, &Path) -> Result<Launch, AgentError>,
    /// The user's files and directories that it obeys, whether or not they are there.
    pub(super) obeyed: fn(&Context<'_>) -> Vec<PathBuf>,
}

/// The generic one comes last: it serves every program.
const ADAPTERS: &[&Adapter] = &[
    &claude::ADAPTER,
    &codex::ADAPTER,
    &gemini::ADAPTER,
    &opencode::ADAPTER,
    &qwen::ADAPTER,
    &copilot::ADAPTER,
    &cursor::ADAPTER,
    &aider::ADAPTER,
    &goose::ADAPTER,
    &cline::ADAPTER,
    &amp::ADAPTER,
    &small_agents::PI,
    &small_agents::DROID,
    &small_agents::CRUSH,
    &small_agents::KIMI,
    &small_agents::VIBE,
];

/// Hosts that an agent contacts by itself: telemetry, updates, announcements and feature flags.
#[derive(Clone, Copy, Debug)]
pub struct BackgroundHosts {
    /// They serve nothing else.
    pub always: &'static [&'static str],
    /// They serve the user's work, too: only what the agent requests of them while it starts is for itself.
    pub at_start: &'static [&'static str],
    /// It looks for its own newer version in the user's npm registry, which serves the user's work, too.
    pub asks_npm: bool,
}

const NO_HOSTS: BackgroundHosts = BackgroundHosts { always: &[], at_start: &[], asks_npm: false };

/// By the name of the agent, or of the program of one without an adapter: as the programs were seen to contact them.
const BACKGROUND_HOSTS: &[(&str, BackgroundHosts)] = &[
    // The prices of models.
    ("aider", BackgroundHosts { at_start: &["raw.githubusercontent.com"], ..NO_HOSTS }),
    (
        "claude",
        BackgroundHosts {
            always: &[
                "browser-intake-us5-datadoghq.com",
                "downloads.claude.ai",
                "http-intake.logs.us5.datadoghq.com",
                "statsig.anthropic.com",
            ],
            ..NO_HOSTS
        },
    ),
    (
        "cline",
        BackgroundHosts {
            always: &["data.cline.bot", "models.dev", "otel.cline.bot", "us.i.posthog.com"],
            at_start: &["api.cline.bot"],
            asks_npm: true,
        },
    ),
    ("cn", BackgroundHosts { at_start: &["api.continue.dev"], ..NO_HOSTS }),
    (
        "codex",
        BackgroundHosts {
            always: &["ab.chatgpt.com", "releases.openai.com"],
            at_start: &["api.github.com", "chatgpt.com", "github.com", "raw.githubusercontent.com"],
            ..NO_HOSTS
        },
    ),
    ("copilot", BackgroundHosts { at_start: &["api.github.com"], ..NO_HOSTS }),
    ("droid", BackgroundHosts { always: &["telemetry.factory.ai"], ..NO_HOSTS }),
    ("gemini", BackgroundHosts { always: &["play.googleapis.com"], asks_npm: true, ..NO_HOSTS }),
    ("kimi", BackgroundHosts { always: &["telemetry-logs.kimi.com"], ..NO_HOSTS }),
    ("opencode", BackgroundHosts { always: &["models.dev"], asks_npm: true, ..NO_HOSTS }),
    ("pi", BackgroundHosts { always: &["pi.dev"], ..NO_HOSTS }),
    ("qwen", BackgroundHosts { asks_npm: true, ..NO_HOSTS }),
];

/// The adapter of a program.
#[derive(Clone, Copy)]
pub struct Kind(&'static Adapter);

impl Kind {
    /// The adapter for a program, from its name as typed or from the path it resolved to.
    #[must_use]
    pub fn of(program: &str) -> Self {
        let name = program.rsplit('/').next().unwrap_or(program);
        let is_it = |adapter: &&&Adapter| {
            adapter.programs.contains(&name) || adapter.installed.iter().any(|part| program.contains(part))
        };
        Self(ADAPTERS.iter().find(is_it).copied().unwrap_or(&generic::ADAPTER))
    }

    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        ADAPTERS.iter().find(|adapter| adapter.name == name).map(|adapter| Self(adapter))
    }

    /// Every agent that is known.
    pub fn all() -> impl Iterator<Item = Self> {
        ADAPTERS.iter().map(|adapter| Self(adapter))
    }

    /// In records and policies.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The name for people.
    #[must_use]
    pub fn title(self) -> &'static str {
        self.0.title
    }

    /// The name under which its program is started.
    #[must_use]
    pub fn program(self) -> Option<&'static str> {
        self.0.programs.first().copied()
    }

    /// Whether agentsh has no adapter for this agent.
    #[must_use]
    pub fn is_unknown(self) -> bool {
        self.0.name == generic::ADAPTER.name
    }

    /// Whether it was started to do one task, and reads no keys of the terminal.
    #[must_use]
    pub fn is_headless(self, args: &[String]) -> bool {
        let words = args.iter().map(String::as_str).take_while(|word| *word != "--");
        words.into_iter().any(|word| {
            let name = word.split_once('=').map_or(word, |(name, _)| name);
            self.0.headless.contains(&name)
        })
    }

    /// Variables (names and `*` globs) that the agent itself needs, beyond the standard ones.
    #[must_use]
    pub fn own_environment(self) -> &'static [&'static str] {
        self.0.environment
    }

    /// Hosts that it contacts by itself. `program`: as typed.
    #[must_use]
    pub fn background_hosts(self, program: &str) -> BackgroundHosts {
        let typed = program.rsplit('/').next().unwrap_or(program);
        let name = if self.is_unknown() { typed } else { self.name() };
        let of_agent = BACKGROUND_HOSTS.iter().find(|(known, _)| *known == name);
        of_agent.map_or(NO_HOSTS, |(_, hosts)| *hosts)
    }

    pub(super) fn obeyed_files(self, context: &Context<'_>) -> Vec<PathBuf> {
        (self.0.obeyed)(context)
    }

    /// With the system's configuration directory as a parameter.
    pub(super) fn adapt(self, context: &Context<'_>, etc: &Path) -> Result<Launch, AgentError> {
        (self.0.adapt)(context, etc)
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for Kind {}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}
