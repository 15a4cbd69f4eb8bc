//! The servers that a request is for.

use std::collections::{BTreeMap, VecDeque};

use crate::json::{Json, escape_text, unescape};

use super::in_flight::{GatheredRequest, InFlight};
use super::merge::List;
use super::names;

/// The destination of a request.
#[derive(Debug, PartialEq)]
pub enum Route {
    /// The proxy answers with an empty result.
    Here,
    /// A tool of the proxy itself.
    Own(String),
    /// One server, which knows the name at the path under `name`, if there is one.
    One { server: usize, name: Option<(&'static [&'static str], String)> },
    /// These, one after another.
    Try { servers: VecDeque<usize>, any_error: bool },
    /// All of these at once; those that are named with a cursor of their own.
    All { what: GatheredRequest, servers: Vec<usize>, cursors: BTreeMap<usize, String> },
    /// No server: the reason, and whether the method is unknown.
    Nobody { why: String, unknown_method: bool },
}

/// Servers that an error names.
const SHOWN_SERVERS: usize = 20;

const NAME: &[&str] = &["params", "name"];
const REFERENCE: &[&str] = &["params", "ref", "name"];

/// Decides by the method, then by what it names.
pub fn find(board: &InFlight, method: &str, params: Option<&Json<'_>>) -> Route {
    let everybody = || (0..board.ids.len()).collect::<Vec<_>>();
    // A server without a handshake would delay the ones after it.
    let here = || everybody().into_iter().filter(|server| !board.is_late(*server)).collect::<Vec<_>>();
    let text = |name: &str| params.and_then(|params| params.member(name)).and_then(Json::as_text);
    match method {
        "ping" => Route::Here,
        "initialize" => all(GatheredRequest::Initialize, everybody()),
        "server/discover" => all(GatheredRequest::Discover, everybody()),
        "logging/setLevel" => all(GatheredRequest::Any, able(board, "logging")),
        "subscriptions/listen" => all(GatheredRequest::Any, everybody()),
        "tools/call" => by_name(board, params.and_then(|params| params.member("name")), NAME, "tool"),
        "prompts/get" => by_name(board, params.and_then(|params| params.member("name")), NAME, "prompt"),
        "completion/complete" => completion(board, params),
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
            by_uri(board, text("uri").as_deref())
        }
        "tasks/get" | "tasks/result" | "tasks/cancel" | "tasks/update" => {
            match text("taskId").and_then(|task| board.owners.of_task(&task)) {
                Some(server) => Route::One { server, name: None },
                None => Route::Try { servers: here().into(), any_error: true },
            }
        }
        _ => match List::of(method) {
            Some(list) => page(board, list, params),
            None => Route::Try { servers: here().into(), any_error: false },
        },
    }
}

fn all(what: GatheredRequest, servers: Vec<usize>) -> Route {
    Route::All { what, servers, cursors: BTreeMap::new() }
}

fn able(board: &InFlight, capability: &str) -> Vec<usize> {
    (0..board.ids.len()).filter(|server| board.may_have(*server, capability)).collect()
}

/// If only one server has prompts, their names are accepted without the prefix too.
fn by_name(board: &InFlight, name: Option<&Json<'_>>, path: &'static [&'static str], what: &str) -> Route {
    let nobody = |why: String| Route::Nobody { why, unknown_method: false };
    let Some(Json::String(raw)) = name else {
        return nobody(format!("the request needs the `name` of a {what}"));
    };
    let shown = unescape(raw);
    if what == "tool" && board.is_own(&shown) {
        return Route::Own(shown.into_owned());
    }
    if let Some((server, rest)) = names::split(&board.ids, &shown) {
        // As spelled, unless the prefix has an unusual spelling.
        let spelled = raw.get(raw.len().saturating_sub(rest.len())..).filter(|tail| *tail == rest);
        let exact = spelled.map_or_else(|| escape_text(rest), str::to_owned);
        let prefix = format!("{}{}", board.ids.get(server).map_or("", String::as_str), names::SEPARATOR);
        let exact = raw.strip_prefix(prefix.as_str()).map_or(exact, str::to_owned);
        return Route::One { server, name: Some((path, exact)) };
    }
    // Tools are policed by their names, so theirs are always whole.
    if what == "prompt"
        && let [server] = able(board, "prompts")[..]
    {
        return Route::One { server, name: None };
    }
    let shown: String = shown.chars().take(128).collect();
    let wanted = shown.split_once(names::SEPARATOR).map_or("", |(server, _)| server);
    let unknown = match wanted {
        "" => format!("its name does not begin with a server and '{}'", names::SEPARATOR),
        server => format!("there is no server '{server}'"),
    };
    let known: Vec<String> = board.ids.iter().take(SHOWN_SERVERS).map(|id| format!("'{id}'")).collect();
    let more = if board.ids.len() > known.len() { ", …" } else { "" };
    let known = match known.as_slice() {
        [] => "this proxy has none".to_owned(),
        known => format!("servers here are {}{more}", known.join(", ")),
    };
    nobody(format!("unknown {what} '{shown}': {unknown}; {known}"))
}

fn by_uri(board: &InFlight, uri: Option<&str>) -> Route {
    // What one server listed is never requested from another.
    if let Some(server) = uri.and_then(|uri| board.owners.of_uri(uri)) {
        return Route::One { server, name: None };
    }
    let owners = uri.map(|uri| board.owners.of_template(uri)).unwrap_or_default();
    let servers: VecDeque<usize> =
        if owners.is_empty() { able(board, "resources").into() } else { owners.into_iter().collect() };
    if servers.is_empty() {
        return Route::Nobody { why: "no server has resources".to_owned(), unknown_method: true };
    }
    Route::Try { servers, any_error: true }
}

fn completion(board: &InFlight, params: Option<&Json<'_>>) -> Route {
    let reference = params.and_then(|params| params.member("ref"));
    let Some(reference) = reference else {
        return Route::Nobody { why: "the request needs a `ref`".to_owned(), unknown_method: false };
    };
    if reference.member("uri").is_some() {
        return by_uri(board, reference.member("uri").and_then(Json::as_text).as_deref());
    }
    by_name(board, reference.member("name"), REFERENCE, "prompt")
}

fn page(board: &InFlight, list: List, params: Option<&Json<'_>>) -> Route {
    match params.and_then(|params| params.member("cursor")) {
        // Clients list tools of a server that does not announce them, too.
        None if list == List::Tools => all(
            GatheredRequest::List(list, true),
            (0..board.ids.len()).filter(|server| !board.is_late(*server)).collect(),
        ),
        None => all(GatheredRequest::List(list, true), able(board, list.capability())),
        Some(cursor) => {
            let more = cursor.as_text().and_then(|text| names::read_cursor(&text, board.ids.len()));
            let Some(more) = more else {
                let why = "this proxy did not issue that cursor".to_owned();
                return Route::Nobody { why, unknown_method: false };
            };
            let servers = more.iter().map(|(server, _)| *server).collect();
            Route::All {
                what: GatheredRequest::List(list, false),
                servers,
                cursors: more.into_iter().collect(),
            }
        }
    }
}
