//! Serves a client with an `rmcp` handler instead of a server. Lines are as strict as elsewhere, and refusals are
//! recorded first.

use std::io;

use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::{RoleServer, ServerHandler, serve_server};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::json;
use crate::store::Recorder;

use super::aggregate::rejected;
use super::framing::{Frame, LineReader};
use super::jsonrpc::{self, Message, Shape};
use super::reject::InvalidMessage;
use super::reply::write_error;

/// Answers requests one by one until the client closes its end. Call inside a `LocalSet`.
pub async fn serve(
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
    max_line_bytes: usize,
    record: impl Recorder,
    handler: impl ServerHandler,
) {
    let (ask, requests) = mpsc::channel(1);
    let (answers, answered) = mpsc::channel(1);
    let answering = async move {
        if let Ok(server) = serve_server(handler, Channels { requests, answers }).await {
            // It ends with the client.
            let _ = server.waiting().await;
        }
    };
    let lines = LineReader::new(input, max_line_bytes);
    tokio::join!(answering, serve_lines(lines, output, max_line_bytes, record, ask, answered));
}

/// `rmcp`'s end.
struct Channels {
    requests: mpsc::Receiver<ClientJsonRpcMessage>,
    answers: mpsc::Sender<ServerJsonRpcMessage>,
}

impl Transport<RoleServer> for Channels {
    type Error = io::Error;

    fn send(
        &mut self,
        answer: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let answers = self.answers.clone();
        async move { answers.send(answer).await.map_err(|_| io::ErrorKind::BrokenPipe.into()) }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.requests.recv().await
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        Ok(())
    }
}

async fn serve_lines(
    mut lines: LineReader<impl AsyncRead + Unpin>,
    mut output: impl AsyncWrite + Unpin,
    max_line_bytes: usize,
    record: impl Recorder,
    ask: mpsc::Sender<ClientJsonRpcMessage>,
    mut answered: mpsc::Receiver<ServerJsonRpcMessage>,
) {
    while !lines.is_at_end() {
        while let Some(frame) = lines.next_frame() {
            let mut line = Vec::new();
            match request(&frame, max_line_bytes) {
                Ok(None) => continue,
                Ok(Some(request)) => {
                    record.wait_for_room().await;
                    // `rmcp` has stopped.
                    let Ok(()) = ask.send(request).await else { return };
                    let Some(answer) = answered.recv().await else { return };
                    let Ok(()) = serde_json::to_writer(&mut line, &answer) else { return };
                }
                Err(fault) => {
                    // `Recorder::broken` reports a failed store.
                    let _ = record.commit(rejected(fault.reason, &fault.detail, fault.bytes)).await;
                    if fault.shape.is_answer() {
                        continue;
                    }
                    write_error(&mut line, fault.id.as_ref().map(|id| &*id.spelled), &fault.to_sender());
                }
            }
            line.push(b'\n');
            if output.write_all(&line).await.is_err() || output.flush().await.is_err() {
                return;
            }
        }
        // An error is an end, too.
        let _ = lines.fill().await;
    }
}

/// The request to answer. Notifications have no effect: requests are answered one by one.
fn request(frame: &Frame<'_>, max_line_bytes: usize) -> Result<Option<ClientJsonRpcMessage>, InvalidMessage> {
    if let Some(fault) = InvalidMessage::if_oversized(frame, max_line_bytes) {
        return Err(fault);
    }
    let Frame::Line(line) = frame else { return Ok(None) };
    let tree = json::read(line).map_err(|error| InvalidMessage::unreadable(line, &error))?;
    let invalid = |reason, detail: &str, id, shape| {
        Err(InvalidMessage::invalid(line.len(), reason, detail.to_owned(), id, shape))
    };
    match jsonrpc::classify(&tree).map_err(|error| InvalidMessage::envelope(line, error))? {
        Message::Request { id, .. } => match serde_json::from_slice(line) {
            Ok(request) => Ok(Some(request)),
            Err(error) => invalid("invalid-request", &error.to_string(), Some(id), Shape::Request),
        },
        Message::Notification { method, .. } if method == "tools/call" => {
            invalid("invalid-request", "`tools/call` without an `id`", None, Shape::Request)
        }
        Message::Notification { .. } => Ok(None),
        Message::Response { id, .. } => {
            invalid("unasked-response", "an answer to a request that no server sent", id, Shape::Response)
        }
    }
}
