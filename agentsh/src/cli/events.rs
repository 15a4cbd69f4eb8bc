//! `agentsh events`: lists recorded events. `agentsh events verify`: verifies the hash chain.

use std::io::Write;

use clap::{Args, Subcommand};

use super::mcp_query::{self, Filter, Query};
use agentsh_store::verify::SessionState;
use agentsh_store::{Reader, StoreError, Verification, escape};
use agentsh_terminal::output::{Context, Failure, NO, OK, json};

#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct EventsArgs {
    #[command(subcommand)]
    verb: Option<EventsVerb>,
    #[command(flatten)]
    filter: Filter,
}

#[derive(Clone, Debug, Subcommand)]
pub enum EventsVerb {
    /// Check the hash chain of every session; exit status 1 if it is broken
    Verify {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Prints the result; exit status 1 when the chain is broken or the file damaged.
pub async fn run(
    args: EventsArgs,
    context: &Context,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    match args.verb {
        Some(EventsVerb::Verify { json }) => verify(context, json, out).await,
        None => mcp_query::answer(&Query::Events(args.filter), context, out, err).await,
    }
}

async fn verify(context: &Context, as_json: bool, out: &mut dyn Write) -> Result<u8, Failure> {
    let checked = match Reader::open(&context.state_dir).await {
        Ok(Some(mut reader)) => reader.verify().await,
        Ok(None) => Ok(Verification::default()),
        Err(error) => Err(error),
    };
    let checked = match checked {
        Err(error @ StoreError::Damaged { .. }) => return Err(Failure::No(error.to_string())),
        other => other?,
    };
    if as_json {
        json(out, &checked)?;
    } else {
        print(&checked, out)?;
    }
    Ok(if checked.ok { OK } else { NO })
}

fn print(checked: &Verification, out: &mut dyn Write) -> Result<(), Failure> {
    for problem in &checked.problems {
        let session = problem.session.as_deref().unwrap_or("journal");
        let place = problem.seq.map_or(String::new(), |seq| format!(", event {seq}"));
        writeln!(out, "broken: {}{place}: {}", escape::line(session), escape::line(&problem.detail))?;
    }
    let more = checked.problem_count.saturating_sub(checked.problems.len() as u64);
    if more > 0 {
        writeln!(out, "broken: and {more} more problems")?;
    }
    let with = |state| checked.sessions.iter().filter(|session| session.state == state).count();
    writeln!(
        out,
        "{}: {} events in {} sessions ({} ended, {} open or killed, {} broken)",
        if checked.ok { "ok" } else { "broken" },
        checked.events,
        checked.sessions.len(),
        with(SessionState::Ended),
        with(SessionState::OpenOrKilled),
        with(SessionState::Broken),
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use agentsh_store::testing::{START, one_session, tamper};
    use agentsh_terminal::output::finish;
    use std::path::Path;

    async fn ask(state_dir: &Path, json: bool) -> (u8, String) {
        let context = Context { state_dir: state_dir.to_owned(), now: START.parse().unwrap(), width: None };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let result = verify(&context, json, &mut out).await;
        let status = finish(result, &mut err);
        out.extend(err);
        (status, agentsh_terminal::output::without_colour(out))
    }

    #[tokio::test]
    async fn events_verify_reports_intact_and_broken_chains() {
        let dir = one_session().await;
        let (status, out) = ask(dir.path(), false).await;
        assert_eq!(
            (status, out.as_str()),
            (OK, "ok: 21 events in 1 sessions (1 ended, 0 open or killed, 0 broken)\n")
        );
        insta::assert_json_snapshot!(
            "verified",
            serde_json::from_str::<serde_json::Value>(&ask(dir.path(), true).await.1).unwrap()
        );
        tamper(dir.path(), "DELETE FROM events WHERE id = 11").await;
        let (status, out) = ask(dir.path(), false).await;
        assert_eq!(status, NO);
        assert!(out.contains("event 12: events 11 to 11 are missing"), "{out}");
        insta::assert_json_snapshot!(
            "broken",
            serde_json::from_str::<serde_json::Value>(&ask(dir.path(), true).await.1).unwrap()
        );
    }

    #[tokio::test]
    async fn missing_journal_verifies_and_a_garbled_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(ask(dir.path(), false).await.0, OK);
        std::fs::write(dir.path().join("agentsh.db"), "garbage ".repeat(500)).unwrap();
        let (status, out) = ask(dir.path(), false).await;
        assert_eq!(status, NO);
        assert!(out.contains("damaged"), "{out}");
    }
}
