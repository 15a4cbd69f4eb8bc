//! One server: its interface, changes, calls and hosts. And the list of all servers.

use crate::row::{rows, write_copyable};
use crate::session::{list_part, page_links, part, write_facts};
use crate::{Frame, Href, Html, Row, Word};

#[derive(Clone, Debug)]
pub struct ServerLine {
    pub id: String,
    pub tools: u64,
    pub calls: u64,
    pub refused: u64,
    /// Entries of its interface that are not what was trusted.
    pub changed: u64,
    pub pinned: u64,
}

#[derive(Clone, Debug)]
pub struct Servers {
    pub servers: Vec<ServerLine>,
    /// Skills and plugins, which an agent takes up itself.
    pub trees: Vec<ServerLine>,
    pub first: Option<Href>,
    pub next: Option<Href>,
}

fn lines(html: &mut Html, servers: &[ServerLine]) {
    html.table("By their ids", &["name", "tools seen", "calls", "refused", "interface"], |rows| {
        for server in servers {
            rows.row(|cells| {
                cells.cell(|html| html.link(&Href::to(&["server", &server.id]), &server.id));
                cells.number(server.tools);
                cells.number(server.calls);
                cells.number(server.refused);
                let word = match (server.changed, server.pinned) {
                    (0, 0) => Word::new("not pinned", crate::Tone::Quiet),
                    (0, pinned) => Word::new(format!("{pinned} pinned"), crate::Tone::Good),
                    (changed, _) => Word::new(format!("{changed} changed"), crate::Tone::Bad),
                };
                cells.cell(|html| word.show(html));
            });
        }
    });
}

#[must_use]
pub fn servers(frame: &Frame, servers: &Servers) -> String {
    frame.document(|html| {
        list_part(html, ("servers", "On record"), "No server is on record.", &servers.servers, lines);
        if !servers.trees.is_empty() {
            part(html, "trees", "Skills and plugins", |html| lines(html, &servers.trees));
        }
        html.element("nav", &[("class", "turn"), ("aria-label", "Pages of servers")], |html| {
            if let Some(first) = &servers.first {
                html.link(first, "First");
                html.text(" ");
            }
            if let Some(next) = &servers.next {
                html.link(next, "Next");
            }
        });
    })
}

#[derive(Clone, Debug)]
pub struct Offer {
    pub kind: &'static str,
    pub name: String,
    pub description: String,
    pub hash: String,
    /// When and by whom it was trusted; None: it is not pinned.
    pub trusted: Option<String>,
    pub risk: Word,
    pub calls: u64,
    pub refused: u64,
    /// The whole definition, one member a line.
    pub definition: Option<String>,
}

/// A field of something that changed.
#[derive(Clone, Debug)]
pub struct Field {
    pub name: String,
    /// Unified.
    pub diff: String,
}

/// Something that is not what was trusted.
#[derive(Clone, Debug)]
pub struct Change {
    pub kind: &'static str,
    pub name: String,
    pub seen: String,
    pub before: Option<String>,
    pub after: String,
    pub fields: Vec<Field>,
    /// The command that accepts it.
    pub accept: String,
}

/// A tool as it was seen over all sessions.
#[derive(Clone, Debug)]
pub struct ToolRow {
    pub name: String,
    pub projects: Vec<String>,
    pub first: String,
    pub last: String,
    pub calls: u64,
    pub unusual: u64,
    pub state: Word,
}

