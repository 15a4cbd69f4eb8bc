//! The pinned interface of each server, entry by entry, and what the server offered instead since.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::{Connection, Row, TransactionBehavior};
use serde::Serialize;

use super::StoreError;
use super::pins::PinStore;
use super::record::text_of;
use super::sql::Query;
use super::words::{Offered, TrustedBy};
use crate::types::ServerId;

/// Longer definitions are pinned by their hash alone, in bytes.
pub const MAX_DEFINITION: usize = 64 << 10;

const PINNED: &str = "interface_pins WHERE trusted_by <> ''";
/// Pins that were reset, until the server is pinned again: each can be trusted again by its hash.
const FORGOTTEN: &str = "interface_pins WHERE trusted_by = ''";
const CHANGED: &str = "interface_changes WHERE TRUE";

/// One entry of a server's interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InterfacePin {
    pub server_id: ServerId,
    /// Like [`super::PinState`].
    pub scope: String,
    /// The program or URL that offered it: the digest of the pinned program, or the origin of the URL. Another one is another
    /// server, whose interface is pinned separately.
    pub basis: String,
    /// The clients to which it is offered so, by protocol and capabilities. Empty for a client that does not describe
    /// itself.
    pub audience: String,
    pub kind: Offered,
    pub name: String,
    /// `sha256:` over the canonical definition, whole.
    pub hash: String,
    /// The canonical definition; None where it was longer than [`MAX_DEFINITION`].
    pub definition: Option<String>,
    /// When it was trusted; for a change, when it was seen.
    pub at: String,
    /// None: a change that is not trusted.
    pub trusted_by: Option<TrustedBy>,
}

/// Selects entries; None selects all.
#[derive(Clone, Debug, Default)]
pub struct WhichInterface {
    pub server: Option<String>,
    pub scope: Option<String>,
    pub name: Option<String>,
    pub kind: Option<Offered>,
}

impl WhichInterface {
    fn push(&self, query: &mut Query) {
        if let Some(kind) = self.kind {
            query.push(" AND kind = ").bind(kind.as_str().to_owned());
        }
        for (column, wanted) in [("server_id", &self.server), ("scope", &self.scope), ("name", &self.name)] {
            if let Some(wanted) = wanted {
                query.push(" AND ").push(column).push(" = ").bind(wanted.clone());
            }
        }
    }
}

impl PinStore {
    /// The pins, and the entries that were offered instead and not trusted.
    ///
    /// # Errors
    /// When the store cannot be read; the caller then treats every entry as changed.
    pub async fn interfaces(
        &self,
        which: WhichInterface,
    ) -> Result<(Vec<InterfacePin>, Vec<InterfacePin>), StoreError> {
        self.ask(move |open| Ok((rows(open, PINNED, &which)?, rows(open, CHANGED, &which)?))).await
    }

