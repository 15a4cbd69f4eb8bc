//! How often a server failed.

use jiff::Timestamp;

use super::super::sql::Query;
use super::super::{Reader, StoreError};

/// Calls of a server and what became of them. A server that did not start counts as one call that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Availability {
    pub calls: u64,
    /// Calls that got no answer: it crashed, took too long, or did not start.
    pub failed: u64,
}

impl Reader {
    /// What is on record of a server since then.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn availability(&mut self, server: &str, since: Timestamp) -> Result<Availability, StoreError> {
        let mut query = Query::new(
            "SELECT coalesce(sum(type = 'mcp_tool_call_intercepted' AND action NOT IN ('block', 'ask')), 0), \
             coalesce(sum(type IN ('mcp_request_timed_out', 'mcp_server_unavailable')), 0), \
             coalesce(sum(CASE WHEN type = 'mcp_server_crashed' THEN max(1, body ->> '$.pending_calls') ELSE 0 END), 0), \
             coalesce(sum(type = 'mcp_server_refused' AND body ->> '$.reason' = 'start-failed'), 0) \
             FROM events WHERE server_id = ",
        );
        query.bind(server.to_owned());
        query.push(
            " AND type IN ('mcp_tool_call_intercepted', 'mcp_request_timed_out', 'mcp_server_unavailable', \
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
