//! The advisory database: one SQLite file that `agentsh advisories update` writes and everything else reads.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};

use super::deny::Entry;
use super::import::Import;
use super::kev;
use super::osv::Record;
use super::policy::{AdvisoryKind, Severity};
use super::read::Document;
use super::status::Summary;
use super::{Advisory, Package, level, shorten};

/// Below the directory of data.
const FILE: &str = "advisories.db";
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS osv (ecosystem TEXT NOT NULL, name TEXT NOT NULL, id TEXT NOT NULL, record TEXT NOT NULL,
    source TEXT NOT NULL, PRIMARY KEY (ecosystem, name, id, source)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS osv_by_id ON osv (id);
CREATE TABLE IF NOT EXISTS kev (id TEXT NOT NULL, record TEXT NOT NULL, source TEXT NOT NULL, PRIMARY KEY (id, source))
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS deny_lists (list TEXT NOT NULL, signer TEXT NOT NULL, version INTEGER NOT NULL,
    expires TEXT NOT NULL, PRIMARY KEY (list, signer)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS deny (list TEXT NOT NULL, signer TEXT NOT NULL, subject TEXT NOT NULL, number INTEGER NOT NULL,
    record TEXT NOT NULL, PRIMARY KEY (subject, list, signer, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS status (source TEXT PRIMARY KEY, record TEXT NOT NULL, at TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sources (source TEXT PRIMARY KEY, kinds TEXT NOT NULL, records INTEGER NOT NULL, at TEXT NOT NULL)
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS inventory (server TEXT NOT NULL, scope TEXT NOT NULL, package TEXT NOT NULL,
    PRIMARY KEY (server, scope, package)) WITHOUT ROWID;
";
/// Migrates a database without sources of records: the source of existing records is ''.
const WITH_SOURCES: &str = "
BEGIN IMMEDIATE;
DROP INDEX IF EXISTS osv_by_id;
ALTER TABLE osv RENAME TO osv_before;
ALTER TABLE kev RENAME TO kev_before;
SCHEMA
INSERT INTO osv (ecosystem, name, id, record, source) SELECT ecosystem, name, id, record, '' FROM osv_before;
INSERT INTO kev (id, record, source) SELECT id, record, '' FROM kev_before;
DROP TABLE osv_before;
DROP TABLE kev_before;
COMMIT;
";
/// A status page is old news after this long.
const STATUS_LIFETIME: jiff::SignedDuration = jiff::SignedDuration::from_hours(6);

#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    #[error("{path}: {source}", path = path.display())]
    Sql { path: PathBuf, source: rusqlite::Error },
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("deny list '{name}' is version {version}, but version {newest} is already stored")]
    Older { name: String, version: u64, newest: u64 },
    #[error(
        "deny list '{0}' is not signed by a key in sandbox.mcp.advisories.signers; agentsh looks for signatures in FILE.minisig next to it, also inside an archive"
    )]
    Unsigned(String),
    #[error("deny list '{name}' expired at {at}")]
    Expired { name: String, at: Timestamp },
}

/// The people whose deny lists count.
#[derive(Clone, Debug, Default)]
pub struct TrustedSigners {
    pub signers: Vec<String>,
    pub quorum: u64,
}

/// A source that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSource {
    pub source: String,
    pub kinds: String,
    pub records: u64,
    pub at: String,
}

#[derive(Debug)]
pub struct Database {
    connection: Connection,
    path: PathBuf,
}

impl Database {
    /// Opens the database for reading. None: nothing was ever fetched.
    ///
    /// # Errors
    /// A database exists, but cannot be used.
    pub fn open(data: &Path) -> Result<Option<Self>, DatabaseError> {
        let path = data.join(FILE);
        if !path.exists() {
            return Ok(None);
        }
        Self::connect(path).map(Some)
    }

