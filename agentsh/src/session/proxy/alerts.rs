//! Alerts to the webhook of the environment.

use std::time::Duration;

use agentsh_store::Journal;
use agentsh_telemetry::alerts::Alerts;
use agentsh_telemetry::webhook::{self, Webhook};

use super::super::run_error::RunError;
use super::settings::{Secret, Settings};
use agentsh_host::Record;
use agentsh_host::outgoing::client;
use agentsh_policy::OnFlow;

/// For alerts at the end of a session.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Alerts to the webhook of the environment; none in the mode `log`.
///
/// # Errors
/// An invalid URL, or an unusable resolver.
pub fn start(
    record: &Record,
    settings: &Settings,
    mode: OnFlow,
) -> Result<Option<Alerts<Journal>>, RunError> {
    let Some(address) = settings.webhook.as_ref().filter(|_| mode != OnFlow::Allow) else {
        return Ok(None);
    };
    let refused = |why: String| RunError::Refused(format!("cannot use CANARY_MCP_ALERT_WEBHOOK: {why}"));
    let url = url::Url::parse(address).map_err(|error| refused(error.to_string()))?;
    let secret = settings.webhook_secret.as_ref().map(|Secret(secret)| secret.clone().into_bytes());
    let client = client().map_err(refused)?;
    let webhook = Webhook::new(webhook::Settings::new(url, secret), client, record.journal.clone());
    Ok(Some(Alerts::start(record.journal.subscribe(), webhook)))
}
