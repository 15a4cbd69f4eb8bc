//! Pages that only a fleet has: hosts, people, and sign-in.

use crate::approvals::questions;
use crate::row::rows;
use crate::session::{list_part, page_links, part, write_sessions};
use crate::{Frame, Href, Html, Listed, Question, Row, Word};

/// A host in the list, and what the viewer may do about it.
#[derive(Clone, Debug)]
pub struct HostLine {
    pub id: String,
    pub name: String,
    pub state: Word,
    pub seen: String,
    pub version: String,
    pub events: u64,
    pub sessions: u64,
    /// The incident, and whether an operator accepted it.
    pub found: Vec<String>,
    pub may_accept: bool,
    pub may_revoke: bool,
}

#[derive(Clone, Debug)]
pub struct FleetNow {
    /// Hosts with problems.
    pub hosts: Vec<HostLine>,
    pub refused: Vec<Row>,
    pub last: Vec<Listed>,
}

#[derive(Clone, Debug)]
pub struct ServerOfHost {
    pub server: String,
    pub host: String,
    pub status: String,
    pub last: String,
    pub calls: u64,
    pub refused: u64,
    pub program: String,
    pub session: String,
}

/// A credential that was given out.
#[derive(Clone, Debug)]
pub struct PersonLine {
    pub name: String,
    /// The name in records of the person whose credentials a button revokes.
    pub known_as: String,
    /// The subject at an identity provider; empty for a person with a token.
    pub subject: String,
    pub role: String,
    pub made: String,
    pub state: Word,
    pub may_revoke: bool,
}

#[must_use]
pub fn fleet_now(frame: &Frame, now: &FleetNow) -> String {
    frame.document(|html| {
        list_part(
            html,
            ("hosts", "Hosts with problems"),
            "Every host forwards an intact journal.",
            &now.hosts,
            |html, items| hosts(html, &frame.token, items),
        );
        list_part(html, ("refused", "Last refusals"), "Nothing was refused.", &now.refused, rows);
        part(html, "last", "Last sessions", |html| {
            write_sessions(html, "Latest sessions", &now.last);
            html.element("p", &[], |html| html.link(&Href::to(&["sessions"]), "All sessions"));
        });
    })
}

#[must_use]
pub fn fleet_hosts(frame: &Frame, all: &[HostLine]) -> String {
    frame.document(|html| {
        list_part(
            html,
            ("hosts", "Enrolled"),
            "No host is enrolled. A token for one: agentsh fleet token",
            all,
            |html, items| hosts(html, &frame.token, items),
        );
    })
}

fn hosts(html: &mut Html, token: &str, all: &[HostLine]) {
    let heads = ["host", "state", "seen", "version", "events", "sessions", "found"];
    html.table("Hosts by name", &heads, |rows| {
        for host in all {
            rows.row(|cells| {
                cells.cell(|html| {
                    html.link(&Href::to(&["sessions"]).with("host", &host.id), &host.name);
                    html.text(" ");
                    html.code(&host.id);
                });
                cells.cell(|html| host.state.show(html));
                cells.text(&host.seen);
                cells.text(&host.version);
                cells.number(host.events);
                cells.number(host.sessions);
                cells.cell(|html| {
                    for found in &host.found {
                        html.leaf("p", "", found);
                    }
                    if host.may_accept {
                        button(html, token, &["hosts", &host.id, "accept"], "Accept it again", &host.name);
                    }
                    if host.may_revoke {
                        button(html, token, &["hosts", &host.id, "revoke"], "Revoke", &host.name);
                    }
                });
            });
        }
    });
}

fn button(html: &mut Html, token: &str, to: &[&str], text: &str, about: &str) {
    let to = Href::to(to);
    html.element("form", &[("method", "post"), ("action", to.as_str())], |html| {
        html.void_element("input", &[("type", "hidden"), ("name", "token"), ("value", token)]);
        let label = format!("{text}: {about}");
        html.element("button", &[("type", "submit"), ("aria-label", &label)], |html| html.text(text));
    });
}

