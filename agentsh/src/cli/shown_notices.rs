//! Shows only once what a machine cannot enforce, because that does not change. The report of a session and `agentsh
//! doctor` always show it.

use std::collections::BTreeSet;
use std::path::Path;

use agentsh_store::Summary;

/// The layer of a weaker sandbox that was asked for.
const TIER: &str = "tier";

/// Below the directory of the records.
const FILE: &str = "told";

/// The notices that were shown before on this machine. Those of this summary count as shown from now on.
pub(super) fn of_machine(state: &Path, summary: &Summary) -> BTreeSet<String> {
    let path = state.join(FILE);
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let told: BTreeSet<String> = text.lines().map(str::to_owned).collect();
    let lacking = summary.weakened_layers();
    if !lacking.is_subset(&told) {
        let all: Vec<&str> = told.union(&lacking).map(String::as_str).collect();
        // If this cannot be stored, the notice is shown again.
        let _ = std::fs::write(&path, all.join("\n") + "\n");
    }
    // The user asked for less: that is not a property of the machine.
    told.into_iter().filter(|line| !line.starts_with(TIER)).collect()
}
