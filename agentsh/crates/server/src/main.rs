//! `agentsh-server`: what many hosts share. It serves the records of a fleet, and a registry of interfaces.
//!
//! `agentsh fleet serve`, `agentsh registry serve` and `agentsh fleet token` start it; their arguments stand in `agentsh`.

mod fleet;
mod fleet_registry;
mod pages;
mod registry;
mod serve;

use std::process::ExitCode;

use agentsh::cli::server::{self, FleetArgs, RegistryArgs, TokenArgs};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "agentsh-server",
    version = server::VERSION,
    about = "Serve what many hosts share: the records of a fleet, and a registry of interfaces",
    styles = server::STYLES
)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Collect the records of many hosts on one server
    #[command(subcommand)]
    Fleet(FleetVerb),
    /// Keep what MCP servers offered when somebody approved it
    #[command(subcommand)]
    Registry(RegistryVerb),
}

#[derive(Subcommand)]
enum FleetVerb {
    /// Serve: receive the records of hosts, and answer queries
    Serve(Box<FleetArgs>),
    /// Make a token in the server's database: it enrols one host, or gives one person a role; it can be used once
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
        let (mut out, mut err) = (std::io::stdout(), server::stderr());
        let result = match verb {
            Verb::Fleet(FleetVerb::Serve(args)) => serve::fleet(*args, &mut out).await,
            Verb::Fleet(FleetVerb::Token(args)) => serve::token(args, &mut out, &mut err).await,
            Verb::Registry(RegistryVerb::Serve(args)) => serve::registry(args, &mut out, &mut err).await,
        };
        server::finish(result, &mut err)
    });
    code.into()
}
