//! Paths and methods, and the checks before all of them.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;

use super::app::{App, Page, PageError};
use super::gate::RequestRefusal;
use super::{approvals, events, now, policy, receipt, registry, servers, session};
use agentsh_web::{HEADERS, SCRIPT, STYLE};

/// Longest body of a form, in bytes.
const MAX_BODY: usize = 16 << 10;

pub(super) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(now::now))
        .route("/open", get(open))
        .route("/sessions", get(now::sessions))
        .route("/session/{id}", get(session::page))
        .route("/session/{id}/receipt", get(receipt::page))
        .route("/session/{id}/receipt.json", get(receipt::file))
        .route("/servers", get(servers::list))
        .route("/server/{id}", get(servers::one))
        .route("/registry", get(registry::search))
        .route("/registry/{id}", get(registry::one))
        .route("/registry/approvals/{id}", post(registry::decide))
        .route("/approvals", get(approvals::list))
        .route("/approvals/{id}", post(approvals::answer))
        .route("/policy", get(policy::page))
        .route("/events", get(events::stream))
        .route("/style.css", get(async || ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE)))
        .route("/live.js", get(async || ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], SCRIPT)))
        .fallback(async || PageError::missing("there is no such page"))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(from_fn_with_state(Arc::clone(&app), gate))
        .with_state(app)
}

/// Before anything else: meant for this page, from a page of its own, and by who followed the link.
async fn gate(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let (method, headers) = (request.method(), request.headers());
    let mut passed = app.gate.same_site(method, headers);
    if request.uri().path() != "/open" {
        passed = passed.and_then(|()| app.gate.known(headers));
    }
    let mut response = match passed {
        Ok(()) => next.run(request).await,
        Err(turned) => refusal_page(turned),
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

/// In plain text: who is not known sees no page of ours.
fn refusal_page(turned: RequestRefusal) -> Response {
    match turned {
        RequestRefusal::Foreign(why) => (StatusCode::FORBIDDEN, format!("refused: {why}\n")),
        RequestRefusal::Unknown => {
            let how = "refused: the page opens with the link that `agentsh ui` printed, once; start it again for a new link\n";
            (StatusCode::UNAUTHORIZED, how.to_owned())
        }
    }
    .into_response()
}

#[derive(Deserialize)]
struct Opening {
    #[serde(default)]
    token: String,
}

async fn open(
    State(app): State<Arc<App>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Query(opening): Query<Opening>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    if !app.gate.is_own(peer) {
        return refusal_page(RequestRefusal::Foreign("another user of this machine"));
    }
    // A preview of the link is not the browser.
    if method == Method::HEAD {
        return StatusCode::OK.into_response();
    }
    let Some(cookie) = app.gate.exchange(&opening.token) else {
        // Who came in already may follow the link again.
        return match app.gate.known(&headers) {
            Ok(()) => Page(agentsh_web::opened()).into_response(),
            Err(turned) => refusal_page(turned),
        };
    };
    // The link may have been followed from elsewhere: the next request is one of our own page, and carries the cookie.
    ([(header::SET_COOKIE, cookie)], Page(agentsh_web::opened())).into_response()
}
