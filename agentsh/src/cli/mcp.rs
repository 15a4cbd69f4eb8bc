//! `agentsh mcp`: one server on our own standard input and output, and questions about what servers did.

use clap::{Args, Subcommand};

use crate::session::mcp_run;
use crate::session::run::exit_code_of;

use super::flags::FlagArgs;
use super::run::Network;
use super::{approve, fail, mcp_query, pins};

#[derive(Debug, Args)]
pub struct McpArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run one MCP server in a sandbox, policed, on standard input and output
    Run(ServerArgs),
    /// List, trust, compare and forget the programs that servers are pinned to
    Pins(pins::PinsArgs),
    /// Agree to the servers that a file of a project declares, as it is now
    Approve(approve::ApproveArgs),
    #[command(flatten)]
    Query(mcp_query::Query),
}

#[derive(Debug, Args)]
struct ServerArgs {
    /// Name of the server in policies, pins and records; by default taken from its command
    #[arg(long)]
    id: Option<String>,
    /// A policy file, or the name of a built-in policy
    #[arg(long, value_name = "FILE|NAME")]
    policy: Option<String>,
    #[command(flatten)]
    flags: FlagArgs,
    /// How connections are policed
    #[arg(long, value_enum, default_value = "auto")]
    network: Network,
    /// Print at the end the lines of policy that would allow what was refused; nothing is allowed meanwhile
    #[arg(long)]
    network_learn: bool,
    /// Start even if a layer of protection cannot be had here
    #[arg(long)]
    allow_degraded: bool,
    /// A server behind a URL, which agentsh asks in its own name: https, or http on this machine
    #[arg(long, conflicts_with = "command")]
    url: Option<String>,
    /// Sent to the server of --url with every request; ${NAME} is a variable of your environment. May be repeated
    #[arg(long, value_name = "NAME: VALUE", requires = "url")]
    header: Vec<String>,
    /// The server's command and its arguments
    #[arg(trailing_var_arg = true, required_unless_present = "url", value_name = "CMD")]
    command: Vec<String>,
}

pub async fn run(args: McpArgs) -> u8 {
    match args.verb {
        Verb::Pins(args) => pins::run(args, &mut anstream::stdout(), &mut anstream::stderr()).await,
        Verb::Approve(args) => approve::run(&args, &mut anstream::stdout(), &mut anstream::stderr()),
        Verb::Query(query) => mcp_query::run(query, &mut anstream::stdout(), &mut anstream::stderr()).await,
        Verb::Run(args) => {
            let request = mcp_run::Request {
                id: args.id,
                policy: args.policy,
                flags: args.flags.layer(),
                allow_degraded: args.allow_degraded,
                backend: args.network.into(),
                learn: args.network_learn,
                what: match args.url {
                    Some(url) => mcp_run::What::Url { url, headers: args.header },
                    None => mcp_run::What::Command(args.command),
                },
            };
            match mcp_run::run(request).await {
                Ok(code) => code,
                Err(error) => {
                    fail(&error.to_string());
                    exit_code_of(&error)
                }
            }
        }
    }
}
