//! One server for one client, from the first byte to the last.
//!
//! The two directions never wait for each other: a side is only not read while what it sent cannot be delivered.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::guard::Guard;
use crate::store::Recorder;

use super::connection::Connection;
use super::framing::LineReader;
use super::options::Options;
use super::outbox::Outbox;
use super::server_session::{ServerSession, SessionEvent};
use super::upstream::{ExitInfo, Upstream};

/// How a connection ended: always because the client closed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionEnd {
    /// How the last server process ended; None when none was started or it could not be waited for.
    pub exit: Option<ExitInfo>,
    /// The server had to be killed because it did not end after its input was closed.
    pub killed: bool,
}

/// Serves one connection until the client closes it. The server is started at once, unless policy refuses it, and
/// started again on the next request after it ended.
pub async fn serve<R: Recorder, U: Upstream + 'static>(
    client_in: impl AsyncRead + Unpin,
    mut client_out: impl AsyncWrite + Unpin,
    upstream: U,
    guard: Rc<RefCell<Guard>>,
    record: R,
    options: Options,
) -> ConnectionEnd {
    let mut client = LineReader::new(client_in, options.max_line_bytes).within(options.client_lines.clone());
    let mut to_client = Outbox::default();
    let mut host = ServerSession::new(Connection::new(options, guard, record), upstream);
    host.open().await;
    loop {
        while takes_lines(&host, &to_client)
            && let Some(frame) = client.next_frame()
        {
            host.connection.record.room().await;
            host.connection.on_client_frame(&mut to_client, frame).await;
        }
        if client.is_at_end() {
            host.end_input(&mut to_client).await;
        }
        host.take_server_lines(&mut to_client).await;
        host.settle();
        if to_client.is_idle() {
            host.connection.guard.borrow_mut().catch_up();
        }
        if host.is_done() && (host.is_client_gone() || to_client.is_idle()) {
            return host.into_ended();
        }
        let read_client = !client.is_at_end() && takes_lines(&host, &to_client);
        let read_server = !host.connection.server_must_wait(&to_client);
        let event = tokio::select! {
            written = to_client.flush_some(&mut client_out), if !to_client.is_idle() => Event::Written(written),
            _ = client.fill(), if read_client => Event::Read,
            woke = host.wait(read_server) => Event::Server(woke),
        };
        match event {
            Event::Read | Event::Written(Ok(())) => {}
            Event::Written(Err(_)) => {
                host.lose_client();
                to_client.clear();
            }
            Event::Server(woke) => host.on_woke(&mut to_client, woke).await,
        }
    }
}

enum Event<U: Upstream> {
    Read,
    Written(io::Result<()>),
    Server(SessionEvent<U>),
}

/// What the client sends to a server that is about to be gone waits for the next one.
fn takes_lines<R: Recorder, U: Upstream + 'static>(host: &ServerSession<R, U>, to_client: &Outbox) -> bool {
    !host.is_client_gone() && !host.connection.client_must_wait(to_client) && !host.is_dying()
}
