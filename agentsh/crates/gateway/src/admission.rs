//! Checks before a message is read, in ThornGuard's order: network, host name, origin, key, rate.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, ORIGIN};
use ipnet::IpNet;
use jiff::Timestamp;
use jsonwebtoken::jwk::JwkSet;

use agentsh_base::site::host_without_port;

use super::codes::Code;
use super::config::Config;
use super::keys::{self, Keys};
use super::message::header;
use super::token::{self, TokenError};

/// Limit of remembered rate windows.
const MAX_WINDOWS: usize = 10_000;
const WINDOW_DURATION: std::time::Duration = std::time::Duration::from_secs(60);

/// A refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: Code,
    /// For the client.
    pub why: String,
    /// Retry-After, in seconds.
    pub retry_after: Option<u64>,
    /// The error of RFC 6750.
    pub token_error: Option<&'static str>,
}

impl Refusal {
    pub fn new(code: Code, why: impl Into<String>) -> Self {
        Self { code, why: why.into(), retry_after: None, token_error: None }
    }
}

/// The authenticated client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Key hash, `sub` of a token, or `anonymous`: owner of sessions.
    pub subject: String,
    /// For the record.
    pub name: String,
    /// Networks for this key; all if empty.
    allow_from: Vec<IpNet>,
}

impl Admitted {
    /// The name for people, to which their answers are bound. A key that was created again under an old name is another
    /// client.
    pub fn client(&self) -> String {
        match self.key() {
            Some(hash) => format!("key '{}' ({})", self.name, hash.get(..8).unwrap_or(hash)),
            None if self.subject == self.name => self.name.clone(),
            None => format!("user '{}'", self.name),
        }
    }

    /// Its hash, if it is a key.
    pub fn key(&self) -> Option<&str> {
        key_of(&self.subject)
    }

    fn without_source_limit(subject: String, name: String) -> Self {
        Self { subject, name, allow_from: Vec::new() }
    }
}

#[derive(Default)]
pub struct AttemptLimiter {
    windows: RefCell<HashMap<String, (Instant, u32)>>,
}

impl AttemptLimiter {
    /// # Errors
    /// The first check that refuses.
    pub fn admit(
        &self,
        config: &Config,
        keys: &Keys,
        signers: Option<&JwkSet>,
        endpoint: &str,
        peer: IpAddr,
        headers: &HeaderMap,
    ) -> Result<Admitted, Refusal> {
        check_origin(config, headers)?;
        let admitted = authenticate(config, (keys, signers), endpoint, headers)?;
        // It may have changed since the connection was accepted.
        check_network(config, peer)?;
        if !is_in(&admitted.allow_from, peer) {
            let why = format!("the key '{}' is not allowed from this network", admitted.name);
            return Err(Refusal::new(Code::Network, why));
        }
        self.count(&admitted.subject, config.limits.requests_per_minute, Instant::now())?;
        Ok(admitted)
    }

    fn count(&self, subject: &str, limit: u32, now: Instant) -> Result<(), Refusal> {
        if limit == 0 {
            return Ok(());
        }
        let mut windows = self.windows.borrow_mut();
        if windows.len() >= MAX_WINDOWS {
            windows.retain(|_, (start, _)| now.duration_since(*start) < WINDOW_DURATION);
        }
        let (start, count) = windows.entry(subject.to_owned()).or_insert((now, 0));
        if now.duration_since(*start) >= WINDOW_DURATION {
            (*start, *count) = (now, 0);
        }
        *count += 1;
        if *count <= limit {
            return Ok(());
        }
        let left = WINDOW_DURATION.saturating_sub(now.duration_since(*start)).as_secs() + 1;
        Err(Refusal {
            retry_after: Some(left),
            ..Refusal::new(
                Code::Rate,
                format!("more than {limit} requests in a minute; try again in {left} s"),
            )
        })
    }
}

/// Refuses connections of networks that the configuration does not list.
pub fn check_network(config: &Config, peer: IpAddr) -> Result<(), Refusal> {
    let why = "connections from this network are not allowed";
    if is_in(&config.allow_from, peer) { Ok(()) } else { Err(Refusal::new(Code::Network, why)) }
}

fn is_in(nets: &[IpNet], peer: IpAddr) -> bool {
    nets.is_empty() || nets.iter().any(|net| net.contains(&peer.to_canonical()))
}

/// The hash of a subject that is a key.
pub fn key_of(subject: &str) -> Option<&str> {
    subject.strip_prefix("key:")
}

