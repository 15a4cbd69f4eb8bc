//! One MCP server behind a URL: the session connects, with credentials that no sandbox sees.

use std::collections::BTreeMap;
use std::rc::Rc;

use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use tokio::io::DuplexStream;
use url::Url;

use agentsh_agents::expand;
use agentsh_base::types::{RuleRef, ServerId};
use agentsh_egress::Client;
use agentsh_egress::resolve::Resolver;
use agentsh_mcp::{PauseSender, Running, StartError, Upstream};
use agentsh_remote::{Credentials, Settings, connect};
use agentsh_store::words::LayerState;
use agentsh_store::{Event, escape};

use super::Session;
use super::address::shown_url;
use agentsh_broker::logins::{self, StoredLogin};
use agentsh_host::outgoing::rules;

/// Set by agentsh for each message.
const OWN_HEADERS: [&str; 12] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "te",
    "transfer-encoding",
];

#[derive(Clone, Debug)]
pub struct Declaration {
    pub id: ServerId,
    pub url: String,
    /// With variables filled in, or the missing one.
    pub headers: Result<Vec<(String, String)>, String>,
    /// The user configured it; false for a file of the project.
    pub from_user: bool,
    /// `FILE:LINE`; None for a command line.
    pub place: Option<String>,
    /// `agentsh login` knows its id; else only its URL.
    pub is_configured: bool,
}

pub struct Remote {
    session: Rc<Session>,
    declaration: Declaration,
    pauses: Option<PauseSender>,
}

impl Remote {
    #[must_use]
    pub fn new(session: Rc<Session>, declaration: Declaration) -> Self {
        Self { session, declaration, pauses: None }
    }

    /// Reports postponed answers.
    #[must_use]
    pub fn with_pauses(self, pauses: PauseSender) -> Self {
        Self { pauses: Some(pauses), ..self }
    }

    fn settings(&self) -> Result<Settings, String> {
        let Declaration { id, url, from_user, .. } = &self.declaration;
        let headers = self.headers()?;
        let lookup = Resolver::system_lookup().map_err(|error| error.to_string())?;
        let rules = rules(&self.session.facts, id, url, *from_user);
        let proxy = agentsh_host::outgoing::proxy(
            &self.session.facts,
            &self.session.record,
            &self.session.facts.policy.agent.network,
        )?;
        let (journal, failing) = (self.session.record.journal.clone(), id.clone());
        let (session, max) = (Rc::clone(&self.session), self.session.facts.policy.mcp.max_line_bytes);
        Ok(Settings {
            server: id.0.clone(),
            client: Client::new(lookup, rules).with_proxy(proxy),
            url: url.clone(),
            credentials: self.credentials(&headers)?,
            headers,
            pauses: self.pauses.clone(),
            remedy: remedy(id, url),
            max_message: usize::try_from(max).unwrap_or(usize::MAX),
            note: Rc::new(move |message| session.record.note(&escape::line(message))),
            failed: Rc::new(move |failed| {
                journal.record(Event::McpServerUnavailable {
                    server_id: failing.clone(),
                    method: failed.method.to_owned(),
                    detail: failed.text.to_owned(),
                    tool_name: failed.tool.map(str::to_owned),
                    jsonrpc_id: Some(failed.id.to_value()),
                });
            }),
        })
    }

    /// The user's login, for a server that the user declared without a token.
    fn credentials(&self, headers: &HeaderMap) -> Result<Option<Rc<dyn Credentials>>, String> {
        let Declaration { id, url, from_user, is_configured, .. } = &self.declaration;
        if !from_user || headers.contains_key(AUTHORIZATION) {
            return Ok(None);
        }
        let clients = logins::clients(&self.session.for_logins(), id, url, true)?;
        let name = if *is_configured { id.0.clone() } else { shown_url(url) };
        Ok(Some(Rc::new(StoredLogin::new(
            self.session.for_logins(),
            id.clone(),
            (url.clone(), name),
            clients,
        ))))
    }

