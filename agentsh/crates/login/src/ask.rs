//! HTTP requests of a login: bounded, and never redirected to an unchecked place.

use std::rc::Rc;
use std::time::Duration;

use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, StatusCode};

use super::error::LoginError;
use super::metadata::InvalidMetadata;
use crate::egress::client::{Limits, Request, Response, full_body};
use crate::egress::target::Target;
use crate::egress::{Client, HttpError};

/// The client for one URL of the flow, under the rules that hold for it.
pub type Clients = Rc<dyn Fn(&str) -> Result<Client, String>>;

/// Longest document, in bytes.
const MAX_DOCUMENT: usize = 256 << 10;
/// Maximum time for a document, and for each pause in it.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// An answer as it came, whatever its status is.
pub(crate) struct Answer {
    pub status: StatusCode,
    pub body: Vec<u8>,
}

/// A client for `url`, and the vetted target.
pub(crate) fn client_and_target(
    clients: &Clients,
    what: &'static str,
    url: &str,
) -> Result<(Client, Target), LoginError> {
    let client = clients(url).map_err(LoginError::NoClient)?;
    let limits =
        Limits { first_byte: Some(REQUEST_TIMEOUT), idle: Some(REQUEST_TIMEOUT), ..Limits::default() };
    let client = client.with_limits(limits);
    let target = client.target(url).map_err(|why| LoginError::Refused { what, why: why.to_string() })?;
    Ok((client, target))
}

/// A metadata document; None if there is none at this URL. It is requested without secrets, so redirects are followed.
pub(crate) async fn document(
    clients: &Clients,
    what: &'static str,
    url: &str,
) -> Result<Option<Vec<u8>>, LoginError> {
    let (client, target) = client_and_target(clients, what, url)?;
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, JSON);
    let request = Request { headers, ..Request::get(target) };
    let http = |source| LoginError::Http { what, source };
    let answer = client.follow(request).await.map_err(http)?;
    if answer.status == StatusCode::OK {
        return answer.decompressed().read_body(MAX_DOCUMENT).await.map(Some).map_err(http);
    }
    match answer.status.as_u16() {
        400..500 => Ok(None),
        status => Err(http(HttpError::Broken(format!("HTTP {status}")))),
    }
}

/// Posts what may hold a secret: a redirection is an answer.
pub(crate) async fn post(
    clients: &Clients,
    what: &'static str,
    url: &str,
    (kind, body): (&'static str, Vec<u8>),
    secret: Option<HeaderValue>,
) -> Result<Answer, LoginError> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, JSON);
    headers.extend(secret.map(|secret| (AUTHORIZATION, secret)));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    let (client, target) = client_and_target(clients, what, url)?;
    let http = |source| LoginError::Http { what, source };
    let answer = client.send(Method::POST, &target, headers, full_body(body)).await.map_err(http)?;
    read_bounded(answer).await.map_err(http)
}

pub(crate) async fn read_bounded(answer: Response) -> Result<Answer, HttpError> {
    Ok(Answer { status: answer.status, body: answer.decompressed().read_body(MAX_DOCUMENT).await? })
}

/// The parsed document, or why it is not accepted.
pub(crate) fn accept_metadata<T>(
    what: &'static str,
    place: &str,
    read: Result<T, InvalidMetadata>,
) -> Result<T, LoginError> {
    read.map_err(|why| LoginError::InvalidMetadata { what, place: place.to_owned(), why })
}
