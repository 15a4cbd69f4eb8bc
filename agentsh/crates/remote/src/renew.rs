//! Starts a session again that the server no longer knows, with the client's first messages, once for each message: it
//! was not accepted, so it may be sent again.

use std::rc::Rc;

use tokio::time::timeout;

use crate::egress::client::Response;
use crate::json::{self, Json};

use super::driver::{ACCEPT_LIMIT, Link};
use super::failure::Failure;
use super::headers;
use super::message::{Outgoing, answers};
use super::sse::Framer;

#[derive(Debug, Default)]
pub(crate) struct ClientOpening {
    pub initialize: Option<Outgoing>,
    pub initialized: Option<Outgoing>,
    /// The number of sessions begun.
    pub sessions: u64,
}

impl Link {
    /// Begins another session instead of number `lost`, unless that has happened already. An error is the reason why there is
    /// none.
    pub async fn renew(self: &Rc<Self>, lost: u64) -> Result<(), Failure> {
        let _one_at_a_time = self.renewing.lock().await;
        if self.opening.borrow().sessions != lost {
            return Ok(());
        }
        let Some(initialize) = self.opening.borrow().initialize.clone() else {
            return Err(Failure::SessionLost);
        };
        let began = timeout(ACCEPT_LIMIT, self.begin(&initialize)).await;
        began.unwrap_or(Err(Failure::NoAnswer)).map_err(|_| Failure::SessionLost)?;
        let initialized = self.opening.borrow().initialized.clone();
        if let Some(initialized) = initialized {
            self.post_message(&initialized).await?;
            self.end_expected().await;
            self.listen();
        }
        Ok(())
    }

    /// The new handshake. The client only learns that the offered tools may have changed.
    async fn begin(self: &Rc<Self>, initialize: &Outgoing) -> Result<(), Failure> {
        let answer = self.first_post(initialize).await?;
        if !answer.status.is_success() {
            return Err(Failure::Status(answer.status, String::new()));
        }
        let text = self.sole_answer(answer, initialize).await?;
        let tree = json::read(&text).map_err(Failure::Unreadable)?;
        let Some(result) = tree.member("result") else { return Err(Failure::NoAnswer) };
        self.agree(result);
        for list in ["tools", "prompts", "resources"] {
            if result.member("capabilities").and_then(|offers| offers.member(list)).is_some() {
                let changed = format!(r#"{{"jsonrpc":"2.0","method":"notifications/{list}/list_changed"}}"#);
                self.send_line(changed.into_bytes()).await?;
            }
        }
        Ok(())
    }

    /// The message that answers, out of a text or a stream.
    async fn sole_answer(&self, mut answer: Response, asked: &Outgoing) -> Result<Vec<u8>, Failure> {
        let limit = self.settings.max_message;
        let is_it = |text: &[u8]| {
            let id = asked.id.as_ref();
            json::read(text).is_ok_and(|tree: Json<'_>| id.is_some_and(|id| answers(&tree, id)))
        };
        if headers::media_type(&answer.headers) == headers::JSON {
            let text = answer.read_body(limit).await?;
            return Some(text).filter(|text| is_it(text)).ok_or(Failure::NoAnswer);
        }
        let (mut framer, mut events) = (Framer::new(limit), Vec::new());
        while let Some(bytes) = answer.chunk().await? {
            framer.push(&bytes, &mut events).map_err(|_| Failure::TooLong(limit))?;
            if let Some(event) = events.drain(..).find(|event| is_it(&event.data)) {
                return Ok(event.data);
            }
        }
        Err(Failure::NoAnswer)
    }
}
