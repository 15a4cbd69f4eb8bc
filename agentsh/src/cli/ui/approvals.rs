//! Questions of running sessions, and the answers from forms.

use std::collections::BTreeMap;

use hyper::StatusCode;
use hyper::header::LOCATION;
use jiff::Timestamp;

use super::app::{Answer, App, Fields, Page, PageError, Reply, Waiting, reply, with_header};
use super::rows::{AGENT, RowContext, SessionOwner};
use agentsh_approvals::{Item, SocketReply, SocketRequest, lasting_line, remember};
use agentsh_registry::hex;
use agentsh_store::words::ApprovalScope;
use agentsh_store::{Page as Records, StoreError};
use agentsh_web::{Approvals, Href, Place, Question};

/// Answers of the past on the page.
const ANSWERED: u32 = 50;

/// With what became of the question that was `answered` a moment ago.
pub(super) async fn list(app: &App, answered: &str) -> Answer {
    let (waiting, mut silent) = app.waiting().await;
    let (requested, unread) = app.pending_requests().await;
    silent.extend(unread);
    let said = app.said.lock().map(|said| said.clone()).unwrap_or_default();
    let mut page = Approvals {
        said: if said.0 == answered { said.1 } else { Vec::new() },
        waiting: questions(app, &waiting).await?,
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
        let making = RowContext {
            inputs: &BTreeMap::new(),
            policy: None,
            context: &context,
            known: &SessionOwner::newest_sessions(&mut reader).await?,
            names_session: true,
        };
        page.answered = making.rows(&records);
    }
    let frame =
        app.frame("Approvals", Place::Approvals, page.waiting.len() + page.requested.len(), Some(newest));
    Ok(Page(agentsh_web::approvals(&frame, &page)))
}

/// All pending questions, with who asks them.
pub(super) async fn questions(app: &App, waiting: &[Waiting]) -> Result<Vec<Question>, StoreError> {
    let known = match app.reader().await?.filter(|_| !waiting.is_empty()) {
        Some(mut reader) => SessionOwner::newest_sessions(&mut reader).await?,
        None => BTreeMap::new(),
    };
    let home = app.place.context().home;
    let of = |item: &Item| known.iter().find(|(id, _)| id.to_string() == item.session).map(|(_, who)| who);
    let asked = waiting.iter().map(|(_, item)| {
        let who = of(item).map(|who| who.display_text(&home));
        Question { title: title(item, who.as_deref().unwrap_or("the agent")), ..question(item) }
    });
    Ok(asked.collect())
}

/// Who wants to do what.
fn title(item: &Item, who: &str) -> String {
    let name = &item.name;
    let who = item.client.as_deref().unwrap_or(who);
    match (&item.host, &item.path) {
        (Some(_), _) => format!("{who} wants to connect to {name}"),
        (_, Some(_)) => format!("{who} wants to change {name}"),
        _ if item.login.is_some() => format!("{who} needs '{name}' of server '{}'", item.server),
        _ if item.is_withheld() => format!("'{name}' of server '{}' is not the trusted version", item.server),
        _ => format!("{who} wants to call '{name}' of server '{}'", item.server),
    }
}

pub fn question(item: &Item) -> Question {
    let now = u64::try_from(Timestamp::now().as_second()).unwrap_or_default();
    Question {
        id: item.id.clone(),
        session: item.session.clone(),
        title: title(item, "the agent"),
        server: Some(item.server.clone()).filter(|server| server != AGENT),
        name: item.name.clone(),
        from: item.from.clone(),
        why: item.why.clone(),
        rule: item.rule.clone(),
        arguments: item.arguments.clone(),
        interface: item.interface.clone(),
        left: item.expires_at.saturating_sub(now),
        bound: question_fingerprint(item),
        // An answer about one content never holds for other sessions.
        line: item.path.is_none().then(|| lasting_line(item, false)),
        is_withheld: item.is_withheld(),
        on: None,
        may_answer: true,
    }
}

/// Everything that a person looked at: an answer counts for nothing else.
fn question_fingerprint(item: &Item) -> String {
    hex(serde_json::to_string(item).unwrap_or_default().as_bytes())
}

pub(super) async fn answer(app: &App, id: &str, form: &Fields) -> Result<Reply, PageError> {
    app.check_form(form)?;
    let (approve, scope) = match form.text("answer") {
        "once" => (true, ApprovalScope::Once),
        "session" => (true, ApprovalScope::Session),
        "always" => (true, ApprovalScope::Always),
        "deny" => (false, ApprovalScope::Session),
        _ => {
            return Err(PageError(
                StatusCode::BAD_REQUEST,
                "an answer is once, session, always or deny".to_owned(),
            ));
        }
    };
    let (waiting, _) = app.waiting().await;
    let gone = || PageError(StatusCode::CONFLICT, format!("question {id} is no longer pending"));
    let (path, item) = waiting.iter().find(|(_, item)| item.id == id).ok_or_else(gone)?;
    if question_fingerprint(item) != form.text("bound") {
        let why = format!("question {id} is not the one that was shown; look at it again");
        return Err(PageError(StatusCode::CONFLICT, why));
    }
    let failed = |why: String| PageError(StatusCode::INTERNAL_SERVER_ERROR, why);
    // First what lasts: an answer without it would look as if it did.
    let written = match scope {
        ApprovalScope::Always if approve => {
            Some(remember(&app.place.config_home, item, false).map_err(failed)?)
        }
        _ => None,
    };
    match agentsh_approvals::ask(path, &SocketRequest::Answer { id: id.to_owned(), approve, scope }).await {
        Some(Ok(SocketReply::Answered(true))) => {}
        Some(Ok(SocketReply::Refused(why))) => return Err(PageError(StatusCode::FORBIDDEN, why)),
        Some(Err(error)) => return Err(failed(format!("cannot ask the session: {error}"))),
        Some(Ok(_)) | None => return Err(gone()),
    }
    let word = if approve { "Approved" } else { "Denied" };
    let shown = questions(app, std::slice::from_ref(&(path.clone(), item.clone()))).await?;
    let title = shown.into_iter().next().map(|question| question.title).unwrap_or_default();
    let mut lines = vec![format!("{word}: {title}.")];
    lines.extend(written);
    Ok(redirect_to_queue(app, id, lines))
}

/// To the pending questions, with the result of the one that was answered.
pub(super) fn redirect_to_queue(app: &App, id: &str, lines: Vec<String>) -> Reply {
    let to = Href::to(&["approvals"]).with("answered", id);
    if let Ok(mut said) = app.said.lock() {
        *said = (id.to_owned(), lines);
    }
    with_header(reply(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", ""), LOCATION, to.as_str())
}
