//! What is registered: searched by name, hash and tool.

use crate::{Frame, Href, Html, Word};

/// A registration in a list.
#[derive(Clone, Debug)]
pub struct Found {
    pub id: i64,
    pub name: String,
    /// What the name would be taken for, where it is not plain ASCII.
    pub beware: Option<String>,
    pub hash: String,
    pub status: Word,
    /// Whether the interface on record has the hash that stands beside it, computed here.
    pub checked: Word,
    pub registered: String,
    pub tools: usize,
}

#[derive(Clone, Debug)]
pub struct Registry {
    pub asked: String,
    pub found: Vec<Found>,
    pub total: i64,
    pub next: Option<Href>,
    /// Why there is nothing.
    pub note: Option<String>,
}

#[must_use]
pub fn registry(frame: &Frame, registry: &Registry) -> String {
    frame.around(|html| {
        html.element("form", &[("method", "get"), ("action", "/registry"), ("role", "search")], |html| {
            html.element("label", &[("for", "q")], |html| html.text("Name, hash or tool"));
            html.void("input", &[("type", "search"), ("id", "q"), ("name", "q"), ("value", &registry.asked)]);
            html.element("button", &[("type", "submit")], |html| html.text("Search"));
        });
        html.element("section", &[], |html| {
            html.leaf("h2", "", "Registered interfaces");
            if let Some(note) = &registry.note {
                html.leaf("p", "note", note);
            }
            if registry.found.is_empty() {
                html.leaf("p", "empty", "Nothing is registered here that matches.");
                return;
            }
            html.leaf("p", "", &format!("{} found", registry.total));
            let heads = ["name", "hash", "checked", "status", "registered", "tools"];
            html.table("Interfaces, the newest first", &heads, |rows| {
                for found in &registry.found {
                    rows.row(|cells| {
                        cells.cell(|html| {
                            html.link(&Href::to(&["registry", &found.id.to_string()]), &found.name);
                            beware(html, found);
                        });
                        cells.code(&found.hash);
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

fn beware(html: &mut Html, found: &Found) {
    if let Some(beware) = &found.beware {
        html.text(" ");
        html.leaf("span", "word warn", beware);
    }
}

/// One registration whole.
#[derive(Clone, Debug)]
pub struct FoundDetail {
    pub found: Found,
    pub facts: Vec<(&'static str, String)>,
    /// Kind, name, description and the whole text of each component.
    pub components: Vec<(String, String, String, String)>,
    /// From the interface of this name that was current before.
    pub diff: Option<String>,
}

#[must_use]
pub fn registry_detail(frame: &Frame, detail: &FoundDetail) -> String {
    frame.around(|html| {
        html.element("section", &[("aria-label", "Facts")], |html| {
            html.element("p", &[], |html| {
                detail.found.status.show(html);
                html.text(" ");
                detail.found.checked.show(html);
                beware(html, &detail.found);
            });
            html.element("dl", &[("class", "facts")], |html| {
                for (name, value) in detail.facts.iter().filter(|(_, value)| !value.is_empty()) {
                    html.element("div", &[], |html| {
                        html.leaf("dt", "", name);
                        html.leaf("dd", "", value);
                    });
                }
            });
        });
        if let Some(diff) = &detail.diff {
            html.element("section", &[], |html| {
                html.leaf("h2", "", "Changed since the registration before it");
                let attributes =
                    [("class", "diff"), ("tabindex", "0"), ("role", "region"), ("aria-label", "Difference")];
                html.element("pre", &attributes, |html| crate::server::diff(html, diff));
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
