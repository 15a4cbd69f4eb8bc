//! The registry on the fleet server: the paths of `agentsh registry serve` below `/registry`, for hosts by their
//! signatures and for people by their roles.

use std::path::PathBuf;

use agentsh_database::Database;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use jiff::SignedDuration;

use crate::fleet::{Gate, Identity, Role};
use crate::registry::{Caller, CallerRight, Mounted};
use agentsh::cli::server::Registers;
use agentsh_terminal::output::Failure;

/// Longest body of a request, in bytes: as the registry has it.
const MAX_BODY: usize = 8 << 20;
/// The schema of its tables in PostgreSQL, because tables of the fleet have the same names.
const SCHEMA: &str = "agentsh_registry";

pub(super) async fn mounted(
    fleet: Database,
    registers: Registers,
    answer_within: u32,
    gate: Gate,
) -> Result<Router, Failure> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::Failed(format!("the registry cannot be served: {error}"));
    let database = tokio::task::spawn_blocking(move || registry_database(fleet)).await;
    let database = database.map_err(|error| failed(&error))?.map_err(|why| failed(&why))?;
    let registry = Mounted {
        database,
        open: registers == Registers::Open,
        answer_within: SignedDuration::from_hours(24 * i64::from(answer_within)),
    };
    let registry = registry.open().await.map_err(|error| failed(&error))?;
    Ok(Router::new().nest("/registry", registry).layer(from_fn_with_state(gate, identify_caller)))
}

/// A separate schema or file in the fleet's database.
fn registry_database(fleet: Database) -> Result<Database, String> {
    match fleet {
        Database::File(path) => {
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push("-registry");
            Ok(Database::File(path.with_file_name(PathBuf::from(name))))
        }
        Database::Postgres(url) => {
            if url.contains("options=") {
                return Err("its URL already has `options`, which the registry sets".to_owned());
            }
            let place = Database::Postgres(url.clone());
            let made = place
                .prepare(KEY, &[&format!("CREATE SCHEMA IF NOT EXISTS {SCHEMA}")])
                .map_err(|error| error.to_string());
            made?;
            let mark = if url.contains('?') { '&' } else { '?' };
            Ok(Database::Postgres(format!("{url}{mark}options=-c%20search_path%3D{SCHEMA}")))
        }
    }
}

/// Held while the place is made.
const KEY: i64 = 7_452_383;

async fn identify_caller(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let (who, mut request) = match gate.identify(request, MAX_BODY).await {
        Ok(known) => known,
        Err(refused) => return refused,
    };
    let caller = match who {
        Identity::Host(name) => Caller { name: format!("host {name}"), may: CallerRight::Ask },
        Identity::Person { name, role } => {
            Caller { name, may: if role >= Role::Approver { CallerRight::Decide } else { CallerRight::Look } }
        }
    };
    request.extensions_mut().insert(caller);
    next.run(request).await
}
