//! One row of the journal, for readers.

use jiff::Timestamp;
use serde_json::Value;

use super::Event;
use crate::types::SessionId;

#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Place in the whole database, over all sessions.
    pub id: i64,
    pub session: SessionId,
    /// Place in the session, from 1.
    pub seq: u64,
    pub time: Timestamp,
    /// The value of `type`, also of an event that this version does not know.
    pub kind: String,
    /// None: written by another version; `body` has all of it.
    pub event: Option<Event>,
    pub body: Value,
    /// SHA-256 of this row and, through `prev`, of everything before it in the session.
    pub hash: [u8; 32],
}

impl Record {
    pub(crate) const COLUMNS: &'static str = "id, session, seq, time, type, body, hash";

    /// The columns of [`Record::COLUMNS`], anywhere in the row.
    pub(crate) fn from_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        use rusqlite::types::Type;
        let id: i64 = row.get("id")?;
        let damaged = |what: &str| {
            let why = format!("event {id} has {what}");
            rusqlite::Error::FromSqlConversionFailure(0, Type::Text, why.into())
        };
        let session: String = row.get("session")?;
        let seq: i64 = row.get("seq")?;
        let time: String = row.get("time")?;
        let body: String = row.get("body")?;
        let hash: Vec<u8> = row.get("hash")?;
        let body: Value = serde_json::from_str(&body).unwrap_or(Value::String(body));
        Ok(Self {
            id,
            session: SessionId(session.parse().map_err(|_| damaged("no session id"))?),
            seq: u64::try_from(seq).map_err(|_| damaged("a negative position"))?,
            time: time.parse().map_err(|_| damaged("no time"))?,
            kind: row.get("type")?,
            event: parse(&body),
            body,
            hash: hash.try_into().map_err(|_| damaged("no hash"))?,
        })
    }

    /// One flat object: `id`, `session`, `seq`, `time`, then the event's own fields, `type` first.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut object = serde_json::Map::new();
        object.insert("session".to_owned(), self.session.to_string().into());
        object.insert("seq".to_owned(), self.seq.into());
        object.insert("time".to_owned(), text_of(self.time).into());
        match &self.body {
            Value::Object(fields) => {
                for (name, value) in fields {
                    object.entry(name.clone()).or_insert_with(|| value.clone());
                }
            }
            other => {
                object.insert("type".to_owned(), self.kind.clone().into());
                object.insert("body".to_owned(), other.clone());
            }
        }
        Value::Object(object)
    }
}

/// Through [`Value`]: straight from text, a tagged enum cannot take numbers when some crate in the build turns
/// on serde_json's `arbitrary_precision`.
pub(crate) fn parse(body: &Value) -> Option<Event> {
    serde_json::from_value(body.clone()).ok()
}

/// RFC 3339 in UTC, always with six digits, so that text sorts as time does.
pub(crate) fn text_of(time: Timestamp) -> String {
    format!("{time:.6}")
}
