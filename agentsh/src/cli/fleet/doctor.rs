//! `agentsh fleet doctor`: does this host forward, and does the server work?

use std::io::Write;
use std::path::Path;

use super::host::enrolled_host;
use super::people::{FleetTarget, http};
use agentsh_authoring::{CommandContext, bundle};
use agentsh_fleet::key_files::{self, HostFile};
use agentsh_fleet::wire::{Host, Position, SelfCheck};
use agentsh_fleet::{Client, ClientError};
use agentsh_store::{Reader, escape};
use agentsh_terminal::output::{self, Context, Failure, NO, OK};

/// Rows that may wait without anything being wrong.
const USUAL_LAG: i64 = 10_000;
/// Bytes that the disk of the journal should have left: a few days without the server.
const MIN_FREE_BYTES: u64 = 1 << 30;

/// Exit status 1 where something is not well.
pub(super) async fn run(
    at: &FleetTarget,
    as_json: bool,
    context: &Context,
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    let mut looks = Vec::new();
    match enrolled_host(&context.state_dir) {
        Ok(file) => of_host(&file, context, &mut looks).await?,
        Err(Failure::No(why)) => looks.push(self_check(true, "host", why)),
        Err(other) => looks.push(self_check(false, "host", other.to_string())),
    }
    if at.fleet.is_some() || key_files::login_file(&context.state_dir).exists() {
        of_server(at, context, &mut looks).await?;
    }
    let status = if looks.iter().all(|look| look.ok) { OK } else { NO };
    if as_json {
        output::json(out, &looks)?;
        return Ok(status);
    }
    for SelfCheck { ok, what, detail } in &looks {
        let word = if *ok { "ok" } else { "bad" };
        writeln!(out, "{word:<4}{what:<10} {}", escape::line(detail))?;
    }
    Ok(status)
}

fn self_check(ok: bool, what: &str, detail: impl Into<String>) -> SelfCheck {
    SelfCheck { ok, what: what.to_owned(), detail: detail.into() }
}

async fn of_host(file: &HostFile, context: &Context, looks: &mut Vec<SelfCheck>) -> Result<(), Failure> {
    looks.push(self_check(true, "host", format!("'{}' is {} at {}", file.name, file.host, file.url)));
    let is_forwarding = key_files::lock(&context.state_dir).is_ok_and(|lock| lock.is_none());
    let forwarder = if is_forwarding {
        "a process forwards"
    } else {
        "no process forwards now; the next session, or `agentsh fleet forward`, starts one"
    };
    looks.push(self_check(true, "forwarder", forwarder));
    if let Some((is_well, said)) =
        CommandContext::from_environment().ok().and_then(|place| bundle::status_line(&place))
    {
        looks.push(self_check(is_well, "policy", said));
    }
    let client = match Client::host(http()?, file) {
        Ok(client) => client,
        Err(error) => {
            looks.push(self_check(false, "server", error.to_string()));
            return Ok(());
        }
    };
    let position: Position = match client.get("/v1/position").await {
        Ok(position) => position,
        Err(error) => {
            looks.push(self_check(false, "server", error.to_string()));
            return Ok(());
        }
    };
    let Some(mut journal) = Reader::open(&context.state_dir).await? else {
        looks.push(self_check(
            position.id == 0,
            "record",
            format!("nothing is recorded here, but the server has {} events", position.id),
        ));
        return Ok(());
    };
    let newest = journal.newest().await?;
    looks.extend(spool(&context.state_dir, newest.saturating_sub(position.id)));
    let hash = journal.hash_at(position.id).await?;
    let does_fit = position.id == 0 || hash.is_some_and(|hash| agentsh_base::hex(&hash) == position.hash);
    let lag = newest.saturating_sub(position.id);
    looks.push(self_check(
        does_fit && lag < USUAL_LAG,
        "record",
        if does_fit {
            format!("the server has {} of {newest} events", position.id)
        } else {
            format!("event {} differs from the one on the server: the record was changed", position.id)
        },
    ));
    Ok(())
}

/// Waiting events are only in the journal, which grows until the disk is full.
fn spool(state_dir: &Path, waiting: i64) -> Option<SelfCheck> {
    let files = std::fs::read_dir(state_dir).ok()?.flatten();
    let sizes = files
        .filter_map(|file| file.metadata().ok().filter(std::fs::Metadata::is_file))
        .map(|file| file.len());
    let taken: u64 = sizes.sum();
    let disk = rustix::fs::statvfs(state_dir).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let detail = format!(
        "{waiting} events wait in a journal of {} MiB; its disk has {} MiB left, and without space for the record no session starts",
        taken >> 20,
        free >> 20
    );
    Some(self_check(free >= MIN_FREE_BYTES, "spool", detail))
}

async fn of_server(at: &FleetTarget, context: &Context, looks: &mut Vec<SelfCheck>) -> Result<(), Failure> {
    let client = at.client(context)?;
    let server: Result<Vec<SelfCheck>, ClientError> = client.get("/v1/looks").await;
    match server {
        Ok(found) => looks.extend(found),
        Err(error) => {
            looks.push(self_check(false, "server", error.to_string()));
            return Ok(());
        }
    }
    let hosts: Result<Vec<Host>, ClientError> = client.get("/v1/hosts").await;
    for host in hosts.unwrap_or_default().iter().filter(|host| host.state == "refused") {
        for one in host.incidents.iter().filter(|one| one.accepted_by.is_none()) {
            let session =
                if one.session.is_empty() { String::new() } else { format!(" session {}:", one.session) };
            let detail = format!("'{}' ({}): {}:{session} {}", host.name, host.id, one.kind, one.detail);
            looks.push(self_check(false, "refused", detail));
        }
    }
    Ok(())
}
