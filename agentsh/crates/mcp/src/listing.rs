//! The tools that were listed. Before a tool is called whose definition was not seen in this session, agentsh lists the
//! tools itself and compares it with its pin.

use std::rc::Rc;

use serde_json::json;

use crate::guard::Caller;
use crate::json::{self, Json};
use crate::store::Recorder;

use super::client::Client;
use super::connection::{Connection, Phase};
use super::from_client::{called_tool, cancelled_id};
use super::jsonrpc::{Id, Key};
use super::lifecycle::private_id;
use super::pending::{Entry, Kind};
use super::reply::{self, ErrorReply};

/// Limit of pages; a longer listing counts as complete.
const MAX_PAGES: u32 = 256;
/// Calls that wait for a listing: each new one is compared with all of them.
const MAX_WAITING_COUNT: usize = 4096;
/// Bytes of their messages.
const MAX_WAITING: usize = 16 << 20;
/// How long a page may take.
const PAGE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);

/// Characters of a server's error that are quoted.
const MAX_QUOTED: usize = 300;

/// A waiting call: id, caller and message.
type Waiting = (Id, Option<Rc<Caller>>, Vec<u8>);

/// The listings of one connection.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// A page was received.
    seen: bool,
    /// The last page was received, and no change announced since.
    complete: bool,
    /// agentsh's own page request.
    own: Option<Key>,
    /// It is not for a call of this server.
    ahead: bool,
    pages: u32,
    /// The waiting call's `_meta` of the protocol without sessions.
    meta: Option<String>,
    waiting: Vec<Waiting>,
}

impl Listing {
    /// All tools are known.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    pub fn changed(&mut self) {
        self.complete = false;
    }

    pub fn is_own(&self, key: &Key) -> bool {
        self.own.as_ref() == Some(key)
    }

    pub fn is_waiting(&self, key: &Key) -> bool {
        self.waiting.iter().any(|(id, ..)| id.key == *key)
    }

    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Cancels a waiting call; false: none has this id.
    pub fn cancel(&mut self, params: Option<&Json<'_>>) -> bool {
        let Some(id) = cancelled_id(params) else { return false };
        let before = self.waiting.len();
        self.waiting.retain(|(waiting, ..)| waiting.key != id.key);
        self.waiting.len() < before
    }

    /// Drops everything: no client is left.
    pub fn forget(&mut self) {
        self.waiting = Vec::new();
    }

    pub fn on_page(&mut self, answer: &Json<'_>) {
        let Some(result) = answer.member("result") else { return };
        self.seen = true;
        self.complete = cursor(result).is_none();
    }

    fn has_room(&self, bytes: usize) -> bool {
        let held: usize = self.waiting.iter().map(|(.., message)| message.len()).sum();
        self.waiting.len() < MAX_WAITING_COUNT && held + bytes <= MAX_WAITING
    }
}

impl<R: Recorder> Connection<R> {
    /// Whether a call has to wait for a listing.
    pub fn needs_listing(&self, tool: &str) -> bool {
        !self.tools.contains_key(tool)
            && !self.listing.complete
            && !matches!(self.phase, Phase::Refused(_) | Phase::Failed(..))
            && (self.listing.seen || self.options.lists_first)
    }

    /// Lists the tools before a call of any server is judged by their names, unless they were listed. Whether that takes
    /// time.
    pub fn list_ahead(&mut self, call: &Json<'_>) -> bool {
        if self.listing.own.is_none()
            && !self.listing.seen
            && !matches!(self.phase, Phase::Refused(_) | Phase::Failed(..))
        {
            self.listing.pages = 0;
            self.listing.meta = meta(call);
            self.listing.ahead = true;
            self.ask_for_page(None);
        }
        self.is_listing()
    }

    /// Whether agentsh's own listing has no end yet.
    pub fn is_listing(&self) -> bool {
        self.listing.own.is_some()
    }

    /// Parks a call until the listing.
    pub fn wait_for_listing(&mut self, client: &mut impl Client, id: Id, tree: &Json<'_>) {
        let message = tree.to_compact().into_bytes();
        if !self.listing.has_room(message.len()) {
            let error = ErrorReply {
                code: reply::TOO_MANY_REQUESTS,
                message: format!(
                    "the call was not forwarded: too many calls already wait for server '{}' to list its tools",
                    self.options.server
                ),
                reason: "too-many-requests",
                rule: None,
            };
            return client.error(Some(&id), &error);
        }
        if self.listing.own.is_none() {
            self.listing.pages = 0;
            self.listing.meta = meta(tree);
        }
        self.listing.waiting.push((id, self.caller.clone(), message));
        if self.listing.own.is_none() {
            self.ask_for_page(None);
        }
    }

