//! JSON text as the same tree as YAML, every key and value with its place.

use crate::json::{self, Json};

use super::diagnostic::{Diagnostic, Source, TextPosition};
use super::yaml::{Entry, Node, Value};

/// Reads one JSON document; duplicate keys, comments and trailing commas are refused.
pub fn parse(source: Source<'_>) -> Result<Node, Box<Diagnostic>> {
    let places = Places::new(source.text);
    match json::read(source.text.as_bytes()) {
        Ok(tree) => Ok(places.node(&tree, TextPosition { line: 1, column: 1, width: 1 })),
        Err(error) => {
            let what = match error.kind {
                json::JsonErrorKind::DuplicateKey => "a key is written twice",
                json::JsonErrorKind::TooDeep => "this is nested too deeply",
                json::JsonErrorKind::TooManyValues => "these are too many values",
                _ => "this is not valid JSON",
            };
            let help = (error.kind == json::JsonErrorKind::InvalidJson)
                .then(|| "JSON has no comments and no comma after the last entry".to_owned());
            Err(Box::new(source.diagnostic(places.at(error.offset, 1), what, "", help)))
        }
    }
}

struct Places<'t> {
    text: &'t str,
    /// Offset of each line's first byte.
    lines: Vec<usize>,
}

impl<'t> Places<'t> {
    fn new(text: &'t str) -> Self {
        let starts = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, lines: std::iter::once(0).chain(starts).collect() }
    }

    fn at(&self, offset: usize, width: usize) -> TextPosition {
        let line = self.lines.partition_point(|start| *start <= offset);
        let start = line.checked_sub(1).and_then(|index| self.lines.get(index)).copied().unwrap_or(0);
        let before = self.text.get(start..offset).map_or(0, |text| text.chars().count());
        TextPosition { line: line as u64, column: before as u64 + 1, width: width as u64 }
    }

    /// The position of a slice of the text; `quotes` is 1 for text between quotes.
    fn of(&self, raw: &str, quotes: usize) -> TextPosition {
        let offset = (raw.as_ptr() as usize).wrapping_sub(self.text.as_ptr() as usize);
        self.at(offset.min(self.text.len()).saturating_sub(quotes), raw.chars().count() + 2 * quotes)
    }

    /// `above` is the nearest place that is known: the tree keeps none for brackets and literals.
    fn node(&self, tree: &Json<'_>, above: TextPosition) -> Node {
        let (value, place) = match tree {
            Json::Null => (Value::Null, above),
            Json::Bool(value) => (Value::Bool(*value), above),
            Json::Number(raw) => {
                let value =
                    raw.parse().map_or_else(|_| Value::Float(raw.parse().unwrap_or(0.0)), Value::Integer);
                (value, self.of(raw, 0))
            }
            Json::String(raw) => (Value::Text(json::unescape(raw).into_owned()), self.of(raw, 1)),
            Json::Array(items) => (
                Value::List(items.iter().map(|item| self.node(item, first(self, item, above))).collect()),
                above,
            ),
            Json::Object(members) => {
                let entries = members.iter().map(|(raw, value)| {
                    let key_place = self.of(raw, 1);
                    Entry {
                        key: json::unescape(raw).into_owned(),
                        key_place,
                        node: self.node(value, key_place),
                    }
                });
                (Value::Map(entries.collect()), above)
            }
        };
        Node { value, place }
    }
}

/// The first place inside a value.
fn first(places: &Places<'_>, tree: &Json<'_>, above: TextPosition) -> TextPosition {
    match tree {
        Json::Object(members) => members.first().map_or(above, |(raw, _)| places.of(raw, 1)),
        Json::Array(items) => items.first().map_or(above, |item| first(places, item, above)),
        Json::Number(raw) => places.of(raw, 0),
        Json::String(raw) => places.of(raw, 1),
        _ => above,
    }
}
