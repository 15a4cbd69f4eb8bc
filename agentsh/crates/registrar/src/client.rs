//! The client of a registry. It verifies each answer: the name, the hash, and that the interface has this hash.

use std::sync::Arc;
use std::time::Duration;

use agentsh_base::json::{self, Json};
use agentsh_egress::HttpError;
use agentsh_egress::client::{Client as Http, Request};
use agentsh_egress::target::{Target, TargetError};
use agentsh_registry::{Interface, MAX_DEPTH, canonical, hash};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::entry::{Entry, GENESIS};

/// Longest answer, in bytes.
const MAX_ANSWER: usize = 32 << 20;
/// For one question.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Entries of the log that are asked for at once.
const LOG_PAGE: usize = 100;

/// A registry that can be asked.
#[derive(Clone)]
pub struct Client {
    http: Http,
    base: String,
    shows: RequestIdentity,
}

/// The headers that sign a request: method, address and body. None: it cannot be signed.
pub type Sign = Arc<dyn Fn(&Method, &url::Url, &[u8]) -> Option<HeaderMap> + Send + Sync>;

/// How the registry identifies the caller.
#[derive(Clone)]
enum RequestIdentity {
    Nothing,
    Token(String),
    Signature(Sign),
}

/// The reason why there is no valid answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("invalid registry URL: {0}")]
    Address(#[from] TargetError),
    #[error("cannot reach the registry: {0}")]
    Http(#[from] HttpError),
    #[error("the registry did not answer within {} s", REQUEST_TIMEOUT.as_secs())]
    TimedOut,
    #[error("the registry answered {status}: {said}")]
    Status { status: u16, said: String },
    #[error("the registry's answer is not valid: {0}")]
    Answer(&'static str),
    #[error("the token has characters that a header cannot contain")]
    Token,
}

/// The registry's answer about an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// In force under this name.
    Same,
    /// The name belongs to another interface, with these components.
    Changed { recorded: String, components: Vec<String> },
    /// The name is not registered; the same interface is registered under these names.
    Unknown { others: Vec<String> },
}

/// A request for a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    pub id: i64,
    pub name: String,
    pub hash: String,
    /// `pending`, `approved`, `rejected`, `expired`.
    pub status: String,
    pub created_at: String,
    pub diff: String,
}

impl Client {
    /// `base` is https, or http on this machine.
    #[must_use]
    pub fn new(http: Http, base: &str, token: Option<String>) -> Self {
        let shows = token.map_or(RequestIdentity::Nothing, RequestIdentity::Token);
        Self { http, base: base.trim_end_matches('/').to_owned(), shows }
    }

