//! Checks every event that a test recorded against `docs/events.schema.json`.

use std::path::Path;
use std::sync::LazyLock;

use serde_json::Value;

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/events.schema.json");
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
});

/// Text patterns of the schemas: an expression, and the same as code.
type Pattern = (&'static str, fn(&str) -> bool);

const PATTERNS: [Pattern; 2] = [
    ("^[0-9a-f]+$", |text| {
        !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    }),
    ("^[a-z][a-z0-9+.-]*:", |text| {
        let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
        scheme.starts_with(|letter: char| letter.is_ascii_lowercase())
            && scheme
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+.-".contains(&byte))
    }),
];

/// The invalid events in a journal, each with what is wrong.
pub fn strangers(database: &Path) -> Vec<String> {
    let Ok(open) =
        rusqlite::Connection::open_with_flags(database, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY)
    else {
        return Vec::new();
    };
    // A test may have damaged it.
    let Ok(mut query) = open.prepare("SELECT body FROM events") else { return Vec::new() };
    let bodies = query.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let wrong = bodies.map_while(Result::ok).filter_map(|body| {
        let event: Value = serde_json::from_str(&body).ok()?;
        let why = check(&event).err()?;
        Some(format!("{why}: {body}"))
    });
    wrong.collect()
}

/// # Errors
/// What is wrong with the event.
pub fn check(event: &Value) -> Result<(), String> {
    // Only a part of an overlong event is kept, and it says so.
    if event.get("left_out_bytes").is_some() {
        return Ok(());
    }
    fits(event, &SCHEMA)
}

/// The part of JSON Schema that the schemas of the tests use; another keyword stops the test.
///
/// # Errors
/// What does not fit.
pub fn fits(value: &Value, schema: &Value) -> Result<(), String> {
    let Some(schema) = schema.as_object() else {
        return if schema == &Value::Bool(true) { Ok(()) } else { Err("nothing may stand here".to_owned()) };
    };
    for (keyword, rule) in schema {
        match keyword.as_str() {
            "$schema" | "title" | "description" | "$defs" | "format" | "default" => {}
            "$ref" => {
                let name = rule.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                fits(value, &SCHEMA["$defs"][name])?;
            }
            "type" => {
                let allowed = rule.as_array().cloned().unwrap_or_else(|| vec![rule.clone()]);
                if !allowed.iter().any(|kind| is(value, kind.as_str().unwrap())) {
                    return Err(format!("{value} is not of type {rule}"));
                }
            }
            "const" if value != rule => return Err(format!("{value} is not {rule}")),
            "enum" if !rule.as_array().unwrap().contains(value) => {
                return Err(format!("{value} is none of {rule}"));
            }
            "const" | "enum" => {}
            "minimum" if value.is_number() && value.as_f64() < rule.as_f64() => {
                return Err(format!("{value} is below {rule}"));
            }
            "maximum" if value.is_number() && value.as_f64() > rule.as_f64() => {
                return Err(format!("{value} is above {rule}"));
            }
            "minimum" | "maximum" => {}
            "oneOf" | "anyOf" => one_of(value, rule.as_array().unwrap())?,
            "required" => {
                let missing = |name: &&Value| value.get(name.as_str().unwrap()).is_none();
                if let Some(name) = rule.as_array().unwrap().iter().find(missing) {
                    return Err(format!("{name} is missing"));
                }
            }
            "properties" => {
                for (name, rule) in rule.as_object().unwrap() {
                    let part = value.get(name).map_or(Ok(()), |part| fits(part, rule));
                    part.map_err(|why| format!("{name}: {why}"))?;
                }
            }
            "additionalProperties" => {
                let known = schema.get("properties").and_then(Value::as_object);
                let members = value.as_object().into_iter().flatten();
                for (name, part) in
                    members.filter(|(name, _)| known.is_none_or(|known| !known.contains_key(*name)))
                {
                    fits(part, rule).map_err(|why| format!("{name}: {why}"))?;
                }
            }
            "minItems" if value.as_array().is_some_and(|all| (all.len() as u64) < rule.as_u64().unwrap()) => {
                return Err(format!("there are fewer than {rule}"));
            }
            "minProperties"
                if value.as_object().is_some_and(|all| (all.len() as u64) < rule.as_u64().unwrap()) =>
            {
                return Err(format!("there are fewer than {rule}"));
            }
            "minItems" | "minProperties" => {}
            "pattern" => {
                let is_there = value.as_str().is_none_or(|text| {
                    PATTERNS.iter().any(|(pattern, holds)| rule == pattern && holds(text))
                });
                if !is_there {
                    return Err(format!("{value} does not match {rule}"));
                }
            }
            "items" => value.as_array().into_iter().flatten().try_for_each(|item| fits(item, rule))?,
            other => panic!("the schema has the keyword {other}, which this check does not know"),
        }
    }
    Ok(())
}

/// The reason of the alternative with the same `type`, which is the one that was meant.
fn one_of(value: &Value, rules: &[Value]) -> Result<(), String> {
    let tried: Vec<_> = rules.iter().map(|rule| (rule, fits(value, rule))).collect();
    if tried.iter().any(|(_, result)| result.is_ok()) {
        return Ok(());
    }
    let kind = &value["type"];
    let meant = tried.into_iter().find(|(rule, _)| rule["properties"]["type"]["const"] == *kind);
    Err(meant.and_then(|(_, result)| result.err()).unwrap_or_else(|| format!("{kind} is not an event")))
}

fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("{other} is not a type of JSON"),
    }
}
