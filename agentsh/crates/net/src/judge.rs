//! All tests of a connection, in their order; the first that fails gives the reason.
//!
//! By address, before a byte is read ([`by_address`]):
//! 1. it came through the sandbox's listener, and its address stands for a host;
//! 2. a rule allows host and port, or a person may be asked, and it is not a closed host.
//!
//! By the first bytes ([`by_first_bytes`]):
//! 3. they are TLS or HTTP for that host, unless the rule allows any TCP;
//! 4. they can be inspected, if the rule is about requests;
//! 5. a person allows the host, if no rule names it;
//! 6. it resolves to a public address, or to one that the rule permits;
//! 7. that address is not a closed host's. A name that TLS or HTTP confirms needs no such test.
//!
//! `http_host` judges the requests that follow.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;

use super::allow::Permission;
use super::carry::First;
use super::closed_hosts;
use super::egress_context::{EgressContext, Refusal};
use super::fake_ip_pool::FakeIpPool;
use super::permit::{Change, Permit, refusal, without_rule};
use super::protocol_detection::{Closed, FirstBytes};
use super::proxy::Proxy;
use super::reason::Reason;
use super::refuse::{ACCESS_DENIED, CloseReply, RefusedConnection};
use super::resolve::ResolveError;
use crate::policy::domain::Host;
use crate::store::Recorder;

pub(super) struct PermittedConnection<'a> {
    pub protocol: &'static str,
    pub first: First,
    pub proxy: Option<&'a Rc<Proxy>>,
    /// None: the proxy resolves the name.
    pub addresses: Option<Vec<IpAddr>>,
}

/// Why a permitted connection stops.
pub(super) enum Stop {
    /// The program went away.
    Gone,
    /// The destination could not be reached.
    Failed {
        protocol: &'static str,
        address: Option<IpAddr>,
        why: String,
    },
    Refused(Box<RefusedConnection>),
}

pub(super) fn not_redirected() -> Box<Refusal> {
    let detail = "a connection directly to agentsh's listener";
    without_rule("listener".to_owned(), 0, Reason::NotRedirected, detail)
}

/// Tests 1 and 2.
pub(super) fn by_address<R: Recorder + 'static>(
    egress: &EgressContext<R>,
    destination: SocketAddr,
) -> Result<Permit, Box<Refusal>> {
    let (address, port) = (destination.ip(), destination.port());
    let name = {
        let pool = egress.pool.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        pool.name_of(address).map(str::to_owned)
    };
    let host = match name {
        Some(name) => Host::Name(name),
        None if FakeIpPool::contains(address) => {
            let detail = "an address that the sandbox's resolver did not give out";
            return Err(without_rule(address.to_string(), port, Reason::AddressNotGiven, detail));
        }
        None => Host::Address(address),
    };
    let shown = match &host {
        Host::Name(name) => name.clone(),
        Host::Address(address) => address.to_string(),
    };
    let decision = egress.allow.decide(&host, port);
    let is_refused = decision.outcome == Permission::Refused;
    let permit = Permit { host, shown, port, decision, caller: None, is_bridged: egress.server.is_none() };
    if !is_refused {
        return Ok(permit);
    }
    let (detail, change) = match egress.network.closed_by(&permit.host, port) {
        Some(_) => ("it is closed to every sandbox, and no rule can allow it", (None, None)),
        None => ("", egress.change(&permit.shown, port)),
    };
    Err(Box::new(refusal(&permit, permit.decision.reason, detail.to_owned(), change)))
}

/// Tests 3 to 7.
pub(super) async fn by_first_bytes<'a, R: Recorder + 'static>(
    egress: &'a EgressContext<R>,
    permit: &Permit,
    first: Result<First, Closed>,
) -> Result<PermittedConnection<'a>, Stop> {
    let first = first.map_err(|closed| not_opened(egress, permit, closed))?;
    let protocol = match &first {
        First::Nothing => "tcp",
        First::Read(FirstBytes::Tls { .. }) => "tls",
        First::Read(FirstBytes::Http(_)) => "http",
    };
    check_readable(permit, protocol)?;
    ask_for_approval(egress, permit, protocol).await?;
    let proxy = egress.proxy.as_ref().filter(|proxy| proxy.is_for_host(&permit.shown, permit.port));
    let is_written = matches!(permit.host, Host::Address(_));
    let addresses = match (&permit.host, proxy) {
        (Host::Address(address), _) if address.is_loopback() => {
            Some(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()])
        }
        // The policy names the address itself.
        (Host::Address(address), _) => Some(vec![*address]),
        (Host::Name(_), Some(_)) => None,
        (Host::Name(_), None) => Some(resolved(egress, permit, protocol).await?),
    };
    if (is_written || matches!(first, First::Nothing))
        && let Some(behind) =
            closed_hosts::find_closed_host(egress, (&permit.shown, permit.port), addresses.as_deref()).await
    {
        let refusal = refusal(permit, Reason::AddressNotAllowed, behind.why, (None, None));
        return Err(refused(protocol, Refusal { rule: behind.rule, ..refusal }));
    }
    Ok(PermittedConnection { protocol, first, proxy, addresses })
}

