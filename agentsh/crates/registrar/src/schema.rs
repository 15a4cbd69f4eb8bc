//! The tables. Rows of `servers` and `log` are never deleted, so that earlier approvals can be looked up.

/// The lock for writing: the log is one chain, whichever server writes the next entry.
pub const WRITERS: i64 = 7_452_381;

/// One statement each, for both kinds of database. `servers.summary` is the JSON object of an answer; `size` is the
/// length of the interface in bytes, so that a page of a list has a bound. An index
/// that begins with `status` would be taken for questions about one name, and walk through every server.
pub const TABLES: [&str; 9] = [
    "CREATE TABLE IF NOT EXISTS servers (
       id BIGINT PRIMARY KEY, name TEXT NOT NULL, skeleton TEXT NOT NULL, hash TEXT NOT NULL, interface TEXT NOT NULL,
       summary TEXT NOT NULL, size BIGINT NOT NULL, status TEXT NOT NULL, registered_at TEXT NOT NULL,
       registered_by TEXT NOT NULL, expires_at TEXT)",
    "CREATE UNIQUE INDEX IF NOT EXISTS servers_name ON servers (name, hash)",
    "CREATE INDEX IF NOT EXISTS servers_hash ON servers (hash, id)",
    "CREATE INDEX IF NOT EXISTS servers_skeleton ON servers (skeleton)",
    "CREATE INDEX IF NOT EXISTS servers_live ON servers (expires_at) WHERE status = 'current'",
    "CREATE TABLE IF NOT EXISTS approvals (
       id BIGINT PRIMARY KEY, name TEXT NOT NULL, recorded_hash TEXT, new_hash TEXT NOT NULL,
       new_interface TEXT NOT NULL, summary TEXT NOT NULL, size BIGINT NOT NULL, diff TEXT NOT NULL,
       submitted_diff TEXT NOT NULL, status TEXT NOT NULL, created_at TEXT NOT NULL, expires_at TEXT NOT NULL,
       resolved_at TEXT, resolved_by TEXT, reason TEXT)",
    "CREATE UNIQUE INDEX IF NOT EXISTS approvals_pending ON approvals (name, new_hash) WHERE status = 'pending'",
    "CREATE INDEX IF NOT EXISTS approvals_status ON approvals (status, id)",
    "CREATE TABLE IF NOT EXISTS log (
       seq BIGINT PRIMARY KEY, at TEXT NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL, name TEXT NOT NULL,
       hash TEXT NOT NULL, detail TEXT NOT NULL, previous TEXT NOT NULL, digest TEXT NOT NULL)",
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use agentsh_database::{Database, Row, Value};

    use super::*;

    /// With one name among a million, a walk through all of them is the difference between microseconds and seconds.
    #[test]
    fn questions_about_one_name_or_hash_use_its_index() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.db");
        let database = Database::File(path);
        database.prepare(WRITERS, &TABLES).unwrap();
        let mut db = database.connect(None).unwrap();
        for (sql, index) in [
            (
                "EXPLAIN QUERY PLAN SELECT hash FROM servers WHERE name = 'a' AND hash <> 'b' AND status = 'current'",
                "servers_name",
            ),
            (
                "EXPLAIN QUERY PLAN UPDATE servers SET status = 'superseded' WHERE name = 'a' AND hash <> 'b' AND \
                 status = 'current'",
                "servers_name",
            ),
            (
                "EXPLAIN QUERY PLAN SELECT size FROM servers WHERE hash = 'a' AND status = 'current' AND (expires_at IS \
                 NULL OR expires_at > 'b') ORDER BY id DESC LIMIT 100 OFFSET 0",
                "servers_hash",
            ),
            (
                "EXPLAIN QUERY PLAN SELECT name FROM servers WHERE skeleton = 'a' ORDER BY id DESC LIMIT 1",
                "servers_skeleton",
            ),
        ] {
            let plan: Vec<Row> = db.rows(sql, &[]).unwrap();
            let plan: String = plan.iter().filter_map(|row| row.last()).map(Value::as_text).collect();
            assert!(plan.contains(index), "{sql}: {plan}");
        }
    }
}
