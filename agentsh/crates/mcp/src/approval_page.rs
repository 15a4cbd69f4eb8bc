//! Tells a client where a person approves its call, by an elicitation with a URL. Its reply decides nothing.

use crate::json::{self, Json};
use crate::store::Recorder;

use super::client::Client;
use super::connection::Connection;
use super::jsonrpc::{Id, Key};
use super::lifecycle::private_id;

/// The page for one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The id of the question.
    pub id: String,
    pub url: String,
}

/// Limit of awaited acknowledgements; beyond it no page is shown.
const MAX_ASKED: usize = 256;

impl<R: Recorder> Connection<R> {
    /// Whether the page was shown.
    pub fn show_approval_page(&mut self, client: &mut impl Client, page: &Page, name: &str) -> bool {
        if !self.opens_pages() || self.shown.len() >= MAX_ASKED {
            return false;
        }
        let (key, spelled) = private_id(&mut self.serial, "approval", |key| self.shown.contains(key));
        let about = format!("'{name}' is waiting for a person's answer");
        let message = format!(
            r#"{{"jsonrpc":"2.0","id":{spelled},"method":"elicitation/create","params":{{"mode":"url","elicitationId":"{}","url":"{}","message":"{}"}}}}"#,
            json::escape_text(&page.id),
            json::escape_text(&page.url),
            json::escape_text(&about)
        );
        // agentsh wrote it.
        let Ok(tree) = json::read(message.as_bytes()) else { return false };
        self.shown.insert(key.clone());
        client.request(&Id { key, spelled: spelled.into() }, tree);
        true
    }

    /// Withdraws the page after the answer.
    pub fn end_approval_page(&self, client: &mut impl Client, page: &Page) {
        const METHOD: &str = "notifications/elicitation/complete";
        let message = format!(
            r#"{{"jsonrpc":"2.0","method":"{METHOD}","params":{{"elicitationId":"{}"}}}}"#,
            json::escape_text(&page.id)
        );
        if let Ok(tree) = json::read(message.as_bytes()) {
            client.notification(METHOD, tree);
        }
    }

    /// Takes an acknowledgement; false: it is another message.
    pub fn take_page_answer(&mut self, key: &Key) -> bool {
        self.shown.remove(key)
    }

    /// Whether the client can open URLs.
    fn opens_pages(&self) -> bool {
        let Some(params) = &self.handshake.params else { return false };
        let Ok(params) = json::read(params.as_bytes()) else { return false };
        let can = params.member("capabilities").and_then(|can| can.member("elicitation")?.member("url"));
        matches!(can, Some(Json::Object(_)))
    }
}
