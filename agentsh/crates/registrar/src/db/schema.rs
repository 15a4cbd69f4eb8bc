//! The tables. Rows of `servers` and `log` are never deleted: what was once trusted can be looked up.

/// One statement each, for both kinds of database. `servers.summary` is the JSON object of an answer; `size` is the
/// length of the interface in bytes, so that a page of a list has a bound. An index
/// that begins with `status` would be taken for questions about one name, and walk through every server.
pub(super) const TABLES: [&str; 9] = [
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
