//! Carries a permitted connection from its first bytes to its end.

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use super::channel::{self, Channel, ChannelTarget};
use super::connection_limit::ConnectionSlot;
use super::copy::{self, reset_when_dropped, write_all};
use super::credentials::Use;
use super::egress_context::EgressContext;
use super::permit::{Permit, expected_peer, refusal, request_refusal};
use super::protocol_detection::{Closed, ExpectedPeer, FirstBytes, Http};
use super::reason::Reason;
use super::refuse::{ACCESS_DENIED, CloseReply, RefusedConnection, answer_refused};
use super::requests::{self, End};
use super::response_secrets::ResponseReader;
use super::socket::{Socket, send_now};
use super::traffic::{Direction, Traffic};
use super::{hello_retry_request, http_host, inspect};
use crate::store::words::ConnectionState;
use crate::store::{Event, Recorder};

/// A connection that lasts longer is recorded before its end.
const MIN_LONG_CONNECTION: Duration = Duration::from_secs(1);

/// The bytes read before the outbound connection was open.
pub(super) enum First {
    Nothing,
    Read(FirstBytes),
}

impl First {
    /// Whether TLS ends at agentsh: a rule has requests judged, or the real name is in an Encrypted Client Hello.
    fn ends_tls(&self, permit: &Permit) -> bool {
        matches!(self, Self::Read(FirstBytes::Tls { has_ech, .. }) if *has_ech || permit.decision.inspect)
    }
}

/// A permitted connection with its outbound connection.
pub(super) struct OpenConnection {
    pub protocol: &'static str,
    pub first: First,
    pub outside: Socket,
    pub address: IpAddr,
}

/// Copies to the end, and records it.
pub(super) async fn carry<R: Recorder + 'static>(
    egress: &EgressContext<R>,
    inside: Socket,
    permit: &Permit,
    opened: OpenConnection,
    (slot, traffic): (&ConnectionSlot, &Traffic),
) {
    let OpenConnection { protocol, first, outside, address } = opened;
    let protocol = if first.ends_tls(permit) { "https" } else { protocol };
    let event = || permit.event(egress, protocol, Some(address), slot.number);
    let start = Instant::now();
    // Before both are registered, which takes time.
    let channel = egress.channel.as_deref().filter(|channel| channel.carries(&permit.host, permit.port));
    let (first, begun) = if channel.is_some() { (first, Ok(())) } else { begin(first, &outside, traffic) };
    let (inside, outside) = match begun.and_then(|()| Ok((inside.into_tokio()?, outside.into_tokio()?))) {
        Ok(ends) => ends,
        Err(error) => {
            return egress.record.record(closing_event(event(), &End::Done(Err(error)), traffic, start));
        }
    };
    let end = {
        let copied = async {
            tokio::select! {
                biased;
                end = copy_all((egress, permit), channel, &inside, &outside, (first, slot.number, traffic)) => end,
                () = egress.connections.closes() => {
                    // So that the peer does not take a partial response as complete.
                    reset_when_dropped(&inside);
                    reset_when_dropped(&outside);
                    End::Done(Err(io::Error::other("ended with the session")))
                }
            }
        };
        tokio::pin!(copied);
        match tokio::time::timeout(MIN_LONG_CONNECTION, copied.as_mut()).await {
            Ok(end) => end,
            Err(_) => {
                egress.record.record(event());
                copied.await
            }
        }
    };
    if !egress.connections.is_closing() {
        traffic.wait_until_quiet().await;
    }
    drop(outside);
    egress.record.record(closing_event(event(), &end, traffic, start));
    let refused = match end {
        End::Done(_) | End::Picked(_) | End::Closed(Closed::Gone) => return,
        End::Refused(refused) | End::Closed(Closed::Request(refused)) => {
            RefusedConnection::request(permit, &refused)
        }
        End::Closed(Closed::Refused { protocol, reason, detail, close_reply }) => RefusedConnection {
            refusal: refusal(permit, reason, detail, (None, None)),
            protocol,
            close_reply,
        },
    };
    answer_refused(egress, Socket::Watched(inside), permit, refused).await;
}

/// The event at the end of a connection.
fn closing_event(mut event: Event, end: &End, traffic: &Traffic, start: Instant) -> Event {
    if let Event::McpNetworkConnection { state, detail, bytes_sent, bytes_received, duration_ms, .. } =
        &mut event
    {
        *state = ConnectionState::Closed;
        if let End::Done(Err(error)) = end {
            *detail = error.to_string();
        }
        *bytes_sent = traffic.bytes(Direction::Up);
        *bytes_received = traffic.bytes(Direction::Down);
        *duration_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    }
    event
}

/// Sends the bytes read so far, as far as possible, and returns the rest.
fn begin(first: First, outside: &Socket, traffic: &Traffic) -> (First, io::Result<()>) {
    let First::Read(FirstBytes::Http(mut http)) = first else { return (first, Ok(())) };
    // What is edited is sent when its edits are made.
    if !http.puts.is_empty() {
        return (First::Read(FirstBytes::Http(http)), Ok(()));
    }
    let sent = send_now(outside, http.forwardable_bytes()).map(|sent| {
        http.sent(sent);
        traffic.count_bytes(Direction::Up, sent);
    });
    (First::Read(FirstBytes::Http(http)), sent)
}

