//! `--allow`, `--read`, `--write`, `--env`, `--deny-tool`: additional rules for one run.

use clap::Args;

use agentsh_policy::Flags;

/// Not for the whole struct: it would also apply to the options after it.
const HEADING: &str = "For this run only";

#[derive(Clone, Debug, Default, Args)]
pub struct FlagArgs {
    /// Also allow connections to this host; `localhost:PORT` is a port of this machine
    #[arg(long, value_name = "HOST[:PORT]", help_heading = HEADING)]
    allow: Vec<String>,
    /// Also allow reading this path and everything below it
    #[arg(long, value_name = "PATH", help_heading = HEADING)]
    read: Vec<String>,
    /// Also allow writing this path and everything below it
    #[arg(long, value_name = "PATH", help_heading = HEADING)]
    write: Vec<String>,
    /// Also pass this environment variable
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    env: Vec<String>,
    /// Refuse this tool; `*` matches any
    #[arg(long, value_name = "SERVER/TOOL", help_heading = HEADING)]
    deny_tool: Vec<String>,
}

impl FlagArgs {
    /// As so many `--env`.
    pub fn pass(&mut self, names: impl Iterator<Item = String>) {
        self.env.extend(names);
    }

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
