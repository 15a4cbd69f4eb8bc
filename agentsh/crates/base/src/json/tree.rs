//! The tree: borrowed slices of the line that was read.

use std::borrow::Cow;

use serde_json::Value;

use super::text::unescape;

/// One JSON value, borrowed from the text it was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json<'a> {
    Null,
    Bool(bool),
    /// As spelled: `1`, `1.0` and `1e0` stay different.
    Number(&'a str),
    /// Between the quotes, still escaped.
    String(&'a str),
    Array(Vec<Json<'a>>),
    /// Members in order; names between the quotes, still escaped, and different from each other once unescaped.
    Object(Vec<(&'a str, Json<'a>)>),
}

impl<'a> Json<'a> {
    /// The member of an object that has this (unescaped) name.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&Json<'a>> {
        self.as_object()?.iter().find(|(raw, _)| is_name(raw, name)).map(|(_, value)| value)
    }

    /// Like [`Json::member`], for changing it.
    pub fn member_mut(&mut self, name: &str) -> Option<&mut Json<'a>> {
        match self {
            Self::Object(members) => {
                members.iter_mut().find(|(raw, _)| is_name(raw, name)).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    #[must_use]
    pub fn as_object(&self) -> Option<&[(&'a str, Json<'a>)]> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    #[must_use]
    pub fn as_array(&self) -> Option<&[Json<'a>]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The text of a string, unescaped; a lone surrogate is read as U+FFFD.
    #[must_use]
    pub fn as_text(&self) -> Option<Cow<'a, str>> {
        match self {
            Self::String(raw) => Some(unescape(raw)),
            _ => None,
        }
    }

    /// About as many bytes as it has on the wire.
    #[must_use]
    pub fn length(&self) -> usize {
        match self {
            Self::Null | Self::Bool(_) => 4,
            Self::Number(text) | Self::String(text) => text.len() + 2,
            Self::Array(items) => items.iter().map(Json::length).sum::<usize>() + items.len() + 2,
            Self::Object(members) => {
                members.iter().map(|(name, value)| name.len() + value.length() + 4).sum::<usize>() + 2
            }
        }
    }

    /// For the event log, where exact spelling does not matter: integers that fit stay integers, any other number
    /// that a 64-bit float cannot show becomes a string.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Number(raw) => number_value(raw),
            Self::String(raw) => Value::String(unescape(raw).into_owned()),
            Self::Array(items) => Value::Array(items.iter().map(Json::to_value).collect()),
            Self::Object(members) => Value::Object(
                members.iter().map(|(raw, value)| (unescape(raw).into_owned(), value.to_value())).collect(),
            ),
        }
    }
}

fn is_name(raw: &str, name: &str) -> bool {
    raw == name || (raw.contains('\\') && unescape(raw) == name)
}

fn number_value(raw: &str) -> Value {
    if let Ok(value) = raw.parse::<i64>() {
        return Value::from(value);
    }
    if let Ok(value) = raw.parse::<u64>() {
        return Value::from(value);
    }
    let is_integer = !raw.contains(['.', 'e', 'E']);
    match raw.parse::<f64>() {
        Ok(value) if value.is_finite() && !is_integer => Value::from(value),
        _ => Value::String(raw.to_owned()),
    }
}
