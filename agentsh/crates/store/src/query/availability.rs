//! How often a server failed.

use jiff::Timestamp;

use super::super::sql::Query;
use super::super::{Reader, StoreError};

/// Events that are looked at, the newest of the record: a start must not wait for a long past. By their numbers, since those of
/// one server would have to be sorted.
const NEWEST: i64 = 20_000;

/// Calls of a server and what became of them. A server that did not start counts as one call that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Availability {
    pub calls: u64,
    /// Calls that got no answer: it crashed, took too long, or did not start.
    pub failed: u64,
}

impl Reader {
    /// The recorded failures of a server since then.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn availability(&mut self, server: &str, since: Timestamp) -> Result<Availability, StoreError> {
        let mut query = Query::new(
            "SELECT coalesce(sum(type = 'mcp_tool_call_intercepted' AND action NOT IN ('block', 'ask')), 0), \
             coalesce(sum(type IN ('mcp_request_timed_out', 'mcp_server_unavailable')), 0), \
             coalesce(sum(CASE WHEN type = 'mcp_server_crashed' THEN max(1, body ->> '$.pending_calls') ELSE 0 END), 0), \
             coalesce(sum(type = 'mcp_server_refused' AND body ->> '$.reason' = 'start-failed'), 0) \
             FROM events WHERE id > (SELECT coalesce(max(id), 0) FROM events) - ",
        );
        query.bind(NEWEST).push(" AND +server_id = ").bind(server.to_owned());
        query.push(
            " AND +type IN ('mcp_tool_call_intercepted', 'mcp_request_timed_out', 'mcp_server_unavailable', \
             'mcp_server_crashed', 'mcp_server_refused') AND time >= ",
        );
        query.bind(super::super::record::text_of(since));
        self.ask(move |connection| {
            let read = query
                .rows(connection, |row| Ok([row.get::<_, u64>(0)?, row.get(1)?, row.get(2)?, row.get(3)?]));
            let rows = read.map_err(|error| StoreError::sql("counting failures", &error))?;
            let [passed, unanswered, lost, unstarted] = rows.first().copied().unwrap_or_default();
            let failed = unanswered + lost + unstarted;
            Ok(Availability { calls: (passed + unstarted).max(failed), failed })
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use serde_json::json;

    use super::*;
    use crate::testing::{session, write_bodies};

    #[tokio::test]
    async fn calls_without_an_answer_count_as_failed() {
        let place = tempfile::tempdir().unwrap();
        let call = |action: &str| {
            json!({"type": "mcp_tool_call_intercepted", "server_id": "s", "tool_name": "t", "jsonrpc_id": 1,
                "tool_hash": null, "action": action, "reason": "no-rule", "rule": {"id": "", "file": "", "line": 0}})
        };
        let bodies = [
            call("allow"),
            call("alert"),
            call("allow"),
            call("block"),
            json!({"type": "mcp_server_crashed", "server_id": "s", "exit_code": 1, "pending_calls": 2, "restart_in_ms": 1}),
            json!({"type": "mcp_request_timed_out", "server_id": "s", "method": "tools/call", "jsonrpc_id": 1, "after_ms": 1}),
            json!({"type": "mcp_server_refused", "server_id": "s", "reason": "start-failed", "detail": "",
                "rule": {"id": "", "file": "", "line": 0}}),
            json!({"type": "mcp_server_refused", "server_id": "s", "reason": "tool-denied", "detail": "",
                "rule": {"id": "", "file": "", "line": 0}}),
            json!({"type": "mcp_server_crashed", "server_id": "other", "exit_code": 1, "pending_calls": 9, "restart_in_ms": 1}),
        ];
        write_bodies(place.path(), session(1), bodies.iter().map(ToString::to_string).collect()).await;
        let mut reader = Reader::open(place.path()).await.unwrap().unwrap();
        let long_ago = "2000-01-01T00:00:00Z".parse().unwrap();
        let found = reader.availability("s", long_ago).await.unwrap();
        assert_eq!(found, Availability { calls: 4, failed: 4 });
        let later = "2999-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(reader.availability("s", later).await.unwrap(), Availability::default());
    }
}
