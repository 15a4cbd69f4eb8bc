//! One session: what happened, in which order, by which rule; who sent what to whom; what ran; what was enforced.

use crate::frame::standalone_document as document;
use crate::row::rows;
use crate::{Flow, Frame, Href, Html, Row, Word};

/// A page of a timeline.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    pub rows: Vec<Row>,
    pub newer: Option<Href>,
    pub older: Option<Href>,
    /// Shown if parts are missing.
    pub note: Option<String>,
    /// The views: name, link, and whether it is the current one.
    pub views: Vec<(&'static str, Href, bool)>,
}

#[derive(Clone, Debug)]
pub struct Process {
    /// None: the agent.
    pub server: Option<String>,
    pub program: String,
    pub hash: String,
    pub starts: u64,
    pub ended: String,
}

/// A layer of protection of one sandbox.
#[derive(Clone, Debug)]
pub struct Layer {
    pub server: Option<String>,
    pub layer: String,
    pub state: Word,
    pub asked: String,
    pub got: String,
    pub why: String,
}

#[derive(Clone, Debug)]
pub struct Session {
    pub id: String,
    /// The name of its agent.
    pub agent: String,
    pub state: Word,
    /// Whether a policy can be asked what it would have done.
    pub asks_policy: bool,
    /// Whether it has ended here, so that it has a receipt.
    pub has_receipt: bool,
    /// Name and value.
    pub facts: Vec<(&'static str, String)>,
    pub flow: Flow,
    pub timeline: Timeline,
    pub processes: Vec<Process>,
    pub layers: Vec<Layer>,
    /// Further sections of the report: a title and its lines.
    pub sections: Vec<(String, Vec<String>)>,
}

/// The page of a session.
#[must_use]
pub fn session(frame: &Frame, session: &Session) -> String {
    frame.document(|html| body(html, session))
}

/// The same page as one file.
#[must_use]
pub fn standalone_page(title: &str, session: &Session) -> String {
    document(title, |html| body(html, session))
}

fn body(html: &mut Html, session: &Session) {
    html.element("section", &[("id", "facts"), ("data-live", ""), ("aria-label", "Facts")], |html| {
        html.element("p", &[], |html| session.state.show(html));
        write_facts(html, session.facts.iter().map(|(name, value)| (*name, value.as_str())));
        if !html.is_alone() && session.asks_policy {
            html.element("p", &[], |html| {
                html.link(
                    &Href::to(&["policy"]).with("session", &session.id),
                    "What today's policy would have done to this session",
                );
            });
        }
        if !html.is_alone() && session.has_receipt {
            html.element("p", &[], |html| {
                html.link(&Href::to(&["session", &session.id, "receipt"]), "The receipt of its work, signed");
            });
        }
    });
    part(html, "flow", "Data flows", |html| session.flow.show(html, &session.agent));
    part(html, "timeline", "Timeline", |html| timeline(html, &session.timeline));
    part(html, "processes", "Processes", |html| processes(html, session));
    part(html, "enforced", "Protection: enforced and not enforced", |html| layers(html, session));
    for (title, lines) in session.sections.iter().filter(|(_, lines)| !lines.is_empty()) {
        html.element("section", &[], |html| {
            html.leaf("h2", "", title);
            html.element("ul", &[("class", "plain")], |html| {
                lines.iter().for_each(|line| html.leaf("li", "", line))
            });
        });
    }
}

/// Names and values, without those that are empty.
pub(crate) fn write_facts<'f>(html: &mut Html, facts: impl Iterator<Item = (&'f str, &'f str)>) {
    html.element("dl", &[("class", "facts")], |html| {
        for (name, value) in facts.filter(|(_, value)| !value.is_empty()) {
            html.element("div", &[], |html| {
                html.leaf("dt", "", name);
                html.leaf("dd", "", value);
            });
        }
    });
}

/// A section that is kept up to date.
pub(crate) fn part(html: &mut Html, id: &'static str, title: &'static str, inside: impl FnOnce(&mut Html)) {
    html.element("section", &[("id", id), ("data-live", "")], |html| {
        html.leaf("h2", "", title);
        inside(html);
    });
}

