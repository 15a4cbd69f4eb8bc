//! Several servers as one: `{id}__{tool}`.
//!
//! Each server has its own [`ServerSession`], as if it were alone. `dispatcher` sends a request to the servers that
//! [`route`] names, [`in_flight`] tracks it, and `merge` builds one answer. A message is parsed only once.

mod dispatcher;
mod in_flight;
mod merge;
pub mod names;
mod owners;
mod route;
mod server_client;
mod server_requests;

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};

use crate::guard::Guard;
use crate::json::Json;
use crate::store::Recorder;

use super::connection::Connection;
use super::framing::LineReader;
use super::jsonrpc::{Id, Key};
use super::options::Options;
use super::proxy::caught_up;
use super::reply::ErrorReply;
use super::server_session::{ServerSession, SessionEvent};
use super::upstream::Upstream;
pub use dispatcher::called;
pub(crate) use dispatcher::rejected;
use in_flight::InFlight;

/// The reserved id of the proxy's own tools.
pub const OWN_ID: &str = "canary";

pub struct Member<U> {
    pub upstream: U,
    pub options: Options,
}

/// The proxy's own tools.
pub trait OwnTools {
    /// Entries of `tools/list`, each one JSON object with its full name.
    fn tools(&self) -> Vec<String>;

    /// Calls one; returns the `result` as JSON.
    ///
    /// # Errors
    /// The error for the client, also for an unknown tool.
    fn call(&self, tool: &str, arguments: Option<&Json<'_>>) -> Result<String, ErrorReply>;
}

/// Settings of the front: its name in records, and where to report missing servers.
pub struct AggregateOptions {
    /// In bytes.
    pub max_line_bytes: usize,
    pub own: Box<dyn OwnTools>,
    /// Tools are judged by the names of all servers: each lists its own before the first call.
    pub lists_first: bool,
    /// Tells the user.
    pub note: Box<dyn Fn(&str)>,
}

/// Serves one client until it closes its end. Servers start concurrently; `members` are in list order, and their ids
/// must not collide: see [`names::colliding`].
pub async fn serve<R: Recorder + Clone, U: Upstream + 'static>(
    client_in: impl AsyncRead + Unpin,
    mut client_out: impl AsyncWrite + Unpin,
    members: Vec<Member<U>>,
    guard: Rc<RefCell<Guard>>,
    record: R,
    front: AggregateOptions,
) {
    let mut client = LineReader::new(client_in, front.max_line_bytes);
    let mut aggregate = Aggregate::new(members, &guard, record, front);
    for host in &mut aggregate.hosts {
        host.open().await;
    }
    loop {
        while aggregate.takes_lines()
            && let Some(frame) = client.next_frame()
        {
            aggregate.record.wait_for_room().await;
            aggregate.on_client_frame(frame).await;
        }
        if client.is_at_end() && aggregate.unlisted.is_empty() {
            aggregate.ended = true;
            for (server, host) in aggregate.hosts.iter_mut().enumerate() {
                // Late servers delay nothing.
                let board = &aggregate.board;
                let Connection { from_client, listing, .. } = &mut host.connection;
                let is_awaited = |key: &Key| listing.is_own(key) && !listing.is_idle();
                from_client.cancel_unless(|key| board.servers_of(key).contains(&server) || is_awaited(key));
                host.end_input(&mut aggregate.board.client_of_server(server)).await;
            }
        }
        aggregate.process_ready().await;
        let is_behind = aggregate.board.to_client.is_idle() && !guard.borrow_mut().catch_up();
        if aggregate.is_finished() {
            caught_up(&guard).await;
            return;
        }
        let read_client = !client.is_at_end() && aggregate.takes_lines();
        let deadline = aggregate.board.next_deadline();
        let Aggregate { hosts, board, .. } = &mut aggregate;
        let read = !crate::client::Client::is_full(&board.to_client);
        let event = tokio::select! {
            written = board.to_client.flush_some(&mut client_out), if !board.to_client.is_idle() => Event::Written(written),
            _ = client.fill(), if read_client => Event::Read,
            (server, woke) = first(hosts, read) => Event::Server(server, woke),
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => Event::Timer,
            () = caught_up(&guard), if is_behind => Event::Timer,
        };
        match event {
            Event::Read | Event::Timer | Event::Written(Ok(())) => {}
            Event::Written(Err(_)) => {
                hosts.iter_mut().for_each(ServerSession::on_client_gone);
                board.to_client.clear();
                aggregate.ended = true;
                aggregate.gone = true;
            }
            Event::Server(server, woke) => {
                if let Some(host) = hosts.get_mut(server) {
                    host.on_woke(&mut board.client_of_server(server), woke).await;
                }
            }
        }
    }
}

