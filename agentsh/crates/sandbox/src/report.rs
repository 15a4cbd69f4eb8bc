//! For each layer: what was requested, what is enforced, and why it is less.

use agentsh_base::words;
use serde::{Deserialize, Serialize};

words! {
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum State {
        Enforced = "enforced",
        /// In force, but weaker than requested; another layer covers the rest.
        Degraded = "degraded",
        Absent = "absent",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforcement {
    pub layer: String,
    pub asked: String,
    pub got: String,
    pub state: State,
    /// Empty when enforced.
    pub why: String,
}

impl Enforcement {
    #[must_use]
    pub fn enforced(layer: &str, got: impl Into<String>) -> Self {
        let got = got.into();
        Self { layer: layer.to_owned(), asked: got.clone(), got, state: State::Enforced, why: String::new() }
    }

    #[must_use]
    pub fn weakened(layer: &str, asked: &str, got: &str, state: State, why: impl Into<String>) -> Self {
        Self { layer: layer.to_owned(), asked: asked.to_owned(), got: got.to_owned(), state, why: why.into() }
    }
}
