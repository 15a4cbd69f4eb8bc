//! Questions of running sessions, and the answers that come back with a form.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Form;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;

use super::app::{Answer, App, Page, Trouble};
use super::rows::Making;
use agentsh_approvals::{Asking, Item, SocketReply, lasting_line, remember};
use agentsh_registry::hex;
use agentsh_store::Page as Records;
use agentsh_store::words::ApprovalScope;
use agentsh_web::{Approvals, Href, Message, Place, Question};

/// Answers of the past on the page.
const ANSWERED: u32 = 50;

pub(super) async fn list(State(app): State<Arc<App>>) -> Answer {
    let (waiting, mut silent) = app.waiting().await;
    let (requested, unread) = app.requested().await;
    silent.extend(unread);
    let mut page = Approvals {
        waiting: waiting.iter().map(|(_, item)| question(item)).collect(),
        requested,
        answered: Vec::new(),
        silent,
    };
    let mut newest = 0;
    if let Some(mut reader) = app.reader().await? {
        newest = reader.newest().await?;
        let wanted = Records {
            kinds: &["approval_requested", "approval_decided"],
            limit: ANSWERED,
            ..Records::default()
        };
        let records = reader.page(&wanted).await?;
        let context = app.place.context();
        let making =
            Making { inputs: &BTreeMap::new(), policy: None, context: &context, names_session: true };
        page.answered = making.rows(&records);
    }
    let frame =
        app.frame("Approvals", Place::Approvals, page.waiting.len() + page.requested.len(), Some(newest));
    Ok(Page(agentsh_web::approvals(&frame, &page)))
}

pub fn question(item: &Item) -> Question {
    let now = u64::try_from(Timestamp::now().as_second()).unwrap_or_default();
    Question {
        id: item.id.clone(),
        session: item.session.clone(),
        server: item.server.clone(),
        name: item.name.clone(),
        from: item.from.clone(),
        why: item.why.clone(),
        rule: item.rule.clone(),
        arguments: item.arguments.clone(),
        interface: item.interface.clone(),
        left: item.expires_at.saturating_sub(now),
        bound: bound(item),
        // What holds for one content is for no other session.
        line: item.path.is_none().then(|| lasting_line(item, false)),
        is_withheld: item.is_withheld(),
        on: None,
        may_answer: true,
    }
}

/// Everything that a person looked at: an answer counts for nothing else.
fn bound(item: &Item) -> String {
    hex(serde_json::to_string(item).unwrap_or_default().as_bytes())
}

#[derive(Deserialize)]
pub(super) struct Filled {
    #[serde(default)]
    token: String,
    #[serde(default)]
    bound: String,
    #[serde(default)]
    answer: String,
}

pub(super) async fn answer(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Form(said): Form<Filled>,
) -> Answer {
    app.check_form(&said.token)?;
    let (approve, scope) = match said.answer.as_str() {
        "once" => (true, ApprovalScope::Once),
        "session" => (true, ApprovalScope::Session),
        "always" => (true, ApprovalScope::Always),
        "deny" => (false, ApprovalScope::Session),
        _ => {
            return Err(Trouble(
                StatusCode::BAD_REQUEST,
                "an answer is once, session, always or deny".to_owned(),
            ));
        }
    };
    let (waiting, _) = app.waiting().await;
    let gone = || Trouble(StatusCode::CONFLICT, format!("question {id} does not wait any more"));
    let (path, item) = waiting.iter().find(|(_, item)| item.id == id).ok_or_else(gone)?;
    if bound(item) != said.bound {
        let why = format!("question {id} is not the one that was shown; look at it again");
        return Err(Trouble(StatusCode::CONFLICT, why));
    }
    let failed = |why: String| Trouble(StatusCode::INTERNAL_SERVER_ERROR, why);
    // First what lasts: an answer without it would look as if it did.
    let written = match scope {
        ApprovalScope::Always if approve => {
            Some(remember(&app.place.config_home, item, false).map_err(failed)?)
        }
        _ => None,
    };
    match agentsh_approvals::ask(path, &Asking::Answer { id: id.clone(), approve, scope }).await {
        Some(Ok(SocketReply::Answered(true))) => {}
        Some(Ok(SocketReply::Refused(why))) => return Err(Trouble(StatusCode::FORBIDDEN, why)),
        Some(Err(error)) => return Err(failed(format!("cannot ask the session: {error}"))),
        Some(Ok(_)) | None => return Err(gone()),
    }
    let word = if approve { "Approved" } else { "Denied" };
    let mut lines = vec![format!("{word}: '{}' of server '{}'.", item.name, item.server)];
    lines.extend(written);
    let back = Some((Href::to(&["approvals"]), "Back to the approvals".to_owned()));
    let frame = app.frame(word, Place::Approvals, waiting.len().saturating_sub(1), None);
    Ok(Page(agentsh_web::message(&frame, &Message { title: word.to_owned(), lines, back })))
}
