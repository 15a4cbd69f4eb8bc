//! Documented sections whose engines are not built: checked like everything else, so that a documented file loads
//! unchanged and a mistyped one does not, and reported as not enforced.

use super::diagnostic::one_of;
use super::reader::{Here, Reader};
use super::yaml::Value;

/// Checks one section; true when it asks for something.
type Check = fn(&mut Reader<'_>, &Here<'_>) -> bool;

pub const SECTIONS: [(&str, Check); 5] = [
    ("cross_server", cross_server),
    ("detection", detection),
    ("output_inspection", output_inspection),
    ("sampling", sampling),
    ("allowed_transports", allowed_transports),
];

const ACTIONS: [(&str, ()); 3] = [("block", ()), ("alert", ()), ("allow", ())];

fn cross_server(reader: &mut Reader<'_>, here: &Here<'_>) -> bool {
    let keys = ["enabled", "shadow_tool", "read_then_send", "burst", "cross_server_flow"];
    let Some(fields) = reader.fields(here, &keys) else { return true };
    if let Some(here) = fields.find("shadow_tool")
        && let Some(rule) = reader.fields(&here, &["enabled", "similarity_check", "similarity_threshold"])
    {
        reader.boolean(rule.find("enabled"));
        reader.boolean(rule.find("similarity_check"));
        if let Some(here) = rule.find("similarity_threshold") {
            match here.node.value {
                Value::Float(value) if (0.0..=1.0).contains(&value) => {}
                Value::Integer(0 | 1) => {}
                Value::Float(_) | Value::Integer(_) => {
                    reader.problem(&here, "the threshold is between 0.0 and 1.0", None);
                }
                ref other => reader.wrong_type(&here, "a number between 0.0 and 1.0", other),
            }
        }
    }
    for (key, keys) in [
        ("read_then_send", &["enabled", "window"][..]),
        ("burst", &["enabled", "max_calls", "window"]),
        ("cross_server_flow", &["enabled", "same_turn_only", "window"]),
    ] {
        if let Some(here) = fields.find(key)
            && let Some(rule) = reader.fields(&here, keys)
        {
            reader.boolean(rule.find("enabled"));
            reader.boolean(rule.find("same_turn_only"));
            reader.number(rule.find("max_calls"), 1, u64::from(u32::MAX));
            reader.duration(rule.find("window"));
        }
    }
    asks(reader.boolean(fields.find("enabled")))
}

fn detection(reader: &mut Reader<'_>, here: &Here<'_>) -> bool {
    let Some(fields) = reader.fields(here, &["enabled", "custom_patterns"]) else { return true };
    reader.list(fields.find("custom_patterns"), |reader, here| {
        let keys = ["name", "pattern", "category", "severity", "description"];
        let rule = reader.fields(here, &keys)?;
        for key in ["name", "pattern"] {
            if rule.find(key).is_none() {
                reader.problem(here, format!("this pattern has no `{key}`"), None);
            }
        }
        for key in ["name", "pattern", "category", "description"] {
            if let Some(here) = rule.find(key) {
                reader.text(&here);
            }
        }
        let severities = [("low", ()), ("medium", ()), ("high", ()), ("critical", ())];
        reader.word(rule.find("severity"), &severities);
        Some(())
    });
    asks(reader.boolean(fields.find("enabled")))
}

fn output_inspection(reader: &mut Reader<'_>, here: &Here<'_>) -> bool {
    let Some(fields) = reader.fields(here, &["enabled", "on_detection"]) else { return true };
    reader.word(fields.find("on_detection"), &ACTIONS);
    asks(reader.boolean(fields.find("enabled")))
}

fn sampling(reader: &mut Reader<'_>, here: &Here<'_>) -> bool {
    let Some(fields) = reader.fields(here, &["policy", "per_server"]) else { return true };
    reader.word(fields.find("policy"), &ACTIONS);
    if let Some(here) = fields.find("per_server")
        && let Some(names) = reader.names(&here)
    {
        for (_, here) in names.all() {
            reader.word(Some(here), &ACTIONS);
        }
    }
    true
}

fn allowed_transports(reader: &mut Reader<'_>, here: &Here<'_>) -> bool {
    let words = ["stdio", "http", "sse"];
    let list = reader.list(Some(here.clone()), |reader, here| {
        let word = reader.text(here)?;
        if !words.contains(&word.as_str()) {
            reader.problem(here, "unknown transport", Some(format!("write {}", one_of(&words))));
        }
        Some(word)
    });
    list.is_none_or(|list| !list.value.is_empty())
}

/// A section asks for something unless it is switched off.
fn asks(enabled: Option<super::model::Ruled<bool>>) -> bool {
    enabled.is_none_or(|enabled| enabled.value)
}
