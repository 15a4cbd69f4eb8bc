//! `agentsh mcp inventory`: the known tools of servers: first seen, risk, pin, and whether their baseline is still
//! being learned.

use std::io::Write;
use std::path::Path;

use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::session::inventory::{InventoryEntry, all};
use agentsh_base::json;
use agentsh_guard::anomaly::{ListedTool, Tool};
use agentsh_policy::risk::{Names, Risk, of_name};
use agentsh_store::words::TrustedBy;
use agentsh_store::{InterfacePin, Offered, PinStore, WhichInterface};
use agentsh_terminal::output::{self, Context, Failure, OK, table};

#[derive(Clone, Debug, Args)]
pub struct InventoryArgs {
    /// Only this server
    #[arg(long, value_name = "ID")]
    server: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One tool of the inventory, with what the pins say of it.
struct Row<'a> {
    kept: &'a InventoryEntry,
    name: &'a str,
    tool: &'a Tool,
    /// As it was offered last, whether it was shown or not.
    listed: Option<ListedTool>,
    pinned_hash: Option<&'a str>,
}

/// Prints the answer; gives the exit status.
pub async fn answer(
    args: &InventoryArgs,
    context: &Context,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    let mut kept = all(&context.state_dir);
    kept.retain(|kept| args.server.as_ref().is_none_or(|server| kept.server == *server));
    let now = u64::try_from(context.now.as_second()).unwrap_or_default();
    let which = WhichInterface {
        server: args.server.clone(),
        kind: Some(Offered::Tool),
        ..WhichInterface::default()
    };
    let (pins, changes) = PinStore::new(&context.state_dir).interfaces(which).await?;
    let rows = kept.iter().flat_map(|kept| {
        let (pins, changes) = (&pins, &changes);
        kept.profile.tools.iter().map(move |(name, tool)| row(kept, name, tool, pins, changes))
    });
    if args.json {
        let rows: Vec<Value> = rows.map(|row| row.as_json(now)).collect();
        output::json(out, &rows)?;
        return Ok(OK);
    }
    let rows: Vec<Vec<String>> = rows
        .map(|Row { kept, name, tool, listed, .. }| {
            vec![
                kept.server.clone(),
                name.to_owned(),
                listed.map_or("", |listed| risk_name(listed.risk)).to_owned(),
                context.time(&time(tool.first_seen)),
                context.time(&time(tool.last_seen)),
                tool.calls.to_string(),
                tool.unusual.to_string(),
                state(tool, now, kept.learning_s).to_owned(),
                kept.project.clone(),
            ]
        })
        .collect();
    let head =
        ["server", "tool", "risk", "first_seen", "last_seen", "calls", "unusual", "calls are", "project"];
    if table(out, context, &head, rows)? == 0 {
        writeln!(err, "no tools recorded yet")?;
    }
    Ok(OK)
}

/// Of several pins and changes, for clients with different capabilities, the newest counts.
fn row<'a>(
    kept: &'a InventoryEntry,
    name: &'a str,
    tool: &'a Tool,
    pins: &'a [InterfacePin],
    changes: &'a [InterfacePin],
) -> Row<'a> {
    let newest = |all: &'a [InterfacePin]| {
        let own = all.iter().filter(|pin| {
            pin.server_id.0 == kept.server
                && pin.name == name
                && (pin.scope.is_empty() || Path::new(&pin.scope).starts_with(&kept.project))
        });
        own.max_by(|one, other| one.at.cmp(&other.at))
    };
    let (pinned, changed) = (newest(pins), newest(changes));
    // Untrusted definitions are hidden, so no listing has them; one that a person trusted was offered before that.
    let changed = changed.filter(|changed| pinned.is_none_or(|pinned| pinned.at < changed.at));
    let accepted = pinned.filter(|pin| {
        let at = pin.at.parse::<Timestamp>().map_or(0, Timestamp::as_second);
        pin.trusted_by == Some(TrustedBy::User) && u64::try_from(at).is_ok_and(|at| tool.listed_at <= at)
    });
    let offered = changed.or(accepted);
    let listed = match offered {
        Some(offered) => {
            let definition = offered.definition.as_deref().and_then(|text| json::read(text.as_bytes()).ok());
            let definition = definition.unwrap_or_else(|| json::Json::Object(Vec::new()));
            let listed = ListedTool::of(&definition, &offered.hash, Names::default());
            Some(ListedTool { risk: listed.risk.max(of_name(name, Names::default())), ..listed })
        }
        None => tool.listed.clone(),
    };
    Row { kept, name, tool, listed, pinned_hash: pinned.map(|pin| pin.hash.as_str()) }
}

impl Row<'_> {
    fn as_json(&self, now: u64) -> Value {
        let Self { kept, name, tool, listed, pinned_hash } = self;
        let listed = listed.as_ref();
        json!({
            "server": kept.server, "tool": name, "project": kept.project,
            "title": listed.and_then(|listed| listed.title.as_deref()),
            "risk": listed.map_or_else(|| risk_name(of_name(name, Names::default())), |listed| risk_name(listed.risk)),
            "annotations": listed.and_then(|listed| listed.annotations.as_ref()),
            "current_hash": listed.map(|listed| listed.hash.as_str()), "pinned_hash": pinned_hash,
            "first_seen": time(tool.first_seen), "last_seen": time(tool.last_seen), "calls": tool.calls,
            "unusual": tool.unusual, "state": state(tool, now, kept.learning_s),
        })
    }
}

fn risk_name(risk: Risk) -> &'static str {
    match risk {
        Risk::Low => "low",
        Risk::Medium => "medium",
        Risk::High => "high",
    }
}

/// Whether its calls are compared with what is usual yet.
pub fn state(tool: &Tool, now: u64, learning_s: u64) -> &'static str {
    if tool.is_learned(now, learning_s) { "watched" } else { "learned" }
}

/// In the journal's time format.
pub fn time(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}
