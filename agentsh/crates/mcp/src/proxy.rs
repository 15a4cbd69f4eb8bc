//! Serves one server to one client. The directions are independent: a side is not read while its messages cannot be
//! delivered.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;

use crate::guard::Guard;
use crate::store::Recorder;

use super::connection::Connection;
use super::framing::LineReader;
use super::options::Options;
use super::outbox::Outbox;
use super::server_session::{ServerSession, SessionEvent};
use super::upstream::{ExitInfo, Upstream};

/// How a connection ended, always because the client closed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionEnd {
    /// How the last server process ended; None if none was started, or waiting failed.
    pub exit: Option<ExitInfo>,
    /// The server was killed because it did not end after its input was closed.
    pub killed: bool,
}

/// Serves one connection until the client closes it. The server starts at once, unless refused, and restarts on the
/// next request after it ended.
pub async fn serve<R: Recorder, U: Upstream + 'static>(
    client_in: impl AsyncRead + Unpin,
    mut client_out: impl AsyncWrite + Unpin,
    upstream: U,
    guard: Rc<RefCell<Guard>>,
    record: R,
    options: Options,
) -> ConnectionEnd {
    let mut client =
        LineReader::new(client_in, options.max_line_bytes).with_budget(options.client_lines.clone());
    let mut to_client = Outbox::default();
    let mut host = ServerSession::new(Connection::new(options, Rc::clone(&guard), record), upstream);
    host.open().await;
    loop {
        while takes_lines(&host, &to_client)
            && let Some(frame) = client.next_frame()
        {
            host.connection.record.wait_for_room().await;
            host.connection.on_client_frame(&mut to_client, frame).await;
        }
        if client.is_at_end() {
            host.end_input(&mut to_client).await;
        }
        host.take_server_lines(&mut to_client).await;
        host.start_or_finish();
        let is_behind = to_client.is_idle() && !guard.borrow_mut().catch_up();
        if host.is_done() && (host.is_client_gone() || to_client.is_idle()) {
            caught_up(&guard).await;
            return host.into_ended();
        }
        let read_client = !client.is_at_end() && takes_lines(&host, &to_client);
        let read_server = !host.connection.server_must_wait(&to_client);
        let event = tokio::select! {
            written = to_client.flush_some(&mut client_out), if !to_client.is_idle() => Event::Written(written),
            _ = client.fill(), if read_client => Event::Read,
            woke = host.wait(read_server) => Event::Server(woke),
            () = caught_up(&guard), if is_behind => Event::Read,
        };
        match event {
            Event::Read | Event::Written(Ok(())) => {}
            Event::Written(Err(_)) => {
                host.on_client_gone();
                to_client.clear();
            }
            Event::Server(woke) => host.on_woke(&mut to_client, woke).await,
        }
    }
}

/// Waits until other threads have done what was put off.
pub(crate) async fn caught_up(guard: &RefCell<Guard>) {
    while !guard.borrow_mut().catch_up() {
        sleep(Duration::from_millis(20)).await;
    }
}

enum Event<U: Upstream> {
    Read,
    Written(io::Result<()>),
    Server(SessionEvent<U>),
}

/// Messages for an ending server wait for the next one.
fn takes_lines<R: Recorder, U: Upstream + 'static>(host: &ServerSession<R, U>, to_client: &Outbox) -> bool {
    !host.is_client_gone() && !host.connection.client_must_wait(to_client) && !host.is_dying()
}
