//! YAML text as a tree in which every key and value has its place. Knows nothing of policies.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Location, MergeKeyPolicy, Spanned};

use super::diagnostic::{Diagnostic, Source, TextPosition};

/// Deepest nesting; the deepest documented key needs eight.
const MAX_DEPTH: usize = 32;
/// Values and keys after aliases are expanded.
const MAX_NODES: usize = 50_000;
/// Text of all of them together.
const MAX_SCALAR_BYTES: usize = 4 << 20;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub value: Value,
    pub place: TextPosition,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub key: String,
    pub key_place: TextPosition,
    pub node: Node,
}

/// Reads one YAML document. Aliases are expanded within a budget, merge keys and duplicate keys are refused.
pub(crate) fn parse(source: Source<'_>) -> Result<Node, Box<Diagnostic>> {
    if source.text.trim().is_empty() {
        return Err(Box::new(source.diagnostic(
            TextPosition { line: 0, column: 0, width: 0 },
            "the policy is empty",
            "",
            Some("write at least `version: 1`".to_owned()),
        )));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 2 * MAX_NODES,
            max_total_scalar_bytes: MAX_SCALAR_BYTES,
            max_aliases: 1_000,
            max_anchors: 1_000,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_NODES },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
    };
    let parsed: Result<Spanned<Value>, _> = serde_saphyr::from_str_with_options(source.text, options);
    match parsed {
        Ok(spanned) => Ok(node(spanned)),
        Err(error) => {
            let bare = error.without_snippet();
            let place = bare.location().map_or(TextPosition { line: 0, column: 0, width: 0 }, place);
            Err(Box::new(source.diagnostic(place, message(bare), "", None)))
        }
    }
}

impl Value {
    /// The kind of value, for people.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Integer(_) => "a whole number",
            Self::Float(_) => "a decimal number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Integer(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(node(item));
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some((key, value)) = entries.next_entry::<Spanned<String>, Spanned<Value>>()? {
            let key_place = place(key.referenced);
            map.push(Entry { key: key.value, key_place, node: node(value) });
        }
        Ok(Value::Map(map))
    }
}

fn node(spanned: Spanned<Value>) -> Node {
    Node { place: place(spanned.referenced), value: spanned.value }
}

fn place(location: Location) -> TextPosition {
    TextPosition {
        line: location.line(),
        column: location.column(),
        width: location.span().len().clamp(1, 80),
    }
}

/// The parser's own words, without the position that it appends and that is shown separately.
fn message(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error;
    match error {
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("duplicate key `{key}`"),
        Error::MergeKeyNotAllowed { .. } => "merge keys (`<<`) are not supported".to_owned(),
        Error::MultipleDocuments { .. } => "a policy is one YAML document".to_owned(),
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            "the file is too large once it is expanded".to_owned()
        }
        Error::Message { msg, .. } => msg.clone(),
        Error::AliasError { error, .. } => message(error),
        other => {
            let text = other.to_string();
            let first = text.lines().next().unwrap_or("invalid YAML");
            first.split(" at line ").next().unwrap_or(first).to_owned()
        }
    }
}
