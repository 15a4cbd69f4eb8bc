//! A scripted agent and a hostile server in the sandboxes of an ordinary run: their attacks and the results.

pub mod agent;
mod attacks;
mod client;
pub mod facts;
mod project;
pub mod server;
mod table;

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::json;

use agentsh_base::paragraph;
use agentsh_base::types::{ServerId, SessionId};
use agentsh_store::{EventFilter, PinStore, Reader, state_dir};
use agentsh_terminal::output::terminal_width;

use self::facts::{CLOCK, HOSTILE, Report, VARIABLE};
use self::project::DemoProject;
use self::table::{Observed, Row};

pub const SERVER_VERB: &str = "__demo-server";
pub const AGENT_VERB: &str = "__demo-agent";
pub const SESSION_VERB: &str = "__demo-session";

/// A demo that takes longer is ended, and shows what was not tried.
const DEMO_TIMEOUT: Duration = Duration::from_secs(20);
/// Limit of events of one run, far above the real number.
const MAX_EVENTS: u64 = 10_000;

/// How the run ended, from the process that ran it.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunEnd {
    pub session: SessionId,
    pub exit_code: u8,
}

/// The result of the demo.
pub struct DemoOutcome {
    /// None, and why, when the run did not come to its end.
    session: Result<SessionId, String>,
    rows: Vec<Row>,
    not_enforced: Vec<String>,
}

impl DemoOutcome {
    /// The run came to its end, and every row is as it must be.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.session.is_ok() && self.rows.iter().all(|row| row.outcome.is_good())
    }
}

/// Plants, runs [`SESSION_VERB`], and judges what became of the attacks.
///
/// # Errors
/// Why there is nothing to show.
pub async fn perform() -> Result<DemoOutcome, String> {
    let executable =
        std::env::current_exe().map_err(|error| format!("cannot find agentsh itself: {error}"))?;
    let state = state_dir().map_err(|error| error.to_string())?;
    let place = DemoProject::make(&executable).map_err(|error| format!("cannot prepare a place: {error}"))?;
    // An earlier demo that was killed has left its own, of programs that are gone.
    forget_pins(&state, &place.project()).await;
    let words =
        run_to_end(&place, &executable, &state).await.map_err(|error| format!("cannot run: {error}"))?;
    let read = |name: &str| std::fs::read_to_string(place.root().join(name)).unwrap_or_default();
    let output = read("agent.out");
    let reports: Vec<Report> = output.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let unfinished = || format!("the run did not finish: {}", words.trim_end());
    let session = match serde_json::from_str::<RunEnd>(&read("ended.json")) {
        Ok(ended) => Ok(ended.session),
        Err(_) if reports.is_empty() => return Err(unfinished()),
        Err(_) => Err(unfinished()),
    };
    let (events, recorded) = match &session {
        Ok(session) => events(&state, *session).await?,
        Err(_) => Default::default(),
    };
    let seen = Observed { events, checks: place.check(&(output + &words + &recorded)) };
    forget_pins(&state, &place.project()).await;
    let mut rows = table::rows(&reports, &seen);
    let root = format!("{}/", place.root().display());
    for row in &mut rows {
        // The policy of the demo is gone when this is read: its name is enough.
        row.refused_by = row.refused_by.replace(&root, "");
    }
    Ok(DemoOutcome { session, rows, not_enforced: table::not_enforced(&seen.events) })
}

/// Runs the session process and returns its standard error. Leaves nothing behind even if interrupted.
#[expect(clippy::disallowed_methods, reason = "agentsh itself, which makes the sandboxes")]
async fn run_to_end(place: &DemoProject, executable: &Path, state: &Path) -> io::Result<String> {
    let (root, errors) = (place.root(), place.root().join("session.err"));
    let mut session = Command::new(executable)
        .arg(SESSION_VERB)
        .arg(root)
        .current_dir(place.project())
        .env("HOME", root.join("home"))
        .env("XDG_STATE_HOME", state.parent().unwrap_or(state))
        .env_remove("XDG_CONFIG_HOME")
        .env(VARIABLE, &place.secret)
        // Standard input stays: with a terminal there, the agent gets it and tries to type into it.
        .stdout(File::create(root.join("agent.out"))?)
        .stderr(Stdio::from(File::create(&errors)?))
        .spawn()?;
    let interrupt = tokio::signal::ctrl_c();
    tokio::pin!(interrupt);
    let started = Instant::now();
    while session.try_wait()?.is_none() {
        let interrupted = tokio::select! {
            _ = &mut interrupt => true,
            () = tokio::time::sleep(Duration::from_millis(5)) => false,
        };
        if interrupted || started.elapsed() > DEMO_TIMEOUT {
            session.kill()?;
            session.wait()?;
        }
        if interrupted {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
    std::fs::read_to_string(errors)
}

/// The events of the run, and all of them as text.
async fn events(state: &Path, session: SessionId) -> Result<(Vec<agentsh_store::Event>, String), String> {
    let reader = Reader::open(state).await.map_err(|error| error.to_string())?;
    let mut reader = reader.ok_or_else(|| "nothing was recorded".to_owned())?;
    let filter = EventFilter { session: Some(session), limit: MAX_EVENTS, ..EventFilter::default() };
    let records = reader.events(&filter).await.map_err(|error| error.to_string())?;
    let text = records.iter().map(|record| record.body.to_string()).collect::<Vec<_>>().join("\n");
    Ok((records.into_iter().filter_map(|record| record.event).collect(), text))
}

/// The servers of the demo are gone, so their pins are of no use to anyone.
async fn forget_pins(state: &Path, project: &Path) {
    let pins = PinStore::new(state);
    let scope = project.display().to_string();
    // The clock is the user's own server here, whose pin holds everywhere: the next demo has another one.
    for (id, scope) in [(HOSTILE, scope.as_str()), (CLOCK, "")] {
        // The names are the demo's: no other pin is removed.
        let _ = pins.reset(Some(&ServerId(id.to_owned())), Some(scope)).await;
    }
}

/// The rows for people, or as JSON.
///
/// # Errors
/// When they cannot be written as JSON.
pub fn show(done: &DemoOutcome, as_json: bool) -> serde_json::Result<String> {
    let DemoOutcome { session, rows, not_enforced } = done;
    if as_json {
        let unfinished = session.as_ref().err();
        let session = session.as_ref().ok();
        let whole =
            json!({"session": session, "unfinished": unfinished, "rows": rows, "not_enforced": not_enforced});
        return Ok(serde_json::to_string_pretty(&whole)? + "\n");
    }
    let mut text = table::render(rows, terminal_width());
    if !not_enforced.is_empty() {
        text.push_str(&format!(
            "not fully enforced here: {}; `agentsh report latest` says why\n",
            not_enforced.join(", ")
        ));
    }
    text.push_str(&match session {
        Ok(session) => format!("the record: `agentsh report latest`, or `agentsh report {session}`\n"),
        Err(unfinished) => format!("{unfinished}\n"),
    });
    Ok(match terminal_width() {
        Some(width) => paragraph::wrap_lines(&text, usize::from(width)).into_owned(),
        None => text,
    })
}