/// Refuses web pages of other origins, and unknown host names (DNS rebinding).
pub fn check_origin(config: &Config, headers: &HeaderMap) -> Result<(), Refusal> {
    let refuse = |why: &str| Err(Refusal::new(Code::Origin, why));
    let Some(host) = headers.get(HOST) else { return refuse("the request has no Host header") };
    if !host.to_str().is_ok_and(|host| is_own_host(config, host)) {
        return refuse(
            "this Host header is not allowed; `hosts` in the gateway's configuration lists the allowed names",
        );
    }
    if let Some(origin) = headers.get(ORIGIN) {
        let is_listed = origin
            .to_str()
            .is_ok_and(|origin| config.origins.iter().any(|own| own.eq_ignore_ascii_case(origin)));
        let is_own = origin.to_str().is_ok_and(|origin| is_own_origin(config, origin));
        if !is_listed && !is_own {
            return refuse(
                "this origin is not allowed; `origins` in the gateway's configuration lists the allowed ones",
            );
        }
    } else if matches!(header(headers, "sec-fetch-site"), Some("cross-site" | "same-site")) {
        return refuse("requests from another site are not allowed");
    }
    Ok(())
}

fn is_own_host(config: &Config, host: &str) -> bool {
    let name = host_without_port(host);
    let is_local = name.eq_ignore_ascii_case("localhost")
        || name
            .trim_matches(['[', ']'])
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback() || address == config.listen.ip());
    let public = config
        .public_url
        .as_deref()
        .and_then(|url| url.split_once("://"))
        .map(|(_, rest)| host_without_port(rest.split('/').next().unwrap_or_default()));
    is_local
        || config.hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
        || public.is_some_and(|own| own.eq_ignore_ascii_case(name))
}

fn is_own_origin(config: &Config, origin: &str) -> bool {
    let public = config.public_url.as_deref().and_then(|url| url::Url::parse(url).ok());
    if public.is_some_and(|url| url.origin().ascii_serialization().eq_ignore_ascii_case(origin)) {
        return true;
    }
    let Some((_, rest)) = origin.split_once("://") else { return false };
    // Another port on this machine is another origin.
    rest.rsplit_once(':').is_some_and(|(_, port)| port == config.listen.port().to_string())
        && is_own_host(config, rest)
}

fn authenticate(
    config: &Config,
    (keys, signers): (&Keys, Option<&JwkSet>),
    endpoint: &str,
    headers: &HeaderMap,
) -> Result<Admitted, Refusal> {
    let refuse = |why: String| Err(Refusal::new(Code::Unauthenticated, why));
    let Some(shown) = presented_credential(headers) else {
        if config.auth.open {
            return Ok(anonymous());
        }
        return refuse("authentication required: send `Authorization: Bearer KEY`".to_owned());
    };
    if let (Some(oauth), Some(signers)) = (&config.auth.oauth, signers)
        && !shown.starts_with(keys::PREFIX)
    {
        return match token::check(shown, oauth, signers, &config.resource(endpoint)) {
            Ok(subject) => Ok(Admitted::without_source_limit(format!("sub:{subject}"), subject)),
            Err(TokenError::Invalid(why)) => Err(Refusal {
                token_error: Some("invalid_token"),
                ..Refusal::new(Code::Unauthenticated, why)
            }),
            Err(TokenError::Scope(why)) => Err(Refusal {
                token_error: Some("insufficient_scope"),
                ..Refusal::new(Code::Unauthorized, why)
            }),
        };
    }
    match keys.find(shown, Timestamp::now()) {
        Ok((hash, key)) if key.opens(endpoint) => {
            let allow_from = key.allow_from.clone();
            Ok(Admitted {
                allow_from,
                ..Admitted::without_source_limit(format!("key:{hash}"), key.name.clone())
            })
        }
        // The owner of a key may learn that it lacks the permission.
        Ok((_, key)) => Err(Refusal::new(
            Code::Unauthorized,
            format!("the key '{}' is not allowed to use this endpoint", key.name),
        )),
        // Irrelevant without authentication.
        Err(_) if config.auth.open => Ok(anonymous()),
        Err(error) => refuse(error.to_string()),
    }
}

/// The client's key or token.
fn presented_credential(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(bearer);
    bearer.or_else(|| header(headers, "x-api-key"))
}

/// The client's token, if it is not a key of ours.
pub fn shown_token(headers: &HeaderMap) -> Option<&str> {
    presented_credential(headers).filter(|shown| !shown.starts_with(keys::PREFIX))
}

