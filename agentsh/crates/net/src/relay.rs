//! From a connection that arrived in a sandbox to the one that leaves the machine: who is meant, whether policy
//! allows it, whether the first bytes say the same, and only then the real address.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use rustix::net::{SocketAddrAny, SocketFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::allow::Permission;
use super::carry::{First, Opened, carry};
use super::copy::reset_when_dropped;
use super::dial::{Dialled, Timeouts, dial};
use super::egress_context::{EgressContext, Refusal};
use super::permit::{Permit, dialled_directly, permit, refusal, wanted};
use super::protocol_detection::{Closed, Opening, Reading};
use super::refuse::{ACCESS_DENIED, CloseReply, Refused, refuse, tell};
use super::resolve::{ResolveError, Resolver};
use super::shut;
use super::socket::Socket;
use super::traffic::Traffic;
use super::wakeful::BusyPoller;
use crate::policy::domain::Host;
use crate::store::words::ConnectionState;
use crate::store::{Event, Recorder};

/// Out of descriptors: how long some connection gets to end.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Accepts until dropped. One connection fails without harm to the others.
///
/// # Errors
/// When the listener itself is unusable.
pub async fn serve<R: Recorder + 'static>(
    listener: TcpListener,
    egress: Rc<EgressContext<R>>,
    wakeful: Rc<BusyPoller>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    // Its connections have it from the start. Without it small answers wait for acknowledgements.
    let _ = rustix::net::sockopt::set_tcp_nodelay(&listener, true);
    // The runtime's own listener would watch whatever it accepts; only whether somebody is there matters here.
    let listener = TcpStream::from_std(OwnedFd::from(listener).into())?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    loop {
        // A program that dials without end waits in the listener's queue, not in ours.
        egress.record.room().await;
        let accept = || Ok(rustix::net::acceptfrom_with(&listener, flags)?);
        let accepted: io::Result<(OwnedFd, Option<SocketAddrAny>)> =
            listener.async_io(Interest::READABLE, accept).await;
        let Ok((socket, peer)) = accepted else {
            tokio::time::sleep(ACCEPT_BACKOFF).await;
            continue;
        };
        wakeful.stir();
        let (egress, wakeful) = (Rc::clone(&egress), Rc::clone(&wakeful));
        egress.live.set(egress.live.get() + 1);
        let mut carried = Box::pin(async move {
            // A connection that was reset meanwhile tells its peer nowhere else.
            let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
            connection(&egress, (Socket::bare(socket), peer), &wakeful).await;
            egress.live.set(egress.live.get().saturating_sub(1));
        });
        // Its first steps at once: somebody waits for them, and nobody for the ends of others, which come before it in
        // the queue of tasks.
        if poll_fn(|context| Poll::Ready(carried.as_mut().poll(context))).await.is_pending() {
            tokio::task::spawn_local(carried);
        }
    }
}

/// Why a permitted connection goes no further.
enum Stop {
    /// The program went away.
    Gone,
    /// Nobody is there.
    Failed(CloseReply),
    Refused(Box<Refused>),
}

async fn connection<R: Recorder + 'static>(
    egress: &EgressContext<R>,
    (socket, peer): (Socket, Option<SocketAddr>),
    wakeful: &Rc<BusyPoller>,
) {
    let expected = wakeful.expect();
    // Also of what is refused: whoever keeps the origins has room for only so many.
    let arrived = egress.origin.of(&socket, peer);
    if egress.record.broken().is_some() {
        reset_when_dropped(&socket);
        return;
    }
    let caller = arrived.as_ref().and_then(|arrived| arrived.caller.clone());
    let permit = match arrived.map_or_else(|| Err(dialled_directly()), |to| permit(egress, to.destination)) {
        Ok(permit) => Permit { caller, ..permit },
        Err(refusal) => {
            let address = Some(refusal.host.clone()).filter(|host| host.parse::<IpAddr>().is_ok());
            // Either way it breaks: there is nothing more that the program could be told.
            let _ = egress.commit_refusal(&refusal, address, None, caller.as_ref()).await;
            return refuse(socket, &CloseReply::Reset).await;
        }
    };
    let Some(slot) = egress.connections.take(&egress.own_connections) else {
        let refusal = refusal(
            &permit,
            "too-many-connections",
            format!(
                "{} connections of this sandbox are open, of {} in all",
                egress.own_connections.get(),
                egress.connections.most
            ),
            (None, None),
        );
        let _ = egress.commit_refusal(&refusal, None, None, permit.caller.as_ref()).await;
        return refuse(socket, &CloseReply::Reset).await;
    };
    // A connection that cannot be watched is closed; nothing of it went anywhere.
    let Ok((socket, first)) = first(egress, socket, &permit).await else { return };
    match open(egress, first, &permit).await {
        Ok(opened) => {
            let traffic = Traffic::new(Rc::clone(wakeful), expected);
            carry(egress, socket, &permit, opened, (&slot, &traffic)).await;
        }
        Err(Stop::Gone) => reset_when_dropped(&socket),
        Err(Stop::Failed(farewell)) => refuse(socket, &farewell).await,
        Err(Stop::Refused(refused)) => tell(egress, socket, &permit, *refused).await,
    }
}

