//! `agentsh demo`: a scripted agent and a hostile server through the path of every run. No key, no network, nothing
//! outside of a directory of its own, but for the record of the run.
//!
//! Three processes: this one plants, listens and judges; `__demo-session` is an ordinary run whose environment holds
//! the planted secrets; inside it, agent and servers are agentsh again.

mod agent;
mod attacks;
mod client;
mod facts;
mod server;
mod setup;
mod table;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::session::given::CommandLine;
use crate::session::run::{Request, run as run_session};
use crate::session::run_error::exit_code_of;
use agentsh_base::paragraph;
use agentsh_base::types::{ServerId, SessionId};
use agentsh_store::{EventFilter, PinStore, Reader, state_dir};

use self::facts::{CLOCK, FACTS_FILE, Facts, HOSTILE, Report, VARIABLE};
use self::setup::DemoProject;
use self::table::{Observed, Row};
use super::{exit, fail, on_one_thread};

pub const SERVER_VERB: &str = "__demo-server";
pub const AGENT_VERB: &str = "__demo-agent";
pub const SESSION_VERB: &str = "__demo-session";

/// A demo that takes longer is ended, and shows what was not tried.
const DEMO_TIMEOUT: Duration = Duration::from_secs(20);
/// Events of one run; far more than there are.
const MAX_EVENTS: u64 = 10_000;

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// The rows as JSON
    #[arg(long)]
    json: bool,
}

/// How the run ended, from the process that ran it.
#[derive(Debug, Serialize, Deserialize)]
struct Ended {
    session: SessionId,
    exit_code: u8,
}

/// What there is to show.
struct Done {
    /// None, and why, when the run did not come to its end.
    session: Result<SessionId, String>,
    rows: Vec<Row>,
    not_enforced: Vec<String>,
}

pub async fn run(args: DemoArgs) -> u8 {
    match perform().await {
        Ok(done) => {
            let text = match show(&args, &done) {
                Ok(text) => text,
                Err(error) => return fail(&error.to_string()),
            };
            // A closed standard output is nobody's fault here.
            let _ = anstream::stdout().write_all(text.as_bytes());
            if done.session.is_ok() && done.rows.iter().all(|row| row.outcome.is_good()) {
                0
            } else {
                exit::NO
            }
        }
        Err(message) => fail(&message),
    }
}

/// One of the bundled servers.
#[must_use]
pub fn server() -> u8 {
    let hostile = std::env::args().nth(2).is_some_and(|name| name == HOSTILE);
    told(server::serve(hostile))
}

/// The scripted agent.
#[must_use]
pub fn agent() -> u8 {
    told(agent::run())
}

/// An ordinary run, in the environment and the directory that the demo prepared.
#[must_use]
pub fn session() -> u8 {
    on_one_thread(async {
        let root = std::env::args_os().nth(2).map(PathBuf::from).unwrap_or_default();
        match run_prepared(&root).await {
            Ok(code) => code,
            Err((code, message)) => {
                fail(&message);
                code
            }
        }
    })
}

async fn run_prepared(root: &Path) -> Result<u8, (u8, String)> {
    let io = |error: io::Error| (exit::FAILED, error.to_string());
    let project = std::env::current_dir().map_err(io)?;
    let mut facts = Facts::read(&project).map_err(io)?;
    facts.supervisor = std::process::id().cast_signed();
    let text = serde_json::to_vec(&facts).map_err(|error| io(error.into()))?;
    std::fs::write(project.join(FACTS_FILE), text).map_err(io)?;
    let executable = std::env::current_exe().map_err(io)?;
    let request = Request {
        flags: agentsh_policy::Flags::default(),
        policy: Some(root.join("policy.yaml").display().to_string()),
        allow_degraded: true,
        tier: agentsh_sandbox::Tier::default(),
        backend: agentsh_host::Backend::Auto,
        agent: CommandLine::take(vec![executable.into_os_string(), AGENT_VERB.into()]),
        publish: Vec::new(),
        agree: false,
        learns: false,
        tells_files: false,
        summarised: false,
        review: false,
        verb: "demo",
    };
    let outcome = run_session(request).await.map_err(|error| (exit_code_of(&error), error.to_string()))?;
    let ended = Ended { session: outcome.session.facts.id, exit_code: outcome.exit_code };
    let text = serde_json::to_vec(&ended).map_err(|error| io(error.into()))?;
    std::fs::write(root.join("ended.json"), text).map_err(io)?;
    Ok(outcome.exit_code)
}

async fn perform() -> Result<Done, String> {
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
    let session = match serde_json::from_str::<Ended>(&read("ended.json")) {
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
    Ok(Done { session, rows, not_enforced: table::not_enforced(&seen.events) })
}

/// Runs the session process and gives back what it said on standard error. Interrupted, nothing is left either.
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
        // The names are the demo's: nobody else's pin goes.
        let _ = pins.reset(Some(&ServerId(id.to_owned())), Some(scope)).await;
    }
}

fn show(args: &DemoArgs, done: &Done) -> serde_json::Result<String> {
    let Done { session, rows, not_enforced } = done;
    if args.json {
        let unfinished = session.as_ref().err();
        let session = session.as_ref().ok();
        let whole =
            json!({"session": session, "unfinished": unfinished, "rows": rows, "not_enforced": not_enforced});
        return Ok(serde_json::to_string_pretty(&whole)? + "\n");
    }
    let mut text = table::render(rows, super::output::terminal_width());
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
    Ok(match super::output::terminal_width() {
        Some(width) => paragraph::fold(&text, usize::from(width)).into_owned(),
        None => text,
    })
}

fn told(result: io::Result<()>) -> u8 {
    match result {
        Ok(()) => 0,
        Err(error) => fail(&error.to_string()),
    }
}
