//! The keys that a configuration file of a project may set for an agent.

use serde_json::Value;

/// Keys that contain one of these, at whatever depth, are removed: they name an account, a program that gives out
/// credentials, another address of the model, variables, or servers.
const DISALLOWED_IN_PROJECT: &[&str] = &[
    "apikey",
    "auth",
    "baseurl",
    "credential",
    "endpoint",
    "env",
    "gateway",
    "helper",
    "login",
    "marketplace",
    "mcp",
    "plugin",
    "provider",
    "proxy",
    "telemetry",
    "url",
];

/// Takes out what is not for a project to say; gives the names, with the keys above them.
pub(in super::super) fn remove_disallowed(document: &mut Value) -> Vec<String> {
    let mut taken = Vec::new();
    remove_disallowed_keys(document, "", &mut taken);
    taken
}

/// Whether a key is one that a project has no say in.
pub(super) fn is_disallowed_in_project(name: &str) -> bool {
    let plain = crate::plain_key(name);
    DISALLOWED_IN_PROJECT.iter().any(|part| plain.contains(part))
}

fn remove_disallowed_keys(value: &mut Value, above: &str, taken: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| {
                let stays = !is_disallowed_in_project(name);
                if !stays {
                    taken.push(format!("{above}{name}"));
                }
                stays
            });
            for (name, inner) in members {
                remove_disallowed_keys(inner, &format!("{above}{name}."), taken);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| remove_disallowed_keys(item, above, taken)),
        _ => {}
    }
}
