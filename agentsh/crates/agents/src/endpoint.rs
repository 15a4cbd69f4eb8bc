//! Host, port and scheme of a base URL.

use super::{Endpoint, Scheme, TlsInspection};

pub(super) fn parse(url: &str, why: &str) -> Result<Endpoint, String> {
    let trimmed = url.trim();
    let (scheme, rest) = match trimmed.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (Scheme::Https, rest),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (Scheme::Http, rest),
        _ => return Err(format!("{why}: the URL does not start with http:// or https://")),
    };
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host_port = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let default = if scheme == Scheme::Https { 443 } else { 80 };
    let (host, port) = match host_port.strip_prefix('[') {
        Some(bracketed) => match bracketed.split_once(']') {
            Some((host, tail)) => (host, tail.strip_prefix(':').unwrap_or_default()),
            None => return Err(format!("{why}: the URL has an unclosed [")),
        },
        None => host_port.split_once(':').unwrap_or((host_port, "")),
    };
    let port = match port {
        "" => default,
        digits => digits.parse().map_err(|_| format!("{why}: the URL has no valid port"))?,
    };
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':');
    if host.is_empty() || !host.chars().all(plain) {
        return Err(format!("{why}: the URL has no valid host"));
    }
    let (why, judged) = (why.to_owned(), TlsInspection::WhenAsked);
    Ok(Endpoint { scheme, host, port, why, judged, key: None, only_keys: false, requests: &[] })
}

pub(super) fn https(host: &str, why: &str) -> Endpoint {
    let (host, why, judged) = (host.to_owned(), why.to_owned(), TlsInspection::WhenAsked);
    Endpoint {
        scheme: Scheme::Https,
        host,
        port: 443,
        why,
        judged,
        key: None,
        only_keys: false,
        requests: &[],
    }
}

/// The host that renews a login. agentsh allows only these requests; an empty list allows every one.
pub(super) fn login(host: &str, why: &str, requests: &'static [&'static str]) -> Endpoint {
    Endpoint { requests, ..https(host, why).with_inspection(TlsInspection::Never) }
}

/// Google's place for tokens.
pub(super) fn google_login(why: &str) -> Endpoint {
    login("oauth2.googleapis.com", why, &["POST /token", "POST /revoke", "* /tokeninfo"])
}
