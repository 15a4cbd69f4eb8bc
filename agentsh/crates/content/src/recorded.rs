//! What the journal gets of the arguments of a call.

use agentsh_policy::{OnSecret, SecretPolicy};
use agentsh_secrets::certain::find_in_views;
use agentsh_store::redact;
use serde_json::Value;

/// Bytes of a string in which values are looked for: an event has its first 200 characters.
const SHOWN: usize = 4096;

/// The arguments without secrets, without what the policy keeps from the server, and within the limits of an event.
#[must_use]
pub fn recorded_arguments(policy: &SecretPolicy, arguments: Value) -> Value {
    // By default nothing is kept from a server, and nothing has to be searched here.
    let arguments = if keeps_values(policy) { without_kept_values(policy, arguments) } else { arguments };
    redact::redact(&arguments)
}

fn is_kept(action: OnSecret) -> bool {
    matches!(action, OnSecret::Redact | OnSecret::Block)
}

fn keeps_values(policy: &SecretPolicy) -> bool {
    let by_kind = policy.arguments.iter().chain(policy.kinds.values()).any(|written| is_kept(written.value));
    by_kind || policy.custom.iter().any(|custom| is_kept(custom.value.action))
}

fn without_kept_values(policy: &SecretPolicy, value: Value) -> Value {
    match value {
        Value::String(text) => {
            let (shown, rest) = text.split_at(text.floor_char_boundary(SHOWN));
            Value::String(without_kept(policy, shown) + rest)
        }
        Value::Array(items) => items.into_iter().map(|item| without_kept_values(policy, item)).collect(),
        Value::Object(members) => members
            .into_iter()
            .map(|(name, value)| (without_kept(policy, &name), without_kept_values(policy, value)))
            .collect(),
        other => other,
    }
}

/// A text with the kind in place of each value that the policy redacts or blocks.
pub(crate) fn without_kept(policy: &SecretPolicy, text: &str) -> String {
    if !keeps_values(policy) {
        return text.to_owned();
    }
    let tag = |kind: &str| format!("[{kind}]");
    let own = policy.custom.iter().filter(|custom| is_kept(custom.value.action));
    let mut places: Vec<_> = own
        .flat_map(|custom| {
            custom.value.pattern.0.find_iter(text).map(|found| (found.range(), tag(&custom.value.kind)))
        })
        .collect();
    if policy.looks(true) {
        let found =
            find_in_views(text).into_iter().filter(|found| is_kept(policy.action(found.kind, true).0));
        places.extend(found.map(|found| (found.value, tag(found.kind))));
    }
    agentsh_scan::replace_places(text, places)
}
