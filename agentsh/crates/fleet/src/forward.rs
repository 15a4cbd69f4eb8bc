//! Sends the journal to the server: at least once, from the server's position. There is no second queue that could be
//! lost.

use std::path::Path;
use std::time::{Duration, SystemTime};

use agentsh_store::{Reader, StoreError};

use crate::batch::{self, Batch, JournalPosition};
use crate::client::{Client, ClientError};
use crate::wire::Position;
use crate::{heads, key_files};

/// How often an idle forwarder looks for new rows.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// After a failure: from, to.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// The whole journal is compared this often.
const COMPARE_INTERVAL: Duration = Duration::from_secs(6 * 3600);
/// A forwarder that a session started ends after this time without a new row.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardUntil {
    /// Everything that is on disk now is on the server.
    Sent,
    /// Nothing new was recorded for a minute.
    Idle,
    Stopped,
}

#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Batch(#[from] batch::Unreadable),
}

/// The result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forwarded {
    pub rows: u64,
    pub batches: u64,
    /// Number of sessions whose chain was recomputed and compared; None if that was not due.
    pub compared: Option<u64>,
}

/// Sends until `until`. `compare`: also the ends of all chains, at any time. `say` gets the reasons why sending fails, once for
/// each new reason.
///
/// # Errors
/// Errors that waiting does not resolve.
pub async fn forward(
    client: &Client,
    state_dir: &Path,
    until: ForwardUntil,
    compare: bool,
    mut say: impl FnMut(&str),
) -> Result<Forwarded, ForwardError> {
    let mut done = Forwarded::default();
    let (mut wait, mut said) = (RETRY_DELAYS.0, String::new());
    let mut quiet = Duration::ZERO;
    let mut here: Option<Position> = None;
    let mut compare = compare || is_time(state_dir);
    loop {
        match step(client, state_dir, &mut here, &mut done, &mut compare).await {
            Ok(sent) => {
                if sent > 0 {
                    quiet = Duration::ZERO;
                }
                (wait, said) = (RETRY_DELAYS.0, String::new());
                if sent > 0 {
                    continue;
                }
                if until == ForwardUntil::Sent || (until == ForwardUntil::Idle && quiet >= IDLE_TIMEOUT) {
                    return Ok(done);
                }
                tokio::time::sleep(POLL_INTERVAL).await;
                quiet += POLL_INTERVAL;
                compare |= is_time(state_dir);
            }
            Err(ForwardError::Client(error)) if !error.is_final() => {
                // The server's position may have changed.
                here = None;
                let mut pause = wait;
                if let ClientError::Status { position: Some(_), .. } = &error {
                    pause = Duration::ZERO;
                }
                if let ClientError::Status { later: Some(later), .. } = &error {
                    pause = pause.max(*later).min(RETRY_DELAYS.1);
                }
                let why = error.to_string();
                if why != said && !pause.is_zero() {
                    say(&why);
                    said = why;
                }
                // The next session tries again.
                if until == ForwardUntil::Idle && quiet >= IDLE_TIMEOUT {
                    return Ok(done);
                }
                tokio::time::sleep(pause).await;
                quiet += pause;
                wait = (wait * 2).min(RETRY_DELAYS.1);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Sends one batch. Returns the number of rows; 0: everything has been sent.
async fn step(
    client: &Client,
    state_dir: &Path,
    here: &mut Option<Position>,
    done: &mut Forwarded,
    compare: &mut bool,
) -> Result<u64, ForwardError> {
    let position = match here.take() {
        Some(position) => position,
        None => client.get("/v1/position").await?,
    };
    // Opened again if it was missing, because the first session creates it.
    let Some(mut journal) = Reader::open(state_dir).await? else {
        if position.id > 0 {
            send(client, Batch { after: JournalPosition { id: position.id, hash: None }, rows: Vec::new() })
                .await?;
        }
        *here = Some(position);
        return Ok(0);
    };
    let hash = if position.id == 0 { None } else { journal.hash_at(position.id).await? };
    let after = JournalPosition { id: position.id, hash };
    let does_fit = position.id == 0 || hash.is_some_and(|hash| agentsh_base::hex(&hash) == position.hash);
    let rows = if does_fit {
        journal.raw_after(position.id, batch::MAX_ROWS, batch::USUAL_BYTES).await?
    } else {
        // The server is to know: it refuses this.
        Vec::new()
    };
    if does_fit && rows.is_empty() {
        if std::mem::take(compare) {
            let heads = heads::compute(&mut journal, position.id).await?;
            let _answer: serde_json::Value =
                client.send("/v1/heads", heads::heads_to_gzip(position.id, &heads)?).await?;
            done.compared = Some(heads.len() as u64);
            // The next one compares again, if this cannot be noted.
            let _noted = key_files::write(&key_files::compared_file(state_dir), &position.id);
        }
        *here = Some(position);
        return Ok(0);
    }
    let sent = rows.len() as u64;
    *here = Some(send(client, Batch { after, rows }).await?);
    (done.rows, done.batches) = (done.rows + sent, done.batches + 1);
    Ok(sent)
}

async fn send(client: &Client, batch: Batch) -> Result<Position, ForwardError> {
    let packed = tokio::task::spawn_blocking(move || batch.to_gzip()).await;
    let packed = packed.map_err(|_| StoreError::Broken("a thread ended".to_owned()))??;
    Ok(client.send("/v1/events", packed).await?)
}

fn is_time(state_dir: &Path) -> bool {
    let noted = std::fs::metadata(key_files::compared_file(state_dir)).and_then(|found| found.modified());
    noted.is_ok_and(|noted| SystemTime::now().duration_since(noted).is_ok_and(|age| age > COMPARE_INTERVAL))
        || { !key_files::compared_file(state_dir).exists() }
}
