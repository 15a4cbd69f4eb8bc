//! `agentsh scan servers`: scans what the configured servers offer, entry by entry. Nothing leaves this machine.

use std::io::Write;

use agentsh_scan::{Action, Channel, Scan};
use clap::Args;
use serde_json::{Value, json};

use super::super::run::Network;
use super::Format;
use crate::session::mcp_run;
use agentsh_base::json::{self, Json};
use agentsh_base::types::ServerId;
use agentsh_policy::Flags;
use agentsh_registry::Captured;
use agentsh_store::escape;
use agentsh_terminal::output::{Failure, NO, OK, USAGE};

#[derive(Clone, Debug, Args)]
pub struct ServersArgs {
    /// Scan this server; by default all configured servers. May be repeated
    #[arg(long, value_name = "ID")]
    pub server: Vec<String>,
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Policy for the servers
    #[arg(long, value_name = "FILE|NAME")]
    pub policy: Option<String>,
    /// Start even if a layer of protection is not available
    #[arg(long)]
    pub allow_degraded: bool,
}

/// One entry in which something was found.
struct Row {
    kind: &'static str,
    name: String,
    scan: Scan,
}

/// Exit status 0: nothing was found; 1: something was; 2: a server could not be looked at.
pub(super) async fn run(args: ServersArgs, out: &mut dyn Write) -> Result<u8, Failure> {
    let request = mcp_run::Request {
        id: None,
        policy: args.policy,
        flags: Flags::default(),
        allow_degraded: args.allow_degraded,
        tier: agentsh_sandbox::Tier::default(),
        backend: Network::Auto.into(),
        learn: false,
        what: mcp_run::ServerSource::Configured(ServerId("scan".to_owned())),
    };
    let answers = mcp_run::capture_all(request, &args.server).await;
    let answers = answers.map_err(|error| Failure::Usage(error.to_string()))?;
    let (mut status, mut shown) = (OK, Vec::new());
    for (id, answer) in answers {
        let judged = answer.map(|captured| judge(&captured));
        status = status.max(match &judged {
            Err(_) => USAGE,
            Ok((_, rows)) if rows.is_empty() => OK,
            Ok(_) => NO,
        });
        match args.format {
            Format::Json => shown.push(as_json(&id, &judged)),
            Format::Text => print(&id, &judged, out)?,
        }
    }
    match args.format {
        Format::Json => writeln!(out, "{}", json!({ "servers": shown }))?,
        Format::Text if status == OK => writeln!(out, "nothing was found")?,
        Format::Text => {}
    }
    Ok(status)
}

/// How many entries there are, and those in which something was found.
type Judged = (usize, Vec<Row>);

fn judge(captured: &Captured) -> Judged {
    let sections = [
        ("tool", "tools", &captured.tools),
        ("prompt", "prompts", &captured.prompts),
        ("resource", "resources", &captured.resources),
    ];
    let (mut count, mut rows) = (0, Vec::new());
    let mut add = |kind, name: String, scan: Scan| {
        count += 1;
        if scan.verdict != Action::Allow {
            rows.push(Row { kind, name, scan });
        }
    };
    if let Ok(opening) = json::read(captured.opening.trim_ascii())
        && let Some(text) =
            opening.member("result").and_then(|result| result.member("instructions")?.as_text())
    {
        add("instructions", String::new(), agentsh_scan::scan_text(&text, Channel::Definition));
    }
    for (kind, section, pages) in sections {
        for page in pages.split(|byte| *byte == b'\n').filter(|page| !page.is_empty()) {
            let Ok(page) = json::read(page) else { continue };
            let entries =
                page.member("result").and_then(|result| result.member(section)).and_then(Json::as_array);
            for entry in entries.unwrap_or_default() {
                let name = entry.member("name").and_then(Json::as_text).unwrap_or_default().into_owned();
                add(kind, name, agentsh_scan::scan_definition(entry));
            }
        }
    }
    (count, rows)
}

fn as_json(id: &ServerId, judged: &Result<Judged, String>) -> Value {
    match judged {
        Err(why) => json!({ "server": id.0, "error": why }),
        Ok((count, rows)) => {
            let found: Vec<Value> = rows
                .iter()
                .map(|row| {
                    json!({
                        "kind": row.kind, "name": row.name, "verdict": row.scan.verdict.as_str(),
                        "score": row.scan.score, "findings": super::findings(&row.scan),
                    })
                })
                .collect();
            json!({ "server": id.0, "entries": count, "found": found })
        }
    }
}

fn print(id: &ServerId, judged: &Result<Judged, String>, out: &mut dyn Write) -> std::io::Result<()> {
    let server = escape::line(&id.0);
    match judged {
        Err(why) => writeln!(out, "cannot scan {server}: {}", escape::line(why)),
        Ok((count, rows)) => {
            let entries = if *count == 1 { "entry" } else { "entries" };
            writeln!(out, "{server}: {count} {entries}, {} with findings", rows.len())?;
            for row in rows {
                let (word, name) = (row.scan.verdict.as_str(), escape::line(&row.name));
                writeln!(out, "  {} '{name}': {word}, score {}", row.kind, row.scan.score)?;
                super::print_findings(&row.scan, out)?;
            }
            Ok(())
        }
    }
}
