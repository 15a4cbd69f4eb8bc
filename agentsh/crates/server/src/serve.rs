//! The verbs: from arguments to a running server.

use std::fs::DirBuilder;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentsh::cli::server::{DatabaseArgs, FleetArgs, RegistryArgs, TokenArgs};
use agentsh_authoring::CommandContext;
use agentsh_database::Database;
use agentsh_registrar::Operators;
use agentsh_terminal::output::{Context, Failure, OK};
use agentsh_terminal::{stop, style};
use axum::Router;
use jiff::SignedDuration;

use crate::{fleet, fleet_registry, pages, registry};

/// `fleet serve`: until SIGINT or SIGTERM.
pub(crate) async fn fleet(args: FleetArgs, out: &mut dyn Write) -> Result<u8, Failure> {
    if let Some(bundles) = args.bundles.as_ref().filter(|bundles| !bundles.is_dir()) {
        return Err(Failure::Usage(format!("--bundles '{}' is not a directory", bundles.display())));
    }
    let behind_proxy = args.behind_proxy;
    let identity = pages::Identity::start(&args.oidc).map_err(Failure::Usage)?;
    let database = fleets(&args.database)?;
    let server = fleet::Server::open(fleet::Options {
        listen: args.listen,
        database: database.clone(),
        tls: args.tls_cert.zip(args.tls_key),
        behind_proxy: args.behind_proxy,
        keep_days: args.keep,
        bundles: args.bundles,
        tell: Arc::new(|text| {
            // There is no way to report it.
            let _ = writeln!(style::stderr(), "agentsh: {text}");
        }),
    });
    let server = server.await.map_err(serve_failure)?;
    let mut beside = Router::new();
    if let Some(registers) = args.registry {
        beside = fleet_registry::mounted(database, registers, args.answer_within, server.gate()).await?;
    }
    writeln!(out, "listening on {}://{}", server.scheme(), server.address())?;
    out.flush()?;
    let place = CommandContext::from_environment()
        .map_err(|error| Failure::Failed(format!("cannot find the current directory: {error}")))?;
    let is_secure = server.scheme() == "https" || behind_proxy;
    let answers = server.answers().merge(beside.clone());
    let pages = pages::router(answers, place, is_secure, (identity, server.gate()));
    server.run(beside.merge(pages), stop::stop_signal()?).await.map_err(serve_failure)?;
    Ok(OK)
}

/// `fleet token`: made in the database, on the server's own machine. There is no other way to the first one.
pub(crate) async fn token(args: TokenArgs, out: &mut dyn Write, err: &mut dyn Write) -> Result<u8, Failure> {
    if args.at.fleet.is_some() {
        let why = "agentsh-server makes tokens in its own database; to ask a running server: `agentsh fleet token --fleet URL`";
        return Err(Failure::Usage(why.to_owned()));
    }
    let database = fleets(&args.database)?;
    let asked = args.request();
    let made = tokio::task::spawn_blocking(move || fleet::make_token(&database, &asked)).await;
    let made = made.map_err(serve_failure)?.map_err(serve_failure)?;
    args.print(&made, out, err)
}

/// `registry serve`: until SIGINT or SIGTERM.
pub(crate) async fn registry(
    args: RegistryArgs,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    let folder = folder("registry")?;
    let path = args.operators.unwrap_or_else(|| folder.join("operators"));
    let (operators, made) = Operators::from_file(&path).map_err(|error| Failure::Usage(error.to_string()))?;
    let set = || std::env::var("KIJI_SAFEGUARD_DB").ok().filter(|named| !named.is_empty());
    let named = args.database.or_else(set);
    let database =
        named.as_deref().map_or_else(|| Database::File(folder.join("registry.db")), Database::named);
    let days = |days: u32| SignedDuration::from_hours(24 * i64::from(days));
    let mut listen = args.listen;
    listen.set_port(args.port.unwrap_or(listen.port()));
    let server = registry::Server::open(registry::Options {
        listen,
        database,
        operators,
        open: args.open,
        hosts: args.host,
        behind_proxy: args.behind_proxy,
        valid_for: args.valid_for.map(days),
        answer_within: days(args.answer_within),
        most_servers: args.max_open,
    });
    let server = server.await.map_err(serve_failure)?;
    if made {
        writeln!(err, "the token of the operator is in {}", path.display())?;
    }
    writeln!(out, "listening on http://{}", server.address())?;
    out.flush()?;
    server.run(stop::stop_signal()?).await.map_err(serve_failure)?;
    Ok(OK)
}

/// The database that was named, or a file in agentsh's state directory.
fn fleets(place: &DatabaseArgs) -> Result<Database, Failure> {
    match place.named() {
        Some(named) => Ok(Database::named(&named)),
        None => Ok(Database::File(folder("fleet-server")?.join("fleet.db"))),
    }
}

/// A folder of agentsh's state directory, made with mode 0700 where it is missing.
fn folder(name: &str) -> Result<PathBuf, Failure> {
    let folder = Context::of_process()?.state_dir.join(name);
    let make = |folder: &Path| DirBuilder::new().recursive(true).mode(0o700).create(folder);
    make(&folder).map_err(|error| Failure::Failed(format!("cannot make '{}': {error}", folder.display())))?;
    Ok(folder)
}

fn serve_failure(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}