    /// Each request is signed with a key that the server knows.
    #[must_use]
    pub fn with_signature(http: Http, base: &str, sign: Sign) -> Self {
        Self { shows: RequestIdentity::Signature(sign), ..Self::new(http, base, None) }
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<(StatusCode, Vec<u8>), ClientError> {
        let target: Target = self.http.target(&format!("{}{path}", self.base))?;
        let (mut headers, mut credentials) = (HeaderMap::new(), HeaderMap::new());
        if body.is_some() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let body = body.unwrap_or_default();
        match &self.shows {
            RequestIdentity::Nothing => {}
            RequestIdentity::Token(token) => {
                let value = HeaderValue::from_str(&format!("Bearer {token}"));
                credentials.insert(header::AUTHORIZATION, value.map_err(|_| ClientError::Token)?);
            }
            RequestIdentity::Signature(sign) => {
                credentials = sign(&method, target.url(), body.as_bytes()).ok_or(ClientError::Token)?;
            }
        }
        let body = body.into();
        let request = Request { method, target, headers, credentials, body, one_origin: false };
        let answered = timeout(REQUEST_TIMEOUT, async {
            let answer = self.http.follow(request).await?;
            let status = answer.status;
            Ok::<_, ClientError>((status, answer.read_body(MAX_ANSWER).await?))
        });
        answered.await.map_err(|_| ClientError::TimedOut)?
    }

    async fn expect(&self, method: Method, path: &str, body: Option<String>) -> Result<Vec<u8>, ClientError> {
        let (status, answer) = self.ask(method, path, body).await?;
        if status.is_success() { Ok(answer) } else { Err(refusal_error(status, &answer)) }
    }

    /// Registers an interface under its name.
    ///
    /// # Errors
    /// When it is refused, or the registry cannot be asked.
    pub async fn register(&self, interface: &Interface) -> Result<(), ClientError> {
        let hash = interface.hash();
        let body = format!(
            r#"{{"name":{},"hash":"{hash}","interface":{}}}"#,
            json!(interface.name),
            interface.to_json()
        );
        let answer = self.expect(Method::POST, "/servers", Some(body)).await?;
        let tree = read(&answer)?;
        if is_record(&tree, &interface.name, &hash) {
            Ok(())
        } else {
            Err(ClientError::Answer("it is about another interface"))
        }
    }

    /// Whether the interface is in force under its name.
    ///
    /// # Errors
    /// When the registry cannot be asked or answers something else.
    pub async fn verify(&self, interface: &Interface) -> Result<Verdict, ClientError> {
        let hash = interface.hash();
        let (status, answer) = self.ask(Method::GET, &format!("/servers/{hash}"), None).await?;
        let mut others = Vec::new();
        if status == StatusCode::OK {
            let tree = read(&answer)?;
            for record in tree.as_array().ok_or(ClientError::Answer("not a list"))? {
                if is_record(record, &interface.name, &hash) {
                    return Ok(Verdict::Same);
                }
                others.extend(text(record, "name"));
            }
        } else if status != StatusCode::NOT_FOUND {
            return Err(refusal_error(status, &answer));
        }
        let name: String = url::form_urlencoded::byte_serialize(interface.name.as_bytes()).collect();
        let answer = self.expect(Method::GET, &format!("/servers?limit=1&name={name}"), None).await?;
        let tree = read(&answer)?;
        let servers = tree.member("servers").and_then(Json::as_array);
        let Some(record) = servers.ok_or(ClientError::Answer("not a list of servers"))?.first() else {
            return Ok(Verdict::Unknown { others });
        };
        let components = components(record, "interface");
        match (text(record, "name"), text(record, "hash")) {
            (Some(name), Some(recorded)) if name == interface.name && recorded != hash => {
                Ok(Verdict::Changed { recorded, components })
            }
            _ => Err(ClientError::Answer("it is about another server")),
        }
    }

    /// Asks a person to approve a changed interface; the same question twice is one.
    ///
    /// # Errors
    /// When it is refused, or the registry cannot be asked.
    pub async fn request(
        &self,
        interface: &Interface,
        recorded: Option<&str>,
        diff: &str,
    ) -> Result<Approval, ClientError> {
        let hash = interface.hash();
        let body = format!(
            r#"{{"name":{},"recorded_hash":{},"new_hash":"{hash}","new_interface":{},"diff":{}}}"#,
            json!(interface.name),
            json!(recorded),
            interface.to_json(),
            json!(diff)
        );
        let answer = self.expect(Method::POST, "/approvals", Some(body)).await?;
        let approval = approval(&read(&answer)?)?;
        if approval.name == interface.name && approval.hash == hash {
            Ok(approval)
        } else {
            Err(ClientError::Answer("it is about another interface"))
        }
    }

    /// The status of a request.
    ///
    /// # Errors
    /// When the registry cannot be asked or does not know it.
    pub async fn approval(&self, id: i64) -> Result<Approval, ClientError> {
        let answer = self.expect(Method::GET, &format!("/approvals/{id}"), None).await?;
        approval(&read(&answer)?)
    }

    /// The requests that wait, newest first, 100 at most.
    ///
    /// # Errors
    /// When the registry cannot be asked.
    pub async fn approvals(&self) -> Result<Vec<Approval>, ClientError> {
        let answer = self.expect(Method::GET, "/approvals?limit=100", None).await?;
        let tree = read(&answer)?;
        let listed = tree.member("approvals").and_then(Json::as_array);
        listed.ok_or(ClientError::Answer("not a list of approvals"))?.iter().map(approval).collect()
    }

    /// Approves or rejects. Returns the decision in force: another person may have been first.
    ///
    /// # Errors
    /// When the registry refuses, or cannot be asked.
    pub async fn decide(&self, id: i64, approve: bool, reason: &str) -> Result<Approval, ClientError> {
        let path = format!("/approvals/{id}/{}", if approve { "approve" } else { "reject" });
        let answer = self.expect(Method::POST, &path, Some(json!({ "reason": reason }).to_string())).await?;
        approval(&read(&answer)?)
    }

    /// Takes an interface out of force under one name.
    ///
    /// # Errors
    /// When it is refused, or the registry cannot be asked.
    pub async fn revoke(&self, name: &str, hash: &str, reason: &str) -> Result<(), ClientError> {
        let body = json!({ "name": name, "reason": reason }).to_string();
        self.expect(Method::POST, &format!("/servers/{hash}/revoke"), Some(body)).await.map(drop)
    }

    /// The whole log, whose chain holds.
    ///
    /// # Errors
    /// When an entry is missing or differs from its hash in the chain, or when the registry cannot be asked.
    pub async fn log(&self) -> Result<(Vec<Entry>, String), ClientError> {
        let (mut entries, mut tip) = (Vec::<Entry>::new(), GENESIS.to_owned());
        loop {
            let path = format!("/log?limit={LOG_PAGE}&offset={}", entries.len());
            let answer = self.expect(Method::GET, &path, None).await?;
            let tree = read(&answer)?;
            let page =
                tree.member("entries").and_then(Json::as_array).ok_or(ClientError::Answer("not a log"))?;
            for row in page {
                let entry = entry(row).ok_or(ClientError::Answer("not a log entry"))?;
                let seq = i64::try_from(entries.len()).unwrap_or(i64::MAX) + 1;
                let digest = entry.digest();
                if entry.seq != seq
                    || entry.previous != tip
                    || text(row, "digest").as_deref() != Some(&digest)
                {
                    return Err(ClientError::Answer("its log was changed: the hash chain is broken"));
                }
                tip = digest;
                entries.push(entry);
            }
            if page.len() < LOG_PAGE {
                return Ok((entries, tip));
            }
        }
    }
}

fn read(answer: &[u8]) -> Result<Json<'_>, ClientError> {
    json::read_to_depth(answer, MAX_DEPTH).map_err(|_| ClientError::Answer("not strict JSON"))
}

