//! One server's view of [`InFlight`]: turns its messages into the client's.

use crate::json::Json;
use crate::types::ToolId;

use super::super::client::Client;
use super::super::jsonrpc::Id;
use super::super::reply::{self, ErrorReply};
use super::in_flight::{Dispatch, InFlight, METHOD_NOT_FOUND};

pub struct ServerClient<'b> {
    pub board: &'b mut InFlight,
    pub server: usize,
}

impl InFlight {
    pub fn client_of_server(&mut self, server: usize) -> ServerClient<'_> {
        ServerClient { board: self, server }
    }
}

impl Client for ServerClient<'_> {
    fn request(&mut self, id: &Id, tree: Json<'_>) {
        let Self { board, server } = self;
        let mut tree = tree;
        let token = tree.member("params").and_then(|params| params.member("_meta")?.member("progressToken"));
        let token = token.and_then(|token| Id::from_json(token).ok()).map(|token| token.spelled);
        let has_token = token.is_some();
        let shown = board.asked.add(*server, id, token).to_string();
        if let Some(place) = tree.member_mut("id") {
            *place = Json::Number(&shown);
        }
        if has_token {
            let meta = tree.member_mut("params").and_then(|params| params.member_mut("_meta"));
            if let Some(place) = meta.and_then(|meta| meta.member_mut("progressToken")) {
                *place = Json::Number(&shown);
            }
        }
        board.to_client.push(|out| tree.write(out));
    }

    fn notification(&mut self, method: &str, tree: Json<'_>) {
        let Self { board, server } = self;
        let params = tree.member("params");
        match method {
            "notifications/progress" => {
                let token = params.and_then(|params| Id::from_json(params.member("progressToken")?).ok());
                let flight = token.as_ref().and_then(|token| board.of_token(&token.key)).cloned();
                if flight.is_some_and(|key| !board.servers_of(&key).contains(server)) {
                    let detail = "progress of a request that another server is working on".to_owned();
                    return board.reject_from_server(*server, "unasked-progress", detail);
                }
                board.to_client.push_progress(|out| tree.write(out));
            }
            "notifications/cancelled" => {
                let id = params.and_then(|params| Id::from_json(params.member("requestId")?).ok());
                let Some(number) = id.and_then(|id| board.asked.withdraw(*server, &id)) else { return };
                let shown = number.to_string();
                let mut tree = tree;
                let place = tree.member_mut("params").and_then(|params| params.member_mut("requestId"));
                if let Some(place) = place {
                    *place = Json::Number(&shown);
                }
                board.to_client.push(|out| tree.write(out));
            }
            _ => board.to_client.push(|out| tree.write(out)),
        }
    }

    fn answer(&mut self, id: Option<&Id>, tree: Json<'_>) {
        let Self { board, server } = self;
        let server = *server;
        let Some(id) = id else { return board.to_client.push_answer(|out| tree.write(out)) };
        let Some(flight) = board.flights.get(&id.key) else {
            board.join_late(server, &id.key, &tree);
            return;
        };
        match &flight.way {
            Dispatch::One(owner) if *owner == server => {
                board.remove(&id.key);
                if let Some(task) = task_of(&tree)
                    && !board.owners.note_task(server, &task)
                {
                    let message = format!(
                        "server '{}' started a task with an id that a task of another server has",
                        board.id_of(server)
                    );
                    let error =
                        ErrorReply { code: reply::BAD_ANSWER, message, reason: "duplicate-task", rule: None };
                    return board
                        .to_client
                        .push_answer(|out| reply::write_error(out, Some(&id.spelled), &error));
                }
                board.to_client.push_answer(|out| tree.write(out));
            }
            Dispatch::One(_) => {}
            Dispatch::Try(attempt) if attempt.current == server => {
                let error = tree.member("error");
                let unknown = error.is_some_and(is_unknown_method);
                if error.is_some() && (unknown || attempt.any_error) {
                    let key = id.key.clone();
                    return board.next_attempt(&key, tree.to_compact().into_bytes(), !unknown);
                }
                board.remove(&id.key);
                board.to_client.push_answer(|out| tree.write(out));
            }
            Dispatch::Try(_) => {}
            Dispatch::All(_) => {
                let why = tree.member("error").map(|error| {
                    let message = error.member("message").and_then(Json::as_text);
                    (message.map_or_else(|| "an error".to_owned(), |text| text.into_owned()), false)
                });
                board.settle_gather(server, &id.key, tree.to_compact().into_bytes(), why);
            }
        }
    }

    fn error(&mut self, id: Option<&Id>, error: &ErrorReply) {
        let Self { board, server } = self;
        let mut text = Vec::new();
        reply::write_error(&mut text, id.map(|id| &*id.spelled), error);
        let Some(id) = id else { return board.to_client.push(|out| out.extend_from_slice(&text)) };
        let key = &id.key;
        match board.flights.get(key).map(|flight| &flight.way) {
            Some(Dispatch::One(owner)) if owner == server => {
                board.remove(key);
                board.to_client.push_answer(|out| out.extend_from_slice(&text));
            }
            Some(Dispatch::Try(attempt)) if attempt.current == *server => board.next_attempt(key, text, true),
            Some(Dispatch::All(_)) => {
                board.settle_gather(*server, key, text, Some((error.message.clone(), true)));
            }
            _ => {}
        }
    }

    fn withdraw(&mut self, id: &Id, reason: &str) {
        let Self { board, server } = self;
        let Some(number) = board.asked.withdraw(*server, id) else { return };
        let shown = number.to_string();
        board.to_client.push(|out| reply::write_cancelled(out, &shown, reason));
    }

    fn take_back(&mut self, tool: &ToolId) -> bool {
        self.board.take_back(tool)
    }

    fn waiting(&self) -> usize {
        self.board.to_client.waiting()
    }

    fn is_full(&self) -> bool {
        self.board.to_client.is_full()
    }
}

pub fn is_unknown_method(error: &Json<'_>) -> bool {
    matches!(error.member("code"), Some(Json::Number(raw)) if raw.parse() == Ok(METHOD_NOT_FOUND))
}

/// The task that a result says was started.
fn task_of(tree: &Json<'_>) -> Option<String> {
    let result = tree.member("result")?;
    let task = match result.member("task") {
        Some(task) => task.member("taskId"),
        None if result.member("resultType").and_then(Json::as_text).as_deref() == Some("task") => {
            result.member("taskId")
        }
        None => None,
    };
    task.and_then(Json::as_text).map(std::borrow::Cow::into_owned)
}
