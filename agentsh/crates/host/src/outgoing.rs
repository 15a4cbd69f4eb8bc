//! Connections of agentsh itself: the client, the proxy, and the addresses that a server behind a URL may have.

use std::time::Duration;

use url::{Host, Url};

use agentsh_base::types::ServerId;
use agentsh_egress::Client;
use agentsh_egress::client::{Limits, Request, Response};
use agentsh_egress::proxy::Proxy;
use agentsh_egress::resolve::Resolver;
use agentsh_egress::target::Rules;
use agentsh_policy::{NetworkPolicy, ProxyChoice};

use crate::{Facts, Record};

/// A client that resolves as the host does, or goes by the proxy of the environment. The user named the address, so it may be
/// a private one.
///
/// # Errors
/// When the resolver of this machine cannot be used, or the proxy in the environment is invalid.
pub fn client() -> Result<Client, String> {
    let lookup = Resolver::system_lookup().map_err(|error| error.to_string())?;
    let proxy = Proxy::of_environment(|name| std::env::var(name).ok())?;
    Ok(Client::new(lookup, Rules::user_configured()).with_proxy(proxy))
}

/// Fetches a document, following redirects.
///
/// # Errors
/// Why there is no body.
pub async fn get(url: &str, max: usize) -> Result<Vec<u8>, String> {
    request_stream(url, max).await?.read_body(max).await.map_err(|error| error.to_string())
}

/// Like [`get`], to be read piece by piece.
///
/// # Errors
/// Why there is no response.
pub async fn request_stream(url: &str, max: usize) -> Result<Response, String> {
    let limits = Limits { idle: Some(Duration::from_secs(30)), max_body: Some(max), ..Limits::default() };
    let client = client()?.with_limits(limits);
    let target = client.target(url).map_err(|why| why.to_string())?;
    let answer = client.follow(Request::get(target)).await.map_err(|error| error.to_string())?;
    if answer.status != 200 {
        return Err(format!("it answered with status {}", answer.status.as_u16()));
    }
    Ok(answer)
}

/// The proxy for the connections of a process.
///
/// # Errors
/// When the policy names one that cannot be used. An unusable one from the environment is reported and ignored.
pub fn proxy(facts: &Facts, record: &Record, rules: &NetworkPolicy) -> Result<Option<Proxy>, String> {
    let variable = |name: &str| facts.context.env.get(name).cloned();
    match rules.proxy.as_ref().map(|choice| (&choice.value, &choice.rule)) {
        Some((ProxyChoice::Off, _)) => Ok(None),
        Some((ProxyChoice::Url(url), rule)) => {
            let except = variable("no_proxy").or_else(|| variable("NO_PROXY")).unwrap_or_default();
            Proxy::new(url, &except).map(Some).map_err(|why| format!("{why}, by {rule}"))
        }
        Some((ProxyChoice::Environment, _)) | None => {
            Ok(Proxy::of_environment(variable).unwrap_or_else(|why| {
                record.note_missing(&format!(
                    "HTTPS_PROXY is not used: {why}; to turn this message off: `network: {{proxy: off}}`"
                ));
                None
            }))
        }
    }
}

/// Public addresses over TLS; also this machine if the user says so, and the networks that the server's rules name.
pub fn rules(facts: &Facts, id: &ServerId, url: &str, from_user: bool) -> Rules {
    let mut rules = Rules::default();
    let Ok(url) = Url::parse(url) else { return rules };
    let port = url.port_or_known_default().unwrap_or(443);
    rules.loopback = from_user && is_here(&url);
    if let Some(server) = facts.policy.mcp.servers.get(id) {
        let network = &server.process.network;
        rules.loopback |= is_here(&url) && network.loopback.iter().any(|open| open.value == port);
        let host = url.host_str().unwrap_or_default();
        let named = network.allow.iter().filter(|rule| rule.value.matches(host, port));
        rules.permitted =
            named.flat_map(|rule| rule.value.addresses.iter().map(|block| block.value)).collect();
    }
    rules
}

pub fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}
