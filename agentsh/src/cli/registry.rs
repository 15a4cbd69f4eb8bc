//! `agentsh registry`: what a server offers as one hash, and whether it is what was seen before.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

mod ask;
mod listing;
mod serve;

use super::fail;
use super::output::{self, Failure, NO, OK, finish};
use super::run::Network;
use crate::policy::Flags;
use crate::registry::{Interface, Kind, difference};
use crate::session::mcp_run;
use crate::session::run::RunError;
use crate::store::escape;

#[derive(Clone, Debug, Args)]
pub struct RegistryArgs {
    #[command(subcommand)]
    pub verb: RegistryVerb,
}

#[derive(Clone, Debug, Subcommand)]
pub enum RegistryVerb {
    /// Print the kiji1 hash of a server's interface
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
    Register {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        at: ask::At,
        /// How to print; `kiji` is as kiji-safeguard prints it
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Say whether a server's interface is the one that is registered under its name
    Verify {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        at: ask::At,
        /// How to print; `kiji` is OK or FAILED, name and reason with tabs between
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// List, show and decide requests for approval of a changed interface
    Approvals {
        #[command(flatten)]
        at: ask::At,
        #[command(subcommand)]
        verb: Option<ask::Approvals>,
    },
    /// Take an interface out of force
    Revoke {
        #[command(flatten)]
        at: ask::At,
        /// The server's name
        name: String,
        /// The hash of its interface
        hash: String,
        /// Why, for the log
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Print the registry's log and verify its chain of hashes
    Log {
        #[command(flatten)]
        at: ask::At,
        #[arg(long)]
        json: bool,
    },
    /// Serve a registry over HTTP
    Serve(serve::ServeArgs),
    /// Show what changed between two captured interfaces
    Diff {
        /// The folder with the listings as they were
        before: PathBuf,
        /// The folder with the listings as they are
        after: PathBuf,
    },
}

/// Where the interface comes from.
#[derive(Clone, Debug, Args)]
pub struct Source {
    /// A folder of captured answers: initialize.json or discover.json, tools.json, prompts.json, resources.json, one
    /// page a line
    #[arg(long, value_name = "DIR", group = "source")]
    pub listing: Option<PathBuf>,
    /// A server behind a URL: https, or http on this machine
    #[arg(long, group = "source")]
    pub url: Option<String>,
    /// Sent to the server of --url with every request; ${NAME} is a variable of your environment. May be repeated
    #[arg(long, value_name = "NAME: VALUE", requires = "url")]
    pub header: Vec<String>,
    /// A policy file, or the name of a built-in policy, for a server that is started or asked
    #[arg(long, value_name = "FILE|NAME")]
    pub policy: Option<String>,
    /// Start even if a layer of protection cannot be had here
    #[arg(long)]
    pub allow_degraded: bool,
    /// The command of a server and its arguments, started in its sandbox
    #[arg(last = true, value_name = "CMD", group = "source", required_unless_present_any = ["listing", "url"])]
    pub command: Vec<String>,
    /// The name to use instead of the one that the server gives itself
    #[arg(long)]
    pub name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
    Kiji,
}

/// Exit status 0: printed, or the same; 1: different, or a server that does not answer; 2: what is asked for cannot be
/// read; 125: agentsh failed.
pub async fn run(args: RegistryArgs, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let result = match args.verb {
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
        RegistryVerb::Serve(args) => serve::serve(args, out, err).await,
        RegistryVerb::Diff { before, after } => diff(&before, &after, out),
    };
    finish(result, err)
}

async fn hash(source: &Source, format: Format, whole: bool, out: &mut dyn Write) -> Result<u8, Failure> {
    let interface = match source.interface().await? {
        Ok(interface) => interface,
        Err(status) => return Ok(status),
    };
    let hash = interface.hash();
    match format {
        Format::Kiji => writeln!(out, "{}\t{hash}", escape::line(&interface.name))?,
        Format::Text => writeln!(out, "kiji1:{hash}  {}", described(&interface))?,
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

fn described(interface: &Interface) -> String {
    let count = |kind, word: &str| {
        let count = interface.components.iter().filter(|one| one.kind == kind).count();
        format!("{count} {word}{}", if count == 1 { "" } else { "s" })
    };
    format!(
        "{} ({}, {}, {})",
        escape::line(&interface.name),
        count(Kind::Tool, "tool"),
        count(Kind::Prompt, "prompt"),
        count(Kind::Resource, "resource")
    )
}

fn diff(before: &Path, after: &Path, out: &mut dyn Write) -> Result<u8, Failure> {
    let (before, after) = (listing::read(before)?, listing::read(after)?);
    if before.hash() == after.hash() {
        writeln!(out, "no difference")?;
        return Ok(OK);
    }
    let texts = |interface: Interface| -> Vec<String> {
        interface.components.into_iter().map(|component| component.canonical).collect()
    };
    for line in difference(&texts(before), &texts(after)).lines() {
        writeln!(out, "{}", escape::line(line))?;
    }
    Ok(NO)
}

impl Source {
    /// The interface, or the exit status after what stopped agentsh was said.
    async fn interface(&self) -> Result<Result<Interface, u8>, Failure> {
        let mut interface = match &self.listing {
            Some(folder) => listing::read(folder)?,
            None => {
                let captured = match mcp_run::capture(self.request()).await {
                    Ok(captured) => captured,
                    Err(RunError::Refused(reason)) => return Err(Failure::No(reason)),
                    Err(error) => return Ok(Err(fail(&error.to_string()))),
                };
                crate::registry::read(&captured).map_err(|error| Failure::No(error.to_string()))?
            }
        };
        if let Some(name) = &self.name {
            interface.name.clone_from(name);
        }
        Ok(Ok(interface))
    }

    fn request(&self) -> mcp_run::Request {
        mcp_run::Request {
            id: None,
            policy: self.policy.clone(),
            flags: Flags::default(),
            allow_degraded: self.allow_degraded,
            backend: Network::Auto.into(),
            learn: false,
            what: match &self.url {
                Some(url) => mcp_run::What::Url { url: url.clone(), headers: self.header.clone() },
                None => mcp_run::What::Command(self.command.clone()),
            },
        }
    }
}
