//! A list of exploited vulnerabilities in the format of CISA's KEV catalogue. An entry has no versions; the OSV record
//! with the same id has them.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Catalogue {
    pub vulnerabilities: Vec<Entry>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    #[serde(rename = "cveID")]
    pub cve_id: String,
    #[serde(default)]
    pub vulnerability_name: String,
}

impl Catalogue {
    /// # Errors
    /// What is wrong with it.
    pub fn read(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}
