//! `agentsh registry serve`: the registry as an HTTP server.

use std::fs::DirBuilder;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::SignedDuration;

use super::super::output::{Failure, OK};
use super::super::stop;
use crate::registrar::{Database, Operators, Options, Server};
use crate::store::state_dir;

#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// Where to listen: an address of the loopback, unless TLS ends before the registry
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// A file of SQLite, or postgres://USER@HOST/NAME; without it a file in agentsh's state directory
    #[arg(long, value_name = "FILE|URL")]
    database: Option<String>,
    /// Let programs of this machine register new servers, and ask for approvals, without a token
    #[arg(long)]
    open: bool,
    /// Who may decide: NAME TOKEN on each line, mode 0600; made with one token where it is missing
    #[arg(long, value_name = "FILE")]
    operators: Option<PathBuf>,
    /// A name by which clients call this registry, beside localhost. May be repeated
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// A proxy in front of the registry ends TLS
    #[arg(long)]
    behind_proxy: bool,
    /// Registrations end after this many days; without it they hold until they are superseded or revoked
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
    valid_for: Option<u32>,
    /// A request for approval that nobody answers ends after this many days
    #[arg(long, value_name = "DAYS", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    answer_within: u32,
    /// How many servers may be registered without a token
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    max_open: u32,
}

/// Serves until SIGINT or SIGTERM.
pub(super) async fn serve(args: ServeArgs, out: &mut dyn Write, err: &mut dyn Write) -> Result<u8, Failure> {
    let folder = folder()?;
    let path = args.operators.unwrap_or_else(|| folder.join("operators"));
    let (operators, made) = Operators::from_file(&path).map_err(|error| Failure::Usage(error.to_string()))?;
    let database =
        args.database.as_deref().map_or_else(|| Database::File(folder.join("registry.db")), Database::named);
    let days = |days: u32| SignedDuration::from_hours(24 * i64::from(days));
    let server = Server::open(Options {
        listen: args.listen,
        database,
        operators,
        open: args.open,
        hosts: args.host,
        behind_proxy: args.behind_proxy,
        valid_for: args.valid_for.map(days),
        answer_within: days(args.answer_within),
        most_servers: args.max_open,
    });
    let server = server.await.map_err(|error| Failure::Failed(error.to_string()))?;
    if made {
        writeln!(err, "the token of the operator is in {}", path.display())?;
    }
    writeln!(out, "listening on http://{}", server.address())?;
    out.flush()?;
    server.run(stop::asked()?).await.map_err(|error| Failure::Failed(error.to_string()))?;
    Ok(OK)
}

/// Where the registry keeps what it is not told to keep elsewhere.
fn folder() -> Result<PathBuf, Failure> {
    let folder: PathBuf = state_dir()?.join("registry");
    let make = |folder: &Path| DirBuilder::new().recursive(true).mode(0o700).create(folder);
    make(&folder).map_err(|error| Failure::Failed(format!("cannot make '{}': {error}", folder.display())))?;
    Ok(folder)
}
