//! What was listed. Before a tool, a prompt or a resource is used whose definition was not seen in this session, agentsh
//! lists them itself and compares them with their pins.

use std::collections::BTreeSet;
use std::rc::Rc;

use serde_json::json;

use crate::guard::{Caller, Offer, UsedEntry};
use crate::json::{self, Json};
use crate::store::Recorder;

use super::client::Client;
use super::connection::{Connection, Phase};
use super::from_client::{called_tool, cancelled_id};
use super::from_server::listing_of;
use super::identify::tool_name;
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
/// JSON-RPC's code of an unknown method.
const METHOD_NOT_FOUND: &str = "-32601";

/// What a listing is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum List {
    Tools,
    Offers(Offer),
}

impl List {
    fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Offers(offer) => listing_of(offer).0,
        }
    }
}

/// A request that waits for a listing.
#[derive(Debug)]
pub(super) struct Waiting {
    pub id: Id,
    pub caller: Option<Rc<Caller>>,
    pub message: Vec<u8>,
    list: List,
}

/// The listings of one connection.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// A page of tools was received.
    seen: bool,
    /// Those of which the last page was received, and no change of tools was announced since.
    complete: BTreeSet<List>,
    /// agentsh's own page request.
    own: Option<(List, Key)>,
    /// It is not for a call of this server.
    ahead: bool,
    pages: u32,
    /// The waiting request's `_meta` of the protocol without sessions.
    meta: Option<String>,
    waiting: Vec<Waiting>,
}

impl Listing {
    /// All tools are known.
    pub fn is_complete(&self) -> bool {
        self.complete.contains(&List::Tools)
    }

    pub fn tools_changed(&mut self) {
        self.complete.remove(&List::Tools);
    }

    pub fn is_own(&self, key: &Key) -> bool {
        self.own.as_ref().is_some_and(|(_, own)| own == key)
    }

    pub fn is_waiting(&self, key: &Key) -> bool {
        self.waiting.iter().any(|waiting| waiting.id.key == *key)
    }

    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Cancels a waiting request; false: none has this id.
    pub fn cancel(&mut self, params: Option<&Json<'_>>) -> bool {
        let Some(id) = cancelled_id(params) else { return false };
        let before = self.waiting.len();
        self.waiting.retain(|waiting| waiting.id.key != id.key);
        self.waiting.len() < before
    }

    /// Drops everything: no client is left.
    pub fn forget(&mut self) {
        self.waiting = Vec::new();
    }

    pub fn on_page(&mut self, list: List, answer: &Json<'_>) {
        let Some(result) = answer.member("result") else { return };
        self.seen |= list == List::Tools;
        match cursor(result) {
            None => self.complete.insert(list),
            Some(_) => self.complete.remove(&list),
        };
    }

    fn has_room(&self, bytes: usize) -> bool {
        let held: usize = self.waiting.iter().map(|waiting| waiting.message.len()).sum();
        self.waiting.len() < MAX_WAITING_COUNT && held + bytes <= MAX_WAITING
    }
}

