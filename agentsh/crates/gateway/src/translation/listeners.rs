//! Subscriptions (`subscriptions/listen`) of clients without sessions, for a server that sends every notification to
//! everybody.

use crate::json::{self, Json};
use crate::mcp::jsonrpc::{Id, Key};

use super::edit_json::{self, error, line, notification, parse_valid, request, set};
use super::{OWN_ID_PREFIX, Step};
use crate::message::SUBSCRIPTION;

const MAX_LISTENERS: usize = 64;
/// Limit of resources per listener.
const MAX_URIS: usize = 1000;
const INVALID_PARAMS: i32 = -32602;

#[derive(Default)]
pub struct Listeners {
    all: Vec<Listener>,
}

struct Listener {
    key: Key,
    id: String,
    /// Its notification methods.
    kinds: Vec<&'static str>,
    uris: Vec<String>,
}

const LISTED: [(&str, &str); 3] = [
    ("toolsListChanged", "notifications/tools/list_changed"),
    ("promptsListChanged", "notifications/prompts/list_changed"),
    ("resourcesListChanged", "notifications/resources/list_changed"),
];

impl Listeners {
    pub fn begin(&mut self, id: &Id, params: Option<&Json<'_>>, serial: &mut u64, steps: &mut Vec<Step>) {
        if self.all.len() >= MAX_LISTENERS {
            let why = "too many open streams";
            return steps.push(Step::ToClient(error(&id.spelled, INVALID_PARAMS, why)));
        }
        let wanted = params.and_then(|params| params.member("notifications"));
        let is_wanted = |name: &str| {
            wanted.and_then(|wanted| wanted.member(name)).is_some_and(|is| *is == Json::Bool(true))
        };
        let listed: Vec<_> = LISTED.iter().filter(|(name, _)| is_wanted(name)).collect();
        let uris = wanted.and_then(|wanted| wanted.member("resourceSubscriptions")?.as_array());
        let uris = uris.unwrap_or_default().iter().filter_map(Json::as_text).take(MAX_URIS);
        let uris: Vec<String> = uris.map(std::borrow::Cow::into_owned).collect();
        for uri in &uris {
            let id = own_id(serial, "subscribe");
            let params = format!(r#"{{"uri":"{}"}}"#, json::escape_text(uri));
            steps.push(Step::ToServer(request(&id, "resources/subscribe", &params)));
        }
        let mut agreed: Vec<String> = listed.iter().map(|(name, _)| format!(r#""{name}":true"#)).collect();
        if !uris.is_empty() {
            let all: Vec<String> = uris.iter().map(|uri| format!("\"{}\"", json::escape_text(uri))).collect();
            agreed.push(format!(r#""resourceSubscriptions":[{}]"#, all.join(",")));
        }
        let params = format!(
            r#"{{"_meta":{{"{SUBSCRIPTION}":{}}},"notifications":{{{}}}}}"#,
            id.spelled,
            agreed.join(",")
        );
        steps.push(Step::ToClient(notification("notifications/subscriptions/acknowledged", &params)));
        let kinds = listed.iter().map(|(_, kind)| *kind).collect();
        self.all.push(Listener { key: id.key.clone(), id: id.spelled.to_string(), kinds, uris });
    }

    /// Forwards a notification to all matching listeners.
    pub fn forward_notification(&self, method: &str, tree: Json<'_>, steps: &mut Vec<Step>) {
        if method == "notifications/cancelled" {
            // A withdrawn question; the client is already busy with it.
            return;
        }
        let is_listed = LISTED.iter().any(|(_, kind)| *kind == method);
        let is_updated = method == "notifications/resources/updated";
        if !is_listed && !is_updated {
            return steps.push(Step::ToClient(line(&tree)));
        }
        let uri = tree.member("params").and_then(|params| params.member("uri")?.as_text());
        let uri = uri.map(std::borrow::Cow::into_owned);
        let mut tree = tree;
        for listener in &self.all {
            let hears = match (&uri, is_updated) {
                // The notification may be about a part of the resource.
                (Some(uri), true) => listener.uris.iter().any(|own| uri.starts_with(own.as_str())),
                _ => listener.kinds.contains(&method),
            };
            if !hears {
                continue;
            }
            if let Some(params) = edit_json::object(&mut tree, "params")
                && let Some(meta) = edit_json::object(params, "_meta")
            {
                set(meta, SUBSCRIPTION, parse_valid(&listener.id));
            }
            steps.push(Step::ToClient(line(&tree)));
        }
    }

    /// False: no listener has this id.
    pub fn end(&mut self, key: &Key, serial: &mut u64, steps: &mut Vec<Step>) -> bool {
        let Some(at) = self.all.iter().position(|listener| listener.key == *key) else { return false };
        let gone = self.all.remove(at);
        for uri in gone.uris {
            if self.all.iter().any(|other| other.uris.contains(&uri)) {
                continue;
            }
            let id = own_id(serial, "unsubscribe");
            let params = format!(r#"{{"uri":"{}"}}"#, json::escape_text(&uri));
            steps.push(Step::ToServer(request(&id, "resources/unsubscribe", &params)));
        }
        true
    }
}

pub fn own_id(serial: &mut u64, what: &str) -> String {
    *serial += 1;
    format!("{OWN_ID_PREFIX}{what}-{serial}")
}
