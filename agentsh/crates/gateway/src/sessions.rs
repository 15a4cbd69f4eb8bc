//! Client sessions: created, found for their owner, shared if configured, ended.

use std::rc::Rc;
use std::time::Duration;

use hyper::body::Incoming as Body;
use hyper::{Request, StatusCode};

use super::admission::{Admitted, Refusal, key_of};
use super::client::{Client, ClientLimits, ServerWire};
use super::codes::Code;
use super::config::{Endpoint, Sharing};
use super::keys;
use super::reply::{self, Answer};
use super::server::Gateway;
use super::shared_session;
use super::translation::Translation;

/// Prefix of shared connections' names, which no client can request.
const SHARED_PREFIX: &str = "shared ";
/// Owner of connections shared by everybody; no key or token has this name.
const SHARED_OWNER: &str = "everybody";
/// In bytes; a server's message may be longer than a client's.
const MAX_LENGTH: usize = 64 << 20;

/// A request's session, if clients may use it.
pub fn valid_session_id(id: Option<&str>) -> Option<&str> {
    id.filter(|id| !id.starts_with(SHARED_PREFIX.trim_end()))
}

impl Gateway {
    /// This client's session with this endpoint.
    pub(crate) fn session(&self, id: &str, endpoint: &Endpoint, admitted: &Admitted) -> Option<Rc<Client>> {
        let sessions = self.sessions.borrow();
        let client = sessions.get(id)?;
        let is_allowed = client.subject == admitted.subject || client.subject == SHARED_OWNER;
        let is_own = client.endpoint == endpoint.id && is_allowed && !client.is_ended();
        is_own.then(|| Rc::clone(client))
    }

    /// Starts a session for a client with these capabilities (JSON).
    ///
    /// # Errors
    /// When there are too many.
    pub(crate) fn begin(
        self: &Rc<Self>,
        id: String,
        endpoint: &Endpoint,
        admitted: &Admitted,
        capabilities: &str,
    ) -> Result<Rc<Client>, Refusal> {
        let shared = endpoint.shared != Sharing::No;
        let connection = shared.then(|| self.shared_client(endpoint, admitted, capabilities)).transpose()?;
        let wire = || match connection {
            Some(connection) => {
                ServerWire::without_postponing(shared_session::attach(connection, MAX_LENGTH))
            }
            None => self.connector.connect(endpoint, &admitted.client()),
        };
        self.open(id, endpoint, &admitted.subject, wire, Translation::with_sessions())
    }

    /// The shared connection for this client's requests.
    ///
    /// # Errors
    /// When there are too many.
    pub(crate) fn shared_client(
        self: &Rc<Self>,
        endpoint: &Endpoint,
        admitted: &Admitted,
        capabilities: &str,
    ) -> Result<Rc<Client>, Refusal> {
        let for_all = endpoint.shared == Sharing::Everybody;
        let subject = if for_all { SHARED_OWNER } else { &admitted.subject };
        // A server learns the client's capabilities, so only equal ones share.
        let can = keys::hash(capabilities);
        let name = format!("{SHARED_PREFIX}{} {subject} {can}", endpoint.id);
        if let Some(client) = self.session(&name, endpoint, admitted) {
            return Ok(client);
        }
        let who = if for_all { SHARED_OWNER.to_owned() } else { admitted.client() };
        let wire = || self.connector.connect(endpoint, &who);
        let translation =
            if for_all { Translation::for_everybody() } else { Translation::without_sessions() };
        self.open(name, endpoint, subject, wire, translation)
    }

    fn open(
        self: &Rc<Self>,
        id: String,
        endpoint: &Endpoint,
        subject: &str,
        wire: impl FnOnce() -> ServerWire,
        translation: Translation,
    ) -> Result<Rc<Client>, Refusal> {
        let limits = self.config().limits.clone();
        let of_key = {
            let sessions = self.sessions.borrow();
            let own = sessions.values().filter(|client| client.subject == subject).count();
            (sessions.len(), own)
        };
        if of_key.0 >= limits.sessions || of_key.1 >= limits.sessions_per_key {
            return Err(Refusal {
                retry_after: Some(10),
                ..Refusal::new(
                    Code::Rate,
                    "too many sessions: end one (DELETE), or wait until an idle one times out",
                )
            });
        }
        let gateway = Rc::downgrade(self);
        let on_end = move |client: &Client| {
            if let Some(gateway) = gateway.upgrade() {
                gateway.sessions.borrow_mut().remove(&client.id);
            }
        };
        let bounds = ClientLimits { line: MAX_LENGTH, unread: limits.unread_bytes };
        let (endpoint, subject) = (endpoint.id.clone(), subject.to_owned());
        let client = Client::start(id.clone(), endpoint, subject, wire(), bounds, translation, on_end);
        self.sessions.borrow_mut().insert(id, Rc::clone(&client));
        Ok(client)
    }

    pub(crate) fn delete(&self, endpoint: &Endpoint, admitted: &Admitted, request: &Request<Body>) -> Answer {
        let id =
            valid_session_id(super::message::header(request.headers(), "mcp-session-id")).unwrap_or_default();
        let Some(client) = self.session(id, endpoint, admitted) else {
            return self.refuse(&endpoint.id, &Refusal::new(Code::NoSession, "no such session"));
        };
        self.sessions.borrow_mut().remove(id);
        client.end();
        reply::empty(StatusCode::NO_CONTENT)
    }

    pub(crate) fn remove_idle(&self) {
        let limit = Duration::from_secs(self.config().limits.idle_seconds);
        self.end_sessions(|client| client.idle() > limit);
        self.end_closed();
    }

    /// Ends the sessions of keys that open their endpoint no more, and with them their calls and questions.
    pub(crate) fn end_closed(&self) {
        self.end_sessions(|client| {
            key_of(&client.subject).is_some_and(|hash| !self.opens(hash, &client.endpoint))
        });
    }

    fn end_sessions(&self, is_over: impl Fn(&Client) -> bool) {
        let over: Vec<_> =
            self.sessions.borrow().values().filter(|client| is_over(client)).cloned().collect();
        for client in over {
            self.sessions.borrow_mut().remove(&client.id);
            client.end();
        }
    }
}
