//! Results that wait to be remembered.

use agentsh_base::json::Json;
use agentsh_dlp::taint::Origin;

/// Results and bytes of them that may wait.
const MAX_RESULTS: usize = 64;
const MAX_BYTES: usize = 4 << 20;

/// Each with where it came from, oldest first, as JSON.
#[derive(Debug, Default)]
pub(super) struct DeferredResults {
    results: Vec<(Origin, Vec<u8>)>,
}

impl DeferredResults {
    pub fn push(&mut self, origin: Origin, said: &Json<'_>) {
        self.results.push((origin, said.to_compact().into_bytes()));
    }

    pub fn len(&self) -> usize {
        self.results.len()
    }

    pub fn is_full(&self) -> bool {
        let bytes: usize = self.results.iter().map(|(_, said)| said.len()).sum();
        self.results.len() >= MAX_RESULTS || bytes >= MAX_BYTES
    }

    /// Leaves nothing behind.
    pub fn take(&mut self) -> Vec<(Origin, Vec<u8>)> {
        std::mem::take(&mut self.results)
    }
}
