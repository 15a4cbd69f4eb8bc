//! Telling a client where a person answers, when one is asked about its call: by an elicitation with an address, where the
//! client can open one. What the client says to it decides nothing.

use crate::json::{self, Json};
use crate::store::Recorder;

use super::client::Client;
use super::connection::Connection;
use super::jsonrpc::{Id, Key};
use super::lifecycle::private_id;

/// Where a person answers one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Of the question.
    pub id: String,
    pub url: String,
}

/// Answers of a client that are waited for; further ones are told of no page.
const MAX_ASKED: usize = 256;

impl<R: Recorder> Connection<R> {
    /// Whether the page was shown.
    pub fn show_page(&mut self, client: &mut impl Client, page: &Page, name: &str) -> bool {
        if !self.opens_pages() || self.shown.len() >= MAX_ASKED {
            return false;
        }
        let (key, spelled) = private_id(&mut self.serial, "approval", |key| self.shown.contains(key));
        let about = format!("'{name}' is waiting for a person's answer");
        let message = format!(
            r#"{{"jsonrpc":"2.0","id":{spelled},"method":"elicitation/create","params":{{"mode":"url","elicitationId":"{}","url":"{}","message":"{}"}}}}"#,
            json::spell(&page.id),
            json::spell(&page.url),
            json::spell(&about)
        );
        // It was written here.
        let Ok(tree) = json::read(message.as_bytes()) else { return false };
        self.shown.insert(key.clone());
        client.request(&Id { key, spelled: spelled.into() }, tree);
        true
    }

    /// Somebody answered: the page is of no use any more.
    pub fn end_page(&self, client: &mut impl Client, page: &Page) {
        const METHOD: &str = "notifications/elicitation/complete";
        let message = format!(
            r#"{{"jsonrpc":"2.0","method":"{METHOD}","params":{{"elicitationId":"{}"}}}}"#,
            json::spell(&page.id)
        );
        if let Ok(tree) = json::read(message.as_bytes()) {
            client.notification(METHOD, tree);
        }
    }

    /// An answer to a page that was shown; false: it is none.
    pub fn took_page(&mut self, key: &Key) -> bool {
        self.shown.remove(key)
    }

    /// The client said in its handshake that it opens addresses for its user.
    fn opens_pages(&self) -> bool {
        let Some(params) = &self.handshake.params else { return false };
        let Ok(params) = json::read(params.as_bytes()) else { return false };
        let can = params.member("capabilities").and_then(|can| can.member("elicitation")?.member("url"));
        matches!(can, Some(Json::Object(_)))
    }
}
