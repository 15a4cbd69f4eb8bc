//! Rows of the registry as its pages show them.

use agentsh_base::shown_time;
use agentsh_web::{DecisionMaker, FoundDetail, Href, RegistrationRow, Registry, Requested, Tone, Word};
use serde_json::Value;

use crate::catalogue::{PendingApproval, Registered};

/// Registrations on a page.
const PAGE_SIZE: usize = 25;

/// The number of registrations to query: one more than shown, to know whether there is a next page.
pub const QUERY_LIMIT: i64 = PAGE_SIZE as i64 + 1;

/// One page of a search for `asked`: the first of `all`, of `total` on all pages.
#[must_use]
pub fn registry(
    asked: String,
    (mut all, total): (Vec<Registered>, i64),
    requested: Vec<Requested>,
) -> Registry {
    let has_more = all.len() > PAGE_SIZE;
    all.truncate(PAGE_SIZE);
    let last = all.last().filter(|_| has_more).map(|last| last.id.to_string());
    let next = last.map(|last| Href::to(&["registry"]).with("q", &asked).with("before", &last));
    Registry { requested, asked, found: all.iter().map(registration_row).collect(), total, next, note: None }
}

/// A registration in a list.
fn registration_row(one: &Registered) -> RegistrationRow {
    RegistrationRow {
        id: one.id,
        name: one.name.clone(),
        beware: lookalike_warning(one.reads_like.as_deref()),
        hash: one.hash.clone(),
        status: match one.status.as_str() {
            "current" => Word::new("current", Tone::Good),
            "revoked" => Word::new("revoked", Tone::Bad),
            other => Word::new(other, Tone::Quiet),
        },
        checked: if one.is_right {
            Word::new("hash verified", Tone::Good)
        } else {
            Word::new("hash is wrong", Tone::Bad)
        },
        registered: shown_time(&one.registered_at),
        tools: one.components.iter().filter(|text| text.contains("\"type\":\"tool\"")).count(),
    }
}

/// A registration whole. `diff`: what changed since the one of its name before it.
#[must_use]
pub fn detail(one: &Registered, diff: Option<String>) -> FoundDetail {
    FoundDetail {
        facts: vec![
            ("hash", one.hash.clone()),
            ("registered", shown_time(&one.registered_at)),
            ("by", one.registered_by.clone()),
            ("expires", one.expires_at.as_deref().map_or_else(|| "never".to_owned(), shown_time)),
        ],
        components: one.components.iter().map(|text| component(text)).collect(),
        diff: diff.filter(|diff| !diff.is_empty()),
        found: registration_row(one),
    }
}

/// A request that waits.
#[must_use]
pub fn requested_row(one: &PendingApproval, whose: DecisionMaker) -> Requested {
    Requested {
        id: one.id,
        name: one.name.clone(),
        beware: lookalike_warning(one.reads_like.as_deref()),
        recorded: one.recorded.clone(),
        hash: one.hash.clone(),
        asked: shown_time(&one.created_at),
        until: shown_time(&one.expires_at),
        diff: one.diff.clone(),
        whose,
    }
}

fn lookalike_warning(reads_like: Option<&str>) -> Option<String> {
    reads_like.map(|like| format!("not ASCII; reads like '{like}'"))
}

/// Kind, name, description, and the whole of it.
fn component(text: &str) -> (String, String, String, String) {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let member = |names: &[&str]| {
        let found = names.iter().find_map(|name| value.get(*name)?.as_str());
        found.unwrap_or_default().to_owned()
    };
    let whole = serde_json::to_string_pretty(&value).unwrap_or_default();
    (member(&["type"]), member(&["name", "uri"]), member(&["description", "text", "instructions"]), whole)
}