struct Aggregate<R: Recorder, U: Upstream> {
    hosts: Vec<ServerSession<R, U>>,
    /// Messages for servers that are ending, kept for their successors.
    parked: Vec<Vec<Vec<u8>>>,
    /// Calls that wait until all servers have listed their tools.
    unlisted: Vec<(Id, Vec<u8>)>,
    /// No call waits for that any more.
    has_listed: bool,
    board: InFlight,
    record: R,
    front: AggregateOptions,
    started: Instant,
    /// The client sends nothing more.
    ended: bool,
    /// The client reads nothing more.
    gone: bool,
}

enum Event<U: Upstream> {
    Read,
    Written(io::Result<()>),
    Server(usize, SessionEvent<U>),
    Timer,
}

impl<R: Recorder + Clone, U: Upstream + 'static> Aggregate<R, U> {
    fn new(members: Vec<Member<U>>, guard: &Rc<RefCell<Guard>>, record: R, front: AggregateOptions) -> Self {
        let ids = members.iter().map(|member| member.options.server.0.clone()).collect();
        let hosts: Vec<_> = members
            .into_iter()
            .map(|Member { upstream, options }| {
                ServerSession::new(Connection::new(options, Rc::clone(guard), record.clone()), upstream)
            })
            .collect();
        Self {
            parked: vec![Vec::new(); hosts.len()],
            unlisted: Vec::new(),
            has_listed: !front.lists_first,
            hosts,
            board: InFlight::new(ids, front.own.tools()),
            record,
            front,
            started: Instant::now(),
            ended: false,
            gone: false,
        }
    }

    /// Does everything that needs no waiting.
    async fn process_ready(&mut self) {
        for (server, host) in self.hosts.iter_mut().enumerate() {
            host.take_server_lines(&mut self.board.client_of_server(server)).await;
            if !host.is_dying()
                && let Some(parked) = self.parked.get_mut(server)
            {
                for line in std::mem::take(parked) {
                    let frame = super::framing::Frame::Line(&line);
                    host.connection.on_client_frame(&mut self.board.client_of_server(server), frame).await;
                }
            }
        }
        self.go_on_listed().await;
        let given_up = self.board.expire(Instant::now());
        self.cancel(given_up).await;
        self.try_next().await;
        self.hosts.iter_mut().for_each(ServerSession::start_or_finish);
        for event in self.board.events.drain(..) {
            self.record.record(event);
        }
        for note in self.board.notes.drain(..) {
            (self.front.note)(&note);
        }
    }

    /// Stops reading a client that does not read. A server that does not read delays no other: its requests are refused
    /// beyond a limit.
    fn takes_lines(&self) -> bool {
        const SLACK: usize = 4 << 20;
        !self.gone && self.board.to_client.waiting() <= SLACK
    }

    fn is_finished(&self) -> bool {
        self.ended
            && self.hosts.iter().all(ServerSession::is_done)
            && (self.gone || self.board.to_client.is_idle())
    }
}

/// The first server that can continue.
async fn first<R: Recorder, U: Upstream + 'static>(
    hosts: &mut [ServerSession<R, U>],
    read: bool,
) -> (usize, SessionEvent<U>) {
    let mut waits: Vec<Pin<Box<_>>> = hosts.iter_mut().map(|host| Box::pin(host.wait(read))).collect();
    poll_fn(|context| {
        for (server, wait) in waits.iter_mut().enumerate() {
            if let Poll::Ready(woke) = wait.as_mut().poll(context) {
                return Poll::Ready((server, woke));
            }
        }
        Poll::Pending
    })
    .await
}
