//! Pending questions, and the forms that answer them.

use crate::registry::write_requests;
use crate::session::{list_part, part};
use crate::{Frame, Href, Html, Requested, Row, row};

/// A question of a running session.
#[derive(Clone, Debug)]
pub struct Question {
    pub id: String,
    pub session: String,
    /// The subject, action and target.
    pub title: String,
    /// The server that is called; None: the question is about the agent itself.
    pub server: Option<String>,
    /// The tool, or a method.
    pub name: String,
    /// The server whose data would go to this one.
    pub from: Option<String>,
    pub why: String,
    pub rule: String,
    /// JSON, with secrets taken out.
    pub arguments: String,
    pub interface: Option<String>,
    /// Seconds that it still waits.
    pub left: u64,
    /// The hash that an answer is bound to: the form sends it back.
    pub bound: String,
    /// The line of policy that `always` writes; empty where an answer does not last. None if `always` is not offered
    /// where the question is shown.
    pub line: Option<String>,
    /// No call waits for the answer: an approval lasts for the session at least.
    pub is_withheld: bool,
    /// The host that its session runs on; None: this one.
    pub on: Option<String>,
    /// Whether the viewer may answer.
    pub may_answer: bool,
}

#[derive(Clone, Debug)]
pub struct Approvals {
    /// The outcome of the last answered question, if the page follows an answer.
    pub said: Vec<String>,
    pub waiting: Vec<Question>,
    /// Requests of the registry on this machine.
    pub requested: Vec<Requested>,
    /// Earlier questions with their answers.
    pub answered: Vec<Row>,
    /// Sessions that could not be asked.
    pub silent: Vec<String>,
}

#[must_use]
pub fn approvals(frame: &Frame, approvals: &Approvals) -> String {
    frame.document(|html| {
        if !approvals.said.is_empty() {
            html.element("div", &[("id", "said"), ("class", "answer"), ("role", "status")], |html| {
                approvals.said.iter().for_each(|line| html.leaf("p", "", line));
            });
        }
        part(html, "approvals", "Waiting for your answer", |html| {
            for silent in &approvals.silent {
                html.leaf("p", "note", silent);
            }
            if approvals.waiting.is_empty() && approvals.requested.is_empty() {
                html.leaf("p", "empty", "No pending approvals.");
            } else {
                questions(html, &frame.token, &approvals.waiting);
                write_requests(html, &frame.token, &approvals.requested);
            }
        });
        list_part(
            html,
            ("answered", "Asked and answered"),
            "No questions yet.",
            &approvals.answered,
            row::rows,
        );
    })
}

pub(crate) fn questions(html: &mut Html, token: &str, waiting: &[Question]) {
    for question in waiting {
        let title = format!("question-{}", question.id);
        html.element("article", &[("class", "question"), ("aria-labelledby", &title)], |html| {
            html.element("h3", &[("id", &title)], |html| {
                html.text(&question.title);
                if let Some(host) = &question.on {
                    html.text(&format!(" on {host}"));
                }
            });
            write_question(html, question);
            if question.may_answer {
                form(html, token, question);
            }
        });
    }
}

fn write_question(html: &mut Html, question: &Question) {
    if !question.why.is_empty() {
        html.leaf("p", "", &question.why);
    }
    if let Some(from) = &question.from {
        html.element("p", &[], |html| {
            html.text("It contains data of server ");
            html.link(&Href::to(&["server", from]), from);
            html.text(" said.");
        });
    }
    if !question.arguments.is_empty() {
        let label = format!("Arguments of {}", question.name);
        let attributes = [("tabindex", "0"), ("role", "region"), ("aria-label", label.as_str())];
        html.element("pre", &attributes, |html| html.lines(&question.arguments));
    }
    html.element("p", &[("class", "rule")], |html| {
        html.text("asked by ");
        html.code(&question.rule);
    });
    html.element("p", &[("class", "rule")], |html| {
        html.text(&format!("question {}, waits {} s more, ", question.id, question.left));
        html.link(&Href::to(&["session", &question.session]), "in its session");
        if let Some(server) = &question.server {
            html.text(", ");
            html.link(&Href::to(&["server", server]), "the server");
        }
        if let Some(interface) = &question.interface {
            html.text(", definition ");
            html.hash(interface);
        }
    });
}

fn form(html: &mut Html, token: &str, question: &Question) {
    let to = Href::to(&["approvals", &question.id]);
    let line = question.line.as_deref();
    html.element("form", &[("method", "post"), ("action", to.as_str())], |html| {
        html.void_element("input", &[("type", "hidden"), ("name", "token"), ("value", token)]);
        html.void_element("input", &[("type", "hidden"), ("name", "bound"), ("value", &question.bound)]);
        html.element("div", &[("class", "answers")], |html| {
            if !question.is_withheld {
                answer(html, question, ("once", "approve", "Approve once"));
            }
            // An answer that cannot be permanent cannot be for the session either.
            if line != Some("") {
                answer(html, question, ("session", "approve", "Approve for this session"));
            }
            answer(html, question, ("deny", "deny", "Deny"));
        });
        if let Some(line) = line.filter(|line| !line.is_empty()) {
            html.element("p", &[("class", "always")], |html| {
                answer(html, question, ("always", "", "Approve always"));
                html.text(" writes ");
                html.code(line);
            });
        }
    });
}

fn answer(html: &mut Html, question: &Question, (value, class, text): (&str, &str, &str)) {
    let label = format!("{text}: {}", question.title);
    let attributes = [
        ("type", "submit"),
        ("name", "answer"),
        ("value", value),
        ("class", class),
        ("aria-label", label.as_str()),
    ];
    html.element("button", &attributes, |html| html.text(text));
}
