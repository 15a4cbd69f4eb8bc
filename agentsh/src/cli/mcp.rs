//! `agentsh mcp`: runs one server on standard input and output, and lists what servers did.

use clap::{Args, Subcommand};

use crate::session::mcp_run;

use super::flags::FlagArgs;
use super::run::{Network, TierName};
use super::{
    approve, client_config, ended, fail, inventory, mcp_query, pins, profile, run_and_print, run_with_context,
};
use agentsh_terminal::style;

#[derive(Debug, Args)]
pub struct McpArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run one MCP server in a sandbox, over stdio
    Run(ServerArgs),
    /// List, trust, compare and remove pins of servers
    Pins(pins::PinsArgs),
    /// Approve the servers in a project's file as it is now
    Approve(approve::ApproveArgs),
    /// Route all servers of a client's configuration through `agentsh mcp run`
    Wrap(client_config::WrapArgs),
    /// List the recorded tools of servers: first seen, last seen, how unusual their calls were
    Inventory(inventory::InventoryArgs),
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
    /// How network rules are enforced
    #[arg(long, value_enum, default_value = "auto")]
    network: Network,
    /// Print at the end the commands that allow what was refused; this run itself allows nothing more
    #[arg(long)]
    network_learn: bool,
    /// Kind of sandbox; weaker kinds than namespaces are used only if chosen here
    #[arg(long, value_enum, default_value = "namespaces")]
    tier: TierName,
    /// Start even if a layer of protection is not available here
    #[arg(long)]
    allow_degraded: bool,
    /// URL of a remote server: https, or http on this machine
    #[arg(long, conflicts_with = "command")]
    url: Option<String>,
    /// A server stored by `agentsh profile add`
    #[arg(long, value_name = "NAME", conflicts_with_all = ["command", "url"])]
    profile: Option<String>,
    /// HTTP header for every request to --url; ${NAME} is replaced by that environment variable. May be repeated
    #[arg(long, value_name = "NAME: VALUE", requires = "url")]
    header: Vec<String>,
    /// The server's command and its arguments
    #[arg(trailing_var_arg = true, required_unless_present_any = ["url", "profile"], value_name = "CMD")]
    command: Vec<String>,
}

pub async fn run(args: McpArgs) -> u8 {
    match args.verb {
        Verb::Pins(args) => {
            run_with_context(async |c, out, err| pins::answer(&args.verb, c, out, err).await).await
        }
        Verb::Approve(args) => run_and_print(|out, _| approve::answer(&args, &mut style::prose(out))),
        Verb::Inventory(args) => {
            run_with_context(async |c, out, err| inventory::answer(&args, c, out, err).await).await
        }
        Verb::Query(query) => {
            run_with_context(async |c, out, err| mcp_query::answer(&query, c, out, err).await).await
        }
        Verb::Wrap(args) => run_and_print(|out, _| client_config::wrap(&args, out)),
        Verb::Run(args) => {
            let args = match with_profile(args) {
                Ok(args) => args,
                Err(why) => return fail(&why),
            };
            let request = mcp_run::Request {
                id: args.id,
                policy: args.policy,
                flags: args.flags.layer(),
                allow_degraded: args.allow_degraded,
                tier: args.tier.into(),
                backend: args.network.into(),
                learn: args.network_learn,
                what: match args.url {
                    Some(url) => mcp_run::ServerSource::Url { url, headers: args.header },
                    None => mcp_run::ServerSource::Command(args.command),
                },
            };
            ended(mcp_run::run(request).await)
        }
    }
}

/// The command line with what the profile says. A command with secret variables gets them as its own environment, so this
/// process becomes one that has them: no argument holds a value.
fn with_profile(mut args: ServerArgs) -> Result<ServerArgs, String> {
    use std::os::unix::process::CommandExt;
    let Some(name) = args.profile.take() else { return Ok(args) };
    let profile = profile::find(&name).map_err(|error| error.to_string())?;
    let profile =
        profile.ok_or_else(|| format!("there is no profile '{name}'; `agentsh profile list` names them"))?;
    args.id.get_or_insert(name.clone());
    if let Some(url) = profile.url {
        args.url = Some(url);
        args.header.extend(profile.headers.iter().map(|(name, value)| format!("{name}: {value}")));
        return Ok(args);
    }
    if profile.env.iter().all(|(name, value)| std::env::var(name).is_ok_and(|now| now == *value)) {
        args.flags.pass(profile.env.into_keys());
        args.command = profile.command;
        return Ok(args);
    }
    #[expect(clippy::disallowed_methods, reason = "it becomes itself, with the variables of the profile")]
    let mut again = std::process::Command::new("/proc/self/exe");
    again.args(std::env::args_os().skip(1)).envs(profile.env);
    Err(format!("cannot start again: {}", again.exec()))
}
