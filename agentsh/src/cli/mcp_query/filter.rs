//! Filters of the queries. An impossible value is refused, because an empty answer would read as if nothing had
//! happened.

use clap::Args;
use jiff::{SignedDuration, Timestamp};

use super::Query;
use agentsh_store::{Event, EventFilter, Reader, SEVERITIES};
use agentsh_terminal::output::Failure;

#[derive(Clone, Debug, Default, Args)]
pub struct Filter {
    /// Only this session: an id, the beginning of one, or `latest`
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
    /// Only this server
    #[arg(long, value_name = "ID")]
    pub server: Option<String>,
    /// Only this tool
    #[arg(long, value_name = "TOOL")]
    pub tool: Option<String>,
    /// Only events of this type, such as mcp_tool_changed (`events` alone)
    #[arg(long = "type", value_name = "TYPE")]
    pub kind: Option<String>,
    /// Only this decision: allow, alert or block; for calls also undelivered: allowed, but never received by the server
    #[arg(long, value_name = "ACTION")]
    pub action: Option<String>,
    /// At least this severity: low, medium, high or critical (`events` and `detections`)
    #[arg(long, value_name = "SEVERITY")]
    pub severity: Option<String>,
    /// Only newer entries: 45s, 30m, 1h, 2d, 1w, or an RFC 3339 time
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Maximum number of entries, newest first
    #[arg(long, value_name = "N", default_value_t = EventFilter::DEFAULT_LIMIT)]
    pub limit: u64,
    /// Query a fleet server for all its hosts (not `tools`)
    #[arg(long, value_name = "URL")]
    pub fleet: Option<String>,
    /// Only this host of the fleet, by name or id
    #[arg(long, value_name = "HOST", requires = "fleet")]
    pub host: Option<String>,
    /// Show long cells and the places of rules in full
    #[arg(long)]
    pub wide: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Filter {
    /// # Errors
    /// For invalid values, and for a server or session that is not on record.
    pub(super) async fn resolve(
        &self,
        query: &Query,
        now: Timestamp,
        reader: Option<&mut Reader>,
    ) -> Result<EventFilter, Failure> {
        self.check_options(query)?;
        let actions: &[&str] = match query {
            Query::Calls(_) => &["allow", "alert", "block", "undelivered"],
            _ => &["allow", "alert", "block"],
        };
        one_of("--action", self.action.as_deref(), actions)?;
        one_of("--severity", self.severity.as_deref(), &SEVERITIES)?;
        let since = self.since.as_deref().map(|text| parse_since(text, now)).transpose()?;
        let mut session = None;
        match reader {
            Some(reader) => {
                if let Some(which) = &self.session {
                    session = Some(reader.session(which).await?);
                }
                if let Some(server) = &self.server {
                    check_known_server(server, &reader.server_ids().await?)?;
                }
                if let Some(kind) = &self.kind {
                    known_type(kind, reader.kinds().await?)?;
                }
            }
            None => self.kind.as_deref().map_or(Ok(()), |kind| known_type(kind, Vec::new()))?,
        }
        Ok(EventFilter {
            session,
            server: self.server.clone(),
            tool: self.tool.clone(),
            kind: self.kind.clone(),
            action: self.action.clone(),
            severity: self.severity.clone(),
            since,
            limit: self.limit,
        })
    }

    /// Refuses options that do not apply to the query: ignored ones would seem to work.
    fn check_options(&self, query: &Query) -> Result<(), Failure> {
        let events = ["events"].as_slice();
        let (verb, has) = match query {
            Query::Tools(_) => ("tools", [false, false, false, true]),
            Query::Servers(_) => ("servers", [false, false, false, false]),
            Query::Calls(_) => ("calls", [false, true, false, true]),
            Query::Events(_) => ("events", [true, true, true, true]),
            Query::Detections(_) => ("detections", [false, true, true, true]),
        };
        let given = [
            ("--type", &self.kind, events),
            ("--action", &self.action, &["calls", "events", "detections"]),
            ("--severity", &self.severity, &["events", "detections"]),
            ("--tool", &self.tool, &["tools", "calls", "events", "detections"]),
        ];
        for ((option, value, verbs), has) in given.into_iter().zip(has) {
            if value.is_some() && !has {
                return Err(Failure::Usage(format!(
                    "`mcp {verb}` has no {option}; `mcp {}` has",
                    verbs.join("`, `mcp ")
                )));
            }
        }
        Ok(())
    }

    /// Whether fewer than all rows are asked for.
    pub(super) fn narrows(&self) -> bool {
        let words =
            [&self.session, &self.server, &self.tool, &self.kind, &self.action, &self.severity, &self.since];
        words.iter().any(|word| word.is_some())
    }
}

fn one_of(option: &str, given: Option<&str>, words: &[&str]) -> Result<(), Failure> {
    match given {
        Some(word) if !words.contains(&word) => {
            Err(Failure::Usage(format!("{option} is '{word}'; it must be one of {}", words.join(", "))))
        }
        _ => Ok(()),
    }
}

/// `kinds`: those on record.
fn known_type(kind: &str, mut kinds: Vec<String>) -> Result<(), Failure> {
    kinds.extend(Event::KINDS.iter().map(|kind| (*kind).to_owned()));
    kinds.extend(super::documented::names().map(|(name, _)| name.to_owned()));
    kinds.sort();
    kinds.dedup();
    one_of("--type", Some(kind), &kinds.iter().map(String::as_str).collect::<Vec<_>>())
}

fn check_known_server(server: &str, ids: &[String]) -> Result<(), Failure> {
    if ids.iter().any(|id| id == server) {
        return Ok(());
    }
    Err(Failure::No(format!(
        "no server '{server}' on record; there {}",
        agentsh_terminal::output::list_of_ids(ids)
    )))
}

/// `1h` before `now`, or a point in time.
fn parse_since(text: &str, now: Timestamp) -> Result<Timestamp, Failure> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let wrong =
        || Failure::Usage(format!("--since {text}: write 45s, 30m, 1h, 2d, 1w or 2026-01-31T12:00:00Z"));
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'w' => 604_800,
        _ => return Err(wrong()),
    };
    let number: i64 = text[..text.len() - 1].parse::<u32>().map_err(|_| wrong())?.into();
    now.checked_sub(SignedDuration::from_secs(number * seconds)).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use agentsh_store::testing::START;

    #[test]
    fn since_filter_counts_back_from_now() {
        let now: Timestamp = START.parse().unwrap();
        assert_eq!(parse_since("1h", now).unwrap().to_string(), "2026-01-02T02:04:05.000006Z");
        assert_eq!(parse_since("2d", now).unwrap().to_string(), "2025-12-31T03:04:05.000006Z");
    }
}