async fn copy_all<R: Recorder + 'static>(
    (egress, permit): (&EgressContext<R>, &Permit),
    channel: Option<&dyn Channel>,
    inside: &TcpStream,
    outside: &TcpStream,
    (first, connection, traffic): (First, u64, &Traffic),
) -> End {
    let to = (permit.shown.as_str(), permit.port);
    let ends_tls = first.ends_tls(permit);
    match first {
        First::Nothing if let Some(channel) = channel => {
            channel::carry_plain((channel, plain_target(permit)), (inside, Vec::new()), outside, traffic)
                .await
        }
        First::Read(FirstBytes::Http(http)) if let Some(channel) = channel => {
            channel::carry_plain(
                (channel, plain_target(permit)),
                (inside, http.into_bytes()),
                outside,
                traffic,
            )
            .await
        }
        First::Read(FirstBytes::Tls { hello, .. })
            if let (Some(channel), Some(authority)) = (channel, &egress.authority) =>
        {
            channel::tls(channel, (authority, to), (inside, hello), outside, traffic).await
        }
        First::Nothing if let Some(picks) = egress.request_filter() => {
            let http = Http::new(http_host::Reader::search_only(picks));
            forward_http((egress, permit), inside, outside, http, traffic).await
        }
        First::Nothing => End::Done(copy::both_ways(inside, outside, traffic).await),
        First::Read(FirstBytes::Tls { hello, .. }) if ends_tls => {
            forward_inspected((egress, permit), inside, outside, hello, (connection, traffic)).await
        }
        First::Read(FirstBytes::Tls { mut hello, .. }) => {
            let Some(end) = hello_retry_request::end_of_hello(&hello) else {
                return End::Closed(Closed::Refused {
                    protocol: Some("tls"),
                    reason: Reason::HelloInterrupted,
                    detail: "a TLS ClientHello with other data in the same record".to_owned(),
                    close_reply: CloseReply::Alert(ACCESS_DENIED),
                });
            };
            let early = hello.split_off(end);
            // Only this detects a server that reads nothing.
            let sent =
                tokio::time::timeout(hello_retry_request::HELLO_TIMEOUT, write_all(outside, &hello)).await;
            if let Err(error) = sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                return End::Done(Err(error));
            }
            traffic.count_bytes(Direction::Up, hello.len());
            // The server gets this one.
            let wanted = ExpectedPeer { may_end_tls: false, ..expected_peer(egress, permit) };
            match hello_retry_request::follow(inside, outside, early, wanted, traffic).await {
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
        First::Read(FirstBytes::Http(http)) => {
            forward_http((egress, permit), inside, outside, *http, traffic).await
        }
    }
}

fn plain_target(permit: &Permit) -> ChannelTarget<'_> {
    ChannelTarget { host: &permit.shown, port: permit.port, is_tls: false, is_one: false }
}

/// Plain requests, up to the first that the channel takes.
async fn forward_http<R: Recorder + 'static>(
    (egress, permit): (&EgressContext<R>, &Permit),
    inside: &TcpStream,
    outside: &TcpStream,
    http: Http,
    traffic: &Traffic,
) -> End {
    match (requests::both_ways(inside, outside, http, traffic).await, egress.channel.as_deref()) {
        (End::Picked(bytes), Some(channel)) => {
            let to = ChannelTarget { is_one: true, ..plain_target(permit) };
            channel::carry_plain((channel, to), (inside, bytes), outside, traffic).await
        }
        (end, _) => end,
    }
}

/// TLS inspection: every request is judged.
async fn forward_inspected<R: Recorder + 'static>(
    (egress, permit): (&EgressContext<R>, &Permit),
    inside: &TcpStream,
    outside: &TcpStream,
    hello: Vec<u8>,
    (connection, traffic): (u64, &Traffic),
) -> End {
    let Some(authority) = &egress.authority else {
        return End::Closed(Closed::Refused {
            protocol: Some("tls"),
            reason: Reason::InspectionFailed,
            detail: "no certificate authority could be made for this session".to_owned(),
            close_reply: CloseReply::Alert(ACCESS_DENIED),
        });
    };
    let reader = http_host::Reader::new(&permit.shown, permit.port);
    let reader = reader.with_rules(permit.decision.requests.clone()).bridged(permit.is_bridged);
    let reader = reader.with_broker(egress.broker.clone(), true);
    let used = |used: Use| {
        egress.record.record(Event::CredentialUsed {
            connection,
            host: permit.shown.clone(),
            port: permit.port,
            method: used.method,
            path: used.path,
            rule: used.rule,
        });
        egress.record.broken().is_none()
    };
    let answers = egress
        .broker
        .as_ref()
        .map(|broker| ResponseReader::new(|| broker.watch_answers(&permit.shown, permit.port)));
    let connection =
        inspect::Inspected { authority, name: &permit.shown, reader, hello, answers, used: &used };
    let refused = async |refused: http_host::Refusal| {
        let refusal = request_refusal(permit, &refused);
        egress.commit_refusal(&refusal, None, Some("https"), permit.caller.as_ref()).await
    };
    inspect::both_ways(inside, outside, connection, traffic, refused).await
}
