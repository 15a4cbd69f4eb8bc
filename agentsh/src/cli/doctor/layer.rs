//! One row of the answer, and the answer as text and as JSON.

use crate::cli::output;
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Tried, and refused as it must be.
    Enforced,
    /// In force, with less than was asked.
    Degraded,
    Absent,
    /// Nothing to do on this machine or for this user.
    NotNeeded,
    /// A fact, not a layer.
    Found,
    NotFound,
}

/// One layer: what was asked of the kernel, what it gave, and what can be done about the difference.
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
    pub fn because(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
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

    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Degraded => "DEGRADED",
            Self::Absent => "ABSENT",
            Self::NotNeeded => "not needed",
            Self::Found => "found",
            Self::NotFound => "not found",
        }
    }
}

/// The table and the last line.
#[must_use]
pub fn render(layers: &[Layer], width: Option<u16>) -> String {
    let row = |layer: &Layer| {
        let got = match layer.got.as_str() {
            "" => layer.state.words().to_owned(),
            got => format!("{}: {got}", layer.state.words()),
        };
        vec![layer.layer.clone(), layer.asked.clone(), got, layer.why.clone(), layer.remedy.clone()]
    };
    let head = ["layer", "asked", "got", "why", "what to do"];
    let table = output::render_table(&head, layers.iter().map(row).collect(), width);
    let wanting: Vec<&str> =
        layers.iter().filter(|layer| layer.state.is_wanting()).map(|layer| layer.layer.as_str()).collect();
    let verdict = if wanting.is_empty() {
        "every layer that `agentsh run` needs is enforced".to_owned()
    } else {
        format!("not fully enforced here: {}", wanting.join(", "))
    };
    format!("{table}{verdict}\n")
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
                .because("no cgroup")
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
    fn the_last_line_names_what_is_wanting_and_nothing_else() {
        let text = render(&some(), Some(100));
        assert!(text.ends_with("not fully enforced here: memory-limit\n"), "{text}");
        assert!(text.contains("enforced: 11 of 11") && text.contains("not needed"), "{text}");
        let text = render(&some()[..1], Some(100));
        assert!(text.ends_with("every layer that `agentsh run` needs is enforced\n"), "{text}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let mut layers = some();
        layers[0].got = "words and more words ".repeat(40);
        for width in [60, 80, 200] {
            let text = render(&layers, Some(width));
            let table = text.lines().take_while(|line| !line.starts_with("not fully"));
            assert!(
                table.map(|line| line.chars().count()).all(|length| length <= usize::from(width)),
                "{text}"
            );
        }
    }
}
