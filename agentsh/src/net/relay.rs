//! From a connection that arrived in a sandbox to the one that leaves the machine: who is meant, whether policy
//! allows it, whether the first bytes say the same, and only then the real address.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener as StdListener};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};

use super::copy::{self, Traffic, reset_when_dropped, write_all};
use super::dial::{Timeouts, dial};
use super::gate::{Gate, Refusal, Seat, Witness};
use super::opening::{self, Closed, Opening};
use super::permit::{Permit, dialled_directly, permit, refusal, request_refusal, wanted};
use super::refuse::{ACCESS_DENIED, Farewell, refuse};
use super::requests::{self, End};
use super::resolve::ResolveError;
use super::wakeful::Wakeful;
use super::{http_host, inspect, second_hello};
use crate::policy::domain::Host;
use crate::store::Event;

/// A connection that lasts longer than this is written down before its end.
const LASTING: Duration = Duration::from_secs(1);
/// Out of descriptors: how long some connection gets to end.
const BREATH: Duration = Duration::from_millis(50);

/// Accepts until dropped. One connection fails without harm to the others.
///
/// # Errors
/// When the listener itself is unusable.
pub async fn serve<W: Witness>(
    listener: StdListener,
    gate: Rc<Gate<W>>,
    wakeful: Rc<Wakeful>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    loop {
        // A program that dials without end waits in the listener's queue, not in ours.
        gate.witness.room().await;
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(BREATH).await;
            continue;
        };
        wakeful.stir();
        let gate = Rc::clone(&gate);
        gate.live.set(gate.live.get() + 1);
        tokio::task::spawn_local(async move {
            connection(&gate, stream).await;
            gate.live.set(gate.live.get().saturating_sub(1));
        });
    }
}

struct Refused {
    refusal: Refusal,
    protocol: Option<&'static str>,
    farewell: Farewell,
}

/// Why a permitted connection goes no further.
enum Stop {
    /// The program went away.
    Gone,
    /// Nobody is there.
    Failed(Farewell),
    Refused(Box<Refused>),
}

async fn connection<W: Witness>(gate: &Gate<W>, stream: TcpStream) {
    // Without it small answers wait for acknowledgements. A connection that is gone already fails below.
    let _ = stream.set_nodelay(true);
    if gate.witness.is_broken() {
        reset_when_dropped(&stream);
        return;
    }
    let arrived = gate.origin.of(&stream);
    let caller = arrived.as_ref().and_then(|arrived| arrived.caller.clone());
    let permit = match arrived.map_or_else(|| Err(dialled_directly()), |to| permit(gate, to.destination)) {
        Ok(permit) => Permit { caller, ..permit },
        Err(refusal) => {
            let address = Some(refusal.host.clone()).filter(|host| host.parse::<IpAddr>().is_ok());
            // Either way it breaks: there is nothing more that the program could be told.
            let _ = gate.commit_refusal(&refusal, address, None, caller.as_ref()).await;
            return refuse(stream, &Farewell::Reset).await;
        }
    };
    let Some(seat) = gate.room.take() else {
        let refusal = refusal(
            &permit,
            "too-many-connections",
            format!("{} connections are open", gate.room.most),
            (None, None),
        );
        let _ = gate.commit_refusal(&refusal, None, None, permit.caller.as_ref()).await;
        return refuse(stream, &Farewell::Reset).await;
    };
    match open(gate, &stream, &permit).await {
        Ok(opened) => carry(gate, stream, &permit, opened, &seat).await,
        Err(Stop::Gone) => reset_when_dropped(&stream),
        Err(Stop::Failed(farewell)) => refuse(stream, &farewell).await,
        Err(Stop::Refused(refused)) => tell(gate, stream, &permit, *refused).await,
    }
}

/// What is not on record is not told either: the connection breaks.
async fn tell<W: Witness>(gate: &Gate<W>, stream: TcpStream, permit: &Permit, refused: Refused) {
    let caller = permit.caller.as_ref();
    let recorded = gate.commit_refusal(&refused.refusal, None, refused.protocol, caller).await;
    let farewell = if recorded { refused.farewell } else { Farewell::Reset };
    refuse(stream, &farewell).await;
}

enum First {
    /// Nothing was read.
    Any,
    Read(Opening),
}

struct Opened {
    protocol: &'static str,
    first: First,
    outside: TcpStream,
    address: Option<IpAddr>,
}

