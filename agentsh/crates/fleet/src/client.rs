//! The client of the fleet server: for hosts, which sign, and for people, who have a credential.

use std::time::Duration;

use agentsh_egress::HttpError;
use agentsh_egress::client::{Client as Http, Request};
use agentsh_egress::target::TargetError;
#[cfg(feature = "inside")]
use axum::Router;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;
#[cfg(feature = "inside")]
use tower_service::Service as _;

use crate::key_files::HostFile;
use crate::keys::{self, HostKey};
use crate::wire::Position;

/// Longest answer, in bytes.
const MAX_ANSWER: usize = 64 << 20;
/// For one question.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A server that can be asked.
pub struct Client {
    way: Transport,
    base: String,
    who: Signature,
}

enum Transport {
    Http(Box<Http>),
    /// The server of this process.
    #[cfg(feature = "inside")]
    Inside(Router),
}

enum Signature {
    Anyone,
    Person(String),
    Host(Signer),
}

/// Signs requests as a host does.
pub struct Signer {
    id: String,
    key: HostKey,
}

impl Signer {
    /// # Errors
    /// The key is invalid.
    pub fn of(file: &HostFile) -> Result<Self, ClientError> {
        let key = HostKey::read(&file.key).ok_or(ClientError::Key)?;
        Ok(Self { id: file.host.clone(), key })
    }

    /// The headers of a request. None: the id is one that no header may have.
    #[must_use]
    pub fn lines(&self, method: &Method, url: &url::Url, body: &[u8]) -> Option<HeaderMap> {
        let time = Timestamp::now().as_millisecond().to_string();
        let seen = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let body = keys::digest(body);
        let text = keys::signed_text(method.as_str(), &seen, &self.id, &time, &body);
        let lines = [
            (keys::HOST, self.id.clone()),
            (keys::TIME, time),
            (keys::BODY, body),
            (keys::SIGNATURE, self.key.sign(&text)),
        ];
        let line = |(name, value): (&'static str, String)| {
            Some((HeaderName::from_static(name), HeaderValue::from_str(&value).ok()?))
        };
        lines.into_iter().map(line).collect()
    }
}

/// The reason why there is no valid answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("cannot use the address of the fleet server: {0}")]
    Address(#[from] TargetError),
    #[error("cannot reach the fleet server: {0}")]
    Http(#[from] HttpError),
    #[error("the fleet server did not answer within {} s", REQUEST_TIMEOUT.as_secs())]
    TimedOut,
    /// `kind` is the server's word for it.
    #[error("the fleet server answered {status}: {said}")]
    Status { status: u16, kind: String, said: String, position: Option<Position>, later: Option<Duration> },
    #[error("the answer of the fleet server is not valid")]
    Answer,
    #[error("the credential has characters that a header cannot contain")]
    Credential,
    #[error("the key of this host cannot be used: enrol it again")]
    Key,
}

impl ClientError {
    /// The record of this host does not fit any more: asking again does not help.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Status { status, kind, .. } => {
                kind == "rewritten" || matches!(status, 400 | 401 | 403 | 404 | 413)
            }
            Self::Address(_) | Self::Credential | Self::Key => true,
            Self::Http(_) | Self::TimedOut | Self::Answer => false,
        }
    }
}

impl Client {
    /// `base` is https, or http on this machine.
    #[must_use]
    pub fn anonymous(http: Http, base: &str) -> Self {
        Self {
            way: Transport::Http(Box::new(http)),
            base: base.trim_end_matches('/').to_owned(),
            who: Signature::Anyone,
        }
    }

    /// Asks the server of this process as a caller with this credential; without one as an anonymous caller. The answers are those
    /// that go over the wire: what a role may is decided in one place.
    #[cfg(feature = "inside")]
    #[must_use]
    pub fn in_process(server: Router, credential: Option<String>) -> Self {
        let who = credential.map_or(Signature::Anyone, Signature::Person);
        Self { way: Transport::Inside(server), base: String::new(), who }
    }

    #[must_use]
    pub fn with_credential(http: Http, base: &str, credential: String) -> Self {
        Self { who: Signature::Person(credential), ..Self::anonymous(http, base) }
    }

