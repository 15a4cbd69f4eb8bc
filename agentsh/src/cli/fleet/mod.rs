//! `agentsh fleet`: the server for the journals of many hosts, the hosts, and the people who query it.

pub(super) mod approvals;
mod ask;
mod bundle;
mod doctor;
mod host;
pub(super) mod people;
pub(super) mod serve;

use std::io::Write;

use clap::{Args, Subcommand};

pub(super) use approvals::FleetApprovals;
pub use ask::Fleet;

use super::server;
use agentsh_terminal::output::{Context, Failure, OK};

#[derive(Debug, Args)]
pub struct FleetArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Receive the records of hosts, and answer queries
    Serve(Box<serve::ServeArgs>),
    /// Create a one-time token that enrols a host or gives a person a role
    Token(people::TokenArgs),
    /// Enrol this host: it keeps its key and forwards its record from now on
    Enrol(host::EnrolArgs),
    /// Forward the record of this host; on an enrolled host, sessions do this by themselves
    Forward(host::ForwardArgs),
    /// Get a credential for queries to a fleet server
    Login(people::LoginArgs),
    /// List the hosts, and where their records differ from what they sent
    Hosts {
        /// List the credentials of people instead
        #[arg(long)]
        credentials: bool,
        #[command(flatten)]
        at: people::FleetTarget,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Accept a refused host again, after an investigation
    Accept {
        /// The id of the host
        host: String,
        #[command(flatten)]
        at: people::FleetTarget,
    },
    /// Revoke a host or a person
    Revoke {
        /// The id of the host
        #[arg(required_unless_present = "credential")]
        host: Option<String>,
        /// Name of the person's credential
        #[arg(long, value_name = "NAME", conflicts_with = "host")]
        credential: Option<String>,
        #[command(flatten)]
        at: people::FleetTarget,
    },
    /// Check whether this host forwards and the server works
    Doctor {
        #[command(flatten)]
        at: people::FleetTarget,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Exit status 0: done; 1: refused, or something is not well; 2: cannot be meant; 125: it failed.
pub async fn run(
    args: FleetArgs,
    context: &Context,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    match args.verb {
        Verb::Serve(_) => Err(server::hand_over()),
        Verb::Token(args) => people::token(&args, context, out, err).await,
        Verb::Enrol(args) => host::enrol(&args, context, out).await,
        Verb::Forward(args) => host::forward(&args, context, out, err).await,
        Verb::Login(args) => people::login(&args, context, out).await,
        Verb::Hosts { credentials: true, at, json } => people::credentials(&at, json, context, out).await,
        Verb::Hosts { at, json, .. } => people::hosts(&at, json, context, out).await,
        Verb::Accept { host, at } => {
            people::change(&at, context, &host, "accept").await?;
            writeln!(out, "host {host} is accepted again")?;
            Ok(OK)
        }
        Verb::Revoke { credential: Some(name), at, .. } => people::revoke(&at, context, &name, out).await,
        Verb::Revoke { host, at, .. } => {
            let host = host.unwrap_or_default();
            people::change(&at, context, &host, "revoke").await?;
            writeln!(out, "host {host} is revoked")?;
            Ok(OK)
        }
        Verb::Doctor { at, json } => doctor::run(&at, json, context, out).await,
    }
}
