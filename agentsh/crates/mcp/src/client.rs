//! The receiver of a server connection's messages: the client's outbox, or the aggregate.

use crate::json::Json;
use crate::types::ToolId;

use super::jsonrpc::Id;
use super::outbox::Outbox;
use super::reply::{self, ErrorReply};

pub(super) trait Client {
    fn request(&mut self, id: &Id, tree: Json<'_>);

    fn notification(&mut self, method: &str, tree: Json<'_>);

    /// The answer to a request; without an id, an error for none.
    fn answer(&mut self, id: Option<&Id>, tree: Json<'_>);

    /// Like `answer`, written by agentsh.
    fn error(&mut self, id: Option<&Id>, error: &ErrorReply);

    /// A server request that needs no answer any more.
    fn withdraw(&mut self, id: &Id, reason: &str);

    /// Removes another server's tool from pending answers to the client; false: there is none.
    fn take_back(&mut self, _tool: &ToolId) -> bool {
        false
    }

    /// Bytes that the client has not read.
    fn waiting(&self) -> usize;

    /// Whether the server has to wait for the client.
    fn is_full(&self) -> bool;
}

impl Client for Outbox {
    fn request(&mut self, _: &Id, tree: Json<'_>) {
        self.push(|out| tree.write(out));
    }

    fn notification(&mut self, method: &str, tree: Json<'_>) {
        if method == "notifications/progress" {
            self.push_progress(|out| tree.write(out));
        } else {
            self.push(|out| tree.write(out));
        }
    }

    fn answer(&mut self, _: Option<&Id>, tree: Json<'_>) {
        self.push_answer(|out| tree.write(out));
    }

    fn error(&mut self, id: Option<&Id>, error: &ErrorReply) {
        self.push(|out| reply::write_error(out, id.map(|id| &*id.spelled), error));
    }

    fn withdraw(&mut self, id: &Id, reason: &str) {
        self.push(|out| reply::write_cancelled(out, &id.spelled, reason));
    }

    fn waiting(&self) -> usize {
        Outbox::waiting(self)
    }

    fn is_full(&self) -> bool {
        Outbox::is_full(self)
    }
}
