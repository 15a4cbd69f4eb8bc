//! `agentsh mcp tools|servers|calls|events|detections`: queries of the journal.

use std::io::Write;

use clap::Subcommand;
use serde::Serialize;
use serde_json::Value;

use super::fleet::Fleet;
use agentsh_base::types::SessionId;
use agentsh_store::{EventFilter, Reader, Record};
use agentsh_terminal::output::{Context, Failure, OK, json, table, whole_table};

mod documented;
mod filter;

pub(super) use documented::held_in;
pub use filter::Filter;

// Flatten this into the verbs of `agentsh mcp`.
#[derive(Clone, Debug, Subcommand)]
pub enum Query {
    /// List the tools that servers offered
    Tools(Filter),
    /// List the servers that were started or refused
    Servers(Filter),
    /// List tool calls and what was decided about them
    Calls(Filter),
    /// List events, as `agentsh events` does
    Events(Filter),
    /// List what was found in definitions, arguments and results: instructions, data of other servers, hosts, changed tools, similar names
    Detections(Filter),
}

/// Prints the answer; gives the exit status.
pub async fn answer(
    query: &Query,
    context: &Context,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    let (Query::Tools(filter)
    | Query::Servers(filter)
    | Query::Calls(filter)
    | Query::Events(filter)
    | Query::Detections(filter)) = query;
    let Listed { head, rows, json: as_json } = match &filter.fleet {
        Some(url) => {
            let fleet = Fleet::at(url, filter.host.as_deref(), context)?;
            let mut wanted = filter.resolve(query, context.now, None).await?;
            if let Some(which) = &filter.session {
                wanted.session = fleet.session(which).await?.session.parse().map(SessionId).ok();
            }
            fleet.list_events(query, filter.wide, &wanted, context).await?
        }
        None => {
            let mut reader = Reader::open(&context.state_dir).await?;
            let wanted = filter.resolve(query, context.now, reader.as_mut()).await?;
            match reader {
                Some(mut reader) => list_events(query, filter.wide, &wanted, context, &mut reader).await?,
                None => {
                    Listed { head: head(query).to_vec(), rows: Vec::new(), json: Value::Array(Vec::new()) }
                }
            }
        }
    };
    if rows.is_empty() {
        say_nothing(query, filter, err)?;
    }
    if filter.json {
        json(out, &as_json)?;
    } else if filter.wide {
        whole_table(out, context, &head, rows)?;
    } else {
        table(out, context, &head, rows)?;
    }
    Ok(OK)
}

/// The answer in both forms.
pub(super) struct Listed {
    pub head: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
    pub json: Value,
}

impl Listed {
    pub(super) fn new<T: Serialize>(
        head: &'static [&'static str],
        found: Vec<T>,
        row: impl FnMut(T) -> Vec<String>,
    ) -> Result<Self, Failure> {
        let json = serde_json::to_value(&found).map_err(std::io::Error::from)?;
        Ok(Self { head: head.to_vec(), rows: found.into_iter().map(row).collect(), json })
    }
}

fn say_nothing(query: &Query, filter: &Filter, err: &mut dyn Write) -> Result<(), Failure> {
    let nothing = match query {
        // Without a search, finding nothing is not a good sign.
        Query::Detections(_) => {
            "no detections recorded; agentsh scans results of servers and outgoing data,\n\
             unless `sandbox.mcp.exfiltration` is switched off"
        }
        _ if filter.json => return Ok(()),
        _ if filter.narrows() => "no matching records",
        _ => "nothing is recorded",
    };
    writeln!(err, "{nothing}")?;
    Ok(())
}

pub(super) fn head(query: &Query) -> &'static [&'static str] {
    match query {
        Query::Tools(_) => &[
            "server",
            "tool",
            "status",
            "calls",
            "blocked",
            "first_seen",
            "last_seen",
            "hash",
            "description",
        ],
        Query::Servers(_) => {
            &["server", "status", "at", "calls", "refused", "dropped", "program", "hash", "project"]
        }
        Query::Calls(_) => &["time", "server", "tool", "action", "reason", "rule", "input"],
        Query::Events(_) => &["time", "type", "server", "tool", "details"],
        Query::Detections(_) => &[
            "time",
            "server",
            "tool",
            "action",
            "severity",
            "detector",
            "from",
            "to",
            "hidden by",
            "context",
        ],
    }
}