    /// # Errors
    /// The key is invalid.
    pub fn host(http: Http, file: &HostFile) -> Result<Self, ClientError> {
        Ok(Self { who: Signature::Host(Signer::of(file)?), ..Self::anonymous(http, &file.url) })
    }

    /// # Errors
    /// Like [`ClientError`] says.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.ask(Method::GET, path, Vec::new(), "application/json").await
    }

    /// # Errors
    /// Like [`ClientError`] says.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|_| ClientError::Answer)?;
        self.ask(Method::POST, path, body, "application/json").await
    }

    /// Sends what was packed.
    ///
    /// # Errors
    /// Like [`ClientError`] says.
    pub async fn send<T: DeserializeOwned>(&self, path: &str, packed: Vec<u8>) -> Result<T, ClientError> {
        self.ask(Method::POST, path, packed, "application/gzip").await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        kind: &'static str,
    ) -> Result<T, ClientError> {
        let answer = timeout(REQUEST_TIMEOUT, self.exchange(method, path, body, kind));
        let bytes = answer.await.map_err(|_| ClientError::TimedOut)??;
        serde_json::from_slice(&bytes).map_err(|_| ClientError::Answer)
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        kind: &'static str,
    ) -> Result<Vec<u8>, ClientError> {
        let http = match &self.way {
            Transport::Http(http) => http,
            #[cfg(feature = "inside")]
            Transport::Inside(server) => return self.call_in_process(server, method, path, body, kind).await,
        };
        let target = http.target(&format!("{}{path}", self.base))?;
        let (mut headers, mut credentials) = (HeaderMap::new(), HeaderMap::new());
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        match &self.who {
            Signature::Anyone => {}
            Signature::Person(credential) => {
                let value = HeaderValue::from_str(&format!("Bearer {credential}"));
                credentials.insert(header::AUTHORIZATION, value.map_err(|_| ClientError::Credential)?);
            }
            Signature::Host(signer) => {
                // The path as the server sees it: below its base path, if the URL has one.
                credentials
                    .extend(signer.lines(&method, target.url(), &body).ok_or(ClientError::Credential)?);
            }
        }
        let request = Request { method, target, headers, credentials, body: body.into(), one_origin: false };
        let answer = http.follow(request).await?;
        let (status, later) = (answer.status, retry_after(&answer.headers));
        let bytes = answer.read_body(MAX_ANSWER).await?;
        if status.is_success() { Ok(bytes) } else { Err(refusal_error(status, later, &bytes)) }
    }
}

#[cfg(feature = "inside")]
impl Client {
    async fn call_in_process(
        &self,
        server: &Router,
        method: Method,
        path: &str,
        body: Vec<u8>,
        kind: &'static str,
    ) -> Result<Vec<u8>, ClientError> {
        let mut request = hyper::Request::new(axum::body::Body::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|_| ClientError::Answer)?;
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if let Signature::Person(credential) = &self.who {
            let value = HeaderValue::from_str(&format!("Bearer {credential}"));
            request.headers_mut().insert(header::AUTHORIZATION, value.map_err(|_| ClientError::Credential)?);
        }
        let answer = match server.clone().call(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        };
        let (status, later) = (answer.status(), retry_after(answer.headers()));
        let bytes = axum::body::to_bytes(answer.into_body(), MAX_ANSWER).await;
        let bytes = bytes.map_err(|_| ClientError::Answer)?.to_vec();
        if status.is_success() { Ok(bytes) } else { Err(refusal_error(status, later, &bytes)) }
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds.min(300)))
}

fn refusal_error(status: StatusCode, later: Option<Duration>, bytes: &[u8]) -> ClientError {
    let body: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let text =
        |name: &str| body.get(name).and_then(Value::as_str).map(|text| text.chars().take(500).collect());
    ClientError::Status {
        status: status.as_u16(),
        kind: text("kind").unwrap_or_default(),
        said: text("detail").unwrap_or_else(|| "nothing more".to_owned()),
        position: body.get("position").cloned().and_then(|position| serde_json::from_value(position).ok()),
        later,
    }
}
