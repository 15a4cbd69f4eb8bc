//! `agentsh demo`: a scripted agent and a hostile server in an ordinary run. It needs no key and no network, and
//! writes only to a temporary directory and the journal.
//!
//! Three processes: this one plants, listens and judges; `__demo-session` is an ordinary run whose environment holds
//! the planted secrets; inside it, agent and servers are agentsh again.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::session::command_line::CommandLine;
use crate::session::run::{Request, run as run_session};
use crate::session::run_error::exit_code_of;
use agentsh_terminal::exit;
use agentsh_trials::demo::facts::{DemoFacts, FACTS_FILE, HOSTILE};
use agentsh_trials::demo::{AGENT_VERB, RunEnd, agent as scripted, perform, server as bundled, show};

use super::{fail, on_one_thread};

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub async fn run(args: DemoArgs) -> u8 {
    match perform().await {
        Ok(done) => {
            let text = match show(&done, args.json) {
                Ok(text) => text,
                Err(error) => return fail(&error.to_string()),
            };
            // The reader may have closed it: ignore that.
            let _ = anstream::stdout().write_all(text.as_bytes());
            if done.is_good() { 0 } else { exit::NO }
        }
        Err(message) => fail(&message),
    }
}

/// One of the bundled servers.
#[must_use]
pub fn server() -> u8 {
    let hostile = std::env::args().nth(2).is_some_and(|name| name == HOSTILE);
    exit_status_of(bundled::serve(hostile))
}

/// The scripted agent.
#[must_use]
pub fn agent() -> u8 {
    exit_status_of(scripted::run())
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
    let mut facts = DemoFacts::read(&project).map_err(io)?;
    facts.supervisor = std::process::id().cast_signed();
    let text = serde_json::to_vec(&facts).map_err(|error| io(error.into()))?;
    std::fs::write(project.join(FACTS_FILE), text).map_err(io)?;
    let executable = std::env::current_exe().map_err(io)?;
    let request = Request {
        policy: Some(root.join("policy.yaml").display().to_string()),
        allow_degraded: true,
        agent: CommandLine::take(vec![executable.into_os_string(), AGENT_VERB.into()]),
        verb: "demo",
        ..Request::default()
    };
    let outcome = run_session(request).await.map_err(|error| (exit_code_of(&error), error.to_string()))?;
    let ended = RunEnd { session: outcome.session.facts.id, exit_code: outcome.exit_code };
    let text = serde_json::to_vec(&ended).map_err(|error| io(error.into()))?;
    std::fs::write(root.join("ended.json"), text).map_err(io)?;
    Ok(outcome.exit_code)
}

fn exit_status_of(result: io::Result<()>) -> u8 {
    match result {
        Ok(()) => 0,
        Err(error) => fail(&error.to_string()),
    }
}
