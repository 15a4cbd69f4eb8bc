//! `agentsh mcp tools|servers|calls|events|detections`: what the journal knows.

use std::io::Write;

use clap::Subcommand;
use serde_json::Value;

use super::output::{Context, Failure, OK, finish, json, table};
use crate::store::{EventFilter, Reader, Record};

mod filter;

pub use filter::Filter;

/// Flatten this into the verbs of `agentsh mcp`.
#[derive(Clone, Debug, Subcommand)]
pub enum Query {
    /// List the tools that servers offered
    Tools(Filter),
    /// List the servers that were started or refused
    Servers(Filter),
    /// List tool calls and what was decided about them
    Calls(Filter),
    /// List events
    Events(Filter),
    /// List what was found in arguments: pieces of other servers' results, and hosts that are not allowed
    Detections(Filter),
}

/// Prints the answer; gives the exit status.
pub async fn run(query: Query, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let result = match Context::of_process() {
        Ok(context) => answer(&query, &context, out, err).await,
        Err(failure) => Err(failure),
    };
    finish(result, err)
}

async fn answer(
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
    let mut reader = Reader::open(&context.state_dir).await?;
    let wanted = filter.resolve(query, context.now, reader.as_mut()).await?;
    let reader = reader.as_mut();
    let rows = match query {
        Query::Tools(_) => tools(reader, &wanted, filter.json, context, out).await?,
        Query::Servers(_) => servers(reader, &wanted, filter.json, context, out).await?,
        Query::Calls(_) => calls(reader, &wanted, filter.json, context, out).await?,
        Query::Events(_) => events(reader, &wanted, filter.json, context, out).await?,
        Query::Detections(_) => detections(reader, &wanted, filter.json, context, out, err).await?,
    };
    if rows == 0 && !filter.json && !matches!(query, Query::Detections(_)) {
        let nothing = if filter.narrows() { "nothing on record is like this" } else { "nothing is recorded" };
        writeln!(err, "{nothing}")?;
    }
    Ok(OK)
}

async fn tools(
    reader: Option<&mut Reader>,
    filter: &EventFilter,
    as_json: bool,
    context: &Context,
    out: &mut dyn Write,
) -> Result<usize, Failure> {
    let tools = match reader {
        Some(reader) => reader.tools(filter).await?,
        None => Vec::new(),
    };
    if as_json {
        return json(out, &tools).map(|()| tools.len());
    }
    let head =
        ["server", "tool", "status", "calls", "blocked", "first_seen", "last_seen", "hash", "description"];
    let rows = tools.into_iter().map(|tool| {
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
    });
    table(out, context, &head, rows.collect())
}

async fn servers(
    reader: Option<&mut Reader>,
    filter: &EventFilter,
    as_json: bool,
    context: &Context,
    out: &mut dyn Write,
) -> Result<usize, Failure> {
    let servers = match reader {
        Some(reader) => reader.servers(filter).await?,
        None => Vec::new(),
    };
    if as_json {
        return json(out, &servers).map(|()| servers.len());
    }
    let head = ["server", "status", "at", "calls", "refused", "program", "hash", "project"];
    let rows = servers.into_iter().map(|server| {
        vec![
            server.server_id,
            server.last_status,
            context.time(&server.last_at.unwrap_or_default()),
            server.calls.to_string(),
            server.refused.to_string(),
            server.program.unwrap_or_default(),
            context.hash(server.hash.as_deref()),
            server.project.unwrap_or_default(),
        ]
    });
    table(out, context, &head, rows.collect())
}

async fn calls(
    reader: Option<&mut Reader>,
    filter: &EventFilter,
    as_json: bool,
    context: &Context,
    out: &mut dyn Write,
) -> Result<usize, Failure> {
    let calls = match reader {
        Some(reader) => reader.calls(filter).await?,
        None => Vec::new(),
    };
    if as_json {
        return json(out, &calls).map(|()| calls.len());
    }
    let head = ["time", "server", "tool", "action", "reason", "rule", "input"];
    let rows = calls.into_iter().map(|call| {
        let action = call.shown().unwrap_or_else(|| "none".to_owned());
        vec![
            context.time(&call.time),
            call.server_id,
            call.tool_name,
            action,
            call.undelivered.or(call.reason).unwrap_or_default(),
            call.rule.map(|rule| rule.to_string()).unwrap_or_default(),
            call.input.map(|input| input.to_string()).unwrap_or_default(),
        ]
    });
    table(out, context, &head, rows.collect())
}

