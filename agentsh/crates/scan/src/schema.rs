//! Suspicious forms of a definition: names that are orders, unknown members, references to content that can change.

use agentsh_base::json::{Json, unescape};

use crate::score::Own;

/// JSON Schema members of all drafts, and those of tools, prompts and resources.
const SCHEMA_MEMBERS: [&str; 101] = [
    "$anchor",
    "$comment",
    "$defs",
    "$dynamicAnchor",
    "$dynamicRef",
    "$id",
    "$ref",
    "$schema",
    "$vocabulary",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "annotations",
    "anyOf",
    "arguments",
    "audience",
    "blob",
    "capabilities",
    "const",
    "contains",
    "content",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "contents",
    "cursor",
    "data",
    "default",
    "definitions",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "deprecated",
    "description",
    "destructiveHint",
    "else",
    "enum",
    "enumNames",
    "error",
    "examples",
    "example",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "execution",
    "format",
    "icons",
    "id",
    "idempotentHint",
    "if",
    "inputSchema",
    "instructions",
    "isError",
    "items",
    "jsonrpc",
    "lastModified",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "message",
    "messages",
    "meta",
    "method",
    "mimeType",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "name",
    "nextCursor",
    "not",
    "nullable",
    "oneOf",
    "openWorldHint",
    "outputSchema",
    "params",
    "pattern",
    "patternProperties",
    "prefixItems",
    "priority",
    "properties",
    "propertyNames",
    "readOnly",
    "readOnlyHint",
    "required",
    "resource",
    "result",
    "role",
    "size",
    "sizes",
    "src",
    "structuredContent",
    "taskSupport",
    "text",
    "then",
    "title",
    "tools",
    "type",
];
const ALSO_KNOWN: [&str; 11] = [
    "uniqueItems",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uri",
    "uriTemplate",
    "version",
    "writeOnly",
    "_meta",
    "discriminator",
    "x-mcp-header",
    "x-fastmcp-wrap-result",
];
/// Maximum length of a plausible parameter name, in characters.
const NAME: usize = 50;
const MAX_DEPTH: usize = 64;

#[must_use]
pub fn is_known(name: &str) -> bool {
    SCHEMA_MEMBERS.contains(&name) || ALSO_KNOWN.contains(&name)
}

/// Calls back with each problem: pointer and points.
pub fn check(value: &Json<'_>, found: &mut Vec<(Own, String, u32)>) {
    for schema in ["inputSchema", "outputSchema"] {
        if let Some(schema_value) = value.member(schema) {
            walk(schema_value, &format!("/{schema}"), 0, found);
        }
    }
    // A schema alone.
    if value.member("inputSchema").is_none() && value.member("properties").is_some() {
        walk(value, "", 0, found);
    }
}

fn walk(value: &Json<'_>, pointer: &str, depth: usize, found: &mut Vec<(Own, String, u32)>) {
    let Some(members) = value.as_object().filter(|_| depth < MAX_DEPTH) else { return };
    for (raw, member) in members {
        let name = unescape(raw);
        let inner = format!("{pointer}/{}", crate::document::escape(&name));
        match name.as_ref() {
            "properties" | "$defs" | "definitions" | "patternProperties" | "dependentSchemas" => {
                for (raw, schema) in member.as_object().unwrap_or_default() {
                    let property = unescape(raw);
                    let place = format!("{inner}/{}", crate::document::escape(&property));
                    if name == "properties" {
                        if property.chars().count() > NAME {
                            found.push((Own::LongParameter, place.clone(), 35));
                        } else if is_directive(&property) {
                            found.push((Own::DirectiveParameter, place.clone(), 60));
                        }
                    }
                    walk(schema, &place, depth + 1, found);
                }
            }
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => {
                for (at, schema) in member.as_array().unwrap_or_default().iter().enumerate() {
                    walk(schema, &format!("{inner}/{at}"), depth + 1, found);
                }
            }
            "items"
            | "not"
            | "if"
            | "then"
            | "else"
            | "contains"
            | "additionalProperties"
            | "propertyNames" => {
                walk(member, &inner, depth + 1, found);
            }
            "$ref" | "$dynamicRef" => {
                let is_remote = member.as_text().is_some_and(|target| target.contains("://"));
                if is_remote {
                    found.push((Own::RemoteReference, inner, 40));
                }
            }
            _ if !is_known(&name) && member.as_text().is_some() => {
                found.push((Own::UnknownKeyword, inner, if addresses_a_model(&name) { 35 } else { 10 }));
            }
            _ => {}
        }
    }
}

/// A member name that addresses a model.
fn addresses_a_model(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["instruction", "prompt", "system", "override", "directive", "hidden", "agent", "assistant", "model-note"]
        .iter()
        .any(|word| name.contains(word))
}

/// A name that requests data: `content_from_reading_ssh_id_rsa`.
fn is_directive(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words: Vec<&str> =
        name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let verbs = [
        "read", "reading", "paste", "send", "include", "content", "contents", "forward", "copy", "upload",
        "cat", "dump", "fetch",
    ];
    let things = [
        "ssh",
        "rsa",
        "env",
        "passwd",
        "credentials",
        "password",
        "passwords",
        "secrets",
        "kube",
        "netrc",
        "conversation",
    ];
    words.len() >= 4
        && words.iter().any(|word| verbs.contains(word))
        && words.iter().any(|word| things.contains(word))
}
