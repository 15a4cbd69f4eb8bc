//! Builds a query piece by piece. Values are bound as `$1`, `$2`, …, which SQLite and PostgreSQL both accept.

use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};

#[derive(Debug)]
pub(crate) struct Query {
    text: String,
    values: Vec<Value>,
}

impl Query {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), values: Vec::new() }
    }

    pub(crate) fn push(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// Appends the place of a value.
    pub(crate) fn bind(&mut self, value: impl Into<Value>) -> &mut Self {
        self.values.push(value.into());
        self.text.push_str(&format!("${}", self.values.len()));
        self
    }

    /// Appends that a column has one of these values; there is at least one.
    pub(crate) fn one_of<'v>(&mut self, column: &str, values: impl Iterator<Item = &'v str>) -> &mut Self {
        self.push(column).push(" IN (");
        for (number, value) in values.enumerate() {
            self.push(if number > 0 { ", " } else { "" }).bind(value.to_owned());
        }
        self.push(")")
    }

    /// Every row that it finds.
    pub(crate) fn rows<T>(
        self,
        connection: &Connection,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Vec<T>> {
        let mut statement = connection.prepare(&self.text)?;
        statement.query_map(params_from_iter(self.values), read)?.collect()
    }

    /// Changes rows; gives their number.
    pub(crate) fn execute(self, connection: &Connection) -> rusqlite::Result<usize> {
        connection.prepare(&self.text)?.execute(params_from_iter(self.values))
    }
}