pub(super) async fn list_events(
    query: &Query,
    wide: bool,
    filter: &EventFilter,
    context: &Context,
    reader: &mut Reader,
) -> Result<Listed, Failure> {
    match query {
        Query::Tools(_) => Listed::new(head(query), reader.tools(filter).await?, |tool| {
            vec![
                tool.server_id,
                tool.tool_name,
                tool.status,
                tool.calls.to_string(),
                tool.blocked.to_string(),
                context.time(&tool.first_seen),
                context.time(&tool.last_seen),
                context.hash(tool.tool_hash.as_deref()),
                tool.description.unwrap_or_default(),
            ]
        }),
        Query::Servers(_) => Listed::new(head(query), reader.servers(filter).await?, |server| {
            vec![
                server.server_id,
                server.last_status,
                context.time(&server.last_at.unwrap_or_default()),
                server.calls.to_string(),
                server.refused.to_string(),
                server.dropped.to_string(),
                server.program.unwrap_or_default(),
                context.hash(server.hash.as_deref()),
                server.project.unwrap_or_default(),
            ]
        }),
        Query::Calls(_) => Listed::new(head(query), reader.calls(filter).await?, |call| {
            let action = call.outcome_word().unwrap_or_else(|| "none".to_owned());
            vec![
                context.time(&call.time),
                call.server_id,
                call.tool_name,
                action,
                call.undelivered.or(call.reason).unwrap_or_default(),
                call.rule
                    .map(|rule| if wide { rule.to_string() } else { context.rule(&rule) })
                    .unwrap_or_default(),
                call.input.map(|input| input.to_string()).unwrap_or_default(),
            ]
        }),
        Query::Events(_) => {
            let documented = documented::events(filter, reader).await?;
            let found = match documented {
                Some(found) => found,
                None => records_as_json(&reader.events(filter).await?),
            };
            Listed::new(head(query), found, |event| {
                let mut rest = event.clone();
                if let Some(fields) = rest.as_object_mut() {
                    fields.retain(|name, _| {
                        !matches!(
                            name.as_str(),
                            "session" | "seq" | "time" | "type" | "server_id" | "tool_name"
                        )
                    });
                }
                let time = context.time(&field(&event, "time"));
                let [kind, server, tool] = ["type", "server_id", "tool_name"].map(|name| field(&event, name));
                vec![time, kind, server, tool, rest.to_string()]
            })
        }
        Query::Detections(_) => {
            let mut found = Vec::new();
            for kind in ["mcp_exfil_detected", "mcp_content_detected"] {
                let filter = EventFilter { kind: Some(kind.to_owned()), ..filter.clone() };
                found.extend(records_as_json(&reader.events(&filter).await?));
            }
            found.sort_by_key(|event| (field(event, "time"), event.get("seq").and_then(Value::as_u64)));
            let found = newest(found, filter);
            Listed::new(head(query), found, |event| {
                let text = |name: &str| field(&event, name);
                let source = format!("{}/{}", text("source_server"), text("source_tool"));
                let mut row = vec![context.time(&text("time"))];
                row.extend(["server_id", "tool_name", "action", "severity", "detector"].map(text));
                row.push(if source == "/" { String::new() } else { source });
                row.extend([text("destination"), decode_body(&event), text("context")]);
                row
            })
        }
    }
}

/// As many as the filter allows, oldest first.
fn newest(mut events: Vec<Value>, filter: &EventFilter) -> Vec<Value> {
    let most = usize::try_from(filter.limit).unwrap_or(usize::MAX);
    events.split_off(events.len().saturating_sub(most))
}

/// As `--json` prints them.
fn records_as_json(records: &[Record]) -> Vec<Value> {
    records.iter().map(Record::to_json).collect()
}