async fn events(
    reader: Option<&mut Reader>,
    filter: &EventFilter,
    as_json: bool,
    context: &Context,
    out: &mut dyn Write,
) -> Result<usize, Failure> {
    let events = match reader {
        Some(reader) => reader.events(filter).await?,
        None => Vec::new(),
    };
    if as_json {
        return json(out, &events.iter().map(Record::to_json).collect::<Vec<_>>()).map(|()| events.len());
    }
    let rows = events.iter().map(|record| {
        let field = |name: &str| record.body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut rest = record.body.clone();
        if let Some(fields) = rest.as_object_mut() {
            fields.retain(|name, _| !matches!(name.as_str(), "type" | "server_id" | "tool_name"));
        }
        let time = context.time(&format!("{:.6}", record.time));
        vec![time, record.kind.clone(), field("server_id"), field("tool_name"), rest.to_string()]
    });
    table(out, context, &["time", "type", "server", "tool", "details"], rows.collect())
}

async fn detections(
    reader: Option<&mut Reader>,
    filter: &EventFilter,
    as_json: bool,
    context: &Context,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<usize, Failure> {
    let filter = EventFilter { kind: Some("mcp_exfil_detected".to_owned()), ..filter.clone() };
    let found = match reader {
        Some(reader) => reader.events(&filter).await?,
        None => Vec::new(),
    };
    if found.is_empty() {
        // Nothing found where nobody searched is not a good sign.
        writeln!(
            err,
            "no detections are recorded; `agentsh proxy` looks, and `run` and `mcp run` where `sandbox.mcp.exfiltration` is written"
        )?;
    }
    if as_json {
        return json(out, &found.iter().map(Record::to_json).collect::<Vec<_>>()).map(|()| found.len());
    }
    let head =
        ["time", "server", "tool", "action", "severity", "detector", "from", "to", "hidden by", "context"];
    let rows = found.iter().map(|record| {
        let field = |name: &str| record.body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let source = format!("{}/{}", field("source_server"), field("source_tool"));
        vec![
            context.time(&format!("{:.6}", record.time)),
            field("server_id"),
            field("tool_name"),
            field("action"),
            field("severity"),
            field("detector"),
            if source == "/" { String::new() } else { source },
            field("destination"),
            decoded(&record.body),
            field("context"),
        ]
    });
    table(out, context, &head, rows.collect())
}

fn decoded(body: &Value) -> String {
    let steps = body.get("decoded").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    steps.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" > ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::store::testing::{START, called, one_session, session, verdict, write};
    use std::path::Path;

    fn context(state_dir: &Path, width: Option<u16>) -> Context {
        Context { state_dir: state_dir.to_owned(), now: START.parse().unwrap(), width }
    }

    async fn ask(query: Query, state_dir: &Path, width: Option<u16>) -> (u8, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let result = answer(&query, &context(state_dir, width), &mut out, &mut err).await;
        let status = finish(result, &mut err);
        (status, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
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
    async fn json_shapes() {
        let dir = one_session().await;
        insta::assert_json_snapshot!("tools", ask_json(Query::Tools(as_json()), dir.path()).await);
        insta::assert_json_snapshot!("servers", ask_json(Query::Servers(as_json()), dir.path()).await);
        insta::assert_json_snapshot!("calls", ask_json(Query::Calls(as_json()), dir.path()).await);
        insta::assert_json_snapshot!("events", ask_json(Query::Events(as_json()), dir.path()).await);
    }

    #[tokio::test]
    async fn filters_narrow() {
        let dir = one_session().await;
        write(dir.path(), session(2), vec![called("x", 1), verdict("x", 1, "block"), called("read", 2)])
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
    async fn nothing_recorded_is_an_empty_answer_and_nothing_is_created() {
        let dir = tempfile::tempdir().unwrap();
        let nowhere = dir.path().join("agentsh");
        assert_eq!(ask_json(Query::Calls(as_json()), &nowhere).await, Value::Array(vec![]));
        assert!(!nowhere.exists());
        let (status, out, err) = ask(Query::Detections(as_json()), &nowhere, None).await;
        assert_eq!((status, out.as_str()), (OK, "[]\n"));
        assert!(err.contains("no detections"), "{err}");
    }

    #[tokio::test]
    async fn wrong_questions_are_refused() {
        let dir = one_session().await;
        for filter in [
            Filter { session: Some("ffff".into()), ..as_json() },
            Filter { since: Some("yesterday".into()), ..as_json() },
            Filter { since: Some("5é".into()), ..as_json() },
            Filter { since: Some(String::new()), ..as_json() },
            Filter { since: Some("99999999999h".into()), ..as_json() },
        ] {
            let (status, out, err) = ask(Query::Events(filter), dir.path(), None).await;
            assert_eq!((status, out.as_str()), (super::super::output::USAGE, ""), "{err}");
            assert!(err.starts_with("error: "), "{err}");
        }
    }
}
