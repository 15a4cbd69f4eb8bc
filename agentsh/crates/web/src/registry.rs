//! Registrations: search by name, hash and tool.

use crate::session::write_facts;
use crate::{Frame, Href, Html, Word};

/// A registration in a list.
#[derive(Clone, Debug)]
pub struct RegistrationRow {
    pub id: i64,
    pub name: String,
    /// The ASCII lookalike of a name that is not plain ASCII.
    pub beware: Option<String>,
    pub hash: String,
    pub status: Word,
    /// Whether the stored interface has the hash shown next to it, computed here.
    pub checked: Word,
    pub registered: String,
    pub tools: usize,
}

#[derive(Clone, Debug)]
pub struct Registry {
    /// Changed interfaces that wait for a decision.
    pub requested: Vec<Requested>,
    pub asked: String,
    pub found: Vec<RegistrationRow>,
    pub total: i64,
    pub next: Option<Href>,
    /// Why there is nothing.
    pub note: Option<String>,
}

#[must_use]
pub fn registry(frame: &Frame, registry: &Registry) -> String {
    frame.document(|html| {
        html.element("section", &[("id", "requested")], |html| {
            html.leaf("h2", "", "Pending approvals");
            if registry.requested.is_empty() {
                html.leaf("p", "empty", "No pending approvals.");
            }
            write_requests(html, &frame.token, &registry.requested);
        });
        html.element("form", &[("method", "get"), ("action", "/registry"), ("role", "search")], |html| {
            html.element("label", &[("for", "q")], |html| html.text("Name, hash or tool"));
            html.void_element(
                "input",
                &[("type", "search"), ("id", "q"), ("name", "q"), ("value", &registry.asked)],
            );
            html.element("button", &[("type", "submit")], |html| html.text("Search"));
        });
        html.element("section", &[], |html| {
            html.leaf("h2", "", "Registered interfaces");
            if let Some(note) = &registry.note {
                html.leaf("p", "note", note);
            }
            if registry.found.is_empty() {
                html.leaf("p", "empty", "No registration matches.");
                return;
            }
            html.leaf("p", "", &format!("{} found", registry.total));
            let heads = ["name", "hash", "checked", "status", "registered", "tools"];
            html.table("Interfaces, the newest first", &heads, |rows| {
                for found in &registry.found {
                    rows.row(|cells| {
                        cells.cell(|html| {
                            html.link(&Href::to(&["registry", &found.id.to_string()]), &found.name);
                            write_warning(html, found.beware.as_deref());
                        });
                        cells.hash(&found.hash);
                        cells.cell(|html| found.checked.show(html));
                        cells.cell(|html| found.status.show(html));
                        cells.text(&found.registered);
                        cells.number(found.tools as u64);
                    });
                }
            });
            if let Some(next) = &registry.next {
                html.element("p", &[], |html| html.link(next, "More"));
            }
        });
    })
}

fn write_warning(html: &mut Html, beware: Option<&str>) {
    if let Some(beware) = beware {
        html.text(" ");
        html.leaf("span", "word warn", beware);
    }
}

/// A changed interface that waits for a decision.
#[derive(Clone, Debug)]
pub struct Requested {
    pub id: i64,
    pub name: String,
    /// Like [`RegistrationRow`].
    pub beware: Option<String>,
    pub recorded: Option<String>,
    pub hash: String,
    pub asked: String,
    pub until: String,
    pub diff: String,
    pub whose: DecisionMaker,
}

/// The person who decides a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionMaker {
    /// A person who enters the token of an operator in the form.
    Operators,
    /// Everybody who sees the page, because it belongs to an operator.
    Ours,
    /// Not on this page, because the operators' tokens are not here.
    Others,
}

pub(crate) fn write_requests(html: &mut Html, token: &str, all: &[Requested]) {
    for one in all {
        let title = format!("request-{}", one.id);
        html.element("article", &[("class", "question"), ("aria-labelledby", &title)], |html| {
            html.element("h3", &[("id", &title)], |html| {
                html.text(&format!("The interface of '{}' changed", one.name));
                write_warning(html, one.beware.as_deref());
            });
            html.element("p", &[("class", "rule")], |html| {
                html.text(&format!("request {}, made {}, waits until {}", one.id, one.asked, one.until));
            });
            for (word, hash) in [("registered ", one.recorded.as_ref()), ("requested ", Some(&one.hash))] {
                let Some(hash) = hash else { continue };
                html.element("p", &[("class", "rule")], |html| {
                    html.text(word);
                    html.hash(hash);
                });
            }
            if one.diff.is_empty() {
                html.leaf("p", "empty", "It equals the registered interface.");
            } else {
                let label = format!("Difference of {}", one.name);
                let attributes = [
                    ("class", "diff"),
                    ("tabindex", "0"),
                    ("role", "region"),
                    ("aria-label", label.as_str()),
                ];
                html.element("pre", &attributes, |html| difference(html, &one.diff));
            }
            match one.whose {
                DecisionMaker::Others => {
                    html.element("p", &[("class", "rule")], |html| {
                        html.text("An operator decides: ");
                        html.code(&format!("agentsh registry approvals approve {} --token FILE", one.id));
                    });
                }
                DecisionMaker::Operators | DecisionMaker::Ours => decision(html, token, one),
            }
        });
    }
}