/// Reads the first bytes where they have to be judged.
async fn first<R: Recorder + 'static>(
    egress: &EgressContext<R>,
    socket: Socket,
    permit: &Permit,
) -> io::Result<(Socket, Result<First, Closed>)> {
    if permit.decision.any_tcp || super::allow::is_local(&permit.host) {
        return Ok((socket, Ok(First::Nothing)));
    }
    let mut reading = Reading::new(wanted(egress, permit));
    let (socket, opening) = match reading.at_once(&socket) {
        Some(opening) => (socket, opening),
        None => {
            let stream = socket.watched()?;
            let opening = reading.rest(&stream).await;
            (Socket::Watched(stream), opening)
        }
    };
    Ok((socket, opening.map(First::Read)))
}

/// Dials, when the first bytes say what they should.
async fn open<R: Recorder + 'static>(
    egress: &EgressContext<R>,
    first: Result<First, Closed>,
    permit: &Permit,
) -> Result<Opened, Stop> {
    let (protocol, first) = match first {
        Ok(First::Nothing) => ("tcp", First::Nothing),
        Ok(first @ First::Read(Opening::Tls(_))) => ("tls", first),
        Ok(first @ First::Read(Opening::Http(_))) => ("http", first),
        Err(Closed::Gone) => return Err(Stop::Gone),
        Err(Closed::Request(refused)) => {
            return Err(Stop::Refused(Box::new(Refused::request(permit, &refused))));
        }
        Err(Closed::Refused { protocol, reason, detail, farewell }) => {
            let change = match reason {
                "not-tls-or-http" | "silent" => egress.change_to(&format!(
                    "{{host: {:?}, port: {}, protocol: tcp}}",
                    permit.shown, permit.port
                )),
                _ => (None, None),
            };
            let refusal = refusal(permit, reason, detail, change);
            return Err(Stop::Refused(Box::new(Refused { refusal, protocol, farewell })));
        }
    };
    readable(permit, protocol).map_err(Stop::Refused)?;
    approved(egress, permit, protocol).await.map_err(Stop::Refused)?;
    let names_nobody = matches!(first, First::Nothing);
    let written = written(&permit.host);
    if let Some(addresses) = &written {
        not_shut(egress, permit, protocol, addresses).await?;
    }
    if let Some(proxy) = egress.proxy.as_ref().filter(|proxy| proxy.is_for_host(&permit.shown, permit.port)) {
        if names_nobody && written.is_none() {
            let behind = shut::behind_name(egress, &permit.shown, permit.port).await;
            behind.map_or(Ok(()), |behind| Err(led_to(permit, protocol, behind)))?;
        }
        let lookup = Resolver::system_lookup()
            .map_err(|error| failed(egress, permit, protocol, None, &error.to_string()))?;
        return match proxy.tunnel(&permit.shown, permit.port, &*lookup).await {
            Ok((stream, address)) => {
                Ok(Opened { protocol, first, outside: Socket::Watched(stream), address })
            }
            Err(error) => Err(failed(egress, permit, protocol, None, &error.to_string())),
        };
    }
    let addresses = match addresses(egress, permit, written).await {
        Ok(addresses) => addresses,
        Err(ResolveError::NotPublic { address, why }) => {
            let detail = format!("it leads to {address}, which is not public ({why})");
            let change = egress.change_to(&format!(
                "{{host: {:?}, port: {}, addresses: [\"{address}\"]}}",
                permit.shown, permit.port
            ));
            let farewell =
                farewell(protocol, || format!("'{}' leads to an address that is not public", permit.shown));
            let refusal = refusal(permit, "address-not-public", detail, change);
            return Err(Stop::Refused(Box::new(Refused { refusal, protocol: Some(protocol), farewell })));
        }
        Err(error) => return Err(failed(egress, permit, protocol, None, &error.to_string())),
    };
    // A name that TLS or HTTP says again is another one than a shut place has, and goes where that name is served; bare bytes
    // say nothing of the kind.
    if names_nobody {
        not_shut(egress, permit, protocol, &addresses).await?;
    }
    match dial(&addresses, permit.port, Timeouts::default()).await {
        Ok(Dialled { socket: outside, address }) => {
            // As for the listener. A connection that is gone already fails below.
            let _ = rustix::net::sockopt::set_tcp_nodelay(&outside, true);
            Ok(Opened { protocol, first, outside, address })
        }
        Err(error) => Err(failed(egress, permit, protocol, addresses.first().copied(), &error.to_string())),
    }
}

