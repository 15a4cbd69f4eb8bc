//! `agentsh run`.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::session::network::{self, Backend};
use crate::session::run::{Outcome, Request, exit_code_of, run as run_session};
use crate::store::Reader;

use super::fail;

#[derive(Debug, Args)]
pub struct RunArgs {
    /// A policy file, or the name of a built-in policy
    #[arg(long, value_name = "FILE|NAME")]
    policy: Option<String>,
    /// How connections are policed
    #[arg(long, value_enum, default_value = "auto")]
    network: Network,
    /// Print at the end the lines of policy that would allow what was refused; nothing is allowed meanwhile
    #[arg(long)]
    network_learn: bool,
    /// Start even if a layer of protection cannot be had here
    #[arg(long)]
    allow_degraded: bool,
    /// Write the report of the run as JSON
    #[arg(long, value_name = "FILE")]
    report_json: Option<PathBuf>,
    /// No summary at the end
    #[arg(long)]
    quiet: bool,
    /// The agent and its arguments
    #[arg(last = true, required = true, value_name = "AGENT")]
    agent: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Network {
    /// The strongest that can be had here
    Auto,
    /// Refused in the kernel, with the process behind each connection on record; needs privileges
    Ebpf,
    /// Refused by agentsh; needs no privileges
    Userns,
}

impl From<Network> for Backend {
    fn from(network: Network) -> Self {
        match network {
            Network::Auto => Self::Auto,
            Network::Ebpf => Self::Ebpf,
            Network::Userns => Self::Userns,
        }
    }
}

pub async fn run(args: RunArgs) -> u8 {
    let request = Request {
        policy: args.policy,
        allow_degraded: args.allow_degraded,
        backend: args.network.into(),
        agent: args.agent,
        verb: "run",
    };
    match run_session(request).await {
        Ok(outcome) => {
            report(&outcome, args.quiet, args.report_json.as_deref()).await;
            if args.network_learn {
                outcome.session.note(&network::learned(&outcome.session));
                outcome.session.release_notes();
            }
            outcome.exit_code
        }
        Err(error) => {
            fail(&error.to_string());
            exit_code_of(&error)
        }
    }
}

/// The short summary on standard error, and the whole report as JSON where it was asked for.
async fn report(outcome: &Outcome, quiet: bool, json: Option<&std::path::Path>) {
    let session = &outcome.session;
    if !quiet {
        let _ = write!(anstream::stderr(), "{}", session.journal.summary().render_short());
    }
    let Some(path) = json else { return };
    let written = async {
        let reader = Reader::open(&session.context.state).await.map_err(|error| error.to_string())?;
        let mut reader = reader.ok_or_else(|| "nothing was recorded".to_owned())?;
        let summary = reader.summary(session.id).await.map_err(|error| error.to_string())?;
        let text = serde_json::to_string_pretty(&summary).map_err(|error| error.to_string())?;
        std::fs::write(path, text + "\n").map_err(|error| error.to_string())
    };
    if let Err(error) = written.await {
        fail(&format!("cannot write the report to {}: {error}", path.display()));
    }
}
