//! `agentsh registry serve`: its arguments. `agentsh-server` does the work.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// Address to listen on; a loopback address unless a proxy terminates TLS
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8000")]
    pub listen: SocketAddr,
    /// Listen on this port of 127.0.0.1
    #[arg(long, value_name = "PORT", conflicts_with = "listen")]
    pub port: Option<u16>,
    /// An SQLite file, or postgres://USER@HOST/NAME; default: KIJI_SAFEGUARD_DB, or a file in agentsh's state directory
    #[arg(long, value_name = "FILE|URL")]
    pub database: Option<String>,
    /// Allow programs on this machine to register new servers and request approvals without a token
    #[arg(long)]
    pub open: bool,
    /// Operators: a file with NAME TOKEN on each line, mode 0600; created with one token if it does not exist
    #[arg(long, value_name = "FILE")]
    pub operators: Option<PathBuf>,
    /// A name by which clients call this registry, in addition to localhost. May be repeated
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,
    /// A proxy in front of the registry terminates TLS
    #[arg(long)]
    pub behind_proxy: bool,
    /// Days until a registration expires; by default never, until it is superseded or revoked
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
    pub valid_for: Option<u32>,
    /// Days until an unanswered request for approval expires
    #[arg(long, value_name = "DAYS", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub answer_within: u32,
    /// Maximum number of servers registered without a token
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub max_open: u32,
}
