//! One row of the result, and the result as text and as JSON.

use agentsh_base::words;
use serde::Serialize;

use agentsh_base::paragraph;
use agentsh_store::escape;
use agentsh_terminal::style::{BAD, GOOD, HEADING, LESS, QUIET, paint};
use agentsh_terminal::table;

/// Before the name of an agent, in the name of its row.
pub const AGENT: &str = "agent-";

words! {
    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum State: words {
        /// Tried, and refused as it must be.
        Enforced = "enforced",
        /// In force, with less than was asked.
        Degraded = "DEGRADED",
        Absent = "ABSENT",
        /// Nothing to do on this machine or for this user.
        NotNeeded = "not needed",
        /// A fact, not a layer.
        Found = "found",
        NotFound = "not found",
    }
}

/// One layer: what was requested, what the kernel enforces, and what can be done about the difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Layer {
    /// Stable name.
    pub layer: String,
    pub asked: String,
    pub got: String,
    pub state: State,
    /// Empty when there is nothing to explain.
    pub why: String,
    pub remedy: String,
}

impl Layer {
    pub fn enforced(layer: &str, asked: &str, got: impl Into<String>) -> Self {
        Self::new(layer, asked, got, State::Enforced)
    }

    pub fn new(layer: &str, asked: &str, got: impl Into<String>, state: State) -> Self {
        let (why, remedy) = (String::new(), String::new());
        Self { layer: layer.to_owned(), asked: asked.to_owned(), got: got.into(), state, why, remedy }
    }

    #[must_use]
    pub fn with_reason(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    /// Whether there is a known way to get more protection.
    #[must_use]
    pub fn can_be_helped(&self) -> bool {
        !self.remedy.is_empty()
    }

    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }
}

impl State {
    /// Something that `run` relies on is not there.
    #[must_use]
    pub fn is_wanting(self) -> bool {
        matches!(self, Self::Degraded | Self::Absent)
    }
}

/// The rows and the last line, for `width` columns: a layer that is as it should be takes one line, and any other says why,
/// and what to do about it.
#[must_use]
pub fn render(layers: &[Layer], width: u16) -> String {
    let rows: String =
        said_once(layers).iter().map(|layer| display_layer(layer, usize::from(width))).collect();
    let names = |layers: &[&Layer]| {
        let names: Vec<&str> = layers.iter().map(|layer| layer.layer.as_str()).collect();
        names.join(", ")
    };
    let wanting: Vec<&Layer> = layers.iter().filter(|layer| layer.state.is_wanting()).collect();
    let (open, settled): (Vec<&Layer>, Vec<&Layer>) =
        wanting.into_iter().partition(|layer| layer.can_be_helped());
    let verdict = match (open.as_slice(), settled.as_slice()) {
        ([], []) => paint(GOOD, "every layer that `agentsh run` needs is enforced"),
        ([], settled) => {
            format!(
                "{}; this machine offers nothing stronger",
                paint(LESS, &format!("weaker than requested: {}", names(settled)))
            )
        }
        (open, _) => paint(BAD, &format!("not fully enforced here: {}", names(open))),
    };
    paragraph::wrap_lines(&format!("{rows}{verdict}\n"), usize::from(width)).into_owned()
}

/// The rows for people: missing programs share a row, and repeated reasons are left out.
fn said_once(layers: &[Layer]) -> Vec<Layer> {
    let mut said: Vec<Layer> = Vec::with_capacity(layers.len());
    for layer in layers {
        let mut layer = layer.clone();
        if layer.state == State::NotFound {
            let name = layer.layer.trim_start_matches(AGENT).to_owned();
            if let Some(before) = said.iter_mut().find(|before| before.state == State::NotFound) {
                before.got = format!("{}, {name}", before.got);
                continue;
            }
            (layer.layer, layer.got) = ("other agents".to_owned(), name);
        } else if let Some(before) = said.iter().find(|before| {
            !layer.why.is_empty() && (&before.why, &before.remedy) == (&layer.why, &layer.remedy)
        }) {
            layer.why = format!("as for {}", before.layer);
            layer.remedy.clear();
        }
        said.push(layer);
    }
    said
}