    /// Every server of which something is kept, in order.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn servers(&self) -> Result<Vec<String>, StoreError> {
        self.ask(|open| {
            let tables = ["pins", "candidates", "interface_pins", "interface_changes"];
            let each = tables.map(|table| format!("SELECT server_id FROM {table}"));
            Query::new(each.join(" UNION ") + " ORDER BY 1").rows(open, |row| row.get(0)).map_err(sql)
        })
        .await
    }

    /// For each server, the numbers of pinned and of changed entries.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn interface_counts(&self) -> Result<BTreeMap<String, (u64, u64)>, StoreError> {
        self.ask(|open| {
            let mut query = Query::new("SELECT server_id, sum(pinned), sum(changed) FROM (");
            query.push("SELECT server_id, 1 AS pinned, 0 AS changed FROM ").push(PINNED).push(" UNION ALL ");
            query.push("SELECT server_id, 0, 1 FROM interface_changes) GROUP BY server_id");
            let rows = query.rows(open, |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))));
            Ok(rows.map_err(sql)?.into_iter().collect())
        })
        .await
    }

    /// Writes down what is trusted, and what changed. An entry that has a pin keeps it, unless a person decided. Pins of the
    /// same server on another basis go.
    ///
    /// # Errors
    /// If it cannot be written to disk.
    pub async fn note_interfaces(
        &self,
        trusted: Vec<InterfacePin>,
        changed: Vec<InterfacePin>,
    ) -> Result<(), StoreError> {
        if trusted.is_empty() && changed.is_empty() {
            return Ok(());
        }
        self.ask(move |open| {
            change(open, |open| {
                let mut gone = open.prepare(
                    "DELETE FROM interface_pins WHERE server_id = $1 AND scope = $2 AND (basis <> $3 OR trusted_by = '')",
                )?;
                let mut gone_changes = open.prepare(
                    "DELETE FROM interface_changes WHERE server_id = $1 AND scope = $2 AND basis <> $3",
                )?;
                let mut last = None;
                for pin in &trusted {
                    let key = (&pin.server_id.0, &pin.scope, &pin.basis);
                    if last != Some(key) {
                        gone.execute(key)?;
                        gone_changes.execute(key)?;
                        last = Some(key);
                    }
                    let is_decided = pin.trusted_by == Some(TrustedBy::User);
                    let or = if is_decided { "REPLACE" } else { "IGNORE" };
                    put(open, &format!("INSERT OR {or} INTO interface_pins"), pin)?;
                }
                changed.iter().try_for_each(|pin| put(open, "INSERT OR REPLACE INTO interface_changes", pin))
            })
        })
        .await
    }

    /// Pins the definitions that were offered instead of the pinned ones, and returns them. With a hash, only that
    /// definition: if another one is selected too, nothing is trusted or returned; if none is pending, it may be one
    /// whose pin was reset.
    ///
    /// # Errors
    /// If it cannot be written to disk.
    pub async fn trust_interfaces(
        &self,
        which: WhichInterface,
        only: Option<String>,
    ) -> Result<Vec<InterfacePin>, StoreError> {
        let now = text_of(Timestamp::now());
        self.ask(move |open| {
            change(open, |open| {
                let mut changed = rows(open, CHANGED, &which).map_err(unpacked)?;
                if let Some(hash) = only {
                    if changed.is_empty() {
                        changed = rows(open, FORGOTTEN, &which).map_err(unpacked)?;
                        changed.retain(|pin| pin.hash == hash);
                    }
                    if !changed.iter().all(|pin| pin.hash == hash) {
                        return Ok(Vec::new());
                    }
                }
                for pin in &mut changed {
                    (pin.at, pin.trusted_by) = (now.clone(), Some(TrustedBy::User));
                    put(open, "INSERT OR REPLACE INTO interface_pins", pin)?;
                }
                execute(open, "DELETE FROM interface_changes WHERE TRUE", &which)?;
                Ok(changed)
            })
        })
        .await
    }

    /// Forgets changes, and that pins are trusted. Gives back how many pins there were.
    ///
    /// # Errors
    /// When they are not gone from the disk.
    pub async fn reset_interfaces(&self, which: WhichInterface) -> Result<u64, StoreError> {
        self.ask(move |open| {
            change(open, |open| {
                execute(open, "DELETE FROM interface_changes WHERE TRUE", &which)?;
                let reset = "UPDATE interface_pins SET trusted_by = '' WHERE trusted_by <> ''";
                Ok(execute(open, reset, &which)? as u64)
            })
        })
        .await
    }
}

fn put(connection: &Connection, verb: &str, pin: &InterfacePin) -> rusqlite::Result<()> {
    let by = pin.trusted_by.map_or("", TrustedBy::as_str);
    let mut statement = connection.prepare_cached(&format!(
        "{verb} (server_id, scope, basis, audience, kind, name, hash, definition, at, trusted_by) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
    ))?;
    let InterfacePin { server_id, scope, basis, audience, kind, name, hash, definition, at, .. } = pin;
    let values = (&server_id.0, scope, basis, audience, kind.as_str(), name, hash, definition, at, by);
    statement.execute(values).map(drop)
}

fn rows(
    connection: &Connection,
    table: &str,
    which: &WhichInterface,
) -> Result<Vec<InterfacePin>, StoreError> {
    let mut query = Query::new(format!("SELECT * FROM {table}"));
    which.push(&mut query);
    query.push(" ORDER BY server_id, scope, kind, name, audience");
    query.rows(connection, row).map_err(sql)
}

fn row(row: &Row<'_>) -> rusqlite::Result<InterfacePin> {
    let (kind, by): (String, String) = (row.get("kind")?, row.get("trusted_by")?);
    Ok(InterfacePin {
        server_id: ServerId(row.get("server_id")?),
        scope: row.get("scope")?,
        basis: row.get("basis")?,
        audience: row.get("audience")?,
        kind: Offered::named(&kind).unwrap_or(Offered::Tool),
        name: row.get("name")?,
        hash: row.get("hash")?,
        definition: row.get("definition")?,
        at: row.get("at")?,
        trusted_by: TrustedBy::named(&by),
    })
}

fn execute(connection: &Connection, verb: &str, which: &WhichInterface) -> rusqlite::Result<usize> {
    let mut query = Query::new(verb);
    which.push(&mut query);
    query.execute(connection)
}

