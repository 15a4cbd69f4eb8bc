//! What the journal gets of the arguments of a call.

use agentsh_policy::{OnSecret, SecretPolicy};
use agentsh_secrets::certain::find_in_views;
use agentsh_store::redact;
use serde_json::Value;

/// The arguments without secrets, without what the policy keeps from the server, and within the limits of an event.
#[must_use]
pub fn recorded_arguments(policy: &SecretPolicy, arguments: Value) -> Value {
    redact::redact(&without_kept_values(policy, arguments))
}

fn without_kept_values(policy: &SecretPolicy, value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(without_kept(policy, &text)),
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
    let is_kept = |action: OnSecret| matches!(action, OnSecret::Redact | OnSecret::Block);
    let own = policy.custom.iter().filter(|custom| is_kept(custom.value.action));
    let mut places: Vec<_> = own
        .flat_map(|custom| {
            custom.value.pattern.0.find_iter(text).map(|found| (found.range(), custom.value.kind.clone()))
        })
        .collect();
    if policy.looks(true) {
        let found =
            find_in_views(text).into_iter().filter(|found| is_kept(policy.action(found.kind, true).0));
        places.extend(found.map(|found| (found.value, found.kind.to_owned())));
    }
    places.sort_by_key(|(place, _)| place.start);
    let (mut shown, mut done) = (String::new(), 0);
    for (place, kind) in places {
        if let Some(before) = text.get(done..place.start) {
            shown.push_str(before);
            shown.push_str(&format!("[{kind}]"));
        }
        done = done.max(place.end);
    }
    shown.push_str(text.get(done..).unwrap_or_default());
    shown
}
