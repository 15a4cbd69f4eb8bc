//! The user's HTTP proxy (CONNECT). Used only if the caller asks for it.
//!
//! The proxy resolves the name, so its addresses cannot be checked here; the URL itself is checked as always.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use url::{Position, Url};

use super::dial::{Timeouts, dial};
use super::error::HttpError;
use super::resolve::Lookup;
use super::target::{Rules, Target};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Longest answer to CONNECT, in bytes.
const MAX_HEAD: usize = 16 << 10;
/// For the answer to CONNECT.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    target: Target,
    /// The whole header line, where the URL has a user name.
    authorization: Option<String>,
    except: Vec<String>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("target", &self.target.name()).finish_non_exhaustive()
    }
}

impl Proxy {
    /// The proxy in HTTPS_PROXY (or ALL_PROXY) and NO_PROXY, in capitals or not; None if there is none.
    ///
    /// # Errors
    /// When it is not the address of an HTTP proxy.
    pub fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let named =
            |names: &[&str]| names.iter().find_map(|name| variable(name).filter(|value| !value.is_empty()));
        let Some(url) = named(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]) else {
            return Ok(None);
        };
        Self::new(&url, &named(&["no_proxy", "NO_PROXY"]).unwrap_or_default()).map(Some)
    }

    /// `url` may have a user name and a password; without a scheme it is `http:`. `except` names hosts, with commas between.
    ///
    /// # Errors
    /// When it is not the address of an HTTP proxy. The message does not hold the password.
    pub fn new(url: &str, except: &str) -> Result<Self, String> {
        let whole = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let mut url = Url::parse(&whole).map_err(|error| format!("the address of the proxy: {error}"))?;
        if url.scheme() != "http" {
            return Err(format!("a '{}:' proxy is not supported, only an 'http:' proxy", url.scheme()));
        }
        let port = url.port().unwrap_or(80);
        let authorization = (!url.username().is_empty()).then(|| {
            let decoded = |text| percent_decode_str(text).collect();
            let pair: [Vec<u8>; 2] = [url.username(), url.password().unwrap_or_default()].map(decoded);
            format!("Proxy-Authorization: Basic {}\r\n", STANDARD.encode(pair.join(&b':')))
        });
        let refused = |()| "the address of the proxy has no host".to_owned();
        url.set_username("").map_err(refused)?;
        url.set_password(None).map_err(refused)?;
        url.set_scheme("https").map_err(refused)?;
        url.set_port(Some(port)).map_err(refused)?;
        // Judged as an address that the user named: it may be anywhere, and what goes through it has its own TLS.
        let target = Target::parse(&url[..Position::AfterPort], &Rules::user_configured())
            .map_err(|why| format!("the address of the proxy: {why}"))?;
        let except = except.split([',', ' ']).map(|host| host.trim().to_ascii_lowercase());
        Ok(Self { target, authorization, except: except.filter(|host| !host.is_empty()).collect() })
    }

    /// Its host, as it may be shown.
    #[must_use]
    pub fn name(&self) -> &str {
        self.target.name()
    }

    pub(crate) fn is_for(&self, target: &Target) -> bool {
        !target.is_plain() && self.is_for_host(target.name(), target.port())
    }

    /// Not for this machine, and not for hosts that NO_PROXY names. `host` is a name, or an address as it is written.
    #[must_use]
    pub fn is_for_host(&self, host: &str, port: u16) -> bool {
        let is_loopback = |text: &str| text.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        let is_here =
            is_loopback(host.trim_matches(['[', ']'])) || host == "localhost" || host.ends_with(".localhost");
        !is_here && !self.except.iter().any(|pattern| covers(pattern, host, port))
    }

    pub(crate) async fn connect(&self, target: &Target, lookup: &Lookup) -> Result<TcpStream, HttpError> {
        self.tunnel(target.name(), target.port(), lookup).await.map(|(stream, _)| stream)
    }

    /// A connection to `host` by way of the proxy, and the proxy's own address. Who asked has judged the host; what it leads
    /// to is not known here. `lookup` resolves the proxy's name.
    ///
    /// # Errors
    /// When the proxy cannot be reached, or does not connect.
    pub async fn tunnel(
        &self,
        host: &str,
        port: u16,
        lookup: &Lookup,
    ) -> Result<(TcpStream, IpAddr), HttpError> {
        let proxy = self.target.name().to_owned();
        let host = match host.parse::<Ipv6Addr>() {
            Ok(address) => format!("[{address}]:{port}"),
            Err(_) => format!("{host}:{port}"),
        };
        let refused = |why: String| HttpError::Proxy { proxy: proxy.clone(), host: host.clone(), why };
        let addresses = self.target.resolve(&Rules::user_configured(), lookup).await;
        let addresses = addresses.map_err(|why| refused(why.to_string()))?;
        let failed = |source| HttpError::Connect { host: proxy.clone(), source: Arc::new(source) };
        let dialled = dial(&addresses, self.target.port(), Timeouts::default()).await.map_err(failed)?;
        let address = dialled.address;
        let mut stream = dialled.socket.into_tokio().map_err(failed)?;
        let authorization = self.authorization.as_deref().unwrap_or_default();
        let request = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n{authorization}\r\n");
        stream.write_all(request.as_bytes()).await.map_err(failed)?;
        let answer = async {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                // Byte by byte: what follows the head belongs to the server behind.
                match stream.read_u8().await {
                    Ok(byte) if head.len() < MAX_HEAD => head.push(byte),
                    Ok(_) => return Err(refused("its answer is too long".to_owned())),
                    Err(error) => return Err(refused(error.to_string())),
                }
            }
            Ok(head)
        };
        let silent = |_| refused(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()));
        let head = tokio::time::timeout(CONNECT_TIMEOUT, answer).await.map_err(silent)??;
        let line = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
        match line.split(' ').nth(1).map(str::as_bytes) {
            Some([b'2', _, _]) => Ok((stream, address)),
            _ => Err(refused(line.chars().filter(|letter| !letter.is_control()).take(200).collect())),
        }
    }
}