/// Rules about requests hold only where requests can be read: in plain HTTP, and in TLS that ends here.
fn readable(permit: &Permit, protocol: &'static str) -> Result<(), Box<Refused>> {
    let has_rules = permit.decision.inspect || !permit.decision.requests.is_empty();
    let is_read = protocol == "http" || (protocol == "tls" && permit.decision.inspect);
    if is_read || !has_rules {
        return Ok(());
    }
    let detail =
        format!("the rule for '{}' is about requests, which cannot be read in {protocol}", permit.shown);
    let farewell = if protocol == "tls" { CloseReply::Alert(ACCESS_DENIED) } else { CloseReply::Reset };
    let refusal = refusal(permit, "requests-not-readable", detail, (None, None));
    Err(Box::new(Refused { refusal, protocol: Some(protocol), farewell }))
}

/// Asks a person where no rule says anything.
async fn approved<R: Recorder + 'static>(
    egress: &EgressContext<R>,
    permit: &Permit,
    protocol: &'static str,
) -> Result<(), Box<Refused>> {
    if permit.decision.outcome != Permission::Asked {
        return Ok(());
    }
    let answer = match &egress.ask {
        Some(ask) => ask.ask(&permit.shown, permit.port).await,
        None => Err("nobody-to-ask"),
    };
    let Err(reason) = answer else { return Ok(()) };
    let detail = match reason {
        "approval-denied" => "no rule names it, and a person said no",
        "approval-timed-out" => "no rule names it, and nobody answered in time",
        _ => "no rule names it, and nobody could be asked",
    };
    let farewell = farewell(protocol, || detail.to_owned());
    let refusal = refusal(permit, reason, detail.to_owned(), egress.change(&permit.shown, permit.port));
    Err(Box::new(Refused { refusal, protocol: Some(protocol), farewell }))
}

/// Addresses that stand in the connection itself.
fn written(host: &Host) -> Option<Vec<IpAddr>> {
    match host {
        Host::Address(address) if address.is_loopback() => {
            Some(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()])
        }
        // It stands in the policy as such.
        Host::Address(address) => Some(vec![*address]),
        Host::Name(_) => None,
    }
}

async fn addresses<R: Recorder + 'static>(
    egress: &EgressContext<R>,
    permit: &Permit,
    written: Option<Vec<IpAddr>>,
) -> Result<Vec<IpAddr>, ResolveError> {
    match written {
        Some(addresses) => Ok(addresses),
        None => egress.resolver.resolve(&permit.shown, &permit.decision.permitted).await,
    }
}

/// Whether none of the addresses leads to a place that no rule opens.
async fn not_shut<R: Recorder + 'static>(
    egress: &EgressContext<R>,
    permit: &Permit,
    protocol: &'static str,
    addresses: &[IpAddr],
) -> Result<(), Stop> {
    let behind = shut::behind(egress, addresses, permit.port).await;
    behind.map_or(Ok(()), |behind| Err(led_to(permit, protocol, behind)))
}

fn led_to(permit: &Permit, protocol: &'static str, behind: shut::Behind) -> Stop {
    let farewell = farewell(protocol, || format!("'{}': {}", permit.shown, behind.why));
    let refusal = refusal(permit, "address-not-allowed", behind.why, (None, None));
    let refusal = Refusal { rule: behind.rule, ..refusal };
    Stop::Refused(Box::new(Refused { refusal, protocol: Some(protocol), farewell }))
}

/// A refusal in the words of the protocol.
fn farewell(protocol: &str, why: impl FnOnce() -> String) -> CloseReply {
    match protocol {
        "tls" => CloseReply::Alert(ACCESS_DENIED),
        "http" => CloseReply::Http(403, format!("agentsh: refused: {}", why())),
        _ => CloseReply::Reset,
    }
}

/// Nobody is there: who speaks HTTP is told so, everybody else sees a connection that breaks.
fn failed<R: Recorder + 'static>(
    egress: &EgressContext<R>,
    permit: &Permit,
    protocol: &str,
    address: Option<IpAddr>,
    why: &str,
) -> Stop {
    let mut event = permit.event(egress, protocol, address, 0);
    if let Event::McpNetworkConnection { state, detail, .. } = &mut event {
        *state = ConnectionState::Failed;
        why.clone_into(detail);
    }
    egress.record.record(event);
    Stop::Failed(match protocol {
        "http" => CloseReply::Http(502, format!("agentsh: no connection to '{}': {why}", permit.shown)),
        _ => CloseReply::Reset,
    })
}