fn field(event: &Value, name: &str) -> String {
    event.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn decode_body(body: &Value) -> String {
    let steps = body.get("decoded").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    steps.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" > ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use agentsh_store::testing::{START, called, one_session, session, verdict, write};
    use agentsh_terminal::output::finish;
    use std::path::Path;

    fn context(state_dir: &Path, width: Option<u16>) -> Context {
        Context { state_dir: state_dir.to_owned(), now: START.parse().unwrap(), width }
    }

    async fn ask(query: Query, state_dir: &Path, width: Option<u16>) -> (u8, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let result = answer(&query, &context(state_dir, width), &mut out, &mut err).await;
        let status = finish(result, &mut err);
        (status, String::from_utf8(out).unwrap(), agentsh_terminal::output::without_colour(err))
    }

    fn as_json() -> Filter {
        Filter { json: true, limit: 100, ..Filter::default() }
    }

    async fn ask_json(query: Query, state_dir: &Path) -> Value {
        let (status, out, err) = ask(query, state_dir, None).await;
        assert_eq!((status, err.as_str()), (OK, ""));
        serde_json::from_str(&out).unwrap()
    }

    #[tokio::test]
    async fn mcp_query_json_matches_its_snapshots() {
        let dir = one_session().await;
        insta::assert_json_snapshot!("tools", ask_json(Query::Tools(as_json()), dir.path()).await);
        insta::assert_json_snapshot!("servers", ask_json(Query::Servers(as_json()), dir.path()).await);
        insta::assert_json_snapshot!("calls", ask_json(Query::Calls(as_json()), dir.path()).await);
        insta::assert_json_snapshot!("events", ask_json(Query::Events(as_json()), dir.path()).await);
    }

    #[tokio::test]
    async fn mcp_query_filters_narrow_the_result() {
        let dir = one_session().await;
        write(
            dir.path(),
            session(2),
            vec![called("x", 1), verdict("x", 1, agentsh_store::words::Action::Block), called("read", 2)],
        )
        .await;
        let count = async |query: Query| ask_json(query, dir.path()).await.as_array().unwrap().len();
        let blocked = Filter { action: Some("block".into()), ..as_json() };
        assert_eq!(count(Query::Calls(blocked.clone())).await, 2);
        assert_eq!(
            count(Query::Calls(Filter { session: Some("latest".into()), ..blocked.clone() })).await,
            1
        );
        assert_eq!(count(Query::Calls(Filter { tool: Some("read".into()), ..as_json() })).await, 3);
        assert_eq!(count(Query::Calls(Filter { limit: 2, ..as_json() })).await, 2);
        assert_eq!(count(Query::Events(Filter { limit: 5, ..as_json() })).await, 5);
        assert_eq!(
            count(Query::Events(Filter { kind: Some("mcp_tool_changed".into()), ..as_json() })).await,
            1
        );
        assert_eq!(count(Query::Events(Filter { server: Some("git".into()), ..as_json() })).await, 2);
        assert_eq!(count(Query::Events(Filter { severity: Some("high".into()), ..as_json() })).await, 0);
        assert_eq!(
            count(Query::Events(Filter { since: Some("2026-01-02T03:04:24Z".into()), ..as_json() })).await,
            2
        );
        assert_eq!(count(Query::Servers(Filter { session: Some("latest".into()), ..as_json() })).await, 1);
        let last = ask_json(Query::Calls(as_json()), dir.path()).await;
        assert_eq!(last.as_array().unwrap().last().unwrap()["action"], Value::Null);
    }

    #[tokio::test]
    async fn hostile_text_does_not_reach_the_terminal() {
        let dir = one_session().await;
        for width in [None, Some(100)] {
            for json in [true, false] {
                let query = Query::Tools(Filter { json, ..as_json() });
                let (_, out, _) = ask(query, dir.path(), width).await;
                // Without our own colours: what else there is came from outside.
                let out = anstream::adapter::strip_str(&out).to_string();
                assert!(!out.contains('\u{1b}') && out.contains("[31"), "{out}");
            }
        }
    }

    #[tokio::test]
    async fn lines_are_tab_separated_away_from_a_terminal() {
        let dir = one_session().await;
        let (_, out, _) = ask(Query::Servers(Filter { json: false, ..as_json() }), dir.path(), None).await;
        let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split('\t').collect()).collect();
        assert_eq!(lines[0][..3], ["server", "status", "at"]);
        assert_eq!((lines[1][0], lines[1][1], lines[2][0], lines[2][1]), ("fs", "exited", "git", "refused"));
    }

    #[tokio::test]
    async fn query_without_a_journal_is_empty_and_creates_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let nowhere = dir.path().join("agentsh");
        assert_eq!(ask_json(Query::Calls(as_json()), &nowhere).await, Value::Array(vec![]));
        assert!(!nowhere.exists());
        let (status, out, err) = ask(Query::Detections(as_json()), &nowhere, None).await;
        assert_eq!((status, out.as_str()), (OK, "[]\n"));
        assert!(err.contains("no detections"), "{err}");
    }

    #[tokio::test]
    async fn mcp_query_with_invalid_filters_is_refused() {
        let dir = one_session().await;
        for filter in [
            Filter { session: Some("ffff".into()), ..as_json() },
            Filter { since: Some("yesterday".into()), ..as_json() },
            Filter { since: Some("5é".into()), ..as_json() },
            Filter { since: Some(String::new()), ..as_json() },
            Filter { since: Some("99999999999h".into()), ..as_json() },
        ] {
            let (status, out, err) = ask(Query::Events(filter), dir.path(), None).await;
            assert_eq!((status, out.as_str()), (agentsh_terminal::output::USAGE, ""), "{err}");
            assert!(err.starts_with("error: "), "{err}");
        }
    }
}
