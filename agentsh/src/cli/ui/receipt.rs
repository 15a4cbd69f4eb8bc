//! The receipt of a finished session: as a page, and as a file.

use hyper::StatusCode;
use hyper::header::CONTENT_DISPOSITION;
use serde_json::Value;

use super::app::{Answer, App, Page, PageError, Reply, reply, with_header};
use crate::cli::receipt::{Receipt, ReceiptContents, of_session};
use agentsh_store::StoreError;
use agentsh_web::Place;

pub(super) async fn page(app: &App, word: &str) -> Answer {
    let (id, written) = write_receipt(app, word).await?;
    let whole = serde_json::to_value(&written.statement).unwrap_or_default();
    let mut drawn = agentsh_web::Receipt { id, ..agentsh_web::Receipt::default() };
    drawn.facts.push(("signed by".to_owned(), written.fingerprint));
    let predicate = whole["predicate"].as_object().into_iter().flatten();
    for (name, value) in [(&"subject".to_owned(), &whole["subject"])].into_iter().chain(predicate) {
        match value {
            Value::Array(rows) => drawn.tables.push(table(name, rows)),
            Value::Object(members) => {
                drawn
                    .facts
                    .extend(members.iter().map(|(member, value)| (format!("{name}: {member}"), text(value))));
            }
            value => drawn.facts.push((name.clone(), text(value))),
        }
    }
    let waiting = app.waits().await;
    Ok(Page(agentsh_web::receipt(&app.frame("Receipt", Place::Sessions, waiting, None), &drawn)))
}

pub(super) async fn file(app: &App, word: &str) -> Result<Reply, PageError> {
    let (id, Receipt { text, .. }) = write_receipt(app, word).await?;
    let name = format!("attachment; filename=\"receipt-{id}.json\"");
    Ok(with_header(reply(StatusCode::OK, "application/json", text), CONTENT_DISPOSITION, &name))
}

async fn write_receipt(app: &App, word: &str) -> Result<(String, Receipt), PageError> {
    let mut reader = app.reader().await?.ok_or(StoreError::NoSession)?;
    let id = reader.session(word).await?.to_string();
    let (state, session) = (app.state_dir.clone(), id.clone());
    // It asks git, and waits for it.
    let runtime = tokio::runtime::Handle::current();
    let written = tokio::task::spawn_blocking(move || {
        runtime.block_on(of_session(&state, &session, &ReceiptContents::default()))
    });
    let written =
        written.await.map_err(|error| PageError(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok((id, written?))
}

fn table(name: &str, rows: &[Value]) -> agentsh_web::ReceiptTable {
    let members = |row: &Value| {
        row.as_object().cloned().unwrap_or_else(|| [("path".to_owned(), row.clone())].into_iter().collect())
    };
    let mut heads: Vec<String> = Vec::new();
    for name in rows.iter().flat_map(|row| members(row).into_iter().map(|(name, _)| name)) {
        if !heads.contains(&name) {
            heads.push(name);
        }
    }
    let cell = |head: &String, value: &Value| match (head.as_str(), value) {
        ("server", Value::Null) => "agent".to_owned(),
        (_, value) => text(value),
    };
    let cells = |row: &Value| {
        let members = members(row);
        heads
            .iter()
            .map(|head| members.get(head).map_or_else(String::new, |value| cell(head, value)))
            .collect()
    };
    agentsh_web::ReceiptTable { title: name.to_owned(), rows: rows.iter().map(cells).collect(), heads }
}

/// A value in readable form.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Object(members) => members.values().map(text).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}
