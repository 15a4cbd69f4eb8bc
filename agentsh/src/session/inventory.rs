//! The usual behaviour of each server, kept between sessions.

use std::cell::RefCell;
use std::fs;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use agentsh_base::types::ServerId;
use agentsh_guard::anomaly::{Anomalies, Profile};
use agentsh_policy::AnomalyPolicy;
use agentsh_policy::risk::Names;

use super::content::since_1970;
use super::copies::write_anew;
use agentsh_host::Facts;

/// In the state directory.
const NAME: &str = "inventory";
/// Longest file, in bytes.
const MAX_BYTES: u64 = 16 << 20;
/// Limit of listed files.
const MAX_FILES: usize = 4_096;

/// One server of one project.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InventoryEntry {
    pub server: String,
    pub project: String,
    /// The learning time of the last policy, in seconds.
    #[serde(default = "a_day")]
    pub learning_s: u64,
    pub profile: Profile,
}

fn a_day() -> u64 {
    AnomalyPolicy::default().learning_s()
}

/// The session's check, and its store.
#[derive(Clone, Debug)]
pub struct Inventory {
    check: Rc<RefCell<Anomalies>>,
    directory: PathBuf,
    project: String,
    learning_s: u64,
}

impl Inventory {
    /// Its time starts now.
    #[must_use]
    pub fn new(facts: &Facts) -> Self {
        let policy = &facts.policy.mcp;
        let names = policy.risk_names.as_ref().map_or_else(Names::default, |names| names.value);
        let check = Anomalies::new(&policy.anomaly, since_1970().as_secs()).with_names(names);
        Self {
            learning_s: policy.anomaly.learning_s(),
            check: Rc::new(RefCell::new(check)),
            directory: facts.context.state.join(NAME),
            project: facts.context.project.display().to_string(),
        }
    }

    #[must_use]
    pub fn check(&self) -> Rc<RefCell<Anomalies>> {
        Rc::clone(&self.check)
    }

    /// Loads a server's behaviour.
    pub fn load_behaviour(&self, server: &ServerId) {
        if !self.check.borrow().knows(server) {
            let kept = read(&self.file(server));
            let profile = kept.filter(|kept| kept.server == server.0).map(|kept| kept.profile);
            self.check.borrow_mut().adopt(server, profile.unwrap_or_default());
        }
    }

    /// Saves the behaviour.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(&self) -> std::io::Result<()> {
        let check = self.check.borrow();
        let known = check.profiles().iter().filter(|(_, profile)| !profile.tools.is_empty());
        for (server, profile) in known {
            let kept = InventoryEntry {
                server: server.0.clone(),
                project: self.project.clone(),
                learning_s: self.learning_s,
                profile: profile.clone(),
            };
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
            write_anew(&self.file(server), &serde_json::to_vec(&kept)?, 0o600)?;
        }
        Ok(())
    }

    fn file(&self, server: &ServerId) -> PathBuf {
        let key = Sha256::digest(format!("{}\0{}", self.project, server.0));
        let name: String = agentsh_base::hex(key.iter().take(16));
        self.directory.join(format!("{name}.json"))
    }
}

/// All stored entries, by server and project.
#[must_use]
pub fn all(state: &Path) -> Vec<InventoryEntry> {
    let entries = fs::read_dir(state.join(NAME)).into_iter().flatten().flatten();
    let is_json = |path: &PathBuf| path.extension().is_some_and(|end| end == "json");
    let files = entries.map(|entry| entry.path()).filter(is_json).take(MAX_FILES);
    let mut all: Vec<InventoryEntry> = files.filter_map(|path| read(&path)).collect();
    all.sort_by(|one, other| (&one.server, &one.project).cmp(&(&other.server, &other.project)));
    all
}

/// An unreadable file counts as missing: behaviour is learned again.
fn read(file: &Path) -> Option<InventoryEntry> {
    let mut text = Vec::new();
    fs::File::open(file).ok()?.take(MAX_BYTES).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}
