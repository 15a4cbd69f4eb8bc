//! A server connection that several client sessions share. Requests get new ids, and each session translates as for a
//! server without sessions.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use tokio::io::{AsyncWriteExt, DuplexStream, WriteHalf};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::json;
use crate::mcp::framing::{Frame, LineReader};
use crate::mcp::jsonrpc::{Id, Key, Message, classify};

use super::client::Client;
use super::message::{Incoming, Kind};
use super::stream::Stream;
use super::translation::edit_json;

/// Buffer between a session and the connection.
const PIPE_BYTES: usize = 256 << 10;
const METHOD_NOT_FOUND: i32 = -32601;
const INTERNAL_ERROR: i32 = -32603;

/// Lines of one more session. Call inside a `LocalSet`.
pub fn attach(connection: Rc<Client>, longest: usize) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    let (input, output) = tokio::io::split(ours);
    let seat = Rc::new(SharedSession { connection, output: Mutex::new(output), running: RefCell::default() });
    agentsh_base::task::spawn_local(async move {
        let _used = seat.connection.serve();
        let mut lines = LineReader::new(input, longest);
        let mut answers = JoinSet::new();
        while !lines.is_at_end() {
            while let Some(frame) = lines.next_frame() {
                if let Frame::Line(line) = frame {
                    seat.take(line, &mut answers).await;
                }
            }
            tokio::select! {
                more = lines.fill() => if more.is_err() { break },
                Some(_) = answers.join_next(), if !answers.is_empty() => {}
            }
        }
        // The rest is not needed.
        let left: Vec<Key> = seat.running.borrow().keys().cloned().collect();
        for key in left {
            seat.cancel(&key).await;
        }
    });
    theirs
}

struct SharedSession {
    connection: Rc<Client>,
    output: Mutex<WriteHalf<DuplexStream>>,
    /// The connection's ids of this session's requests, with their streams.
    running: RefCell<HashMap<Key, (Id, Rc<Stream>)>>,
}

impl SharedSession {
    async fn take(self: &Rc<Self>, line: &[u8], answers: &mut JoinSet<()>) {
        let Ok(message) = Incoming::read(line) else { return };
        let Kind::Request { id, .. } = &message.kind else {
            if let Some(key) = cancelled(line) {
                self.cancel(&key).await;
            }
            return;
        };
        let id = id.clone();
        if message.is_initialize() {
            let why = "this endpoint shares one connection: it has no sessions and no streams";
            return self.send_line(edit_json::error(&id.spelled, METHOD_NOT_FOUND, why)).await;
        }
        let message = self.connection.rename(message);
        let Some(own) = message.id().cloned() else { return };
        let Ok(stream) = self.connection.request(&message, own.key.clone()).await else {
            let why = "the server cannot accept the request now";
            return self.send_line(edit_json::error(&id.spelled, INTERNAL_ERROR, why)).await;
        };
        self.running.borrow_mut().insert(id.key.clone(), (own, Rc::clone(&stream)));
        let seat = Rc::clone(self);
        answers.spawn_local(async move {
            let mut reader = stream.reader(None);
            let mut last = None;
            while let Some((_, event)) = reader.next().await {
                seat.connection.changed.notify_one();
                last = Some(answers_to(&event, &id));
                seat.send_line(event.to_vec()).await;
            }
            let is_its = |running: &HashMap<Key, (Id, Rc<Stream>)>| {
                running.get(&id.key).is_some_and(|(_, other)| Rc::ptr_eq(other, &stream))
            };
            if !is_its(&seat.running.borrow()) {
                // The request was cancelled.
                return;
            }
            seat.running.borrow_mut().remove(&id.key);
            if last != Some(true) {
                seat.send_line(edit_json::error(
                    &id.spelled,
                    INTERNAL_ERROR,
                    "the server's session has ended",
                ))
                .await;
            }
        });
    }

    async fn cancel(&self, key: &Key) {
        let Some((own, stream)) = self.running.borrow_mut().remove(key) else { return };
        self.connection.give_up(&own.key, &stream);
        let params = format!(r#"{{"requestId":{}}}"#, own.spelled);
        // The server has ended.
        let _ = self.connection.send(&edit_json::notification("notifications/cancelled", &params)).await;
    }

    async fn send_line(&self, mut line: Vec<u8>) {
        line.push(b'\n');
        // The reader is gone.
        let _ = self.output.lock().await.write_all(&line).await;
    }
}

fn cancelled(line: &[u8]) -> Option<Key> {
    let tree = json::read(line).ok()?;
    match classify(&tree).ok()? {
        Message::Notification { method, params } if method == "notifications/cancelled" => {
            Some(Id::from_json(params?.member("requestId")?).ok()?.key)
        }
        _ => None,
    }
}

fn answers_to(line: &[u8], id: &Id) -> bool {
    let Ok(tree) = json::read(line) else { return false };
    matches!(classify(&tree), Ok(Message::Response { id: Some(own), .. }) if own.key == id.key)
}
