//! Tables that become blocks on a narrow screen. ARIA roles keep them tables.

use crate::Html;

pub(crate) struct Rows<'h> {
    html: &'h mut Html,
    heads: &'h [&'h str],
}

/// The cells of a row.
pub(crate) struct Cells<'h> {
    html: &'h mut Html,
    heads: std::slice::Iter<'h, &'h str>,
    is_first: bool,
}

impl Html {
    /// A table; where `rows` writes nothing there is only its head.
    pub(crate) fn table(&mut self, caption: &str, heads: &[&str], rows: impl FnOnce(&mut Rows<'_>)) {
        self.element("table", &[("role", "table")], |html| {
            html.leaf("caption", "", caption);
            html.element("thead", &[("role", "rowgroup")], |html| {
                html.element("tr", &[("role", "row")], |html| {
                    for head in heads {
                        let attributes = [("scope", "col"), ("role", "columnheader")];
                        html.element("th", &attributes, |html| html.text(head));
                    }
                });
            });
            html.element("tbody", &[("role", "rowgroup")], |html| rows(&mut Rows { html, heads }));
        });
    }
}

impl Rows<'_> {
    pub fn row(&mut self, cells: impl FnOnce(&mut Cells<'_>)) {
        let heads = self.heads;
        self.html.element("tr", &[("role", "row")], |html| {
            cells(&mut Cells { html, heads: heads.iter(), is_first: true });
        });
    }
}

impl Cells<'_> {
    pub fn cell(&mut self, inside: impl FnOnce(&mut Html)) {
        let head = self.heads.next().copied().unwrap_or_default();
        if std::mem::take(&mut self.is_first) {
            let attributes = [("scope", "row"), ("role", "rowheader"), ("data-label", head)];
            self.html.element("th", &attributes, |html| html.element("div", &[], inside));
        } else {
            let attributes = [("role", "cell"), ("data-label", head)];
            self.html.element("td", &attributes, |html| html.element("div", &[], inside));
        }
    }

    pub fn text(&mut self, text: &str) {
        self.cell(|html| html.text(text));
    }

    pub fn code(&mut self, text: &str) {
        self.cell(|html| {
            if !text.is_empty() {
                html.code(text);
            }
        });
    }

    pub fn hash(&mut self, hash: &str) {
        self.cell(|html| {
            if !hash.is_empty() {
                html.hash(hash);
            }
        });
    }

    pub fn number(&mut self, number: u64) {
        self.text(&number.to_string());
    }
}
