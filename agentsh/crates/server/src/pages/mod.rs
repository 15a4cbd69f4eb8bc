//! The pages of the fleet server. They call the server's API with the browser's credential, so roles are checked in
//! one place.

mod change;
mod identity;
mod provider;
mod read_pages;
mod sign;

pub(crate) use identity::Identity;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use crate::fleet::{Gate, Role};
use agentsh::cli::server::Fleet;
use agentsh_authoring::CommandContext;
use agentsh_base::site;
use agentsh_fleet::wire::CredentialOwner;
use agentsh_fleet::{Client, ClientError, keys};
use agentsh_store::StoreError;
use agentsh_terminal::output::Failure;
use agentsh_web::{self as web, Frame, HEADERS, Href, Message, Pages, Place, STYLE, message};

/// Longest body of a form, in bytes.
const MAX_BODY: usize = 16 << 10;
const COOKIE: &str = "agentsh-fleet";
const NOT_A_FORM: &str = "the form has expired; reload the page";

/// The state that every page needs.
struct App {
    server: Router,
    place: CommandContext,
    /// The browser comes by TLS alone.
    is_secure: bool,
    /// The provider at which people without a token sign in.
    identity: Option<Identity>,
    gate: Gate,
}

/// A person with a valid credential.
struct Person {
    fleet: Fleet,
    who: CredentialOwner,
    role: Role,
    /// The token in every form of this person's pages.
    form: String,
}

/// The pages next to the paths of `server`.
pub(super) fn router(
    server: Router,
    place: CommandContext,
    is_secure: bool,
    (identity, known): (Option<Identity>, Gate),
) -> Router {
    let app = Arc::new(App { server, place, is_secure, identity, gate: known });
    Router::new()
        .route("/", get(read_pages::now))
        .route("/hosts", get(read_pages::hosts))
        .route("/sessions", get(read_pages::sessions))
        .route("/session/{id}", get(read_pages::session))
        .route("/servers", get(read_pages::servers))
        .route("/server/{id}", get(read_pages::server))
        .route("/people", get(read_pages::people))
        .route("/approvals", get(read_pages::approvals))
        .route("/approvals/{id}", post(change::answer))
        .route("/hosts/{host}/accept", post(change::accept))
        .route("/hosts/{host}/revoke", post(change::revoke))
        .route("/people/{name}/revoke", post(change::revoke_person))
        .route("/sign-in", get(sign::show).post(sign::sign_in))
        .route(provider::BEGIN, get(provider::begin))
        .route(identity::CALLBACK, get(provider::finish))
        .route("/sign-out", post(sign::sign_out))
        .route("/style.css", get(async || ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE)))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(from_fn(gate))
        .with_state(app)
}

/// A form comes from a page of this server, and every answer says what a browser may do with it.
async fn gate(request: Request, next: Next) -> Response {
    let mut response = match same_site(request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(why) => (StatusCode::FORBIDDEN, format!("refused: {why}\n")).into_response(),
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

/// The server accepts any name: under a foreign name there is no cookie.
fn same_site(method: &Method, headers: &HeaderMap) -> Result<(), &'static str> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let bare: Vec<String> =
        text("host").map(|host| site::host_without_port(host).to_owned()).into_iter().collect();
    let asked = site::BrowserRequest::of(matches!(*method, Method::GET | Method::HEAD), text);
    site::same_site(&asked, &bare)
}

impl App {
    /// The owner of the cookie.
    async fn signed_in_person(&self, headers: &HeaderMap) -> Result<Person, PageFailure> {
        let credential = cookie(headers, COOKIE).ok_or_else(|| self.sign_in(None))?;
        let client = Client::in_process(self.server.clone(), Some(credential.clone()));
        let who: CredentialOwner = client.get("/v1/who").await.map_err(|error| match error {
            ClientError::Status { status: 401, .. } | ClientError::Credential => {
                self.sign_in(Some("The credential is no longer valid.".to_owned()))
            }
            other => other.into(),
        })?;
        let role = Role::named(&who.role).ok_or_else(|| self.sign_in(None))?;
        Ok(Person { fleet: Fleet::of(client), who, role, form: form(&credential) })
    }

    /// The sign-in page. `said`: why the last attempt failed.
    fn sign_in(&self, said: Option<String>) -> PageFailure {
        self.sign_in_as(StatusCode::UNAUTHORIZED, said)
    }

    fn sign_in_as(&self, status: StatusCode, said: Option<String>) -> PageFailure {
        let provider = self.identity.as_ref().map(|identity| identity.shown.clone());
        PageFailure::SignIn { status, said, provider }
    }
}

impl Person {
    fn frame(&self, title: impl Into<String>, here: Place) -> Frame {
        Frame {
            title: title.into(),
            here,
            waiting: 0,
            token: self.form.clone(),
            newest: None,
            of: Pages::Fleet { name: self.who.on_record(), role: self.who.role.clone() },
        }
    }
}

/// The one cookie of this name.
fn cookie(headers: &HeaderMap, wanted: &str) -> Option<String> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.find(|(name, _)| *name == wanted)?;
    Some(value.to_owned()).filter(|value| !value.is_empty())
}

/// The form token. Everybody who sees the page knows it; it reveals nothing of the credential.
fn form(credential: &str) -> String {
    keys::digest(format!("agentsh fleet form\n{credential}").as_bytes())
}

type Answer = Result<Response, PageFailure>;

fn page(html: String) -> Response {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response()
}

/// The reason why there is no page.
enum PageFailure {
    /// Nobody is signed in. `said`: why the last attempt failed; `provider`: where one may sign in.
    SignIn {
        status: StatusCode,
        said: Option<String>,
        provider: Option<String>,
    },
    Other(StatusCode, String),
}

impl From<ClientError> for PageFailure {
    fn from(error: ClientError) -> Self {
        let status = match &error {
            ClientError::Status { status, .. } => StatusCode::from_u16(*status),
            _ => Ok(StatusCode::INTERNAL_SERVER_ERROR),
        };
        let said = match error {
            ClientError::Status { said, .. } => said,
            other => other.to_string(),
        };
        Self::Other(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), said)
    }
}

impl From<Failure> for PageFailure {
    fn from(failure: Failure) -> Self {
        let status = match &failure {
            Failure::Store(
                StoreError::NoSession | StoreError::UnknownSession(_) | StoreError::AmbiguousSession(_),
            )
            | Failure::No(_) => StatusCode::NOT_FOUND,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::Other(status, failure.to_string())
    }
}

impl From<StoreError> for PageFailure {
    fn from(error: StoreError) -> Self {
        Failure::from(error).into()
    }
}

impl IntoResponse for PageFailure {
    fn into_response(self) -> Response {
        match self {
            Self::SignIn { status, said, provider } => {
                let link = provider.as_deref().map(|name| (name, provider::BEGIN));
                (status, page(web::sign_in(said.as_deref(), link))).into_response()
            }
            Self::Other(status, said) => {
                let frame = Frame {
                    title: status.canonical_reason().unwrap_or("PageFailure").to_owned(),
                    here: Place::Now,
                    waiting: 0,
                    token: String::new(),
                    newest: None,
                    of: Pages::Fleet { name: "somebody".to_owned(), role: "unchanged".to_owned() },
                };
                let back = Some((Href::to(&[]), "Now".to_owned()));
                let shown = Message { title: String::new(), lines: vec![said], back };
                (status, page(message(&frame, &shown))).into_response()
            }
        }
    }
}

type Shared = State<Arc<App>>;