impl<R: Recorder> Connection<R> {
    /// The listing that a request has to wait for.
    pub fn needed_listing(&self, method: &str, params: Option<&Json<'_>>) -> Option<List> {
        if matches!(self.phase, Phase::Refused(_) | Phase::Failed(..)) {
            return None;
        }
        let lists: &[List] = if method == "tools/call" {
            let is_known = tool_name(params).is_ok_and(|tool| self.tools.contains_key(&*tool));
            if is_known || !(self.listing.seen || self.options.lists_first) { &[] } else { &[List::Tools] }
        } else {
            let used = params.and_then(|params| UsedEntry::from_request(method, params));
            match used.filter(|_| (self.options.lists_offers_first.0)())?.kind {
                Offer::Prompt => &[List::Offers(Offer::Prompt)],
                // A URI may also be one of a template.
                Offer::Resource => &[List::Offers(Offer::Resource), List::Offers(Offer::Template)],
                Offer::Template => &[List::Offers(Offer::Template)],
                Offer::Instructions => &[],
            }
        };
        lists.iter().copied().find(|list| !self.listing.complete.contains(list))
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
            self.ask_for_page(List::Tools, None);
        }
        self.is_listing()
    }

    /// Whether agentsh's own listing has no end yet.
    pub fn is_listing(&self) -> bool {
        self.listing.own.is_some()
    }

    /// Parks a request until the listing.
    pub fn wait_for_listing(&mut self, client: &mut impl Client, list: List, id: Id, tree: &Json<'_>) {
        let message = tree.to_compact().into_bytes();
        if !self.listing.has_room(message.len()) {
            let error = ErrorReply {
                code: reply::TOO_MANY_REQUESTS,
                message: format!(
                    "the request was not forwarded: too many already wait for server '{}' to answer {}",
                    self.options.server,
                    list.method()
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
        self.listing.waiting.push(Waiting { id, caller: self.caller.clone(), message, list });
        if self.listing.own.is_none() {
            self.ask_for_page(list, None);
        }
    }

    /// `cursor` as JSON.
    fn ask_for_page(&mut self, list: List, cursor: Option<&str>) {
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
        let method = list.method();
        let message = format!(r#"{{"jsonrpc":"2.0","id":{spelled},"method":"{method}"{params}}}"#);
        // agentsh wrote it.
        let Ok(tree) = json::read(message.as_bytes()) else { return };
        let id = Id { key: key.clone(), spelled: spelled.into() };
        let deadline = tokio::time::Instant::now() + PAGE_TIMEOUT;
        self.from_client.insert(id, method, Kind::OwnList, None, Some(deadline));
        self.listing.pages += 1;
        self.listing.own = Some((list, key));
        self.forward_to_server(&tree);
    }

    /// Takes agentsh's own page; returns the requests that can be judged.
    pub(super) fn on_own_page(&mut self, client: &mut impl Client, answer: &mut Json<'_>) -> Vec<Waiting> {
        let Some((list, _)) = self.listing.own.take() else { return Vec::new() };
        // The listing is not shown.
        let _ = match list {
            List::Tools => self.inspect_tools(client, answer),
            List::Offers(offer) => self.inspect_offers(offer, answer),
        };
        let next = answer.member("result").and_then(cursor).map(|cursor| format!("\"{cursor}\""));
        let is_wanted = self.listing.ahead || !self.listing.is_idle();
        if let Some(cursor) = next.filter(|_| self.listing.pages < MAX_PAGES && is_wanted) {
            self.ask_for_page(list, Some(&cursor));
            return Vec::new();
        }
        self.listing.ahead = false;
        // A listing without end counts as complete, and one that the server does not know is empty.
        if self.listing.pages >= MAX_PAGES || answer.member("error").is_some() {
            self.listing.complete.insert(list);
        }
        std::mem::take(&mut self.listing.waiting)
    }

    /// Whether an answer to agentsh's own listing says that the server has none. Every server with tools lists them.
    pub(super) fn has_no_list(&self, error: &Json<'_>) -> bool {
        let is_unknown = |code: &Json<'_>| code.to_compact() == METHOD_NOT_FOUND;
        self.listing.own.as_ref().is_some_and(|(list, _)| *list != List::Tools)
            && error.member("code").is_some_and(is_unknown)
    }

    /// The requests that waited for agentsh's own listing, which failed. What waits for another one goes on waiting.
    fn failed_listing(&mut self) -> Vec<Waiting> {
        let failed = self.listing.own.take().map(|(list, _)| list);
        let is_failed = |waiting: &mut Waiting| Some(waiting.list) == failed;
        let waited = self.listing.waiting.extract_if(.., is_failed).collect();
        if let Some(list) = self.listing.waiting.first().map(|waiting| waiting.list) {
            self.listing.pages = 0;
            self.ask_for_page(list, None);
        }
        waited
    }

    /// The server answered agentsh's own listing with an error: the answers of the requests that waited, which are judged as
    /// the server's.
    pub(super) fn on_own_error(&mut self, error: &Json<'_>) -> Vec<(Id, Kind, String)> {
        let why = error.member("message").and_then(Json::as_text);
        let why: String = why.unwrap_or_default().chars().take(MAX_QUOTED).collect();
        let server = self.options.server.clone();
        let answer = |waiting: Waiting| {
            let message = format!(
                "agentsh: the request was not forwarded: server '{server}' answered {} with an error: {}",
                waiting.list.method(),
                agentsh_base::escape::line(&why)
            );
            let error =
                json!({"code": reply::BAD_ANSWER, "message": message, "data": {"reason": "not-listed"}});
            let kind = match json::read(&waiting.message) {
                Ok(call) if waiting.list == List::Tools => Kind::ToolCall(called_tool(call.member("params"))),
                _ => Kind::Content(waiting.list.method().into()),
            };
            (waiting.id, kind, json!({"jsonrpc": "2.0", "id": null, "error": error}).to_string())
        };
        self.failed_listing().into_iter().map(answer).collect()
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

    /// The server is gone: nothing waits for its listings any more.
    pub fn fail_listings(&mut self, client: &mut impl Client, error: &ErrorReply) {
        self.listing.own = None;
        for waiting in std::mem::take(&mut self.listing.waiting) {
            client.error(Some(&waiting.id), &unlisted_error(&waiting, error));
        }
    }

    /// Fails a client's request, or agentsh's own with all requests that wait for it.
    pub fn close(&mut self, client: &mut impl Client, entry: &Entry, error: &ErrorReply) {
        if entry.kind == Kind::OwnOffer {
            return self.fail_round(&error.message);
        }
        if entry.kind != Kind::OwnList {
            return client.error(Some(&entry.id), error);
        }
        for waiting in self.failed_listing() {
            client.error(Some(&waiting.id), &unlisted_error(&waiting, error));
        }
    }
}

fn unlisted_error(waiting: &Waiting, error: &ErrorReply) -> ErrorReply {
    let method = waiting.list.method();
    let message = format!("the request was not forwarded: {method} has to come first: {}", error.message);
    ErrorReply { message, ..error.clone() }
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
