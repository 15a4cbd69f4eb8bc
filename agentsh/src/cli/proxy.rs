//! `agentsh proxy`: several MCP servers as one, on standard input and output.

use std::path::PathBuf;

use clap::Args;

use crate::session::proxy;

use super::ended;
use super::run::Network;

#[derive(Debug, Args)]
pub struct ProxyArgs {
    /// Servers file (JSON); by default the file in CANARY_MCP_PROXY_CONFIG, else only the proxy's own tools
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A policy file, or the name of a built-in policy
    #[arg(long, value_name = "FILE|NAME")]
    policy: Option<String>,
    /// How network rules are enforced
    #[arg(long, value_enum, default_value = "auto")]
    network: Network,
    /// Start even if a layer of protection is not available here
    #[arg(long)]
    allow_degraded: bool,
}

pub async fn run(args: ProxyArgs) -> u8 {
    let request = proxy::Request {
        config: args.config,
        policy: args.policy,
        backend: args.network.into(),
        allow_degraded: args.allow_degraded,
    };
    ended(proxy::run(request).await)
}
