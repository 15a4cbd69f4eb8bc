//! Finds the authorization server of a server, and its metadata.

use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, StatusCode};
use url::Url;

use super::ask::{Clients, accept_metadata, client_and_target, document};
use super::challenge::Challenge;
use super::error::LoginError;
use super::metadata::{self, AuthorizationServer, Resource};
use crate::egress::client::{Response, full_body};

/// The first message of the protocol, which a server that wants a login does not answer.
const INITIALIZE_REQUEST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"agentsh","version":"1"}}}"#;
const ABOUT_SERVER: &str = "the server's metadata";
const ABOUT_ISSUER: &str = "the authorization server's metadata";
const SESSION: &str = "mcp-session-id";

/// The server to log in at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginServer {
    /// The resource that a token is requested for.
    pub resource: String,
    pub server: AuthorizationServer,
    /// The scopes that the server requires; empty if it does not say.
    pub scopes: Vec<String>,
}

/// Finds the authorization server of a server.
///
/// # Errors
/// When there is none, when their metadata contradict each other, or when one of them may not be asked.
pub async fn discover(clients: &Clients, server: &Url) -> Result<LoginServer, LoginError> {
    let challenge = probe_server(clients, server).await?.unwrap_or_default();
    let Some(resource) = resource(clients, server, &challenge).await? else {
        return of_origin(clients, server, challenge).await;
    };
    let mut last = None;
    for issuer in &resource.issuers {
        match authorization_server(clients, issuer).await {
            Ok(found) => {
                let scopes = if challenge.scopes.is_empty() { resource.scopes } else { challenge.scopes };
                return Ok(LoginServer { resource: resource.identifier, server: found, scopes });
            }
            Err(error) => last = last.or(Some(error)),
        }
    }
    Err(last.unwrap_or(LoginError::NoLogin))
}

/// The revision of March 2025: a server without metadata is its own authorization server, or there is none.
async fn of_origin(clients: &Clients, server: &Url, challenge: Challenge) -> Result<LoginServer, LoginError> {
    let origin = server.origin().ascii_serialization();
    match authorization_server(clients, &origin).await {
        Ok(found) => Ok(LoginServer { resource: canonical(server), server: found, scopes: challenge.scopes }),
        Err(LoginError::NoMetadata(_)) => Err(LoginError::NoLogin),
        Err(error) => Err(error),
    }
}

/// The resource for which a token is requested, if the server does not name itself.
fn canonical(server: &Url) -> String {
    let mut url = server.clone();
    url.set_fragment(None);
    if url.path() == "/" { url.as_str().trim_end_matches('/').to_owned() } else { url.to_string() }
}

/// The answer of the server to a request without a token. Only metadata of its own origin counts.
async fn probe_server(clients: &Clients, server: &Url) -> Result<Option<Challenge>, LoginError> {
    const WHAT: &str = "the server";
    let (client, mut target) = client_and_target(clients, WHAT, server.as_str())?;
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let http = |source| LoginError::Http { what: WHAT, source };
    let mut before = 0;
    loop {
        let answer = client
            .send(Method::POST, &target, headers.clone(), full_body(INITIALIZE_REQUEST))
            .await
            .map_err(http)?;
        let location = answer.headers.get(hyper::header::LOCATION).and_then(|value| value.to_str().ok());
        if matches!(answer.status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT)
            && let Some(location) = location
        {
            let next = target.redirected(location, before, client.rules());
            let next = next.map_err(|why| LoginError::Refused { what: WHAT, why: why.to_string() })?;
            before += 1;
            if next.same_origin(&target) {
                target = next;
                continue;
            }
        }
        if let Some(session) = answer.headers.get(SESSION).filter(|_| answer.status.is_success()) {
            // The server opened a session for us: end it.
            let mut headers = HeaderMap::new();
            headers.insert(SESSION, session.clone());
            let _ = client.send(Method::DELETE, &target, headers, full_body("")).await;
        }
        return Ok(challenge(&answer));
    }
}

fn challenge(answer: &Response) -> Option<Challenge> {
    if answer.status != StatusCode::UNAUTHORIZED {
        return None;
    }
    let values = answer.headers.get_all(WWW_AUTHENTICATE).iter();
    Challenge::read(values.filter_map(|value| value.to_str().ok()))
}

async fn resource(
    clients: &Clients,
    server: &Url,
    challenge: &Challenge,
) -> Result<Option<Resource>, LoginError> {
    let places = match &challenge.resource_metadata {
        Some(named) => {
            let url = server.join(named);
            let why = "its 401 response names no metadata URL".to_owned();
            vec![url.map_err(|_| LoginError::Refused { what: ABOUT_SERVER, why })?.to_string()]
        }
        None => metadata::places_of_resource(server),
    };
    for place in places {
        if let Some(text) = document(clients, ABOUT_SERVER, &place).await? {
            return accept_metadata(ABOUT_SERVER, &place, Resource::read(&text, server)).map(Some);
        }
    }
    Ok(None)
}

async fn authorization_server(clients: &Clients, issuer: &str) -> Result<AuthorizationServer, LoginError> {
    server_metadata(clients, issuer).await
}

/// The metadata of an authorization server.
pub(crate) async fn server_metadata(
    clients: &Clients,
    issuer: &str,
) -> Result<AuthorizationServer, LoginError> {
    let places = accept_metadata(ABOUT_ISSUER, issuer, metadata::places_of_issuer(issuer))?;
    for place in places {
        let Some(text) = document(clients, ABOUT_ISSUER, &place).await? else { continue };
        // A web application may answer every address with its page.
        if text.trim_ascii_start().starts_with(b"<") {
            continue;
        }
        let found = accept_metadata(ABOUT_ISSUER, &place, AuthorizationServer::read(&text, issuer))?;
        // The user and secrets must be sent only to addresses as safe as those requested so far.
        for (what, url) in endpoints(&found) {
            self::client_and_target(clients, what, url)?;
        }
        return Ok(found);
    }
    Err(LoginError::NoMetadata(issuer.to_owned()))
}

fn endpoints(found: &AuthorizationServer) -> impl Iterator<Item = (&'static str, &str)> {
    let always = [
        ("its authorization endpoint", Some(&found.authorization_endpoint)),
        ("its token endpoint", Some(&found.token_endpoint)),
        ("its registration endpoint", found.registration_endpoint.as_ref()),
        ("its revocation endpoint", found.revocation_endpoint.as_ref()),
    ];
    always.into_iter().filter_map(|(what, url)| Some((what, url?.as_str())))
}