#[derive(Clone, Debug)]
pub struct Server {
    pub id: String,
    /// Name and value.
    pub facts: Vec<(&'static str, String)>,
    /// Advisories: the severity and the text.
    pub advisories: Vec<(Word, String)>,
    pub changes: Vec<Change>,
    pub offers: Vec<Offer>,
    pub next: Option<Href>,
    pub inventory: Vec<ToolRow>,
    /// Host and port, traffic, verdict.
    pub network: Vec<(String, String, Word)>,
    pub history: Vec<Row>,
    pub older: Option<Href>,
}

#[must_use]
pub fn server(frame: &Frame, server: &Server) -> String {
    frame.document(|html| {
        html.element("section", &[("id", "facts"), ("data-live", ""), ("aria-label", "Facts")], |html| {
            write_facts(html, server.facts.iter().map(|(name, value)| (*name, value.as_str())));
        });
        if !server.advisories.is_empty() {
            part(html, "advisories", "Advisories", |html| {
                html.element("ul", &[], |html| {
                    for (word, text) in &server.advisories {
                        html.element("li", &[], |html| {
                            word.show(html);
                            html.text(" ");
                            html.text(text);
                        });
                    }
                });
            });
        }
        if !server.changes.is_empty() {
            part(html, "changes", "Different from the pin", |html| {
                server.changes.iter().for_each(|change| self::change(html, change));
            });
        }
        part(html, "offers", "What it offers", |html| write_offers(html, server));
        if !server.inventory.is_empty() {
            part(html, "inventory", "How it is used", |html| inventory(html, &server.inventory));
        }
        part(html, "network", "Network used", |html| network(html, server));
        list_part(html, ("history", "History"), "Nothing.", &server.history, rows);
        page_links(html, "Pages of the history", None, server.older.as_ref());
    })
}

fn change(html: &mut Html, change: &Change) {
    html.element("article", &[("class", "changed")], |html| {
        html.leaf("h3", "", format!("{} {}", change.kind, change.name).trim());
        html.element("p", &[("class", "rule")], |html| {
            html.text(&format!("seen {}; trusted ", change.seen));
            match &change.before {
                Some(before) => html.hash(before),
                None => html.text("never"),
            }
            html.text(", offered ");
            html.hash(&change.after);
        });
        for field in &change.fields {
            html.element("p", &[], |html| {
                html.text("field ");
                html.code(&field.name);
            });
            let label = format!("Difference of {} in {}", field.name, change.name);
            let attributes =
                [("class", "diff"), ("tabindex", "0"), ("role", "region"), ("aria-label", label.as_str())];
            html.element("pre", &attributes, |html| diff(html, &field.diff));
        }
        html.element("p", &[("class", "change")], |html| {
            html.text("to accept it: ");
            write_copyable(html, &change.accept, &format!(" the command that accepts {}", change.name));
        });
    });
}

/// Lines of a unified difference. The sign says what the colour repeats.
pub(crate) fn diff(html: &mut Html, text: &str) {
    for line in text.lines() {
        let name = match line.as_bytes().first() {
            Some(b'+') => "ins",
            Some(b'-') => "del",
            _ => "span",
        };
        html.element(name, &[], |html| html.text(line));
        html.trusted_markup("\n");
    }
}

fn write_offers(html: &mut Html, server: &Server) {
    if server.offers.is_empty() {
        html.leaf("p", "empty", "No listing of it is recorded.");
        return;
    }
    let heads = ["name", "what it says", "risk", "pin", "calls", "refused"];
    html.table("Tools, prompts, resources and instructions", &heads, |rows| {
        for offer in &server.offers {
            rows.row(|cells| {
                cells.cell(|html| {
                    html.text(offer.kind);
                    html.text(" ");
                    html.leaf("strong", "", &offer.name);
                });
                cells.cell(|html| {
                    html.text(&offer.description);
                    if let Some(definition) = &offer.definition {
                        html.element("details", &[], |html| {
                            html.element("summary", &[], |html| {
                                html.text("definition");
                                html.leaf("span", "hidden", &format!(" of {}", offer.name));
                            });
                            html.element("pre", &[("tabindex", "0")], |html| html.lines(definition));
                        });
                    }
                });
                cells.cell(|html| offer.risk.show(html));
                cells.cell(|html| {
                    html.text(offer.trusted.as_deref().unwrap_or("not pinned"));
                    html.text(" ");
                    html.hash(&offer.hash);
                });
                cells.number(offer.calls);
                cells.number(offer.refused);
            });
        }
    });
    if let Some(next) = &server.next {
        html.element("p", &[], |html| html.link(next, "Next page"));
    }
}

fn inventory(html: &mut Html, known: &[ToolRow]) {
    let heads = ["tool", "projects", "first seen", "last seen", "calls", "unusual", "calls are"];
    html.table("Tools over all sessions", &heads, |rows| {
        for tool in known {
            rows.row(|cells| {
                cells.cell(|html| html.leaf("strong", "", &tool.name));
                cells.text(&tool.projects.join(", "));
                cells.text(&tool.first);
                cells.text(&tool.last);
                cells.number(tool.calls);
                cells.number(tool.unusual);
                cells.cell(|html| tool.state.show(html));
            });
        }
    });
}

fn network(html: &mut Html, server: &Server) {
    if server.network.is_empty() {
        html.leaf("p", "empty", "It tried to reach no host.");
        return;
    }
    html.table("Hosts", &["host", "verdict", "traffic"], |rows| {
        for (host, what, word) in &server.network {
            rows.row(|cells| {
                cells.text(host);
                cells.cell(|html| word.show(html));
                cells.text(what);
            });
        }
    });
}
