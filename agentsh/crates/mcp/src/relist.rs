//! Notifies the client that a listing changed because a hidden entry was released.

use std::future::pending;

use tokio::sync::watch;

use crate::json;
use crate::store::Recorder;

use super::client::Client;
use super::connection::Connection;

/// Number of releases per listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReleaseCounts {
    pub tools: u64,
    pub prompts: u64,
    pub resources: u64,
}

/// The changes that one connection has seen.
pub(super) struct Relisting {
    source: Option<watch::Receiver<ReleaseCounts>>,
    told: ReleaseCounts,
}

impl Relisting {
    pub fn new(source: Option<watch::Receiver<ReleaseCounts>>) -> Self {
        let told = source.as_ref().map_or_else(ReleaseCounts::default, |source| *source.borrow());
        Self { source, told }
    }

    /// The next release. Pending if there is none.
    pub async fn next(&mut self) -> ReleaseCounts {
        if let Some(source) = &mut self.source
            && source.changed().await.is_ok()
        {
            return *source.borrow_and_update();
        }
        pending().await
    }
}

impl<R: Recorder> Connection<R> {
    /// Tells the client to list again, and compares again what it calls without listing.
    pub fn on_released(&mut self, client: &mut impl Client, now: ReleaseCounts) {
        let before = std::mem::replace(&mut self.relisting.told, now);
        if before.tools != now.tools {
            self.listing.tools_changed();
            // Tools listed while hidden are compared again before a call.
            self.tools.clear();
        }
        // Nothing was listed before.
        if self.handshake.initialized.is_none() {
            return;
        }
        for (list, is_other) in [
            ("tools", before.tools != now.tools),
            ("prompts", before.prompts != now.prompts),
            ("resources", before.resources != now.resources),
        ] {
            if is_other {
                let method = format!("notifications/{list}/list_changed");
                let message = format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#);
                // agentsh wrote it.
                let Ok(tree) = json::read(message.as_bytes()) else { continue };
                client.notification(&method, tree);
            }
        }
    }
}