    /// `cursor` as JSON.
    fn ask_for_page(&mut self, cursor: Option<&str>) {
        let (key, spelled) = private_id(&mut self.serial, "list", |key| {
            self.from_client.is_open(key) || self.listing.is_waiting(key)
        });
        let cursor = cursor.map(|cursor| format!(r#""cursor":{cursor}"#));
        let meta = self.listing.meta.as_ref().map(|meta| format!(r#""_meta":{meta}"#));
        let members: Vec<String> = cursor.into_iter().chain(meta).collect();
        let params = match members.is_empty() {
            true => String::new(),
            false => format!(r#","params":{{{}}}"#, members.join(",")),
        };
        let message = format!(r#"{{"jsonrpc":"2.0","id":{spelled},"method":"tools/list"{params}}}"#);
        // agentsh wrote it.
        let Ok(tree) = json::read(message.as_bytes()) else { return };
        let id = Id { key: key.clone(), spelled: spelled.into() };
        let deadline = tokio::time::Instant::now() + PAGE_TIMEOUT;
        self.from_client.insert(id, "tools/list", Kind::OwnList, None, Some(deadline));
        self.listing.pages += 1;
        self.listing.own = Some(key);
        self.forward_to_server(&tree);
    }

    /// Takes agentsh's own page; returns the calls that can be judged.
    pub(super) fn on_own_page(&mut self, client: &mut impl Client, answer: &mut Json<'_>) -> Vec<Waiting> {
        self.listing.own = None;
        // The listing is not shown.
        let _ = self.inspect_tools(client, answer);
        let next = answer.member("result").and_then(cursor).map(|cursor| format!("\"{cursor}\""));
        let is_wanted = self.listing.ahead || !self.listing.is_idle();
        if let Some(cursor) = next.filter(|_| self.listing.pages < MAX_PAGES && is_wanted) {
            self.ask_for_page(Some(&cursor));
            return Vec::new();
        }
        self.listing.ahead = false;
        // A listing without end counts as complete.
        self.listing.complete |= self.listing.pages >= MAX_PAGES;
        std::mem::take(&mut self.listing.waiting)
    }

    /// The server answered agentsh's own listing with an error: the answers of the calls that waited, which are judged as the server's.
    pub(super) fn on_own_error(&mut self, error: &Json<'_>) -> Vec<(Id, Box<str>, String)> {
        self.listing.own = None;
        let why = error.member("message").and_then(Json::as_text);
        let why: String = why.unwrap_or_default().chars().take(MAX_QUOTED).collect();
        let message = format!(
            "agentsh: the call was not forwarded: cannot list the tools first: server '{}' answered with an error: {}",
            self.options.server,
            agentsh_base::escape::line(&why)
        );
        let error = json!({"code": reply::BAD_ANSWER, "message": message, "data": {"reason": "not-listed"}});
        let answer = json!({"jsonrpc": "2.0", "id": null, "error": error}).to_string();
        let calls = std::mem::take(&mut self.listing.waiting).into_iter();
        let calls = calls.map(|(id, _, message)| {
            let tool =
                json::read(&message).map(|call| called_tool(call.member("params"))).unwrap_or_default();
            (id, tool, answer.clone())
        });
        calls.collect()
    }

    /// The listing timed out.
    pub fn expire_listing(&mut self, client: &mut impl Client, key: &Key) {
        let Some(entry) = self.from_client.give_up(key) else { return };
        let error = ErrorReply {
            code: reply::TIMED_OUT,
            message: format!(
                "server '{}' did not answer within {} s",
                self.options.server,
                PAGE_TIMEOUT.as_secs()
            ),
            reason: "timed-out",
            rule: None,
        };
        self.close(client, &entry, &error);
    }

    /// Fails a client's request, or agentsh's own with all requests that wait for it.
    pub fn close(&mut self, client: &mut impl Client, entry: &Entry, error: &ErrorReply) {
        if entry.kind == Kind::OwnOffer {
            return self.fail_round(&error.message);
        }
        if entry.kind != Kind::OwnList {
            return client.error(Some(&entry.id), error);
        }
        self.listing.own = None;
        for (id, ..) in std::mem::take(&mut self.listing.waiting) {
            let message =
                format!("the call was not forwarded: cannot list the tools first: {}", error.message);
            client.error(Some(&id), &ErrorReply { message, ..error.clone() });
        }
    }
}

/// Client and revision from a message's `_meta`, as JSON.
fn meta(tree: &Json<'_>) -> Option<String> {
    let Some(Json::Object(members)) = tree.member("params").and_then(|params| params.member("_meta")) else {
        return None;
    };
    let own = members.iter().filter(|(name, _)| name.starts_with("io.modelcontextprotocol/"));
    let own: Vec<_> = own.filter(|(name, _)| !name.ends_with("/related-task")).cloned().collect();
    (!own.is_empty()).then(|| Json::Object(own).to_compact())
}

/// The next cursor, as written. An empty text is the end, as clients treat it.
pub(super) fn cursor<'a>(result: &Json<'a>) -> Option<&'a str> {
    match result.member("nextCursor") {
        Some(Json::String(cursor)) if !cursor.is_empty() => Some(cursor),
        _ => None,
    }
}
