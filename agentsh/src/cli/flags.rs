//! `--allow`, `--read`, `--write`, `--env`, `--deny-tool`: what one start may do beside what the policy says.

use clap::Args;

use crate::policy::Flags;

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "For this start alone")]
pub struct FlagArgs {
    /// Also open connections to this host; `localhost:PORT` is a port of this machine
    #[arg(long, value_name = "HOST[:PORT]")]
    allow: Vec<String>,
    /// Also let this path be read, with everything below it
    #[arg(long, value_name = "PATH")]
    read: Vec<String>,
    /// Also let this path be written, with everything below it
    #[arg(long, value_name = "PATH")]
    write: Vec<String>,
    /// Also pass this environment variable on
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,
    /// Refuse this tool; `*` stands for any
    #[arg(long, value_name = "SERVER/TOOL")]
    deny_tool: Vec<String>,
}

impl FlagArgs {
    /// As a layer of the policy, for the agent.
    pub fn layer(self) -> Flags {
        Flags {
            allow: self.allow,
            read: self.read,
            write: self.write,
            env: self.env,
            deny_tool: self.deny_tool,
            ..Flags::default()
        }
    }
}
