//! One event as a line of a timeline.

use crate::{Href, Html};

/// How a word is coloured. The word says the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Good,
    Warn,
    Bad,
    Quiet,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    pub text: String,
    pub tone: Tone,
}

impl Word {
    #[must_use]
    pub fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }

    pub(crate) fn show(&self, html: &mut Html) {
        let class = match self.tone {
            Tone::Good => "word good",
            Tone::Warn => "word warn",
            Tone::Bad => "word bad",
            Tone::Quiet => "word quiet",
        };
        html.leaf("span", class, &self.text);
    }
}

/// A number, how it is written, and of what it is.
pub type Amount = (u64, fn(u64) -> String, &'static str);

/// One event.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Place in its session.
    pub seq: u64,
    pub time: String,
    /// A server; None: the agent, or the session itself.
    pub server: Option<String>,
    /// The agent's name.
    pub agent: String,
    /// The link to the session, in a list of several sessions.
    pub session: Option<String>,
    /// `call`, `connection`, ….
    pub kind: &'static str,
    pub what: String,
    pub verdict: Option<Word>,
    pub detail: String,
    /// Numbers that are added up if the row stands for several events.
    pub amounts: Vec<Amount>,
    /// The rule as `file:line (key)`.
    pub rule: Option<String>,
    /// The piece of policy, or the command, that would change it.
    pub change: Option<String>,
    /// The arguments of a call: redacted JSON.
    pub input: Option<String>,
    /// How often it happened.
    pub times: u64,
}

impl Row {
    /// Whether another row says the same, but for its time, session and amounts.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.is_alike(other)
            && (&self.detail, &self.rule, &self.input) == (&other.detail, &other.rule, &other.input)
    }

    /// Whether another row is about the same thing, even with another text.
    #[must_use]
    pub fn is_alike(&self, other: &Self) -> bool {
        (&self.server, &self.agent, self.kind, &self.what, &self.verdict, &self.change)
            == (&other.server, &other.agent, other.kind, &other.what, &other.verdict, &other.change)
    }

    fn add(&mut self, other: &Self) {
        self.times += other.times;
        for ((sum, ..), (more, ..)) in self.amounts.iter_mut().zip(&other.amounts) {
            *sum += more;
        }
    }
}

/// Rows that are the same, as the first of them and how often: all of a list, or only neighbours where `keeps_order`.
#[must_use]
pub fn merge_equal_rows(rows: Vec<Row>, keeps_order: bool, is_same: fn(&Row, &Row) -> bool) -> Vec<Row> {
    let mut counted: Vec<Row> = Vec::with_capacity(rows.len());
    for row in rows {
        let from = if keeps_order { counted.len().saturating_sub(1) } else { 0 };
        match counted.iter_mut().skip(from).find(|known| is_same(known, &row)) {
            Some(known) => known.add(&row),
            None => counted.push(row),
        }
    }
    counted
}

/// The rows as a list.
pub(crate) fn rows(html: &mut Html, rows: &[Row]) {
    html.element("ol", &[("class", "timeline"), ("role", "list")], |html| {
        for row in rows {
            html.element("li", &[], |html| self::row(html, row));
        }
    });
}

/// A command, with a button that copies it.
pub(crate) fn write_copyable(html: &mut Html, command: &str, of_what: &str) {
    html.code(command);
    if !html.is_alone() {
        // The script shows it where the browser can copy.
        html.element("button", &[("type", "button"), ("class", "copy"), ("hidden", "")], |html| {
            html.text("Copy");
            html.leaf("span", "hidden", of_what);
        });
    }
}

fn row(html: &mut Html, row: &Row) {
    html.element("p", &[("class", "event")], |html| {
        html.element("time", &[], |html| html.text(&row.time));
        html.text(" ");
        html.leaf("span", "kind", row.kind);
        html.text(" ");
        if let Some(verdict) = &row.verdict {
            verdict.show(html);
            html.text(" ");
        }
        html.element("span", &[("class", "who")], |html| match &row.server {
            Some(server) => html.link(&Href::to(&["server", server]), server),
            None => html.text(&row.agent),
        });
        html.text(" ");
        html.leaf("strong", "", &row.what);
        if row.times > 1 {
            html.text(" ");
            html.leaf("span", "times", &format!("{} times", row.times));
        }
        if let Some(session) = &row.session {
            html.text(" ");
            let to = Href::to(&["session", session]).with("before", &(row.seq.saturating_add(1)).to_string());
            html.link(&to, "in its session");
        }
    });
    let amounts = row.amounts.iter().map(|(sum, written, what)| format!("{} {what}", written(*sum)));
    let detail = (!row.detail.is_empty()).then(|| row.detail.clone()).into_iter().chain(amounts);
    let detail = detail.collect::<Vec<_>>().join(", ");
    if !detail.is_empty() {
        html.leaf("p", "detail", &detail);
    }
    if let Some(rule) = &row.rule {
        html.element("p", &[("class", "rule")], |html| {
            html.text("by ");
            html.code(rule);
        });
    }
    if let Some(change) = &row.change {
        html.element("p", &[("class", "change")], |html| {
            html.text("to change it: ");
            write_copyable(html, change, &format!(" the change for {}", row.what));
        });
    }
    if let Some(input) = &row.input {
        html.element("details", &[], |html| {
            html.element("summary", &[], |html| {
                html.text("arguments");
                html.leaf("span", "hidden", &format!(" of {} at {}", row.what, row.time));
            });
            html.element("pre", &[("tabindex", "0")], |html| html.lines(input));
        });
    }
}