fn refusal_error(status: StatusCode, answer: &[u8]) -> ClientError {
    let tree = json::read(answer).ok();
    let detail = tree.as_ref().and_then(|tree| tree.member("detail"));
    let said = detail.map(|detail| match detail.as_text() {
        Some(text) => text.into_owned(),
        None => detail.to_compact(),
    });
    let said: String = said.unwrap_or_default().chars().take(400).collect();
    ClientError::Status { status: status.as_u16(), said }
}

/// A record is what it says only if its interface has its hash.
fn is_record(record: &Json<'_>, name: &str, wanted: &str) -> bool {
    text(record, "name").as_deref() == Some(name)
        && text(record, "hash").as_deref() == Some(wanted)
        && hash(components(record, "interface").iter().map(String::as_str)) == wanted
}

fn components(record: &Json<'_>, member: &str) -> Vec<String> {
    let items = record.member(member).and_then(Json::as_array).unwrap_or_default();
    items.iter().map(canonical).collect()
}

fn text(object: &Json<'_>, name: &str) -> Option<String> {
    object.member(name)?.as_text().map(std::borrow::Cow::into_owned)
}

fn number(object: &Json<'_>, name: &str) -> Option<i64> {
    object.member(name).map(Json::to_value).as_ref().and_then(Value::as_i64)
}

fn approval(record: &Json<'_>) -> Result<Approval, ClientError> {
    let read = || {
        Some(Approval {
            id: number(record, "id")?,
            name: text(record, "name")?,
            hash: text(record, "new_hash")?,
            status: text(record, "status")?,
            created_at: text(record, "created_at")?,
            diff: text(record, "diff")?,
        })
    };
    read().ok_or(ClientError::Answer("not a request for approval"))
}

fn entry(row: &Json<'_>) -> Option<Entry> {
    Some(Entry {
        seq: number(row, "seq")?,
        at: text(row, "at")?,
        actor: text(row, "actor")?,
        action: text(row, "action")?,
        name: text(row, "name")?,
        hash: text(row, "hash")?,
        detail: text(row, "detail")?,
        previous: text(row, "previous")?,
    })
}
