//! A connection that a rule allows by its address, and refusals that name the rule.

use std::net::IpAddr;

use super::allow::Decision;
use super::egress_context::{Caller, EgressContext, Refusal};
use super::http_host;
use super::protocol_detection::ExpectedPeer;
use super::reason::Reason;
use crate::policy::RequestRule;
use crate::policy::domain::Host;
use crate::store::words::{Action, ConnectionState};
use crate::store::{Event, Recorder};
use crate::types::RuleRef;

pub(super) struct Permit {
    pub host: Host,
    pub shown: String,
    pub port: u16,
    pub decision: Decision,
    pub caller: Option<Caller>,
    /// The agent's: its MCP servers are behind bridges. A server's own connections are not checked for MCP.
    pub is_bridged: bool,
}

impl Permit {
    /// The event of this connection, as it begins.
    pub fn event<R: Recorder + 'static>(
        &self,
        egress: &EgressContext<R>,
        protocol: &str,
        address: Option<IpAddr>,
        connection: u64,
    ) -> Event {
        Event::McpNetworkConnection {
            server_id: egress.server.clone(),
            connection,
            name: match &self.host {
                Host::Name(name) => Some(name.clone()),
                Host::Address(_) => None,
            },
            address: address.map(|address| address.to_string()),
            port: self.port,
            protocol: protocol.to_owned(),
            action: Action::Allow,
            state: ConnectionState::Open,
            detail: String::new(),
            rule: self.decision.rule.clone(),
            pid: self.caller.as_ref().map(|caller| caller.pid),
            comm: self.caller.as_ref().map(|caller| caller.comm.clone()),
            bytes_sent: 0,
            bytes_received: 0,
            duration_ms: 0,
        }
    }
}

/// A refusal without a policy rule.
pub(super) fn without_rule(host: String, port: u16, reason: Reason, detail: &str) -> Box<Refusal> {
    Box::new(Refusal {
        host,
        port,
        reason,
        detail: detail.to_owned(),
        rule: RuleRef::default_rule("network.allow"),
        change: None,
        entry: None,
        of_request: false,
    })
}

pub(super) type Change = (Option<String>, Option<String>);

pub(super) fn refusal(permit: &Permit, reason: Reason, detail: String, (change, entry): Change) -> Refusal {
    Refusal {
        host: permit.shown.clone(),
        port: permit.port,
        reason,
        detail,
        rule: permit.decision.rule.clone(),
        change,
        entry,
        of_request: false,
    }
}

pub(super) fn expected_peer<'a, R: Recorder + 'static>(
    egress: &'a EgressContext<R>,
    permit: &'a Permit,
) -> ExpectedPeer<'a> {
    ExpectedPeer {
        broker: egress.broker.as_ref(),
        host: &permit.shown,
        port: permit.port,
        is_address: matches!(permit.host, Host::Address(_)),
        requests: &permit.decision.requests,
        is_bridged: permit.is_bridged,
        picks: egress.request_filter(),
        may_end_tls: egress.authority.is_some(),
    }
}

/// Names the request, and what would allow it.
pub(super) fn request_refusal(permit: &Permit, refused: &http_host::Refusal) -> Refusal {
    let written = refused.request.as_ref().map(|request| {
        let path = request.path.split('?').next().unwrap_or_default();
        format!("{} {path}", request.method)
    });
    let shown = written.as_ref().map_or("a request".to_owned(), |text| format!("the request `{text}`"));
    let past_bridges = refused.reason == Reason::McpPastBridges;
    let what = if past_bridges { "; it asks an MCP server past the bridges" } else { "" };
    let detail = format!("{shown} on a connection to '{}'{what}", permit.shown);
    // A rule has a slash where the request has an escaped one.
    let written = written.map(|text| text.replace("%2f", "/").replace("%2F", "/"));
    // Some requests cannot be named by a rule.
    let may_be_meant =
        |text: &String| refused.reason != Reason::BodyNotExpected && RequestRule::parse(text).is_ok();
    let (change, entry) = match written.filter(may_be_meant) {
        Some(text) if past_bridges => {
            let change = format!(
                "declare the server in your own configuration of the agent, or add {text:?} to `allow` of that rule"
            );
            (Some(change), None)
        }
        Some(text) => remedy(permit, refused, &text),
        None => (None, None),
    };
    let found = refusal(permit, refused.reason, detail, (change, entry));
    let rule = refused.rule.clone().unwrap_or_else(|| found.rule.clone());
    Refusal { rule, of_request: true, ..found }
}

/// The entry that would allow a request: in the deciding rule, or in a new one.
fn remedy(permit: &Permit, refused: &http_host::Refusal, request: &str) -> Change {
    let decision = &permit.decision;
    if refused.rule.is_some() {
        return (Some(format!("add {request:?} to `allow` of that rule")), None);
    }
    let known = decision.requests.iter().map(|known| known.value.to_string());
    let all: Vec<String> = known.chain([request.to_owned()]).map(|text| format!("{text:?}")).collect();
    let all = all.join(", ");
    if decision.rule.line == 0 {
        let host = &permit.shown;
        let entry = format!("{{host: {host:?}, port: {}, inspect: true, allow: [{all}]}}", permit.port);
        return (Some(crate::policy::allow_line(None, &entry)), Some(entry));
    }
    match decision.rule.id.contains(".credentials") {
        true => (Some(format!("write `allow: [{all}]` in that entry")), None),
        false => (Some(format!("add {request:?} to `allow` of that rule")), None),
    }
}
