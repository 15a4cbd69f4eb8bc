//! The forwarder fetches the organisation's bundle, so an enrolled host needs no timer for it.

use std::path::Path;
use std::time::{Duration, SystemTime};

use agentsh_authoring::{CommandContext, bundle};
use agentsh_fleet::key_files;
use agentsh_terminal::output::{Context, Failure};

/// Between two looks, also of forwarders that come and go with sessions.
const CHECK_INTERVAL: Duration = Duration::from_secs(300);
/// How often the time is looked at.
const POLL_INTERVAL: Duration = Duration::from_secs(15);

/// Fetches it when it is time, until this is dropped. What is refused is in the reports of sessions.
pub(super) async fn keep_fetching(context: &Context) {
    loop {
        if is_time(&context.state_dir) {
            // Reported by `fleet doctor`, `policy bundle status` and every session.
            let _said = fetch(context).await;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Fetches the bundle now, and returns the failure. None also if no organisation is configured, or its bundle is a
/// file.
pub(super) async fn fetch(context: &Context) -> Option<Failure> {
    let place = CommandContext::from_environment().ok()?;
    if !bundle::is_fetched(&place) {
        return None;
    }
    let fetched = bundle::pull(&place, &mut std::io::sink()).await;
    // The next forwarder looks again, if this cannot be noted.
    let _noted = key_files::write(&key_files::fetched_file(&context.state_dir), &fetched.is_ok());
    fetched.err()
}

fn is_time(state_dir: &Path) -> bool {
    let noted = std::fs::metadata(key_files::fetched_file(state_dir)).and_then(|found| found.modified());
    // A clock that was set back counts as time.
    noted.map_or(true, |noted| {
        SystemTime::now().duration_since(noted).map_or(true, |age| age > CHECK_INTERVAL)
    })
}
