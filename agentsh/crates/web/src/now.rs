//! What happens now: sessions that run, questions that wait, and what was refused last; and the list of all sessions.

use crate::approvals::questions;
use crate::row::rows;
use crate::session::{listed, part, turn};
use crate::{Frame, Href, Listed, Question, Row};

#[derive(Clone, Debug)]
pub struct Now {
    pub running: Vec<Listed>,
    pub waiting: Vec<Question>,
    pub refused: Vec<Row>,
    pub last: Vec<Listed>,
}

#[must_use]
pub fn now(frame: &Frame, now: &Now) -> String {
    frame.around(|html| {
        part(html, "approvals", "Waiting for your answer", |html| {
            if now.waiting.is_empty() {
                html.leaf("p", "empty", "Nothing waits.");
            } else {
                questions(html, &frame.token, &now.waiting);
            }
        });
        part(html, "running", "Running sessions", |html| {
            if now.running.is_empty() {
                html.leaf("p", "empty", "No session runs. One starts with: agentsh run -- claude");
            } else {
                listed(html, "Sessions that run", &now.running);
            }
        });
        part(html, "refused", "Last refusals", |html| {
            if now.refused.is_empty() {
                html.leaf("p", "empty", "Nothing was refused.");
            } else {
                rows(html, &now.refused);
            }
        });
        part(html, "last", "Last sessions", |html| {
            listed(html, "The sessions that started last", &now.last);
            html.element("p", &[], |html| html.link(&Href::to(&["sessions"]), "All sessions"));
        });
    })
}

#[derive(Clone, Debug)]
pub struct Sessions {
    pub sessions: Vec<Listed>,
    pub first: Option<Href>,
    pub older: Option<Href>,
}

#[must_use]
pub fn sessions(frame: &Frame, sessions: &Sessions) -> String {
    frame.around(|html| {
        part(html, "sessions", "On record", |html| {
            if sessions.sessions.is_empty() {
                html.leaf("p", "empty", "No session is recorded.");
            } else {
                listed(html, "Sessions, the newest first", &sessions.sessions);
            }
        });
        turn(html, "Pages of sessions", sessions.first.as_ref(), sessions.older.as_ref());
    })
}
