//! `agentsh report list`, also called `agentsh sessions`: lists the recorded sessions.

use std::io::Write;

use clap::Args;

use super::mcp_query::Listed;
use agentsh_store::Reader;
use agentsh_terminal::output::{Context, Failure, OK, json, table};

#[derive(Clone, Debug, Args)]
pub struct SessionsArgs {
    /// Maximum number of entries, newest first
    #[arg(long, value_name = "N", default_value_t = LIMIT)]
    pub limit: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

pub(super) const LIMIT: u64 = 20;

pub(super) async fn list(
    args: &SessionsArgs,
    context: &Context,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    let found = match Reader::open(&context.state_dir).await? {
        Some(mut reader) => reader.sessions(args.limit).await?,
        None => Vec::new(),
    };
    if found.is_empty() && !args.json {
        writeln!(err, "no session is recorded")?;
        return Ok(OK);
    }
    let head = &[
        "session",
        "started",
        "verb",
        "state",
        "exit",
        "events",
        "calls",
        "refused",
        "hosts refused",
        "agent",
        "project",
    ];
    let listed = Listed::new(head, found, |session| {
        let code = session.exit_code.map(|code| code.to_string()).unwrap_or_default();
        vec![
            session.session.to_string(),
            context.time(&session.started_at),
            session.verb.unwrap_or_default(),
            session.state.to_owned(),
            code,
            session.events.to_string(),
            session.calls.to_string(),
            session.refused.to_string(),
            session.hosts_refused.to_string(),
            session.agent.join(" "),
            session.project.unwrap_or_default(),
        ]
    })?;
    if args.json {
        json(out, &listed.json)?;
    } else {
        table(out, context, &listed.head, listed.rows)?;
    }
    Ok(OK)
}
