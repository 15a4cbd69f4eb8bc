//! Accepts, judges, dials and carries the connections of a sandbox.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use rustix::net::{SocketAddrAny, SocketFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::busy_poller::BusyPoller;
use super::carry::{First, OpenConnection, carry};
use super::copy::reset_when_dropped;
use super::dial::{OutboundConnection, Timeouts, dial};
use super::egress_context::EgressContext;
use super::judge::{self, PermittedConnection, Stop};
use super::permit::{Permit, expected_peer, refusal};
use super::protocol_detection::{Closed, Reading};
use super::reason::Reason;
use super::refuse::{CloseReply, UNRECOGNIZED_NAME, answer_refused, refuse};
use super::resolve::{ResolveError, Resolver};
use super::socket::Socket;
use super::traffic::Traffic;
use crate::store::words::ConnectionState;
use crate::store::{Event, Recorder};

/// Without descriptors: time for a connection to end.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Accepts until dropped. Connections fail independently.
///
/// # Errors
/// When the listener is unusable.
pub async fn serve<R: Recorder + 'static>(
    listener: TcpListener,
    egress: Rc<EgressContext<R>>,
    wakeful: Rc<BusyPoller>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    // Inherited by its connections. Otherwise small responses wait for acknowledgements.
    let _ = rustix::net::sockopt::set_tcp_nodelay(&listener, true);
    // tokio's listener would register every accepted socket.
    let listener = TcpStream::from_std(OwnedFd::from(listener).into())?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    loop {
        // A program with endless connections waits in the listener's queue.
        egress.record.wait_for_room().await;
        let accept = || Ok(rustix::net::acceptfrom_with(&listener, flags)?);
        let accepted: io::Result<(OwnedFd, Option<SocketAddrAny>)> =
            listener.async_io(Interest::READABLE, accept).await;
        let Ok((socket, peer)) = accepted else {
            tokio::time::sleep(ACCEPT_BACKOFF).await;
            continue;
        };
        wakeful.start_polling();
        let (egress, wakeful) = (Rc::clone(&egress), Rc::clone(&wakeful));
        egress.live.set(egress.live.get() + 1);
        let mut carried = Box::pin(async move {
            // A reset connection needs no further report.
            let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
            connection(&egress, (Socket::from_nonblocking(socket), peer), &wakeful).await;
            egress.live.set(egress.live.get().saturating_sub(1));
        });
        // Its first steps now, because a program waits for them; the ends of other connections can wait.
        if poll_fn(|context| Poll::Ready(carried.as_mut().poll(context))).await.is_pending() {
            agentsh_base::task::spawn_local(carried);
        }
    }
}

async fn connection<R: Recorder + 'static>(
    egress: &EgressContext<R>,
    (socket, peer): (Socket, Option<SocketAddr>),
    wakeful: &Rc<BusyPoller>,
) {
    let expected = wakeful.expect();
    // Also for refused ones, because the origin table is bounded.
    let arrived = egress.origin.of(&socket, peer);
    if egress.record.broken().is_some() {
        reset_when_dropped(&socket);
        return;
    }
    let caller = arrived.as_ref().and_then(|arrived| arrived.caller.clone());
    let permit = match arrived
        .map_or_else(|| Err(judge::not_redirected()), |to| judge::by_address(egress, to.destination))
    {
        Ok(permit) => Permit { caller, ..permit },
        Err(refusal) => {
            let address = Some(refusal.host.clone()).filter(|host| host.parse::<IpAddr>().is_ok());
            // The connection is closed either way.
            let _ = egress.commit_refusal(&refusal, address, None, caller.as_ref()).await;
            return refuse(socket, &CloseReply::Reset).await;
        }
    };
    let Some(slot) = egress.connections.take(&egress.own_connections) else {
        let refusal = refusal(
            &permit,
            Reason::TooManyConnections,
            format!(
                "this sandbox has {} open connections; all sandboxes together may have {}",
                egress.own_connections.get(),
                egress.connections.most
            ),
            (None, None),
        );
        let _ = egress.commit_refusal(&refusal, None, None, permit.caller.as_ref()).await;
        return refuse(socket, &CloseReply::Reset).await;
    };
    // An unregistrable connection is closed; nothing was forwarded.
    let Ok((socket, first)) = first(egress, socket, &permit).await else { return };
    let opened = match judge::by_first_bytes(egress, &permit, first).await {
        Ok(judged) => dialled(&permit, judged).await,
        Err(stop) => Err(stop),
    };
    match opened {
        Ok(opened) => {
            let traffic = Traffic::new(Rc::clone(wakeful), expected);
            carry(egress, socket, &permit, opened, (&slot, &traffic)).await;
        }
        Err(Stop::Gone) => reset_when_dropped(&socket),
        Err(Stop::Failed { protocol, address, why }) => {
            let mut event = permit.event(egress, protocol, address, 0);
            if let Event::McpNetworkConnection { state, detail, .. } = &mut event {
                *state = ConnectionState::Failed;
                detail.clone_from(&why);
            }
            egress.record.record(event);
            // HTTP gets an error response; other protocols see a broken connection, TLS at least that the name is unknown.
            let reply = match protocol {
                "tls" if why == ResolveError::NotFound.to_string() => CloseReply::Alert(UNRECOGNIZED_NAME),
                "http" => {
                    CloseReply::Http(502, format!("agentsh: no connection to '{}': {why}", permit.shown))
                }
                _ => CloseReply::Reset,
            };
            refuse(socket, &reply).await;
        }
        Err(Stop::Refused(refused)) => answer_refused(egress, socket, &permit, *refused).await,
    }
}

/// Connects to the permitted destination.
async fn dialled(
    permit: &Permit,
    PermittedConnection { protocol, first, proxy, addresses }: PermittedConnection<'_>,
) -> Result<OpenConnection, Stop> {
    let failed = |address, why| Stop::Failed { protocol, address, why };
    let Some(proxy) = proxy else {
        let addresses = addresses.unwrap_or_default();
        let OutboundConnection { socket: outside, address } =
            dial(&addresses, permit.port, Timeouts::default())
                .await
                .map_err(|error| failed(addresses.first().copied(), error.to_string()))?;
        // As for the listener. A closed connection fails below.
        let _ = rustix::net::sockopt::set_tcp_nodelay(&outside, true);
        return Ok(OpenConnection { protocol, first, outside, address });
    };
    let lookup = Resolver::system_lookup().map_err(|error| failed(None, error.to_string()))?;
    let (stream, address) = proxy
        .tunnel(&permit.shown, permit.port, &*lookup)
        .await
        .map_err(|error| failed(None, error.to_string()))?;
    Ok(OpenConnection { protocol, first, outside: Socket::Watched(stream), address })
}

/// Reads the first bytes, if they have to be judged.
async fn first<R: Recorder + 'static>(
    egress: &EgressContext<R>,
    socket: Socket,
    permit: &Permit,
) -> io::Result<(Socket, Result<First, Closed>)> {
    if permit.decision.any_tcp || super::allow::is_local(&permit.host) {
        return Ok((socket, Ok(First::Nothing)));
    }
    let mut reading = Reading::new(expected_peer(egress, permit));
    let (socket, opening) = match reading.at_once(&socket) {
        Some(opening) => (socket, opening),
        None => {
            let stream = socket.into_tokio()?;
            let opening = reading.read_rest(&stream).await;
            (Socket::Watched(stream), opening)
        }
    };
    Ok((socket, opening.map(First::Read)))
}
