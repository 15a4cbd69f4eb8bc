//! `agentsh fleet serve`.

use std::fs::DirBuilder;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentsh_database::Database;
use axum::Router;
use clap::Args;

use super::super::output::{Context, Failure, OK};
use super::super::policy::Surroundings;
use super::super::{stop, style};
use super::pages;
use super::registry::{self, Registers};
use crate::fleet::{Options, Server};

#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// Where to listen: an address of the loopback, unless there is TLS
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8700")]
    listen: SocketAddr,
    #[command(flatten)]
    database: Place,
    /// The server's certificate and those above it, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// A proxy in front of the server ends TLS
    #[arg(long)]
    behind_proxy: bool,
    /// Forget events this many days after they arrived; without it they stay
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    keep: Option<u32>,
    /// A directory of signed policy bundles that hosts may fetch
    #[arg(long, value_name = "DIRECTORY")]
    bundles: Option<PathBuf>,
    /// Also serve a registry of interfaces below /registry: what nobody has registered is registered by approvers, or by hosts too
    #[arg(long, value_enum)]
    registry: Option<Registers>,
    /// A request for approval of an interface that nobody answers ends after this many days
    #[arg(long, value_name = "DAYS", default_value_t = 7, requires = "registry",
        value_parser = clap::value_parser!(u32).range(1..))]
    answer_within: u32,
    #[command(flatten)]
    oidc: pages::OidcArgs,
}

/// Where the server keeps what it has.
#[derive(Clone, Debug, Args)]
pub struct Place {
    /// postgres://USER@HOST/NAME, or a file of SQLite; otherwise AGENTSH_FLEET_DATABASE, which shows no password to other
    /// users, or a file in agentsh's state directory
    #[arg(long, value_name = "URL|FILE")]
    database: Option<String>,
}

impl Place {
    pub(super) fn is_named(&self) -> bool {
        self.named().is_some()
    }

    fn named(&self) -> Option<String> {
        let set = || std::env::var("AGENTSH_FLEET_DATABASE").ok().filter(|named| !named.is_empty());
        self.database.clone().or_else(set)
    }

    pub(super) fn database(&self, state_dir: &Path) -> Result<Database, Failure> {
        if let Some(named) = self.named() {
            return Ok(Database::named(&named));
        }
        let folder = state_dir.join("fleet-server");
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(|error| Failure::Failed(format!("cannot make '{}': {error}", folder.display())))?;
        Ok(Database::File(folder.join("fleet.db")))
    }
}

/// Serves until SIGINT or SIGTERM.
pub(super) async fn serve(args: ServeArgs, context: &Context, out: &mut dyn Write) -> Result<u8, Failure> {
    if let Some(bundles) = args.bundles.as_ref().filter(|bundles| !bundles.is_dir()) {
        return Err(Failure::Usage(format!("--bundles '{}' is no directory", bundles.display())));
    }
    let behind_proxy = args.behind_proxy;
    let identity = pages::Identity::start(&args.oidc).map_err(Failure::Usage)?;
    let database = args.database.database(&context.state_dir)?;
    let server = Server::open(Options {
        listen: args.listen,
        database: database.clone(),
        tls: args.tls_cert.zip(args.tls_key),
        behind_proxy: args.behind_proxy,
        keep_days: args.keep,
        bundles: args.bundles,
        tell: Arc::new(|text| {
            // It cannot be told to anybody.
            let _ = writeln!(style::stderr(), "agentsh: {text}");
        }),
    });
    let server = server.await.map_err(|error| Failure::Failed(error.to_string()))?;
    let mut beside = Router::new();
    if let Some(registers) = args.registry {
        beside = registry::mounted(database, registers, args.answer_within, server.gate()).await?;
    }
    writeln!(out, "listening on {}://{}", server.scheme(), server.address())?;
    out.flush()?;
    let place = Surroundings::here()
        .map_err(|error| Failure::Failed(format!("cannot tell the current directory: {error}")))?;
    let is_secure = server.scheme() == "https" || behind_proxy;
    let answers = server.answers().merge(beside.clone());
    let pages = pages::router(answers, place, is_secure, (identity, server.gate()));
    server
        .run(beside.merge(pages), stop::asked()?)
        .await
        .map_err(|error| Failure::Failed(error.to_string()))?;
    Ok(OK)
}
