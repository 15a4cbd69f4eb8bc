//! The registrations as people look for them. Reads a database that is there, and makes none.

use std::path::Path;

use agentsh_base::json::{self, Json};
use agentsh_registry::{difference, hash};

use crate::db::{Connection, Database, DbError, Row, Value};
use crate::{names, reads};

/// A registration.
#[derive(Clone, Debug)]
pub struct Registered {
    pub id: i64,
    pub name: String,
    /// Of a name that is not ASCII: as it reads to people, as far as its characters look like ASCII.
    pub reads_like: Option<String>,
    pub hash: String,
    /// Whether the interface on record has that hash, computed now.
    pub is_right: bool,
    pub status: String,
    pub registered_at: String,
    pub registered_by: String,
    pub expires_at: Option<String>,
    /// Each component as canonical JSON.
    pub components: Vec<String>,
}

/// A database that is looked into. Its calls wait for the disk.
pub struct Catalogue(Box<dyn Connection>);

impl Catalogue {
    /// None: nothing was ever registered there.
    ///
    /// # Errors
    /// When the database cannot be opened.
    pub fn open(path: &Path) -> Result<Option<Self>, DbError> {
        if !path.exists() {
            return Ok(None);
        }
        Database::File(path.to_owned()).connect(None).map(|connection| Some(Self(connection)))
    }

    /// Registrations whose name has `text` in it, whose hash begins with it, or that offer a tool of that name: those before
    /// `before`, the newest first, and how many there are in all.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn search(&mut self, text: &str, before: i64, limit: i64) -> Result<(Vec<Registered>, i64), DbError> {
        const ROWS: &str = "SELECT id, name, hash, interface, registered_at, summary, status, registered_by, expires_at \
            FROM servers WHERE (instr(lower(name), $1) > 0 OR substr(hash, 1, length($2)) = $2 OR \
            instr(interface, $3) > 0) AND id < $4 ORDER BY id DESC LIMIT $5";
        const COUNT: &str = "SELECT COUNT(*) FROM servers WHERE instr(lower(name), $1) > 0 OR \
            substr(hash, 1, length($2)) = $2 OR instr(interface, $3) > 0";
        let text = text.trim();
        let digits = ["sha256:", "mcp:"].iter().find_map(|start| text.strip_prefix(start)).unwrap_or(text);
        // As a component spells it.
        let tool = format!("\"name\":\"{}\"", json::spell(text));
        let mut values =
            vec![Value::text(text.to_lowercase()), Value::text(digits.to_lowercase()), Value::text(tool)];
        let total = reads::first(&self.0.rows(COUNT, &values)?);
        values.extend([Value::Int(before), Value::Int(limit)]);
        let rows = self.0.rows(ROWS, &values)?;
        Ok((rows.iter().filter_map(registered).collect(), total))
    }

    /// One registration, and what changed since the one of the same name before it.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn one(&mut self, id: i64) -> Result<Option<(Registered, Option<String>)>, DbError> {
        const ONE: &str = "SELECT id, name, hash, interface, registered_at, summary, status, registered_by, expires_at \
            FROM servers WHERE id = $1";
        const BEFORE: &str = "SELECT id, name, hash, interface, registered_at, summary, status, registered_by, expires_at \
            FROM servers WHERE name = $1 AND id < $2 ORDER BY id DESC LIMIT 1";
        let rows = self.0.rows(ONE, &[Value::Int(id)])?;
        let Some(found) = rows.first().and_then(registered) else { return Ok(None) };
        let rows = self.0.rows(BEFORE, &[Value::text(found.name.clone()), Value::Int(id)])?;
        let before = rows.first().and_then(registered);
        let changed = before.map(|before| difference(&before.components, &found.components));
        Ok(Some((found, changed)))
    }
}

fn registered(row: &Row) -> Option<Registered> {
    let [id, name, hash, interface, at, _, status, by, expires] = row.as_slice() else { return None };
    let components = components(interface.as_text());
    let name = name.as_text().to_owned();
    Some(Registered {
        id: id.as_int(),
        reads_like: (!name.is_ascii()).then(|| names::reading(&name)),
        name,
        is_right: self::hash(components.iter().map(String::as_str)) == hash.as_text(),
        hash: hash.as_text().to_owned(),
        status: status.as_text().to_owned(),
        registered_at: at.as_text().to_owned(),
        registered_by: by.as_text().to_owned(),
        expires_at: expires.as_option().map(str::to_owned),
        components,
    })
}

/// The components of an interface as it was registered, each in its canonical spelling.
fn components(interface: &str) -> Vec<String> {
    let read = json::read_to_depth(interface.as_bytes(), agentsh_registry::MAX_DEPTH);
    match read {
        Ok(Json::Array(items)) => items.iter().map(agentsh_registry::canonical).collect(),
        _ => Vec::new(),
    }
}
