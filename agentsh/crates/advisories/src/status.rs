//! The status of a service: `summary.json` of Statuspage.

use serde::{Deserialize, Serialize};

use super::policy::Severity;

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Summary {
    #[serde(default)]
    pub page: Page,
    pub status: Status,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Page {
    #[serde(default)]
    pub name: String,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Status {
    /// `none`, `minor`, `major`, `critical`, `maintenance`.
    pub indicator: String,
    #[serde(default)]
    pub description: String,
}

impl Summary {
    /// # Errors
    /// What is wrong with it.
    pub fn read(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// How bad it is; None: all is well. A word that is not known is not an all-clear.
    #[must_use]
    pub fn level(&self) -> Option<Severity> {
        match self.status.indicator.as_str() {
            "none" => None,
            "minor" | "maintenance" => Some(Severity::Low),
            "critical" => Some(Severity::High),
            _ => Some(Severity::Medium),
        }
    }
}
