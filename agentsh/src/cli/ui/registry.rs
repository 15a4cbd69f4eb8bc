//! What is registered on this machine.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use serde::Deserialize;
use serde_json::Value;

use super::app::{Answer, App, Page, Trouble};
use crate::registrar::{Catalogue, DbError, Registered};
use crate::store::shown_time;
use crate::web::{self, Found, FoundDetail, Href, Place, Registry, Tone, Word};

/// Registrations on a page.
const LISTED: i64 = 25;

#[derive(Deserialize)]
pub(super) struct Wanted {
    #[serde(default)]
    q: String,
    before: Option<i64>,
}

pub(super) async fn search(State(app): State<Arc<App>>, Query(wanted): Query<Wanted>) -> Answer {
    let (text, before) = (wanted.q.clone(), wanted.before.unwrap_or(i64::MAX));
    let asked = ask(&app, move |catalogue| catalogue.search(&text, before, LISTED + 1)).await?;
    let note = asked.is_none().then(|| {
        "No registry is kept on this machine: `agentsh registry serve` starts one, and a policy may name one elsewhere".to_owned()
    });
    let (mut found, total) = asked.unwrap_or_default();
    let mut next = None;
    if found.len() > LISTED as usize {
        found.truncate(LISTED as usize);
        let last = found.last().map(|last| last.id.to_string()).unwrap_or_default();
        next = Some(Href::to(&["registry"]).with("q", &wanted.q).with("before", &last));
    }
    let page = Registry { asked: wanted.q, found: found.iter().map(line).collect(), total, next, note };
    let waiting = app.waiting().await.0.len();
    Ok(Page(web::registry(&app.frame("Registry", Place::Registry, waiting, None), &page)))
}

pub(super) async fn one(State(app): State<Arc<App>>, Path(id): Path<i64>) -> Answer {
    let found = ask(&app, move |catalogue| catalogue.one(id)).await?.flatten();
    let (found, diff) = found.ok_or_else(|| Trouble::missing("nothing is registered under this number"))?;
    let detail = FoundDetail {
        facts: vec![
            ("hash", found.hash.clone()),
            ("registered", shown_time(&found.registered_at)),
            ("by", found.registered_by.clone()),
            ("expires", found.expires_at.as_deref().map(shown_time).unwrap_or_else(|| "never".to_owned())),
        ],
        components: found.components.iter().map(|text| component(text)).collect(),
        diff: diff.filter(|diff| !diff.is_empty()),
        found: line(&found),
    };
    let waiting = app.waiting().await.0.len();
    Ok(Page(web::registry_detail(&app.frame(found.name, Place::Registry, waiting, None), &detail)))
}

/// On a thread that may wait for the disk. None: there is no registry here.
async fn ask<T: Send + 'static>(
    app: &App,
    question: impl FnOnce(&mut Catalogue) -> Result<T, DbError> + Send + 'static,
) -> Result<Option<T>, Trouble> {
    let path = app.state_dir.join("registry/registry.db");
    let asked = tokio::task::spawn_blocking(move || match Catalogue::open(&path)? {
        Some(mut catalogue) => question(&mut catalogue).map(Some),
        None => Ok(None),
    });
    let trouble = |why: String| Trouble(axum::http::StatusCode::INTERNAL_SERVER_ERROR, why);
    asked.await.map_err(|error| trouble(error.to_string()))?.map_err(|error| trouble(error.to_string()))
}

fn line(found: &Registered) -> Found {
    Found {
        id: found.id,
        name: found.name.clone(),
        beware: found.reads_like.as_ref().map(|like| format!("not ASCII; reads like '{like}'")),
        hash: found.hash.clone(),
        status: match found.status.as_str() {
            "current" => Word::new("current", Tone::Good),
            "revoked" => Word::new("revoked", Tone::Bad),
            other => Word::new(other, Tone::Quiet),
        },
        checked: if found.is_right {
            Word::new("hash verified", Tone::Good)
        } else {
            Word::new("hash is wrong", Tone::Bad)
        },
        registered: shown_time(&found.registered_at),
        tools: found.components.iter().filter(|text| text.contains("\"type\":\"tool\"")).count(),
    }
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
