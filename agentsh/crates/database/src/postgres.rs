//! PostgreSQL by URL, with automatic reconnection.

use std::collections::HashMap;
use std::error::Error;

use bytes::BytesMut;
use postgres::config::SslMode;
use postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use postgres::{Client, Config, NoTls, Statement};

use super::postgres_tls::TlsOptions;
use super::{Connection, DbError, Row, Value};

/// Statements that are kept prepared; their texts are put together from a few pieces.
const MAX_STATEMENTS: usize = 256;

pub(super) struct Postgres {
    url: String,
    /// Taken by every transaction.
    key: Option<i64>,
    client: Client,
    statements: HashMap<String, Statement>,
    /// In a transaction.
    is_inside: bool,
}

fn open(url: &str) -> Result<Client, DbError> {
    let failed = |error: postgres::Error| DbError(format!("cannot reach the database: {}", cause(&error)));
    let asked = TlsOptions::read(url)?;
    let mut config: Config = asked.url.parse().map_err(failed)?;
    let mut client = if asked.tls {
        // Never without TLS, whatever the server says.
        config.ssl_mode(SslMode::Require).connect(asked.maker()?).map_err(failed)
    } else {
        config.ssl_mode(SslMode::Disable).connect(NoTls).map_err(failed)
    }?;
    // The parameters decide which index is best, and which days can be skipped. Compatible databases may have no such setting.
    let _as_it_is = client.batch_execute("SET plan_cache_mode = force_custom_plan");
    Ok(client)
}

/// The innermost cause: the outer errors only say that something failed.
fn cause(error: &postgres::Error) -> String {
    let mut shown = error.to_string();
    let mut next = error.source();
    while let Some(inner) = next {
        shown = format!("{shown}: {inner}");
        next = inner.source();
    }
    shown
}

impl Postgres {
    pub(super) fn connect(url: &str, key: Option<i64>) -> Result<Self, DbError> {
        Ok(Self {
            url: url.to_owned(),
            key,
            client: open(url)?,
            statements: HashMap::new(),
            is_inside: false,
        })
    }

    /// Connects again if the connection is lost, as after a restart of the server. An idle one only shows that when it is used.
    /// A transaction is not repeated.
    fn at_most_twice<T>(&mut self, work: impl Fn(&mut Self) -> Result<T, DbError>) -> Result<T, DbError> {
        if self.is_inside || !self.client.is_closed() {
            let done = work(self);
            if done.is_ok() || self.is_inside || !self.client.is_closed() {
                return done;
            }
        }
        self.client = open(&self.url)?;
        self.statements.clear();
        work(self)
    }

    fn statement(&mut self, sql: &str) -> Result<Statement, DbError> {
        if let Some(known) = self.statements.get(sql) {
            return Ok(known.clone());
        }
        if self.statements.len() >= MAX_STATEMENTS {
            self.statements.clear();
        }
        let statement = self.client.prepare(sql)?;
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }
}

impl Connection for Postgres {
    fn rows(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DbError> {
        self.at_most_twice(|own| {
            let statement = own.statement(sql)?;
            let rows = own.client.query(&statement, &parameters(values))?;
            rows.iter().map(read).collect()
        })
    }

    fn change(&mut self, sql: &str, values: &[Value]) -> Result<u64, DbError> {
        let statement = self.statement(sql)?;
        Ok(self.client.execute(&statement, &parameters(values))?)
    }

    fn begin(&mut self) -> Result<(), DbError> {
        self.at_most_twice(|own| Ok(own.client.batch_execute("BEGIN")?))?;
        self.is_inside = true;
        match self.key {
            Some(key) => Ok(self.client.batch_execute(&format!("SELECT pg_advisory_xact_lock({key})"))?),
            None => Ok(()),
        }
    }

    fn run(&mut self, sql: &str) -> Result<(), DbError> {
        Ok(self.client.batch_execute(sql)?)
    }

    fn is_postgres(&self) -> bool {
        true
    }

    fn commit(&mut self) -> Result<(), DbError> {
        self.is_inside = false;
        Ok(self.client.batch_execute("COMMIT")?)
    }

    fn rollback(&mut self) {
        self.is_inside = false;
        // A lost connection has rolled back by itself.
        let _undone = self.client.batch_execute("ROLLBACK");
    }
}

fn parameters(values: &[Value]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

fn read(row: &postgres::Row) -> Result<Row, DbError> {
    let mut values = Vec::with_capacity(row.len());
    for (index, column) in row.columns().iter().enumerate() {
        values.push(if *column.type_() == Type::INT8 {
            row.try_get::<_, Option<i64>>(index)?.map_or(Value::Null, Value::Int)
        } else {
            row.try_get::<_, Option<String>>(index)?.map_or(Value::Null, Value::Text)
        });
    }
    Ok(values)
}

impl ToSql for Value {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Text(text) => text.to_sql(kind, out),
            Self::Int(number) => number.to_sql(kind, out),
            Self::Null => Ok(IsNull::Yes),
        }
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::TEXT | Type::INT8)
    }

    to_sql_checked!();
}

impl From<postgres::Error> for DbError {
    fn from(error: postgres::Error) -> Self {
        Self(cause(&error))
    }
}
