//! `agentsh-server`: the fleet server and the registry server.
//!
//! `agentsh fleet serve`, `agentsh registry serve` and `agentsh fleet token` start it; `agentsh` defines their
//! arguments.

mod fleet;
mod fleet_registry;
mod pages;
mod registry;
mod serve;

use std::process::ExitCode;

use agentsh::cli::server::{self, FleetArgs, RegistryArgs, TokenArgs};
use agentsh_terminal::{output, style};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "agentsh-server",
    version = server::VERSION,
    about = "Servers that many hosts share: fleet records, and a registry of MCP interfaces",
    styles = style::HELP
)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Collect the records of many hosts
    #[command(subcommand)]
    Fleet(FleetVerb),
    /// Store the approved interfaces of MCP servers
    #[command(subcommand)]
    Registry(RegistryVerb),
}

#[derive(Subcommand)]
enum FleetVerb {
    /// Serve HTTP: receive records of hosts, answer queries
    Serve(Box<FleetArgs>),
    /// Make a one-time token in the server's database, for a host or a person
    Token(TokenArgs),
}

#[derive(Subcommand)]
enum RegistryVerb {
    /// Serve a registry over HTTP
    Serve(RegistryArgs),
}

fn main() -> ExitCode {
    let verb = Arguments::parse().verb;
    let code = server::on_one_thread(async {
        let (mut out, mut err) = (std::io::stdout(), style::stderr());
        let result = match verb {
            Verb::Fleet(FleetVerb::Serve(args)) => serve::fleet(*args, &mut out).await,
            Verb::Fleet(FleetVerb::Token(args)) => serve::token(args, &mut out, &mut err).await,
            Verb::Registry(RegistryVerb::Serve(args)) => serve::registry(args, &mut out, &mut err).await,
        };
        output::finish(result, &mut err)
    });
    code.into()
}
