//! The policy in force, questions about it, and what it would have done to a session.

use crate::session::owner_link;
use crate::{Frame, Href, Html, Word};

#[derive(Clone, Debug)]
pub struct Part {
    pub key: String,
    pub value: String,
    /// The rule as `file:line (key)`.
    pub rule: String,
}

impl Part {
    fn is_default(&self) -> bool {
        self.rule.starts_with("default (") || self.rule.starts_with("built-in:")
    }
}

/// The policy in force.
#[derive(Clone, Debug)]
pub struct Effective {
    pub source: String,
    pub parts: Vec<Part>,
    pub warnings: Vec<String>,
}

/// A question, as it was typed, and its answer.
#[derive(Clone, Debug, Default)]
pub struct PolicyQuestion {
    pub server: String,
    /// One of the names of [`KINDS`].
    pub kind: String,
    pub about: String,
    /// None: nothing was asked.
    pub answer: Option<(Word, Vec<String>)>,
}

/// The verdict of the policy about a recorded event.
#[derive(Clone, Debug)]
pub struct PolicyPreview {
    pub server: Option<String>,
    pub what: String,
    pub times: u64,
    pub then: Word,
    pub now: Word,
    pub rule: String,
    pub differs: bool,
}

#[derive(Clone, Debug)]
pub struct Policy {
    /// The policy in force, or an error.
    pub effective: Result<Effective, String>,
    pub asked: PolicyQuestion,
    /// The session that was named, and what would have been.
    pub session: String,
    pub would_have: Option<Result<Vec<PolicyPreview>, String>>,
}

/// The kinds of questions: the value that is sent, and the label.
const KINDS: [(&str, &str); 6] = [
    ("connect", "connect to HOST:PORT"),
    ("read", "read the file"),
    ("write", "write the file"),
    ("exec", "execute the program"),
    ("env", "see the variable"),
    ("tool", "call the tool"),
];

#[must_use]
pub fn policy(frame: &Frame, policy: &Policy) -> String {
    frame.document(|html| {
        html.element("section", &[("id", "ask")], |html| {
            html.leaf("h2", "", "Ask the policy");
            ask(html, &policy.asked);
        });
        html.element("section", &[("id", "would")], |html| {
            html.leaf("h2", "", "What it would have done");
            write_question_form(html, policy);
        });
        html.element("section", &[("id", "effective")], |html| {
            html.leaf("h2", "", "The policy in force");
            match &policy.effective {
                Ok(effective) => parts(html, effective),
                Err(why) => html.element("pre", &[("tabindex", "0")], |html| html.lines(why)),
            }
        });
    })
}

fn ask(html: &mut Html, asked: &PolicyQuestion) {
    html.element("form", &[("method", "get"), ("action", "/policy"), ("class", "ask")], |html| {
        html.element("div", &[], |html| {
            html.element("label", &[("for", "server")], |html| html.text("Who (a server; empty: the agent)"));
            html.void_element(
                "input",
                &[("id", "server"), ("name", "server"), ("value", &asked.server), ("autocomplete", "off")],
            );
        });
        html.element("div", &[], |html| {
            html.element("label", &[("for", "kind")], |html| html.text("Action"));
            html.element("select", &[("id", "kind"), ("name", "kind")], |html| {
                for (value, text) in KINDS {
                    let chosen = [("value", value), ("selected", "")];
                    let attributes = if asked.kind == value { chosen.as_slice() } else { &chosen[..1] };
                    html.element("option", attributes, |html| html.text_only(text));
                }
            });
        });
        html.element("div", &[], |html| {
            html.element("label", &[("for", "about")], |html| html.text("Target"));
            html.void_element(
                "input",
                &[
                    ("id", "about"),
                    ("name", "about"),
                    ("value", &asked.about),
                    ("required", ""),
                    ("autocomplete", "off"),
                ],
            );
        });
        html.element("button", &[("type", "submit")], |html| html.text("Ask"));
    });
    if let Some((word, lines)) = &asked.answer {
        html.element("div", &[("class", "answer"), ("role", "status")], |html| {
            html.element("p", &[], |html| word.show(html));
            for line in lines {
                html.leaf("p", "", line);
            }
        });
    }
}

fn write_question_form(html: &mut Html, policy: &Policy) {
    html.element("form", &[("method", "get"), ("action", "/policy"), ("class", "ask")], |html| {
        html.element("div", &[], |html| {
            html.element("label", &[("for", "session")], |html| {
                html.text("Session (an id, its beginning, or latest)")
            });
            html.void_element(
                "input",
                &[("id", "session"), ("name", "session"), ("value", &policy.session), ("required", "")],
            );
        });
        html.element("button", &[("type", "submit")], |html| html.text("Try"));
    });
    match &policy.would_have {
        None => {}
        Some(Err(why)) => html.leaf("p", "note", why),
        Some(Ok(list)) => {
            let differ = list.iter().filter(|one| one.differs).count();
            html.leaf("p", "", &format!("{} of {} would be decided differently.", differ, list.len()));
            html.table("Then and now", &["who", "what", "times", "then", "now", "rule"], |rows| {
                for one in list {
                    rows.row(|cells| {
                        cells.cell(|html| owner_link(html, one.server.as_ref(), "agent"));
                        cells.text(&one.what);
                        cells.number(one.times);
                        cells.cell(|html| one.then.show(html));
                        cells.cell(|html| {
                            one.now.show(html);
                            if one.differs {
                                html.text(" ");
                                html.leaf("strong", "", "differs");
                            }
                        });
                        cells.code(&one.rule);
                    });
                }
            });
            html.element("p", &[], |html| {
                html.link(&Href::to(&["session", &policy.session]), "The session");
                html.text(". Only lists of servers, tools and hosts are checked, not rules about arguments.");
            });
        }
    }
}

fn parts(html: &mut Html, effective: &Effective) {
    html.element("p", &[], |html| {
        html.text("from ");
        html.code(&effective.source);
    });
    for warning in &effective.warnings {
        html.leaf("p", "note", warning);
    }
    let (defaults, own): (Vec<&Part>, Vec<&Part>) =
        effective.parts.iter().partition(|part| part.is_default());
    if own.is_empty() {
        html.leaf("p", "empty", "The built-in policy applies unchanged.");
    } else {
        table(html, "Your policies", &own);
    }
    let mut groups: Vec<(&str, Vec<&Part>)> = Vec::new();
    for part in defaults {
        let group = part.key.split('.').take(2).map(str::len).sum::<usize>() + 1;
        let group = part.key.get(..group).unwrap_or(&part.key);
        match groups.last_mut() {
            Some((last, parts)) if *last == group => parts.push(part),
            _ => groups.push((group, vec![part])),
        }
    }
    html.leaf("h3", "", "Built in");
    for (group, parts) in groups {
        html.element("details", &[], |html| {
            html.element("summary", &[], |html| {
                html.text(group);
                html.text(&format!(" ({})", parts.len()));
            });
            table(html, group, &parts);
        });
    }
}

fn table(html: &mut Html, caption: &str, parts: &[&Part]) {
    html.table(caption, &["key", "value", "from"], |rows| {
        for part in parts {
            rows.row(|cells| {
                cells.text(&part.key);
                cells.code(&part.value);
                cells.code(&part.rule);
            });
        }
    });
}