/// A part that lists `items`, or says that there are none.
pub(crate) fn list_part<T>(
    html: &mut Html,
    (id, title): (&'static str, &'static str),
    empty: &str,
    items: &[T],
    list: impl FnOnce(&mut Html, &[T]),
) {
    part(html, id, title, |html| {
        if items.is_empty() {
            html.leaf("p", "empty", empty);
        } else {
            list(html, items);
        }
    });
}

fn timeline(html: &mut Html, timeline: &Timeline) {
    if !timeline.views.is_empty() && !html.is_alone() {
        html.element("nav", &[("class", "chips"), ("aria-label", "Filter")], |html| {
            for (name, to, is_shown) in &timeline.views {
                let attributes = [("href", to.as_str()), ("aria-current", "true")];
                let attributes = if *is_shown { attributes.as_slice() } else { &attributes[..1] };
                html.element("a", attributes, |html| html.text(name));
            }
        });
    }
    if let Some(note) = &timeline.note {
        html.leaf("p", "note", note);
    }
    if timeline.rows.is_empty() {
        html.leaf("p", "empty", "Nothing.");
    } else {
        rows(html, &timeline.rows);
    }
    page_links(html, "Pages of the timeline", timeline.newer.as_ref(), timeline.older.as_ref());
}

/// The ways to the pages before and after.
pub(crate) fn page_links(html: &mut Html, label: &'static str, newer: Option<&Href>, older: Option<&Href>) {
    if (newer.is_none() && older.is_none()) || html.is_alone() {
        return;
    }
    html.element("nav", &[("class", "turn"), ("aria-label", label)], |html| {
        if let Some(newer) = newer {
            html.link(newer, "Newer");
            html.text(" ");
        }
        if let Some(older) = older {
            html.link(older, "Older");
        }
    });
}

/// A link to the page of a server, or the agent's name.
pub(crate) fn owner_link(html: &mut Html, server: Option<&String>, agent: &str) {
    match server {
        Some(server) => html.link(&Href::to(&["server", server]), server),
        None => html.text(agent),
    }
}

fn processes(html: &mut Html, session: &Session) {
    if session.processes.is_empty() {
        html.leaf("p", "empty", "None was started.");
        return;
    }
    html.table("Programs that were started", &["sandbox", "program", "started", "ended", "hash"], |rows| {
        for process in &session.processes {
            rows.row(|cells| {
                cells.cell(|html| owner_link(html, process.server.as_ref(), &session.agent));
                cells.code(&process.program);
                cells.number(process.starts);
                cells.text(&process.ended);
                cells.hash(&process.hash);
            });
        }
    });
}

fn layers(html: &mut Html, session: &Session) {
    if session.layers.is_empty() {
        html.leaf("p", "empty", "Nothing is recorded.");
        return;
    }
    html.table(
        "Layers of protection",
        &["sandbox", "layer", "state", "requested", "enforced", "why not more"],
        |rows| {
            for layer in &session.layers {
                rows.row(|cells| {
                    cells.cell(|html| owner_link(html, layer.server.as_ref(), &session.agent));
                    cells.text(&layer.layer);
                    cells.cell(|html| layer.state.show(html));
                    cells.text(&layer.asked);
                    cells.text(&layer.got);
                    cells.text(&layer.why);
                });
            }
        },
    );
}

#[derive(Clone, Debug)]
pub struct Listed {
    pub id: String,
    pub started: String,
    pub state: Word,
    pub verb: String,
    pub agent: String,
    pub project: String,
    pub events: u64,
}

/// Sessions as a table.
pub(crate) fn write_sessions(html: &mut Html, caption: &str, sessions: &[Listed]) {
    html.table(caption, &["session", "state", "what", "project", "events"], |rows| {
        for session in sessions {
            rows.row(|cells| {
                cells.cell(|html| html.link(&Href::to(&["session", &session.id]), &session.started));
                cells.cell(|html| session.state.show(html));
                cells.cell(|html| {
                    html.text(&session.verb);
                    html.text(" ");
                    html.code(&session.agent);
                });
                cells.text(&session.project);
                cells.number(session.events);
            });
        }
    });
}
