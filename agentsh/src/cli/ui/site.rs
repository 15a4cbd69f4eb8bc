//! Paths and methods, and the checks before all of them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, SET_COOKIE};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use percent_encoding::percent_decode_str;
use tokio::net::TcpListener;

use super::app::{App, Fields, Page, PageError, Reply, reply, with_header};
use super::gate::RequestRefusal;
use super::{approvals, events, now, policy, receipt, registry, servers, session};
use agentsh_web::{HEADERS, SCRIPT, STYLE};

/// Longest body of a form, in bytes.
const MAX_BODY: usize = 16 << 10;
/// Before the next connection, if there are too many open files.
const RETRY: Duration = Duration::from_secs(1);
const FORM: &str = "application/x-www-form-urlencoded";

/// Serves until it is dropped.
pub(super) async fn serve(listener: TcpListener, app: Arc<App>) -> Infallible {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new());
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(RETRY).await;
            continue;
        };
        let app = Arc::clone(&app);
        let service = service_fn(move |request| {
            let app = Arc::clone(&app);
            async move { Ok::<_, Infallible>(answer(&app, peer, request).await) }
        });
        tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
    }
}

/// Before anything else: meant for this page, from a page of its own, and by who followed the link.
async fn answer(app: &Arc<App>, peer: SocketAddr, request: Request<Incoming>) -> Reply {
    let (head, body) = request.into_parts();
    let mut passed = app.gate.same_site(&head.method, &head.headers);
    if head.uri.path() != "/open" {
        passed = passed.and_then(|()| app.gate.check_cookie(&head.headers));
    }
    let mut reply = match passed {
        Ok(()) => route(app, peer, &head, body).await.unwrap_or_else(PageError::reply),
        Err(turned) => refusal_page(turned),
    };
    for (name, value) in HEADERS {
        reply.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    reply
}

async fn route(app: &Arc<App>, peer: SocketAddr, head: &Parts, body: Incoming) -> Result<Reply, PageError> {
    let query = Fields::read(head.uri.query().unwrap_or_default().as_bytes());
    let words = head.uri.path().split('/').skip(1);
    let words: Vec<_> = words.map(|word| percent_decode_str(word).decode_utf8_lossy()).collect();
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    let method = if head.method == Method::HEAD { "GET" } else { head.method.as_str() };
    let page = match (method, words.as_slice()) {
        ("GET", [""]) => now::now(app).await?,
        ("GET", ["open"]) => return Ok(open(app, peer, head, query.text("token"))),
        ("GET", ["sessions"]) => now::sessions(app, &query).await?,
        ("GET", ["session", id]) => session::page(app, id, &query).await?,
        ("GET", ["session", id, "receipt"]) => receipt::page(app, id).await?,
        ("GET", ["session", id, "receipt.json"]) => return receipt::file(app, id).await,
        ("GET", ["servers"]) => servers::list(app, query.get("after")).await?,
        ("GET", ["server", id]) => servers::one(app, id, &query).await?,
        ("GET", ["registry"]) => registry::search(app, &query).await?,
        ("GET", ["registry", id]) => registry::one(app, id).await?,
        ("POST", ["registry", "approvals", id]) => {
            return registry::decide(app, id, &form(head, body).await?).await;
        }
        ("GET", ["approvals"]) => approvals::list(app, query.text("answered")).await?,
        ("POST", ["approvals", id]) => return approvals::answer(app, id, &form(head, body).await?).await,
        ("GET", ["policy"]) => policy::page(app, &query).await?,
        ("GET", ["events"]) => return Ok(events::stream(app, query.number("after")?.unwrap_or_default())),
        ("GET", ["style.css"]) => return Ok(reply(StatusCode::OK, "text/css; charset=utf-8", STYLE)),
        ("GET", ["live.js"]) => return Ok(reply(StatusCode::OK, "text/javascript; charset=utf-8", SCRIPT)),
        ("GET", _) => return Err(PageError::missing("there is no such page")),
        _ => return Err(PageError(StatusCode::METHOD_NOT_ALLOWED, "there is no such form".to_owned())),
    };
    Ok(page.reply())
}

async fn form(head: &Parts, body: Incoming) -> Result<Fields, PageError> {
    let kind = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    // Other kinds are those that a script sends.
    if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(FORM) {
        return Err(PageError(StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("a form is sent as {FORM}")));
    }
    let large = |_| PageError(StatusCode::PAYLOAD_TOO_LARGE, "the form is too large".to_owned());
    Ok(Fields::read(&Limited::new(body, MAX_BODY).collect().await.map_err(large)?.to_bytes()))
}

/// Plain text: an unknown visitor gets no page.
fn refusal_page(turned: RequestRefusal) -> Reply {
    let (status, why) = match turned {
        RequestRefusal::Foreign(why) => (StatusCode::FORBIDDEN, format!("refused: {why}\n")),
        RequestRefusal::Unknown => {
            let how = "refused: the page opens with the link that `agentsh ui` printed, once; start it again for a new link\n";
            (StatusCode::UNAUTHORIZED, how.to_owned())
        }
    };
    reply(status, "text/plain; charset=utf-8", why)
}

fn open(app: &App, peer: SocketAddr, head: &Parts, token: &str) -> Reply {
    if !app.gate.is_own(peer) {
        return refusal_page(RequestRefusal::Foreign("another user of this machine"));
    }
    let page = Page(agentsh_web::opened_page()).reply();
    // A preview of the link is not the browser.
    if head.method == Method::HEAD {
        return page;
    }
    let Some(cookie) = app.gate.exchange(token) else {
        // A visitor who has the cookie may follow the link again.
        return app.gate.check_cookie(&head.headers).map_or_else(refusal_page, |()| page);
    };
    // The link may have been followed from elsewhere: the next request is one of our own page, and carries the cookie.
    with_header(page, SET_COOKIE, &cookie)
}