/// A state, a name, what was got; below it what a layer lacks.
fn display_layer(layer: &Layer, width: usize) -> String {
    const STATE: usize = 12;
    const NAME: usize = 20;
    let style = match layer.state {
        State::Enforced => GOOD,
        State::Degraded => LESS,
        State::Absent => BAD,
        State::NotNeeded | State::Found | State::NotFound => QUIET,
    };
    // Too narrow for three columns: the text after the name is on a separate line.
    let indent = if width < STATE + NAME + 24 { 4.min(width / 2) } else { STATE + NAME };
    let room = width.saturating_sub(indent).max(1);
    let mut text = format!("{}{}", paint(style, layer.state.words()), pad(layer.state.words(), STATE));
    text.push_str(&format!("{}{}", paint(HEADING, &layer.layer), pad(&layer.layer, NAME)));
    let mut push = |title: &str, words: &str| {
        if words.is_empty() {
            return;
        }
        let whole = format!("{title}{}", escape::line(words));
        for (number, piece) in table::wrap(&whole, room, room).iter().enumerate() {
            if number > 0 || !title.is_empty() || indent < STATE {
                text = text.trim_end().to_owned() + "\n" + &" ".repeat(indent);
            }
            text.push_str(piece);
        }
    };
    push("", &layer.got);
    if layer.state.is_wanting() {
        push("requested: ", &layer.asked);
        push("reason: ", &layer.why);
        push("what to do: ", &layer.remedy);
    }
    text.trim_end().to_owned() + "\n"
}

fn pad(text: &str, width: usize) -> String {
    " ".repeat(width.saturating_sub(text.len()).max(1))
}

/// # Errors
/// Never in practice: the rows hold text alone.
pub fn to_json(layers: &[Layer]) -> serde_json::Result<String> {
    serde_json::to_string_pretty(layers).map(|text| text + "\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn some() -> Vec<Layer> {
        vec![
            Layer::enforced("seccomp", "forbidden calls are refused", "11 of 11"),
            Layer::new("memory-limit", "64 MiB", "a watchdog", State::Degraded)
                .with_reason("no cgroup")
                .remedy("delegate one"),
            Layer::new("network-ebpf", "names", "", State::NotNeeded),
        ]
    }

    #[test]
    fn the_json_has_a_stable_shape() {
        insta::assert_snapshot!(to_json(&some()[1..2]).unwrap(), @r#"
        [
          {
            "layer": "memory-limit",
            "asked": "64 MiB",
            "got": "a watchdog",
            "state": "degraded",
            "why": "no cgroup",
            "remedy": "delegate one"
          }
        ]
        "#);
    }

    #[test]
    fn doctor_prints_each_reason_once() {
        let less = |name: &str| {
            Layer::new(name, "much", "little", State::Degraded)
                .with_reason("no cgroup")
                .remedy("delegate one")
        };
        let absent = |name: &str| Layer::new(name, "on PATH", "", State::NotFound);
        let layers = [
            less("memory-limit"),
            less("cpu-limit"),
            absent("agent-claude"),
            Layer::new("agent-codex", "on PATH", "/usr/bin/codex", State::Found),
            absent("agent-gemini"),
        ];
        insta::assert_snapshot!(plain(&layers, 80), @r"
        DEGRADED    memory-limit        little
                                        requested: much
                                        reason: no cgroup
                                        what to do: delegate one
        DEGRADED    cpu-limit           little
                                        requested: much
                                        reason: as for memory-limit
        not found   other agents        claude, gemini
        found       agent-codex         /usr/bin/codex
        not fully enforced here: memory-limit, cpu-limit
        ");
        assert_eq!(to_json(&layers).unwrap().matches("delegate one").count(), 2);
    }

    fn plain(layers: &[Layer], width: u16) -> String {
        anstream::adapter::strip_str(&render(layers, width)).to_string()
    }

    #[test]
    fn doctor_prints_reasons_only_for_failures() {
        insta::assert_snapshot!(plain(&some(), 80), @r"
        enforced    seccomp             11 of 11
        DEGRADED    memory-limit        a watchdog
                                        requested: 64 MiB
                                        reason: no cgroup
                                        what to do: delegate one
        not needed  network-ebpf
        not fully enforced here: memory-limit
        ");
        assert!(render(&some(), 80).contains("\u{1b}[32menforced"));
    }

    #[test]
    fn doctor_last_line_names_only_failures() {
        let text = plain(&some(), 100);
        assert!(text.ends_with("not fully enforced here: memory-limit\n"), "{text}");
        let mut settled = some();
        settled[1].remedy.clear();
        let text = plain(&settled, 100);
        assert!(
            text.ends_with("weaker than requested: memory-limit; this machine offers nothing stronger\n"),
            "{text}"
        );
        let text = plain(&some()[..1], 100);
        assert!(text.ends_with("every layer that `agentsh run` needs is enforced\n"), "{text}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let mut layers = some();
        layers[0].got = "words and more words ".repeat(40);
        layers[1].why = "/a/path/that/is/longer/than/any/terminal".repeat(10);
        for width in [40, 60, 80, 200] {
            let text = plain(&layers, width);
            let rows = text.lines().take_while(|line| !line.starts_with("not fully"));
            assert!(
                rows.map(|line| line.chars().count()).all(|length| length <= usize::from(width)),
                "{text}"
            );
        }
    }
}
