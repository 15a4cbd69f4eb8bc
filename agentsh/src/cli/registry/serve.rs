//! `agentsh registry serve`: its arguments. `agentsh-server` serves.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// Where to listen: an address of the loopback, unless TLS ends before the registry
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8000")]
    pub listen: SocketAddr,
    /// A file of SQLite, or postgres://USER@HOST/NAME; without it a file in agentsh's state directory
    #[arg(long, value_name = "FILE|URL")]
    pub database: Option<String>,
    /// Let programs of this machine register new servers, and ask for approvals, without a token
    #[arg(long)]
    pub open: bool,
    /// Who may decide: NAME TOKEN on each line, mode 0600; made with one token where it is missing
    #[arg(long, value_name = "FILE")]
    pub operators: Option<PathBuf>,
    /// A name by which clients call this registry, beside localhost. May be repeated
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,
    /// A proxy in front of the registry ends TLS
    #[arg(long)]
    pub behind_proxy: bool,
    /// Registrations end after this many days; without it they hold until they are superseded or revoked
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
    pub valid_for: Option<u32>,
    /// A request for approval that nobody answers ends after this many days
    #[arg(long, value_name = "DAYS", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub answer_within: u32,
    /// How many servers may be registered without a token
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub max_open: u32,
}
