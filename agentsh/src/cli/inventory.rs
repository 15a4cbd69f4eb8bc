//! `agentsh mcp inventory`: the tools that servers were seen with, since when, and whether their calls are still only learned.

use std::io::Write;

use clap::Args;
use serde_json::{Value, json};

use super::output::{self, Context, Failure, OK, finish, table};
use crate::guard::anomaly::Tool;
use crate::session::inventory::{Kept, all};

#[derive(Clone, Debug, Args)]
pub struct InventoryArgs {
    /// This server alone
    #[arg(long, value_name = "ID")]
    server: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Prints the answer; gives the exit status.
pub fn run(args: &InventoryArgs, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let result = Context::of_process().and_then(|context| answer(args, &context, out, err));
    finish(result, err)
}

fn answer(
    args: &InventoryArgs,
    context: &Context,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    let mut kept = all(&context.state_dir);
    kept.retain(|kept| args.server.as_ref().is_none_or(|server| kept.server == *server));
    let now = u64::try_from(context.now.as_second()).unwrap_or_default();
    let tools =
        || kept.iter().flat_map(|kept| kept.profile.tools.iter().map(move |(name, tool)| (kept, name, tool)));
    if args.json {
        let rows: Vec<Value> = tools().map(|(kept, name, tool)| as_json(kept, name, tool, now)).collect();
        output::json(out, &rows)?;
        return Ok(OK);
    }
    let rows: Vec<Vec<String>> = tools()
        .map(|(kept, name, tool)| {
            vec![
                kept.server.clone(),
                name.clone(),
                context.time(&time(tool.first_seen)),
                context.time(&time(tool.last_seen)),
                tool.calls.to_string(),
                tool.unusual.to_string(),
                state(tool, now).to_owned(),
                kept.project.clone(),
            ]
        })
        .collect();
    let head = ["server", "tool", "first_seen", "last_seen", "calls", "unusual", "calls are", "project"];
    if table(out, context, &head, rows)? == 0 {
        writeln!(err, "no tool of a server was seen yet")?;
    }
    Ok(OK)
}

fn as_json(kept: &Kept, name: &str, tool: &Tool, now: u64) -> Value {
    json!({
        "server": kept.server, "tool": name, "project": kept.project, "first_seen": time(tool.first_seen),
        "last_seen": time(tool.last_seen), "calls": tool.calls, "unusual": tool.unusual, "state": state(tool, now),
    })
}

/// Whether its calls are compared with what is usual yet.
pub fn state(tool: &Tool, now: u64) -> &'static str {
    if tool.is_learned(now) { "watched" } else { "learned" }
}

/// As the record writes times.
pub fn time(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}