/// Makes all changes or none.
fn change<T>(
    connection: &mut Connection,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> Result<T, StoreError> {
    let all = || {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let done = work(&transaction)?;
        transaction.commit().map(|()| done)
    };
    all().map_err(sql)
}

fn sql(error: rusqlite::Error) -> StoreError {
    StoreError::sql("using the pins of interfaces", &error)
}

fn unpacked(error: StoreError) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(Box::new(error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn pin(basis: &str, name: &str, hash: &str) -> InterfacePin {
        InterfacePin {
            server_id: ServerId("fs".to_owned()),
            scope: String::new(),
            basis: basis.to_owned(),
            audience: String::new(),
            kind: Offered::Tool,
            name: name.to_owned(),
            hash: hash.to_owned(),
            definition: Some(format!("{{\"name\":\"{name}\"}}")),
            at: "2026-01-01T00:00:00Z".to_owned(),
            trusted_by: Some(TrustedBy::FirstUse),
        }
    }

    #[tokio::test]
    async fn pin_stays_until_a_change_is_trusted_and_another_program_gets_new_pins() {
        let dir = tempfile::tempdir().unwrap();
        let store = PinStore::new(dir.path());
        let all = WhichInterface::default;
        store.note_interfaces(vec![pin("p1", "a", "1"), pin("p1", "b", "1")], Vec::new()).await.unwrap();
        store.note_interfaces(vec![pin("p1", "a", "2")], Vec::new()).await.unwrap();
        let changed = InterfacePin { trusted_by: None, ..pin("p1", "b", "2") };
        store.note_interfaces(Vec::new(), vec![changed.clone()]).await.unwrap();
        let (pins, changes) = store.interfaces(all()).await.unwrap();
        assert_eq!(pins, [pin("p1", "a", "1"), pin("p1", "b", "1")]);
        assert_eq!(changes, [changed]);
        let which = WhichInterface { name: Some("b".to_owned()), ..all() };
        let trusted = store.trust_interfaces(which.clone(), None).await.unwrap();
        assert_eq!((trusted.len(), trusted[0].hash.as_str()), (1, "2"));
        assert!(store.trust_interfaces(which, None).await.unwrap().is_empty());
        store.note_interfaces(vec![pin("p2", "a", "9")], Vec::new()).await.unwrap();
        let (pins, _) = store.interfaces(all()).await.unwrap();
        assert_eq!(pins, [pin("p2", "a", "9")]);
        assert_eq!(store.reset_interfaces(all()).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn pins_of_an_older_version_belong_to_a_client_without_capabilities() {
        let dir = tempfile::tempdir().unwrap();
        let store = PinStore::new(dir.path());
        store.note_interfaces(vec![pin("p1", "a", "1")], Vec::new()).await.unwrap();
        store.close().await;
        let old = crate::database::open_writer(dir.path()).unwrap();
        // As version 3 had it.
        for table in ["interface_pins", "interface_changes"] {
            old.execute_batch(&format!(
                "ALTER TABLE {table} RENAME TO now;
                 CREATE TABLE {table} (server_id TEXT NOT NULL, scope TEXT NOT NULL, basis TEXT NOT NULL, kind TEXT NOT NULL,
                   name TEXT NOT NULL, hash TEXT NOT NULL, definition TEXT, at TEXT NOT NULL, trusted_by TEXT NOT NULL,
                   PRIMARY KEY (server_id, scope, kind, name));
                 INSERT INTO {table} SELECT server_id, scope, basis, kind, name, hash, definition, at, trusted_by FROM now;
                 DROP TABLE now; PRAGMA user_version = 3;"
            ))
            .unwrap();
        }
        let store = PinStore::new(dir.path());
        let (pins, _) = store.interfaces(WhichInterface::default()).await.unwrap();
        assert_eq!(pins, [pin("p1", "a", "1")]);
        let capable = InterfacePin { audience: "sampling".to_owned(), ..pin("p1", "a", "2") };
        store.note_interfaces(vec![capable.clone()], Vec::new()).await.unwrap();
        let (pins, _) = store.interfaces(WhichInterface::default()).await.unwrap();
        assert_eq!(pins, [pin("p1", "a", "1"), capable]);
        // A version that knows no clients still writes rows.
        let row = "INSERT INTO interface_pins (server_id, scope, basis, kind, name, hash, at, trusted_by)
                   VALUES ('fs', '', 'p1', 'tool', 'b', '1', '', '')";
        old.execute_batch(row).unwrap();
    }
}
