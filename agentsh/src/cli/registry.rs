//! `agentsh registry`: hashes a server's interface, and compares it with a registry.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use serde_json::json;

mod ask;
mod listing;
pub(super) mod serve;

use super::fail;
use super::run::Network;
use super::server;
use crate::session::mcp_run;
use crate::session::run_error::RunError;
use agentsh_base::counted;
use agentsh_base::types::ServerId;
use agentsh_policy::Flags;
use agentsh_registry::{Interface, Kind, difference};
use agentsh_store::escape;
use agentsh_terminal::output::{self, Failure, NO, OK};

#[derive(Clone, Debug, Args)]
pub struct RegistryArgs {
    #[command(subcommand)]
    pub verb: RegistryVerb,
}

#[derive(Clone, Debug, Subcommand)]
pub enum RegistryVerb {
    /// Print the kiji1 hash of a server's interface
    #[command(override_usage = "agentsh registry hash [OPTIONS] --listing <DIR>\n       \
                                agentsh registry hash [OPTIONS] --url <URL>|--server <ID>\n       \
                                agentsh registry hash [OPTIONS] -- <CMD>...")]
    Hash {
        #[command(flatten)]
        source: Source,
        /// How to print; `kiji` is name, tab, hash
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
        /// Also print the components that are hashed, as JSON
        #[arg(long)]
        show_interface: bool,
    },
    /// Register a server's interface under its name
    #[command(override_usage = "agentsh registry register [OPTIONS] --listing <DIR>\n       \
                                agentsh registry register [OPTIONS] --url <URL>|--server <ID>\n       \
                                agentsh registry register [OPTIONS] -- <CMD>...")]
    Register {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        at: ask::RegistryTarget,
        /// How to print; `kiji` is as kiji-safeguard prints it
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Check that a server's interface is the registered one
    #[command(override_usage = "agentsh registry verify [OPTIONS] --listing <DIR>\n       \
                                agentsh registry verify [OPTIONS] --url <URL>|--server <ID>\n       \
                                agentsh registry verify [OPTIONS] -- <CMD>...")]
    Verify {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        at: ask::RegistryTarget,
        /// How to print; `kiji` is OK or FAILED, name and reason with tabs between
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// List, show and decide requests for approval of a changed interface
    Approvals {
        #[command(flatten)]
        at: ask::RegistryTarget,
        #[command(subcommand)]
        verb: Option<ask::Approvals>,
    },
    /// Revoke an interface
    Revoke {
        #[command(flatten)]
        at: ask::RegistryTarget,
        /// The server's name
        name: String,
        /// The hash of its interface
        hash: String,
        /// The reason, for the log
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Print the registry's log and verify its chain of hashes
    Log {
        #[command(flatten)]
        at: ask::RegistryTarget,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Serve a registry over HTTP
    Serve(serve::ServeArgs),
    /// Show the differences between two interfaces: captured, live or registered
    Diff {
        /// Folder with the old listings; by default the registered interface of the server
        before: Option<PathBuf>,
        /// Folder with the new listings, if no server is named
        #[arg(conflicts_with_all = ["url", "server", "command"])]
        after: Option<PathBuf>,
        #[command(flatten)]
        live: LiveServer,
        #[command(flatten)]
        at: ask::RegistryTarget,
    },
}

/// Source of the interface.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("source").required(true).args(["listing", "url", "server", "command"]))]
pub struct Source {
    /// A folder of captured answers: initialize.json or discover.json, tools.json, prompts.json, resources.json, one
    /// page a line
    #[arg(long, value_name = "DIR")]
    pub listing: Option<PathBuf>,
    #[command(flatten)]
    pub live: LiveServer,
    /// Name to use instead of the server's own
    #[arg(long)]
    pub name: Option<String>,
}

/// A server to start or query.
#[derive(Clone, Debug, Args)]
pub struct LiveServer {
    /// URL of a remote server: https, or http on this machine
    #[arg(long)]
    pub url: Option<String>,
    /// HTTP header for every request to --url; ${NAME} is replaced by that environment variable. May be repeated
    #[arg(long, value_name = "NAME: VALUE", requires = "url")]
    pub header: Vec<String>,
    /// A server from the configuration of Claude Code or Codex
    #[arg(long, value_name = "ID")]
    pub server: Option<String>,
    /// A policy file, or the name of a built-in policy, for the server
    #[arg(long, value_name = "FILE|NAME")]
    pub policy: Option<String>,
    /// Start even if a layer of protection is not available here
    #[arg(long)]
    pub allow_degraded: bool,
    /// Command and arguments of a server, which is started in a sandbox
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
    Kiji,
}

/// Exit status 0: printed, or the same; 1: different, or a server that does not answer; 2: what is asked for cannot be
/// read; 125: agentsh failed, or cannot start the server.
pub async fn run(args: RegistryArgs, out: &mut dyn Write) -> Result<u8, Failure> {
    match args.verb {
        RegistryVerb::Hash { source, format, show_interface } => {
            hash(&source, format, show_interface, out).await
        }
        RegistryVerb::Register { source, at, format } => match source.interface().await {
            Ok(Ok(interface)) => ask::register(&at, &interface, format, out).await,
            other => other.map(|stopped| stopped.err().unwrap_or(OK)),
        },
        RegistryVerb::Verify { source, at, format } => match source.interface().await {
            Ok(Ok(interface)) => ask::verify(&at, &interface, format, out).await,
            other => other.map(|stopped| stopped.err().unwrap_or(OK)),
        },
        RegistryVerb::Approvals { at, verb } => ask::approvals(&at, verb, out).await,
        RegistryVerb::Revoke { at, name, hash, reason } => ask::revoke(&at, &name, &hash, &reason, out).await,
        RegistryVerb::Log { at, json } => ask::log(&at, json, out).await,
        RegistryVerb::Serve(_) => Err(server::hand_over()),
        RegistryVerb::Diff { before, after, live, at } => {
            diff(before.as_deref(), after.as_deref(), &live, &at, out).await
        }
    }
}

async fn hash(source: &Source, format: Format, whole: bool, out: &mut dyn Write) -> Result<u8, Failure> {
    let interface = match source.interface().await? {
        Ok(interface) => interface,
        Err(status) => return Ok(status),
    };
    let hash = interface.hash();
    match format {
        Format::Kiji => writeln!(out, "{}\t{hash}", escape::line(&interface.name))?,
        Format::Text => writeln!(out, "kiji1:{hash}  {}", interface_summary(&interface))?,
        Format::Json => {
            let count = |kind| interface.components.iter().filter(|one| one.kind == kind).count();
            let answer = json!({
                "name": interface.name,
                "kiji1": hash,
                "tools": count(Kind::Tool),
                "prompts": count(Kind::Prompt),
                "resources": count(Kind::Resource),
                "instructions": count(Kind::Instructions) > 0,
            });
            output::json(out, &answer)?;
        }
    }
    if whole {
        writeln!(out, "{}", interface.to_json())?;
    }
    Ok(OK)
}

fn interface_summary(interface: &Interface) -> String {
    let count = |kind, word: &str| {
        counted(interface.components.iter().filter(|one| one.kind == kind).count() as u64, word)
    };
    format!(
        "{} ({}, {}, {})",
        escape::line(&interface.name),
        count(Kind::Tool, "tool"),
        count(Kind::Prompt, "prompt"),
        count(Kind::Resource, "resource")
    )
}

/// Exit status 0: no difference; 1: a difference.
async fn diff(
    before: Option<&Path>,
    after: Option<&Path>,
    live: &LiveServer,
    at: &ask::RegistryTarget,
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    let after = match after {
        Some(folder) => listing::read(folder)?,
        None if live.is_named() => match live.interface().await? {
            Ok(interface) => interface,
            Err(status) => return Ok(status),
        },
        None => {
            let why = "name what to compare with: a second folder, --server ID, --url URL, or `-- CMD`";
            return Err(Failure::Usage(why.to_owned()));
        }
    };
    let texts = |interface: Interface| -> Vec<String> {
        interface.components.into_iter().map(|component| component.canonical).collect()
    };
    let before = match before {
        Some(folder) => texts(listing::read(folder)?),
        None => ask::registered_components(at, &after).await?,
    };
    let changed = difference(&before, &texts(after));
    if changed.is_empty() {
        writeln!(out, "no difference")?;
        return Ok(OK);
    }
    for line in changed.lines() {
        writeln!(out, "{}", escape::line(line))?;
    }
    Ok(NO)
}

impl Source {
    /// The interface, or the exit status after the error was shown.
    async fn interface(&self) -> Result<Result<Interface, u8>, Failure> {
        let mut interface = match &self.listing {
            Some(folder) => listing::read(folder)?,
            None => match self.live.interface().await? {
                Ok(interface) => interface,
                Err(status) => return Ok(Err(status)),
            },
        };
        if let Some(name) = &self.name {
            interface.name.clone_from(name);
        }
        Ok(Ok(interface))
    }
}

impl LiveServer {
    fn is_named(&self) -> bool {
        self.url.is_some() || self.server.is_some() || !self.command.is_empty()
    }

    async fn interface(&self) -> Result<Result<Interface, u8>, Failure> {
        let captured = match mcp_run::capture(self.request()).await {
            Ok(captured) => captured,
            Err(RunError::Refused(reason)) => return Err(Failure::No(reason)),
            Err(error) => return Ok(Err(fail(&error.to_string()))),
        };
        agentsh_registry::read(&captured).map(Ok).map_err(|error| Failure::No(error.to_string()))
    }

    fn request(&self) -> mcp_run::Request {
        mcp_run::Request {
            id: None,
            policy: self.policy.clone(),
            flags: Flags::default(),
            allow_degraded: self.allow_degraded,
            tier: agentsh_sandbox::Tier::default(),
            backend: Network::Auto.into(),
            learn: false,
            what: match (&self.url, &self.server) {
                (Some(url), _) => {
                    mcp_run::ServerSource::Url { url: url.clone(), headers: self.header.clone() }
                }
                (None, Some(id)) => mcp_run::ServerSource::Configured(ServerId(id.clone())),
                (None, None) => mcp_run::ServerSource::Command(self.command.clone()),
            },
        }
    }
}