/// Reads the first bytes where they have to be judged, then dials.
async fn open<W: Witness>(gate: &Gate<W>, stream: &TcpStream, permit: &Permit) -> Result<Opened, Stop> {
    let is_local = super::allow::is_local(&permit.host);
    let (protocol, first) = if permit.decision.any_tcp || is_local {
        ("tcp", First::Any)
    } else {
        match opening::read(stream, wanted(permit)).await {
            Ok(opening @ Opening::Tls(_)) => ("tls", First::Read(opening)),
            Ok(opening @ Opening::Http(_)) => ("http", First::Read(opening)),
            Err(Closed::Gone) => return Err(Stop::Gone),
            Err(Closed::Request(refused)) => {
                return Err(Stop::Refused(Box::new(of_request(permit, &refused))));
            }
            Err(Closed::Refused { protocol, reason, detail, farewell }) => {
                let change = match reason {
                    "not-tls-or-http" | "silent" => gate.change_to(&format!(
                        "{{host: {:?}, port: {}, protocol: tcp}}",
                        permit.shown, permit.port
                    )),
                    _ => (None, None),
                };
                let refusal = refusal(permit, reason, detail, change);
                return Err(Stop::Refused(Box::new(Refused { refusal, protocol, farewell })));
            }
        }
    };
    readable(permit, protocol).map_err(Stop::Refused)?;
    let addresses = match addresses(gate, permit).await {
        Ok(addresses) => addresses,
        Err(ResolveError::NotPublic { address, why }) => {
            let detail = format!("it leads to {address}, which is not public ({why})");
            let change = gate.change_to(&format!(
                "{{host: {:?}, port: {}, addresses: [\"{address}\"]}}",
                permit.shown, permit.port
            ));
            let farewell = match protocol {
                "tls" => Farewell::Alert(ACCESS_DENIED),
                "http" => Farewell::Http(
                    403,
                    format!("agentsh: refused: '{}' leads to an address that is not public", permit.shown),
                ),
                _ => Farewell::Reset,
            };
            let refusal = refusal(permit, "address-not-public", detail, change);
            return Err(Stop::Refused(Box::new(Refused { refusal, protocol: Some(protocol), farewell })));
        }
        Err(error) => return Err(failed(gate, permit, protocol, None, &error.to_string())),
    };
    match dial(&addresses, permit.port, Timeouts::default()).await {
        Ok(outside) => {
            let _ = outside.set_nodelay(true);
            let address = outside.peer_addr().ok().map(|address| address.ip());
            Ok(Opened { protocol, first, outside, address })
        }
        Err(error) => Err(failed(gate, permit, protocol, addresses.first().copied(), &error.to_string())),
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
    let farewell = if protocol == "tls" { Farewell::Alert(ACCESS_DENIED) } else { Farewell::Reset };
    let refusal = refusal(permit, "requests-not-readable", detail, (None, None));
    Err(Box::new(Refused { refusal, protocol: Some(protocol), farewell }))
}

async fn addresses<W: Witness>(gate: &Gate<W>, permit: &Permit) -> Result<Vec<IpAddr>, ResolveError> {
    match &permit.host {
        Host::Address(address) if address.is_loopback() => {
            Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()])
        }
        // It stands in the policy as such.
        Host::Address(address) => Ok(vec![*address]),
        Host::Name(name) => gate.resolver.resolve(name, &permit.decision.permitted).await,
    }
}

/// Nobody is there: who speaks HTTP is told so, everybody else sees a connection that breaks.
fn failed<W: Witness>(
    gate: &Gate<W>,
    permit: &Permit,
    protocol: &str,
    address: Option<IpAddr>,
    why: &str,
) -> Stop {
    let mut event = blank(gate, permit, protocol, address, 0);
    if let Event::McpNetworkConnection { state, detail, .. } = &mut event {
        "failed".clone_into(state);
        why.clone_into(detail);
    }
    gate.witness.record(event);
    Stop::Failed(match protocol {
        "http" => Farewell::Http(502, format!("agentsh: no connection to '{}': {why}", permit.shown)),
        _ => Farewell::Reset,
    })
}

fn blank<W: Witness>(
    gate: &Gate<W>,
    permit: &Permit,
    protocol: &str,
    address: Option<IpAddr>,
    connection: u64,
) -> Event {
    Event::McpNetworkConnection {
        server_id: gate.server.clone(),
        connection,
        name: match &permit.host {
            Host::Name(name) => Some(name.clone()),
            Host::Address(_) => None,
        },
        address: address.map(|address| address.to_string()),
        port: permit.port,
        protocol: protocol.to_owned(),
        action: "allow".to_owned(),
        state: "open".to_owned(),
        detail: String::new(),
        rule: permit.decision.rule.clone(),
        pid: permit.caller.as_ref().map(|caller| caller.pid),
        comm: permit.caller.as_ref().map(|caller| caller.comm.clone()),
        bytes_sent: 0,
        bytes_received: 0,
        duration_ms: 0,
    }
}

