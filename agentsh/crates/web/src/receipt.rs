//! A receipt, drawn: what stands in it, what it proves and what it does not.

use crate::session::facts;
use crate::{Frame, Href, Html};

#[derive(Clone, Debug, Default)]
pub struct Receipt {
    /// Of the session.
    pub id: String,
    /// Name and value.
    pub facts: Vec<(String, String)>,
    pub tables: Vec<ReceiptTable>,
}

/// A list of the receipt, under the name that it has there.
#[derive(Clone, Debug)]
pub struct ReceiptTable {
    pub title: String,
    pub heads: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

const PROVES: [&str; 4] = [
    "Whoever has the key signed exactly this, and nothing of it was changed since.",
    "It is about these commits or files, by their digests: it fits no others.",
    "The record had this length and this head: one that was rewritten since does not fit it.",
    "What was enforced, started, reached, called and refused is what the record says.",
];

const DOES_NOT: [&str; 4] = [
    "Anything against a kernel that lies about what it enforces.",
    "Anything against whoever has the key, or is root on this host: they can sign what they like.",
    "That nothing was done outside agentsh: a person may have worked in another window.",
    "That the work is good.",
];

/// The page of a receipt.
#[must_use]
pub fn receipt(frame: &Frame, receipt: &Receipt) -> String {
    frame.around(|html| body(html, receipt))
}

fn body(html: &mut Html, receipt: &Receipt) {
    html.element("p", &[], |html| html.link(&Href::to(&["session", &receipt.id]), "The session"));
    html.element("p", &[], |html| {
        html.link(&Href::to(&["session", &receipt.id, "receipt.json"]), "The receipt as a file");
        html.text(", to be checked by ");
        html.code("agentsh receipt verify FILE --key KEYS");
    });
    for (title, lines) in [("What it proves", PROVES), ("What it does not prove", DOES_NOT)] {
        html.element("section", &[], |html| {
            html.leaf("h2", "", title);
            html.element("ul", &[], |html| lines.iter().for_each(|line| html.leaf("li", "", line)));
        });
    }
    html.element("section", &[], |html| {
        html.leaf("h2", "", "What stands in it");
        facts(html, receipt.facts.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    });
    for table in &receipt.tables {
        html.element("section", &[], |html| {
            html.leaf("h2", "", &table.title);
            if table.rows.is_empty() {
                return html.leaf("p", "empty", "None.");
            }
            let heads: Vec<&str> = table.heads.iter().map(String::as_str).collect();
            html.table(&format!("{} in all", table.rows.len()), &heads, |rows| {
                for row in &table.rows {
                    rows.row(|cells| row.iter().for_each(|cell| cells.text(cell)));
                }
            });
        });
    }
}
