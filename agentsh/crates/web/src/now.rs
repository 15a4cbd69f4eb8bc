//! Running sessions, pending questions and the last refusals; and the list of all sessions.

use crate::approvals::questions;
use crate::registry::write_requests;
use crate::row::rows;
use crate::session::{list_part, page_links, part, write_sessions};
use crate::{Frame, Href, Listed, Question, Requested, Row};

#[derive(Clone, Debug, Default)]
pub struct Now {
    pub running: Vec<Listed>,
    pub waiting: Vec<Question>,
    /// Requests of the registry on this machine.
    pub requested: Vec<Requested>,
    pub refused: Vec<Row>,
    pub last: Vec<Listed>,
}

#[must_use]
pub fn now(frame: &Frame, now: &Now) -> String {
    frame.document(|html| {
        part(html, "approvals", "Waiting for your answer", |html| {
            if now.waiting.is_empty() && now.requested.is_empty() {
                html.leaf("p", "empty", "No pending approvals.");
            }
            questions(html, &frame.token, &now.waiting);
            write_requests(html, &frame.token, &now.requested);
        });
        list_part(
            html,
            ("running", "Running sessions"),
            "No session runs. One starts with: agentsh run -- claude",
            &now.running,
            |html, items| write_sessions(html, "Sessions that run", items),
        );
        list_part(html, ("refused", "Last refusals"), "Nothing was refused.", &now.refused, rows);
        part(html, "last", "Last sessions", |html| {
            write_sessions(html, "Latest sessions", &now.last);
            html.element("p", &[], |html| html.link(&Href::to(&["sessions"]), "All sessions"));
        });
    })
}

#[derive(Clone, Debug, Default)]
pub struct Sessions {
    pub sessions: Vec<Listed>,
    /// The form that searches, and what was searched for. None: the list has no search.
    pub search: Option<String>,
    /// Sessions of `agentsh demo` are left out.
    pub hides_demo: bool,
    pub first: Option<Href>,
    pub older: Option<Href>,
}

#[must_use]
pub fn sessions(frame: &Frame, sessions: &Sessions) -> String {
    frame.document(|html| {
        if let Some(search) = &sessions.search {
            html.element("form", &[("method", "get"), ("action", "/sessions"), ("class", "ask")], |html| {
                html.element("div", &[], |html| {
                    html.element("label", &[("for", "q")], |html| {
                        html.text("Search (id, command or project)");
                    });
                    html.void_element(
                        "input",
                        &[("id", "q"), ("name", "q"), ("value", search), ("autocomplete", "off")],
                    );
                });
                html.element("button", &[("type", "submit")], |html| html.text("Search"));
            });
        }
        if sessions.hides_demo {
            html.element("p", &[], |html| {
                html.link(&Href::to(&["sessions"]).with("q", "demo"), "Show the sessions of `agentsh demo`");
            });
        }
        list_part(html, ("sessions", "On record"), "No session.", &sessions.sessions, |html, items| {
            write_sessions(html, "Sessions, the newest first", items)
        });
        page_links(html, "Pages of sessions", sessions.first.as_ref(), sessions.older.as_ref());
    })
}
