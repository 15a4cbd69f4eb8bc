//! What the proxy itself sends: alerts to the webhook of the environment.

use std::rc::Rc;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::http::Client;
use crate::net::resolve::Resolver;
use crate::store::Journal;
use crate::telemetry::webhook::{self, Webhook};

use super::super::Session;
use super::super::run::RunError;
use super::settings::{ResponseMode, Secret, Settings};

/// How long the end of a session waits for alerts that are on their way.
pub const LAST_WORDS: Duration = Duration::from_secs(5);

/// The webhook of the environment. The mode `log` only writes down, so nobody is told then.
///
/// # Errors
/// An address that is none, or a host whose resolver cannot be used.
pub fn webhook(
    session: &Session,
    settings: &Settings,
    mode: ResponseMode,
) -> Result<Option<Webhook<Journal>>, RunError> {
    let Some(address) = settings.webhook.as_ref().filter(|_| mode != ResponseMode::Log) else {
        return Ok(None);
    };
    let refused = |why: String| RunError::Refused(format!("CANARY_MCP_ALERT_WEBHOOK cannot be used: {why}"));
    let url = url::Url::parse(address).map_err(|error| refused(error.to_string()))?;
    let secret = settings.webhook_secret.as_ref().map(|Secret(secret)| secret.clone().into_bytes());
    let client = client().map_err(refused)?;
    Ok(Some(Webhook::new(webhook::Settings::new(url, secret), client, session.journal.clone())))
}

/// A client that resolves as the host does. The user named the address, so it may be a private one.
///
/// # Errors
/// When the resolver of this machine cannot be used.
pub fn client() -> Result<Client, String> {
    let resolver = Rc::new(Resolver::system().map_err(|error| error.to_string())?);
    let anywhere = [IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())];
    Ok(Client::new(Rc::new(move |name| {
        let resolver = Rc::clone(&resolver);
        Box::pin(async move { resolver.resolve(&name, &anywhere).await.map_err(|error| error.to_string()) })
    })))
}
