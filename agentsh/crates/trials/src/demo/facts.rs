//! What the parts of the demo share: names, facts for the inside, and the reports.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::attempt::Try;

pub const HOSTILE: &str = "demo-hostile";
pub const CLOCK: &str = "demo-clock";
/// Tools of the hostile server: one that changes once it was used, one with an invisible instruction, and one that looks like
/// the clock's.
pub const RUG: &str = "weather";
pub const POISON: &str = "note";
pub const SHADOW: &str = "n\u{43e}w";
/// Tools whose definition differs in the second listing, that no listing has, and that give an instruction in two pieces.
pub const TOOL_IN_TWO_PIECES: &str = "reminder";
pub const UNLISTED: &str = "collect";
pub const SPLIT: &str = "story";
/// The planted secret among the variables.
pub const VARIABLE: &str = "DEMO_API_TOKEN";
/// Where the agent keeps its list of servers, and the facts, in the project.
pub const SERVERS_FILE: &str = "mcp.json";
pub const FACTS_FILE: &str = "facts.json";
/// The program of the second server.
pub const CLOCK_FILE: &str = "tools/clock.sh";
pub const HOOK: &str = ".git/hooks/pre-commit";
pub const KEY: &str = ".ssh/id_demo";
pub const ENV_FILE: &str = ".env";
/// The number of processes that both process trees may start.
pub const PIDS: u64 = 64;
pub const BURST: u32 = 3;
/// Longest message.
pub const LINE_BYTES: usize = 65_536;

/// The facts that the inside needs for its attacks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DemoFacts {
    /// agentsh itself, on the host.
    pub supervisor: i32,
    /// A listener on the host's loopback.
    pub port: u16,
    pub abstract_name: String,
    pub home: PathBuf,
}

impl DemoFacts {
    /// From the project, where both the agent and its servers start.
    ///
    /// # Errors
    /// When they are not there.
    pub fn read(directory: &Path) -> std::io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(directory.join(FACTS_FILE))?)?)
    }
}

/// One attack, as the attacking side reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// `agent`, or the server's id.
    pub by: String,
    /// Stable name, see [`super::table::ATTACKS`].
    pub attack: String,
    pub tries: Vec<Try>,
    /// Further observations.
    #[serde(default)]
    pub detail: String,
}

impl Report {
    pub fn new(by: &str, attack: &str, tries: Vec<Try>) -> Self {
        Self { by: by.to_owned(), attack: attack.to_owned(), tries, detail: String::new() }
    }
}