/// Copies until the end and writes it down.
async fn carry<W: Witness>(gate: &Gate<W>, inside: TcpStream, permit: &Permit, opened: Opened, seat: &Seat) {
    let Opened { protocol, first, outside, address } = opened;
    let protocol = if permit.decision.inspect && protocol == "tls" { "https" } else { protocol };
    let event = || blank(gate, permit, protocol, address, seat.number);
    let start = Instant::now();
    let traffic = Traffic::default();
    let end = {
        let copied = copy_all((gate, permit), &inside, &outside, first, &traffic);
        tokio::pin!(copied);
        match tokio::time::timeout(LASTING, copied.as_mut()).await {
            Ok(end) => end,
            Err(_) => {
                gate.witness.record(event());
                copied.await
            }
        }
    };
    drop(outside);
    let mut event = event();
    if let Event::McpNetworkConnection { state, detail, bytes_sent, bytes_received, duration_ms, .. } =
        &mut event
    {
        "closed".clone_into(state);
        if let End::Done(Err(error)) = &end {
            *detail = error.to_string();
        }
        *bytes_sent = traffic.sent.get();
        *bytes_received = traffic.received.get();
        *duration_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    }
    gate.witness.record(event);
    let refused = match end {
        End::Done(_) | End::Closed(Closed::Gone) => return,
        End::Refused(refused) | End::Closed(Closed::Request(refused)) => of_request(permit, &refused),
        End::Closed(Closed::Refused { protocol, reason, detail, farewell }) => {
            Refused { refusal: refusal(permit, reason, detail, (None, None)), protocol, farewell }
        }
    };
    tell(gate, inside, permit, refused).await;
}

/// A refused request of plain HTTP.
fn of_request(permit: &Permit, refused: &http_host::Refusal) -> Refused {
    let host = &permit.shown;
    let text = format!("agentsh: this request is refused ({}): the connection is to '{host}'", refused.code);
    Refused {
        refusal: request_refusal(permit, refused),
        protocol: Some("http"),
        farewell: Farewell::Http(403, text),
    }
}

async fn copy_all<W: Witness>(
    (gate, permit): (&Gate<W>, &Permit),
    inside: &TcpStream,
    outside: &TcpStream,
    first: First,
    traffic: &Traffic,
) -> End {
    match first {
        First::Any => End::Done(copy::both_ways(inside, outside, traffic).await),
        First::Read(Opening::Tls(bytes)) if permit.decision.inspect => {
            inspected((gate, permit), inside, outside, bytes, traffic).await
        }
        First::Read(Opening::Tls(bytes)) => {
            let Some(end) = second_hello::end_of_hello(&bytes) else {
                return End::Closed(Closed::Refused {
                    protocol: Some("tls"),
                    reason: "hello-interrupted",
                    detail: "a TLS hello with something behind it in its record".to_owned(),
                    farewell: Farewell::Alert(ACCESS_DENIED),
                });
            };
            let mut hello = bytes;
            let early = hello.split_off(end);
            if let Err(error) = write_all(outside, &hello).await {
                return End::Done(Err(error));
            }
            traffic.moved(&traffic.sent, hello.len());
            match second_hello::follow(inside, outside, early, wanted(permit), traffic).await {
                Ok(Ok(())) => End::Done(copy::both_ways(inside, outside, traffic).await),
                Ok(Err(closed)) => {
                    reset_when_dropped(outside);
                    End::Closed(closed)
                }
                Err(error) => {
                    reset_when_dropped(inside);
                    reset_when_dropped(outside);
                    End::Done(Err(error))
                }
            }
        }
        First::Read(Opening::Http(http)) => requests::both_ways(inside, outside, *http, traffic).await,
    }
}

/// TLS ends here, and every request is judged by the rule.
async fn inspected<W: Witness>(
    (gate, permit): (&Gate<W>, &Permit),
    inside: &TcpStream,
    outside: &TcpStream,
    hello: Vec<u8>,
    traffic: &Traffic,
) -> End {
    let Some(authority) = &gate.authority else {
        return End::Closed(Closed::Refused {
            protocol: Some("tls"),
            reason: "inspection-failed",
            detail: "no certificate authority could be made for this session".to_owned(),
            farewell: Farewell::Alert(ACCESS_DENIED),
        });
    };
    let reader = http_host::Reader::new(&permit.shown, permit.port);
    let reader = reader.with_rules(permit.decision.requests.clone());
    let connection = inspect::Inspected { authority, name: &permit.shown, reader, hello };
    let refused = async |refused: http_host::Refusal| {
        let refusal = request_refusal(permit, &refused);
        gate.commit_refusal(&refusal, None, Some("https"), permit.caller.as_ref()).await
    };
    inspect::both_ways(inside, outside, connection, traffic, refused).await
}
