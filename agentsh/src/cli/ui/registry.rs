//! Registrations on this machine, and changed interfaces that wait for a decision.

use hyper::StatusCode;

use super::app::{Answer, App, Fields, Page, PageError, Reply};
use agentsh_registrar::{Catalogue, DbError, Operators, shown};
use agentsh_web::{DecisionMaker, Place, Registry, Requested};

pub(super) async fn search(app: &App, query: &Fields) -> Answer {
    let wanted = query.text("q").to_owned();
    let (text, before) = (wanted.clone(), query.number("before")?.unwrap_or(i64::MAX));
    let asked = ask(app, move |catalogue| catalogue.search(&text, before, shown::QUERY_LIMIT)).await?;
    let note = asked.is_none().then(|| {
        "This machine has no registry. `agentsh registry serve` starts one; a policy can name one on another machine".to_owned()
    });
    let requested = app.pending_requests().await.0;
    let waiting = app.waiting().await.0.len() + requested.len();
    let page = Registry { note, ..shown::registry(wanted, asked.unwrap_or_default(), requested) };
    Ok(Page(agentsh_web::registry(&app.frame("Registry", Place::Registry, waiting, None), &page)))
}

pub(super) async fn one(app: &App, id: &str) -> Answer {
    let id = id.parse().map_err(|_| PageError(StatusCode::BAD_REQUEST, format!("{id} is not a number")))?;
    let found = ask(app, move |catalogue| catalogue.registration(id)).await?.flatten();
    let (found, diff) = found.ok_or_else(|| PageError::missing("nothing is registered under this number"))?;
    let detail = shown::detail(&found, diff);
    let waiting = app.waits().await;
    Ok(Page(agentsh_web::registry_detail(&app.frame(found.name, Place::Registry, waiting, None), &detail)))
}

/// On a thread that may wait for the disk. None: there is no registry here.
async fn ask<T: Send + 'static>(
    app: &App,
    question: impl FnOnce(&mut Catalogue) -> Result<T, DbError> + Send + 'static,
) -> Result<Option<T>, PageError> {
    let path = app.state_dir.join("registry/registry.db");
    let asked = tokio::task::spawn_blocking(move || match Catalogue::open(&path)? {
        Some(mut catalogue) => question(&mut catalogue).map(Some),
        None => Ok(None),
    });
    let trouble = |why: String| PageError(StatusCode::INTERNAL_SERVER_ERROR, why);
    asked.await.map_err(|error| trouble(error.to_string()))?.map_err(|error| trouble(error.to_string()))
}

pub(super) async fn pending_requests(app: &App) -> Result<Vec<Requested>, PageError> {
    let asked = ask(app, Catalogue::pending_requests).await?.unwrap_or_default();
    let whose =
        if asked.is_empty() || operator(app).is_none() { DecisionMaker::Others } else { DecisionMaker::Ours };
    Ok(asked.iter().map(|one| shown::requested_row(one, whose)).collect())
}

/// How many wait there.
pub(super) async fn count(app: &App) -> Result<usize, PageError> {
    Ok(ask(app, Catalogue::count_requested).await?.unwrap_or_default())
}

/// In whose name the page decides: a user who can read the operators' tokens has their rights.
fn operator(app: &App) -> Option<String> {
    let path = app.state_dir.join("registry/operators");
    let (operators, _) = path.exists().then(|| Operators::from_file(&path).ok())??;
    operators.first().map(str::to_owned)
}

pub(super) async fn decide(app: &App, id: &str, form: &Fields) -> Result<Reply, PageError> {
    app.check_form(form)?;
    let approve = match form.text("answer") {
        "approve" => true,
        "reject" => false,
        _ => return Err(PageError(StatusCode::BAD_REQUEST, "an answer is approve or reject".to_owned())),
    };
    let missing = || PageError::missing(format!("there is no request {id}"));
    let number: i64 = id.parse().map_err(|_| missing())?;
    let operator = operator(app).ok_or_else(|| {
        let why =
            "the tokens of the registry's operators are not on this machine, or cannot be read".to_owned();
        PageError(StatusCode::FORBIDDEN, why)
    })?;
    let reason = form.text("reason").to_owned();
    let status =
        ask(app, move |catalogue| catalogue.decide(number, approve, &reason, &operator)).await?.flatten();
    let status = status.ok_or_else(missing)?;
    let lines = vec![format!("Request {id} is {status}.")];
    Ok(super::approvals::redirect_to_queue(app, id, lines))
}