/// First bytes that the rule does not allow, or none.
fn not_opened<R: Recorder + 'static>(egress: &EgressContext<R>, permit: &Permit, closed: Closed) -> Stop {
    match closed {
        Closed::Gone => Stop::Gone,
        Closed::Request(refused) => Stop::Refused(Box::new(RefusedConnection::request(permit, &refused))),
        Closed::Refused { protocol, close_reply, .. } if is_background(egress, permit) => {
            let detail = TELEMETRY_OR_UPDATE.to_owned();
            let change = egress.change(&permit.shown, permit.port);
            let refusal = refusal(permit, Reason::TelemetryOrUpdate, detail, change);
            Stop::Refused(Box::new(RefusedConnection { refusal, protocol, close_reply }))
        }
        Closed::Refused { protocol, reason, detail, close_reply } => {
            let change = match reason {
                Reason::NotTlsOrHttp | Reason::Silent => entry(egress, permit, "protocol: tcp"),
                Reason::EncryptedClientHello => entry(egress, permit, "inspect: true"),
                _ => (None, None),
            };
            let refusal = refusal(permit, reason, detail, change);
            Stop::Refused(Box::new(RefusedConnection { refusal, protocol, close_reply }))
        }
    }
}

const TELEMETRY_OR_UPDATE: &str = "not in the allow list; the agent contacts it for telemetry or updates";

/// Whether a person would have been asked, but for a host of the program's own.
fn is_background<R: Recorder + 'static>(egress: &EgressContext<R>, permit: &Permit) -> bool {
    let is_asked = permit.decision.outcome == Permission::Asked;
    is_asked && egress.ask.as_ref().is_some_and(|ask| ask.is_background(&permit.shown))
}

/// Rules about requests need plain HTTP or inspected TLS.
fn check_readable(permit: &Permit, protocol: &'static str) -> Result<(), Stop> {
    let has_rules = permit.decision.inspect || !permit.decision.requests.is_empty();
    let is_read = protocol == "http" || (protocol == "tls" && permit.decision.inspect);
    if is_read || !has_rules {
        return Ok(());
    }
    let detail = format!(
        "the rule for '{}' allows single HTTP requests, and agentsh cannot read any on this connection ({protocol})",
        permit.shown
    );
    Err(refused(protocol, refusal(permit, Reason::RequestsNotReadable, detail, (None, None))))
}

/// Asks a person if there is no rule.
async fn ask_for_approval<R: Recorder + 'static>(
    egress: &EgressContext<R>,
    permit: &Permit,
    protocol: &'static str,
) -> Result<(), Stop> {
    if permit.decision.outcome != Permission::Asked {
        return Ok(());
    }
    let answer = match &egress.ask {
        Some(_) if is_background(egress, permit) => Err(Reason::TelemetryOrUpdate),
        // A question that is still open when the session ends was not answered.
        Some(ask) => tokio::select! {
            answer = ask.ask(&permit.shown, permit.port) => answer,
            () = egress.connections.closes() => Err(Reason::ApprovalTimedOut),
        },
        None => Err(Reason::NobodyToAsk),
    };
    let Err(reason) = answer else { return Ok(()) };
    let detail = match reason {
        Reason::ApprovalDenied => "not in the allow list, and a person said no",
        Reason::ApprovalTimedOut => "not in the allow list, and nobody answered in time",
        Reason::TelemetryOrUpdate => TELEMETRY_OR_UPDATE,
        _ => "not in the allow list, and nobody could be asked",
    };
    let change = egress.change(&permit.shown, permit.port);
    Err(refused(protocol, refusal(permit, reason, detail.to_owned(), change)))
}

/// Resolves the name.
async fn resolved<R: Recorder + 'static>(
    egress: &EgressContext<R>,
    permit: &Permit,
    protocol: &'static str,
) -> Result<Vec<IpAddr>, Stop> {
    let found = egress.resolver.resolve(&permit.shown, &permit.decision.permitted).await;
    found.map_err(|error| match error {
        ResolveError::NotPublic { address, why } => {
            let detail = format!("it leads to {address}, which is not public ({why})");
            let change = entry(egress, permit, &format!("addresses: [\"{address}\"]"));
            let refusal = refusal(permit, Reason::AddressNotPublic, detail, change);
            // The program does not learn the address.
            stop_with_answer(protocol, refusal, "it leads to an address that is not public")
        }
        error => Stop::Failed { protocol, address: None, why: error.to_string() },
    })
}

/// The entry of `network.allow` for this host and port, with one more key.
fn entry<R: Recorder + 'static>(egress: &EgressContext<R>, permit: &Permit, key: &str) -> Change {
    egress.change_to(&format!("{{host: {:?}, port: {}, {key}}}", permit.shown, permit.port))
}

fn refused(protocol: &'static str, refusal: Refusal) -> Stop {
    let why = refusal.detail.clone();
    stop_with_answer(protocol, refusal, &why)
}

/// A refusal, and the response in the program's protocol.
fn stop_with_answer(protocol: &'static str, refusal: Refusal, why: &str) -> Stop {
    let close_reply = match protocol {
        "tls" => CloseReply::Alert(ACCESS_DENIED),
        "http" => CloseReply::Http(403, format!("agentsh: refused: '{}': {why}", refusal.host)),
        _ => CloseReply::Reset,
    };
    Stop::Refused(Box::new(RefusedConnection { refusal, protocol: Some(protocol), close_reply }))
}
