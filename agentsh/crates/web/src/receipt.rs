//! A receipt as a page: contents, what it proves and what it does not.

use crate::session::write_facts;
use crate::{Frame, Href, Html};

#[derive(Clone, Debug, Default)]
pub struct Receipt {
    /// The id of the session.
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
    "The owner of the key signed exactly this content, and it has not changed since.",
    "It covers exactly these commits or files, by their digests.",
    "The journal had this length and this last hash: a journal that was rewritten since does not match.",
    "What was enforced, started, reached, called and refused, as the journal says.",
];

const DOES_NOT: [&str; 4] = [
    "That the kernel enforced what it reported.",
    "Who signed, if somebody else has the key or is root on this host.",
    "That nothing was done outside agentsh: a person may have worked in another window.",
    "That the code is good.",
];

/// The page of a receipt.
#[must_use]
pub fn receipt(frame: &Frame, receipt: &Receipt) -> String {
    frame.document(|html| body(html, receipt))
}

fn body(html: &mut Html, receipt: &Receipt) {
    html.element("p", &[], |html| html.link(&Href::to(&["session", &receipt.id]), "The session"));
    html.element("p", &[], |html| {
        html.link(&Href::to(&["session", &receipt.id, "receipt.json"]), "The receipt as a file");
        html.text(", to verify with ");
        html.code("agentsh receipt verify FILE --key KEYS");
    });
    for (title, lines) in [("What it proves", PROVES), ("What it does not prove", DOES_NOT)] {
        html.element("section", &[], |html| {
            html.leaf("h2", "", title);
            html.element("ul", &[], |html| lines.iter().for_each(|line| html.leaf("li", "", line)));
        });
    }
    html.element("section", &[], |html| {
        html.leaf("h2", "", "Contents");
        write_facts(html, receipt.facts.iter().map(|(name, value)| (name.as_str(), value.as_str())));
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