fn anonymous() -> Admitted {
    Admitted::without_source_limit("anonymous".to_owned(), "anonymous".to_owned())
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, rest) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| rest.trim())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use std::path::Path;

    use super::*;
    use crate::keys::Key;

    fn config(more: &str) -> Config {
        let text = format!("endpoints: [{{id: fs, command: x}}]\n{more}");
        Config::parse(&text, Path::new("/gateway.yaml")).unwrap()
    }

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn admit(config: &Config, keys: &Keys, list: &[(&'static str, &str)]) -> Result<Admitted, &'static str> {
        let peer = "127.0.0.1".parse().unwrap();
        AttemptLimiter::default()
            .admit(config, keys, None, "fs", peer, &headers(list))
            .map_err(|refusal| refusal.code.as_str())
    }

    #[test]
    fn requests_with_foreign_origin_or_host_are_refused() {
        let config = config(
            "auth: {open: true}\norigins: ['https://app.example.com']\nhosts: [mcp.example.com]\npublic_url: https://own.example.com",
        );
        let none = Keys::default();
        for good in [
            vec![("host", "localhost:8808")],
            vec![("host", "127.0.0.1:8808")],
            vec![("host", "[::1]:8808")],
            vec![("host", "mcp.example.com")],
            vec![("host", "localhost:8808"), ("origin", "https://app.example.com")],
            vec![("host", "localhost:8808"), ("origin", "http://localhost:8808")],
            vec![("host", "own.example.com"), ("origin", "https://own.example.com")],
        ] {
            assert!(admit(&config, &none, &good).is_ok(), "{good:?}");
        }
        for bad in [
            vec![],
            vec![("host", "evil.example.com")],
            vec![("host", "localhost.evil.example.com")],
            vec![("host", "localhost:8808"), ("origin", "https://evil.example.com")],
            vec![("host", "localhost:8808"), ("origin", "null")],
            vec![("host", "own.example.com"), ("origin", "http://own.example.com")],
            vec![("host", "localhost:8808"), ("origin", "http://localhost:3000")],
            vec![("host", "localhost:8808"), ("sec-fetch-site", "cross-site")],
        ] {
            assert_eq!(admit(&config, &none, &bad), Err("BLOCKED_ORIGIN"), "{bad:?}");
        }
    }

    #[test]
    fn gateway_key_opens_only_its_endpoints() {
        let config = config("");
        let mut keys = Keys::default();
        let now = Timestamp::now();
        let key = |name: &str, endpoint: &str| Key {
            name: name.into(),
            endpoints: vec![endpoint.into()],
            created: now,
            expires: None,
            revoked: None,
            allow_from: Vec::new(),
        };
        let own = keys.create(key("own", "fs"), now).unwrap();
        let other = keys.create(key("other", "gh"), now).unwrap();
        let host = ("host", "localhost");
        let bearer = |key: &str| format!("Bearer {key}");
        assert_eq!(admit(&config, &keys, &[host, ("authorization", &bearer(&own))]).unwrap().name, "own");
        assert!(admit(&config, &keys, &[host, ("x-api-key", &own)]).is_ok());
        assert_eq!(admit(&config, &keys, &[host, ("authorization", &bearer(&other))]), Err("BLOCKED_AUTH"));
        assert_eq!(admit(&config, &keys, &[host, ("authorization", "Bearer agw_1")]), Err("BLOCKED_AUTH"));
        assert_eq!(
            admit(&config, &keys, &[host, ("authorization", &format!("Basic {own}"))]),
            Err("BLOCKED_AUTH")
        );
        assert_eq!(admit(&config, &keys, &[host]), Err("BLOCKED_AUTH"));
    }

    #[test]
    fn client_networks_and_rates_are_enforced() {
        let config = config("auth: {open: true}\nallow_from: [10.0.0.0/8]\nlimits: {requests_per_minute: 2}");
        let door = AttemptLimiter::default();
        let ask = |peer: &str| {
            let peer = peer.parse().unwrap();
            let answer =
                door.admit(&config, &Keys::default(), None, "fs", peer, &headers(&[("host", "localhost")]));
            answer.map(|_| ()).map_err(|refusal| (refusal.code.as_str(), refusal.retry_after.is_some()))
        };
        assert_eq!(ask("192.0.2.1"), Err(("BLOCKED_IP_WHITELIST", false)));
        assert_eq!(ask("::ffff:10.1.2.3"), Ok(()));
        assert_eq!(ask("10.1.2.3"), Ok(()));
        assert_eq!(ask("10.1.2.3"), Err(("BLOCKED_RATE_LIMIT", true)));
    }
}