    fn headers(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in self.declaration.headers.as_ref().map_err(Clone::clone)? {
            let wrong = |why: &str| format!("its header '{name}' {why}");
            let lower = name.to_ascii_lowercase();
            if OWN_HEADERS.contains(&lower.as_str()) || lower.starts_with(agentsh_mcp::mcp_headers::PARAM) {
                return Err(wrong("is agentsh's own"));
            }
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong("is not a header name"))?;
            let mut value = HeaderValue::from_str(value)
                .map_err(|_| wrong("has a value that is not a valid header value"))?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        Ok(headers)
    }
}

impl Upstream for Remote {
    type Stdin = DuplexStream;
    type Stdout = DuplexStream;

    async fn start(&mut self) -> Result<Running<DuplexStream, DuplexStream>, StartError> {
        let Declaration { id, url, place, from_user, .. } = &self.declaration;
        let scope = match from_user {
            true => String::new(),
            false => self.session.facts.context.project.display().to_string(),
        };
        let origin = Url::parse(url).map(|url| url.origin().ascii_serialization()).unwrap_or_default();
        let pins = self
            .session
            .live
            .servers
            .interfaces
            .expect(&self.session.live.servers.pins, id, &scope, &origin)
            .await;
        let what = super::advisories::Launch::Url(url);
        if let Err(error) = super::advisories::check(&self.session, id, &scope, what).await {
            self.session.record.note(&error.message);
            return Err(error);
        }
        let mut reason = StartError::NOT_STARTED;
        let begun = pins.map_err(|error| error.to_string());
        let begun = begun.and_then(|()| self.settings()).and_then(|settings| {
            connect(&settings).map_err(|why| {
                reason = why.code();
                let remedy =
                    if why.is_about_address() { format!("; {}", settings.remedy) } else { String::new() };
                format!("{}: {why}{remedy}", shown_url(url))
            })
        });
        if begun.is_ok() {
            self.session.record.journal.record(Event::Enforcement {
                server_id: Some(id.clone()),
                layer: "remote".to_owned(),
                asked: origin.clone(),
                got: origin,
                state: LayerState::Enforced,
                why: String::new(),
            });
        }
        begun.map_err(|why| {
            let place = place.as_ref().map(|place| format!(" ({place})")).unwrap_or_default();
            let message = format!("cannot reach server '{id}': {why}{place}");
            self.session.record.journal.record(Event::McpServerRefused {
                server_id: id.clone(),
                reason: "start-failed".to_owned(),
                detail: message.clone(),
                rule: RuleRef::default_rule("server start"),
            });
            self.session.record.note(&escape::line(&message));
            self.session.record.told.borrow_mut().entry(message.clone()).or_default();
            StartError { recorded: true, reason, ..StartError::permanent(message) }
        })
    }
}

fn remedy(id: &ServerId, url: &str) -> String {
    let host = Url::parse(url).ok().and_then(|url| Some(url.host_str()?.to_owned())).unwrap_or_default();
    format!(
        "to allow your own network: `sandbox: {{mcp: {{servers: [{{id: {id}, network: {{allow: [{{host: {host}, \
         addresses: [NETWORK/PREFIX]}}]}}}}]}}}}`"
    )
}

/// Headers from a policy or proxy file.
///
/// # Errors
/// When a variable is not set.
pub fn expand_headers(
    headers: &BTreeMap<String, String>,
    env: &BTreeMap<String, String>,
) -> Result<Vec<(String, String)>, String> {
    headers.iter().map(|(name, value)| header(&format!("{name}: {value}"), env)).collect()
}

/// Parses `NAME: VALUE` with `${NAME}`.
///
/// # Errors
/// When a variable is not set.
pub fn header(line: &str, env: &BTreeMap<String, String>) -> Result<(String, String), String> {
    let (name, value) = line.split_once(':').unwrap_or((line, ""));
    let name = name.trim();
    let value = expand::expand_in_session(value.trim(), env)
        .map_err(|missing| format!("its header '{name}' needs the variable {missing}, which is not set"))?;
    Ok((name.to_owned(), value))
}
