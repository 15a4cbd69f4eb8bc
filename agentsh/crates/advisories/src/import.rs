//! Imports a source record by record in one transaction.

use std::collections::BTreeSet;
use std::path::PathBuf;

use jiff::Timestamp;
use rusqlite::{OptionalExtension as _, Transaction, params};

use super::database::DatabaseError;
use super::deny::List;
use super::osv::Record;
use super::read::{Document, advisory_kind};

/// A source that is being taken in.
#[derive(Debug)]
pub struct Import<'d> {
    inside: Transaction<'d>,
    path: PathBuf,
    source: &'d str,
    now: Timestamp,
    kinds: BTreeSet<&'static str>,
    records: usize,
}

impl<'d> Import<'d> {
    pub(crate) fn new(inside: Transaction<'d>, path: PathBuf, source: &'d str, now: Timestamp) -> Self {
        Self { inside, path, source, now, kinds: BTreeSet::new(), records: 0 }
    }

    /// `signed_by`: whose keys signed it, for a deny list.
    ///
    /// # Errors
    /// When it cannot be written, and when a deny list may not be taken.
    pub fn add(&mut self, document: &Document, signed_by: &[&String]) -> Result<(), DatabaseError> {
        let path = self.path.clone();
        let sql = move |source| DatabaseError::Sql { path: path.clone(), source };
        let (inside, source, now) = (&self.inside, self.source, self.now);
        self.kinds.insert(advisory_kind(document).as_str());
        self.records += match document {
            Document::Osv(record, text) => take_record(inside, source, record, text).map_err(&sql)?,
            Document::Kev(catalogue) => {
                inside.execute("DELETE FROM kev WHERE source IN (?1, '')", [source]).map_err(&sql)?;
                for entry in &catalogue.vulnerabilities {
                    let text = serde_json::to_string(entry).unwrap_or_default();
                    let row = params![entry.cve_id.to_ascii_uppercase(), text, source];
                    inside.execute("INSERT OR REPLACE INTO kev VALUES (?1, ?2, ?3)", row).map_err(&sql)?;
                }
                catalogue.vulnerabilities.len()
            }
            Document::Deny(list, _) => {
                if signed_by.is_empty() {
                    return Err(DatabaseError::Unsigned(list.name.clone()));
                }
                if list.expires <= now {
                    return Err(DatabaseError::Expired { name: list.name.clone(), at: list.expires });
                }
                for signer in signed_by {
                    take_list(inside, list, signer, &sql)?;
                }
                list.entries.len()
            }
            Document::Status(summary) => {
                let text = serde_json::to_string(summary).unwrap_or_default();
                let row = params![source, text, now.to_string()];
                inside.execute("INSERT OR REPLACE INTO status VALUES (?1, ?2, ?3)", row).map_err(&sql)?;
                1
            }
        };
        Ok(())
    }

    /// Puts what was imported into effect.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(self) -> Result<(), DatabaseError> {
        let path = self.path;
        let sql = move |source| DatabaseError::Sql { path: path.clone(), source };
        let kinds = self.kinds.into_iter().collect::<Vec<_>>().join(", ");
        let records = i64::try_from(self.records).unwrap_or(i64::MAX);
        let row = params![self.source, kinds, records, self.now.to_string()];
        self.inside.execute("INSERT OR REPLACE INTO sources VALUES (?1, ?2, ?3, ?4)", row).map_err(&sql)?;
        self.inside.commit().map_err(&sql)
    }
}

/// Replaces the same source's earlier record, unless that is newer.
fn take_record(
    inside: &Transaction<'_>,
    source: &str,
    record: &Record,
    text: &str,
) -> rusqlite::Result<usize> {
    let before: Option<String> = inside
        .prepare_cached("SELECT record FROM osv WHERE id = ?1 AND source = ?2 LIMIT 1")?
        .query_row([&record.id, source], |row| row.get(0))
        .optional()?;
    let before = before.and_then(|text| Record::read(&text).ok());
    if before.is_some_and(|before| before.modified_at() > record.modified_at()) {
        return Ok(0);
    }
    inside
        .prepare_cached("DELETE FROM osv WHERE id = ?1 AND source IN (?2, '')")?
        .execute([&record.id, source])?;
    let mut write = inside.prepare_cached("INSERT OR REPLACE INTO osv VALUES (?1, ?2, ?3, ?4, ?5)")?;
    let mut is_kept = false;
    for (ecosystem, name) in record.packages() {
        write.execute(params![ecosystem.as_str(), name, record.id, text, source])?;
        is_kept = true;
    }
    Ok(usize::from(is_kept))
}

fn take_list(
    inside: &Transaction<'_>,
    list: &List,
    signer: &str,
    sql: &impl Fn(rusqlite::Error) -> DatabaseError,
) -> Result<(), DatabaseError> {
    let newest: Option<i64> = inside
        .query_row(
            "SELECT version FROM deny_lists WHERE list = ?1 AND signer = ?2",
            [&list.name, signer],
            |row| row.get(0),
        )
        .optional()
        .map_err(sql)?;
    let newest = newest.and_then(|newest| u64::try_from(newest).ok()).unwrap_or_default();
    if list.version < newest {
        return Err(DatabaseError::Older { name: list.name.clone(), version: list.version, newest });
    }
    let version = i64::try_from(list.version).unwrap_or(i64::MAX);
    let row = params![list.name, signer, version, list.expires.to_string()];
    inside.execute("INSERT OR REPLACE INTO deny_lists VALUES (?1, ?2, ?3, ?4)", row).map_err(sql)?;
    let of_list = params![list.name, signer];
    inside.execute("DELETE FROM deny WHERE list = ?1 AND signer = ?2", of_list).map_err(sql)?;
    for (number, entry) in list.entries.iter().enumerate() {
        let text = serde_json::to_string(entry).unwrap_or_default();
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        let row = params![list.name, signer, entry.subject(), number, text];
        inside.execute("INSERT OR REPLACE INTO deny VALUES (?1, ?2, ?3, ?4, ?5)", row).map_err(sql)?;
    }
    Ok(())
}