/// The lines of a component are indented by two below its name.
fn difference(html: &mut Html, text: &str) {
    let lines: Vec<_> = text.lines().map(|line| line.strip_prefix("  ").unwrap_or(line)).collect();
    crate::server::diff(html, &lines.join("\n"));
}

fn decision(html: &mut Html, token: &str, one: &Requested) {
    let to = Href::to(&["registry", "approvals", &one.id.to_string()]);
    html.element("form", &[("method", "post"), ("action", to.as_str())], |html| {
        html.element("div", &[("class", "ask")], |html| {
            if one.whose == DecisionMaker::Operators {
                let id = format!("token-{}", one.id);
                html.element("div", &[], |html| {
                    html.element("label", &[("for", &id)], |html| html.text("Token of an operator"));
                    let attributes = [
                        ("type", "password"),
                        ("id", id.as_str()),
                        ("name", "token"),
                        ("autocomplete", "current-password"),
                        ("required", ""),
                    ];
                    html.void_element("input", &attributes);
                });
            } else {
                html.void_element("input", &[("type", "hidden"), ("name", "token"), ("value", token)]);
            }
            let id = format!("reason-{}", one.id);
            html.element("div", &[], |html| {
                html.element("label", &[("for", &id)], |html| html.text("Reason, for the log"));
                html.void_element("input", &[("type", "text"), ("id", &id), ("name", "reason")]);
            });
        });
        html.element("div", &[("class", "answers")], |html| {
            for (value, class, text) in [("approve", "approve", "Approve"), ("reject", "deny", "Reject")] {
                let label = format!("{text} request {} of {}", one.id, one.name);
                let attributes = [
                    ("type", "submit"),
                    ("name", "answer"),
                    ("value", value),
                    ("class", class),
                    ("aria-label", label.as_str()),
                ];
                html.element("button", &attributes, |html| html.text(text));
            }
        });
    });
}

#[derive(Clone, Debug)]
pub struct FoundDetail {
    pub found: RegistrationRow,
    pub facts: Vec<(&'static str, String)>,
    /// Kind, name, description and the whole text of each component.
    pub components: Vec<(String, String, String, String)>,
    /// From the interface of this name that was current before.
    pub diff: Option<String>,
}

#[must_use]
pub fn registry_detail(frame: &Frame, detail: &FoundDetail) -> String {
    frame.document(|html| {
        html.element("section", &[("aria-label", "Facts")], |html| {
            html.element("p", &[], |html| {
                detail.found.status.show(html);
                html.text(" ");
                detail.found.checked.show(html);
                write_warning(html, detail.found.beware.as_deref());
            });
            write_facts(html, detail.facts.iter().map(|(name, value)| (*name, value.as_str())));
        });
        if let Some(diff) = &detail.diff {
            html.element("section", &[], |html| {
                html.leaf("h2", "", "Changed since the registration before it");
                let attributes =
                    [("class", "diff"), ("tabindex", "0"), ("role", "region"), ("aria-label", "Difference")];
                html.element("pre", &attributes, |html| difference(html, diff));
            });
        }
        html.element("section", &[], |html| {
            html.leaf("h2", "", "What it offers");
            html.table("Components", &["name", "what it says"], |rows| {
                for (kind, name, description, whole) in &detail.components {
                    rows.row(|cells| {
                        cells.cell(|html| {
                            html.text(kind);
                            html.text(" ");
                            html.leaf("strong", "", name);
                        });
                        cells.cell(|html| {
                            html.text(description);
                            html.element("details", &[], |html| {
                                html.element("summary", &[], |html| {
                                    html.text("whole");
                                    html.leaf("span", "hidden", &format!(": {name}"));
                                });
                                html.element("pre", &[("tabindex", "0")], |html| html.lines(whole));
                            });
                        });
                    });
                }
            });
        });
    })
}
