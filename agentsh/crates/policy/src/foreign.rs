//! A server of the project with the name of an entry in the user's policy: the entry was written for another program,
//! so it can only take away.

use super::narrow;
use super::profile::ServerProfile;
use super::{McpPolicy, ProcessPolicy};
use crate::types::ServerId;

impl McpPolicy {
    /// Like [`McpPolicy::process_of`], for a server that the user did not declare: the profile of its package or the defaults,
    /// narrowed by the entry of that name.
    #[must_use]
    pub fn process_of_foreign(&self, id: &ServerId, profile: Option<&ServerProfile>) -> ProcessPolicy {
        let mut process =
            profile.map_or_else(ProcessPolicy::server_default, |profile| profile.process.clone());
        let Some(entry) = self.servers.get(id) else { return process };
        for raw in entry.own.iter().chain(&entry.narrowing) {
            narrow::intersect(&mut process, raw);
        }
        process
    }
}