/// `*`, a host with everything below it, or one with a port.
fn covers(pattern: &str, name: &str, port: u16) -> bool {
    if pattern == "*" {
        return true;
    }
    let (host, own_port) = match pattern.rsplit_once(':') {
        Some((host, digits)) if digits.parse::<u16>().is_ok() && !host.contains(':') => {
            (host, digits.parse().ok())
        }
        _ => (pattern, None),
    };
    let host = host.trim_start_matches("*.").trim_start_matches('.');
    own_port.is_none_or(|own: u16| own == port)
        && name.strip_suffix(host).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use super::*;

    #[test]
    fn proxy_is_read_from_https_proxy_and_no_proxy() {
        let read = |pairs: &[(&str, &str)]| {
            Proxy::of_environment(|name| {
                pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(read(&[]).unwrap(), None);
        assert_eq!(read(&[("HTTPS_PROXY", "")]).unwrap(), None);
        assert!(read(&[("HTTPS_PROXY", "socks5://x:1")]).is_err());
        let proxy = read(&[
            ("https_proxy", "http://user:p%40ss@proxy.corp:3128"),
            ("NO_PROXY", "a.com, .b.com,c.com:8443"),
        ]);
        let proxy = proxy.unwrap().unwrap();
        assert_eq!((proxy.target.name(), proxy.target.port()), ("proxy.corp", 3128));
        assert_eq!(proxy.authorization.as_deref(), Some("Proxy-Authorization: Basic dXNlcjpwQHNz\r\n"));
        assert!(!format!("{proxy:?}").contains("p%40ss"));
        let is_for = |url: &str| {
            proxy.is_for(&Target::parse(url, &Rules { loopback: true, ..Rules::default() }).unwrap())
        };
        assert!(is_for("https://x.com/") && is_for("https://c.com/") && is_for("https://nota.com/"));
        for url in [
            "https://a.com/",
            "https://x.a.com/",
            "https://b.com/",
            "https://c.com:8443/",
            "https://127.0.0.1/",
        ] {
            assert!(!is_for(url), "{url}");
        }
    }
}