    /// Opens the database for writing. Creates it if it is missing, readable only for the user.
    ///
    /// # Errors
    /// When it cannot be opened or created.
    pub fn create(data: &Path) -> Result<Self, DatabaseError> {
        use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
        let path = data.join(FILE);
        let io = |source| DatabaseError::Io { path: path.clone(), source };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data).map_err(io)?;
        std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&path).map_err(io)?;
        let database = Self::connect(path)?;
        database.connection.execute_batch("PRAGMA journal_mode = WAL").map_err(database.sql())?;
        let is_before = "SELECT count(*) > 0 AND sum(name = 'source') = 0 FROM pragma_table_info('osv')";
        let is_before: Option<bool> =
            database.connection.query_row(is_before, [], |row| row.get(0)).map_err(database.sql())?;
        let schema = match is_before {
            Some(true) => WITH_SOURCES.replace("SCHEMA", SCHEMA),
            _ => SCHEMA.to_owned(),
        };
        database.connection.execute_batch(&schema).map_err(database.sql())?;
        Ok(database)
    }

    fn connect(path: PathBuf) -> Result<Self, DatabaseError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = Connection::open_with_flags(&path, flags).and_then(|connection| {
            connection.busy_timeout(BUSY_TIMEOUT)?;
            Ok(connection)
        });
        match opened {
            Ok(connection) => Ok(Self { connection, path }),
            Err(source) => Err(DatabaseError::Sql { path, source }),
        }
    }

    fn sql(&self) -> impl Fn(rusqlite::Error) -> DatabaseError + use<> {
        let path = self.path.clone();
        move |source| DatabaseError::Sql { path: path.clone(), source }
    }

    /// Stores the records of a source, all of them or none. `signed_by`: whose keys signed it, for a deny list.
    ///
    /// # Errors
    /// When it cannot be written, and when a deny list may not be taken.
    pub fn take<'k>(
        &mut self,
        source: &str,
        documents: &[Document],
        signed_by: impl Fn(&Document) -> Vec<&'k String>,
        now: Timestamp,
    ) -> Result<(), DatabaseError> {
        let mut taking = self.begin(source, now)?;
        documents.iter().try_for_each(|document| taking.add(document, &signed_by(document)))?;
        taking.finish()
    }

    /// Begins the import of a source. Without [`Taking::finish`] nothing of it is kept.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin<'d>(&'d mut self, source: &'d str, now: Timestamp) -> Result<Import<'d>, DatabaseError> {
        let (sql, path) = (self.sql(), self.path.clone());
        let inside = self.connection.transaction().map_err(&sql)?;
        Ok(Import::new(inside, path, source, now))
    }

    /// The sources that were read, by name.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn sources(&self) -> Result<Vec<StoredSource>, DatabaseError> {
        let read = || {
            let mut asked =
                self.connection.prepare("SELECT source, kinds, records, at FROM sources ORDER BY source")?;
            let rows = asked.query_map([], |row| {
                let records: i64 = row.get(2)?;
                Ok(StoredSource {
                    source: row.get(0)?,
                    kinds: row.get(1)?,
                    records: u64::try_from(records).unwrap_or_default(),
                    at: row.get(3)?,
                })
            })?;
            rows.collect::<Result<Vec<_>, _>>()
        };
        read().map_err(self.sql())
    }

    /// The records about these packages.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn of_packages(
        &self,
        packages: &BTreeSet<Package>,
        believed: &TrustedSigners,
        now: Timestamp,
    ) -> Result<Vec<Advisory>, DatabaseError> {
        let sql = self.sql();
        let mut found = Vec::new();
        let mut asked = self
            .connection
            .prepare("SELECT record FROM osv WHERE ecosystem = ?1 AND name = ?2 ORDER BY id")
            .map_err(&sql)?;
        for package in packages {
            let rows = asked.query_map(params![package.ecosystem.as_str(), package.name], |row| row.get(0));
            let texts: Vec<String> = rows.and_then(Iterator::collect).map_err(&sql)?;
            let mut records: Vec<Record> = texts.iter().filter_map(|text| Record::read(text).ok()).collect();
            // The newest version of a record, whichever source it came from.
            records.sort_by(|one, other| (&one.id, other.modified_at()).cmp(&(&other.id, one.modified_at())));
            let mut told = None;
            for record in records {
                // A source cannot withdraw another source's advisory about this version.
                let Some(hit) = record.hits(package).filter(|_| told.as_ref() != Some(&record.id)) else {
                    continue;
                };
                told = Some(record.id.clone());
                let mut summary = record.summary();
                if hit.is_unsure {
                    summary.push_str(" (its version cannot be compared)");
                }
                found.extend(self.attacked(&record, package)?);
                found.push(Advisory {
                    kind: AdvisoryKind::Dependency,
                    subject: package.to_string(),
                    severity: record.level(),
                    summary,
                    fixed: hit.fixed,
                    id: record.id,
                    aliases: record.aliases,
                });
            }
            let subject = format!("{}:{}", package.ecosystem.as_str(), package.name);
            found.extend(self.denied(&subject, Some(package), believed, now)?);
        }
        Ok(found)
    }

    /// The records about the host of a remote server.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn of_host(
        &self,
        host: &str,
        believed: &TrustedSigners,
        now: Timestamp,
    ) -> Result<Vec<Advisory>, DatabaseError> {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        Ok(self.denied(&format!("host:{host}"), None, believed, now)?.into_iter().collect())
    }

    /// The last status of a status page, unless it is old.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn of_status(&self, source: &str, now: Timestamp) -> Result<Option<Advisory>, DatabaseError> {
        let row: Option<(String, String)> = self
            .connection
            .query_row("SELECT record, at FROM status WHERE source = ?1", [source], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()
            .map_err(self.sql())?;
        let Some((text, at)) = row else { return Ok(None) };
        let is_old = at.parse::<Timestamp>().is_ok_and(|at| now.duration_since(at) > STATUS_LIFETIME);
        let summary = Summary::read(&text).ok().filter(|_| !is_old);
        Ok(summary.and_then(|summary| {
            Some(Advisory {
                kind: AdvisoryKind::Availability,
                id: format!("status:{}", summary.status.indicator.chars().take(40).collect::<String>()),
                aliases: Vec::new(),
                severity: summary.level()?,
                subject: shorten(&summary.page.name),
                summary: format!("its operator says: {}", shorten(&summary.status.description)),
                fixed: None,
            })
        }))
    }

    /// The record of an id or of one of its other names, as it was read.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn record(&self, id: &str) -> Result<Option<String>, DatabaseError> {
        let by_id = "SELECT record FROM osv WHERE id = ?1 COLLATE NOCASE UNION ALL \
            SELECT record FROM kev WHERE id = upper(?1) LIMIT 1";
        self.connection.query_row(by_id, [id], |row| row.get(0)).optional().map_err(self.sql())
    }

    /// Stores the packages of a server at its last start.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn remember(
        &mut self,
        server: &str,
        scope: &str,
        packages: &BTreeSet<Package>,
    ) -> Result<(), DatabaseError> {
        let known = self.inventory()?;
        let texts: BTreeSet<String> = packages.iter().map(ToString::to_string).collect();
        if known.get(&(server.to_owned(), scope.to_owned())).unwrap_or(&BTreeSet::new()) == packages {
            return Ok(());
        }
        let sql = self.sql();
        let inside = self.connection.transaction().map_err(&sql)?;
        let row = params![server, scope];
        inside.execute("DELETE FROM inventory WHERE server = ?1 AND scope = ?2", row).map_err(&sql)?;
        for text in texts {
            let row = params![server, scope, text];
            inside.execute("INSERT INTO inventory VALUES (?1, ?2, ?3)", row).map_err(&sql)?;
        }
        inside.commit().map_err(&sql)
    }

    /// The packages of every server at its last start, by server and scope.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn inventory(&self) -> Result<BTreeMap<(String, String), BTreeSet<Package>>, DatabaseError> {
        let read = || {
            let mut asked = self.connection.prepare("SELECT server, scope, package FROM inventory")?;
            let rows = asked.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))?;
            let mut all = BTreeMap::<(String, String), BTreeSet<Package>>::new();
            for row in rows {
                let (key, text): (_, String) = row?;
                all.entry(key).or_default().extend(Package::parse(&text));
            }
            Ok(all)
        };
        read().map_err(self.sql())
    }

    /// Whether the vulnerability of a record is exploited.
    fn attacked(&self, record: &Record, package: &Package) -> Result<Option<Advisory>, DatabaseError> {
        for name in record.aliases.iter().chain([&record.id]) {
            let entry: Option<String> = self
                .connection
                .query_row("SELECT record FROM kev WHERE id = ?1", [name.to_ascii_uppercase()], |row| {
                    row.get(0)
                })
                .optional()
                .map_err(self.sql())?;
            let Some(entry) = entry.and_then(|text| serde_json::from_str::<kev::Entry>(&text).ok()) else {
                continue;
            };
            return Ok(Some(Advisory {
                kind: AdvisoryKind::Vendor,
                id: entry.cve_id,
                aliases: vec![record.id.clone()],
                subject: package.to_string(),
                severity: Severity::Critical,
                summary: format!("known to be exploited: {}", shorten(&entry.vulnerability_name)),
                fixed: record.hits(package).and_then(|hit| hit.fixed),
            }));
        }
        Ok(None)
    }

    /// The deny list entries about a subject that enough people signed.
    fn denied(
        &self,
        subject: &str,
        package: Option<&Package>,
        believed: &TrustedSigners,
        now: Timestamp,
    ) -> Result<Option<Advisory>, DatabaseError> {
        if believed.signers.is_empty() {
            return Ok(None);
        }
        let read = || {
            let mut asked = self.connection.prepare_cached(
                "SELECT deny.list, deny.signer, deny.record, deny_lists.expires FROM deny JOIN deny_lists USING (list, signer) \
                 WHERE subject = ?1 ORDER BY list, signer, number",
            )?;
            let rows =
                asked.query_map([subject], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
            rows.collect::<Result<Vec<(String, String, String, String)>, _>>()
        };
        let (mut signers, mut lists, mut first) = (BTreeSet::new(), BTreeSet::new(), None::<Entry>);
        for (list, signer, text, expires) in read().map_err(self.sql())? {
            let is_over = expires.parse::<Timestamp>().is_ok_and(|at| at <= now);
            let Ok(entry) = serde_json::from_str::<Entry>(&text) else { continue };
            if is_over || !believed.signers.contains(&signer) || !entry.covers(package) {
                continue;
            }
            signers.insert(signer);
            lists.insert(list);
            first.get_or_insert(entry);
        }
        let Some(entry) = first.filter(|_| signers.len() as u64 >= believed.quorum.max(1)) else {
            return Ok(None);
        };
        let lists = lists.into_iter().collect::<Vec<_>>().join(", ");
        Ok(Some(Advisory {
            kind: AdvisoryKind::Community,
            id: format!("deny:{}", shorten(&lists)),
            aliases: Vec::new(),
            subject: package.map_or_else(|| subject.to_owned(), ToString::to_string),
            severity: entry.severity.as_deref().and_then(level).unwrap_or(Severity::High),
            summary: format!("{} signers warn: {}", signers.len(), shorten(&entry.reason)),
            fixed: None,
        }))
    }
}

#[cfg(test)]
#[path = "database_tests.rs"]
mod tests;