#[must_use]
pub fn fleet_servers(frame: &Frame, servers: &[ServerOfHost]) -> String {
    frame.document(|html| {
        part(html, "servers", "On record", |html| {
            if servers.is_empty() {
                return html.leaf("p", "empty", "No server is recorded.");
            }
            let heads = ["server", "host", "state", "last", "calls", "refused", "program"];
            html.table("Servers by id", &heads, |rows| {
                for server in servers {
                    rows.row(|cells| {
                        cells.cell(|html| {
                            html.link(&Href::to(&["server", &server.server]), &server.server);
                        });
                        cells.text(&server.host);
                        cells.text(&server.status);
                        cells.cell(|html| html.link(&Href::to(&["session", &server.session]), &server.last));
                        cells.number(server.calls);
                        cells.number(server.refused);
                        cells.code(&server.program);
                    });
                }
            });
        });
    })
}

/// The history of a server on all hosts, the newest first.
#[must_use]
pub fn fleet_server(frame: &Frame, history: &[Row], older: Option<&Href>) -> String {
    frame.document(|html| {
        part(html, "history", "History", |html| {
            if history.is_empty() {
                html.leaf("p", "empty", "Nothing.");
            } else {
                rows(html, history);
            }
            page_links(html, "Pages of the history", None, older);
        });
    })
}

/// The questions of sessions on all hosts.
#[must_use]
pub fn fleet_approvals(frame: &Frame, waiting: &[Question]) -> String {
    frame.document(|html| {
        list_part(
            html,
            ("approvals", "Waiting for an answer"),
            "No pending approvals.",
            waiting,
            |html, items| questions(html, &frame.token, items),
        );
    })
}

#[must_use]
pub fn fleet_people(frame: &Frame, people: &[PersonLine]) -> String {
    frame.document(|html| {
        part(html, "people", "Credentials", |html| {
            html.table("The newest first", &["name", "role", "signed in as", "made", "state"], |rows| {
                for person in people {
                    rows.row(|cells| {
                        cells.text(&person.name);
                        cells.text(&person.role);
                        cells.text(&person.subject);
                        cells.text(&person.made);
                        cells.cell(|html| {
                            person.state.show(html);
                            if person.may_revoke {
                                let to = ["people", &person.known_as, "revoke"];
                                button(html, &frame.token, &to, "Revoke", &person.name);
                            }
                        });
                    });
                }
            });
        });
    })
}

/// The sign-in page. `said`: why the last attempt failed; `provider`: name and path of another way to sign in.
#[must_use]
pub fn sign_in(said: Option<&str>, provider: Option<(&str, &str)>) -> String {
    let mut html = Html::new(false);
    html.trusted_markup(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
        content=\"width=device-width, initial-scale=1\"><title>Sign in - agentsh</title>\
        <link rel=\"stylesheet\" href=\"/style.css\"></head><body><main id=\"main\"><h1>agentsh</h1>",
    );
    if let Some(said) = said {
        html.leaf("p", "note", said);
    }
    if let Some((name, path)) = provider {
        html.element("p", &[], |html| {
            html.element("a", &[("href", path)], |html| html.text(&format!("Sign in with {name}")));
        });
    }
    html.element("form", &[("method", "post"), ("action", "/sign-in")], |html| {
        html.element("label", &[("for", "credential")], |html| {
            html.text("A token of agentsh fleet token, or a credential");
        });
        let attributes = [
            ("type", "password"),
            ("id", "credential"),
            ("name", "credential"),
            ("autocomplete", "current-password"),
            ("required", ""),
        ];
        html.void_element("input", &attributes);
        html.element("button", &[("type", "submit")], |html| html.text("Sign in"));
    });
    html.trusted_markup("</main></body></html>");
    html.finish()
}
