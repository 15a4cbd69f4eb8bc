//! Access to the pages: only the browser that followed the one-time link, on this machine, and from the pages
//! themselves.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use hyper::{HeaderMap, Method, header};
use subtle::ConstantTimeEq;

use agentsh_base::{random, site};

/// Random bytes of each secret.
const BYTES: usize = 32;

/// The secrets of one `agentsh ui`, and the names by which it is called.
pub(super) struct Gate {
    /// The token of the link; None once it was used.
    link: Mutex<Option<String>>,
    cookie: String,
    /// What every form carries.
    form: String,
    cookie_name: String,
    hosts: Vec<String>,
    address: SocketAddr,
}

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestRefusal {
    Foreign(&'static str),
    /// No cookie, or not ours.
    Unknown,
}

impl Gate {
    /// # Errors
    /// When the system gives no random numbers.
    pub fn new(address: SocketAddr) -> std::io::Result<Self> {
        Ok(Self {
            link: Mutex::new(Some(random::hex::<BYTES>()?)),
            cookie: random::hex::<BYTES>()?,
            form: random::hex::<BYTES>()?,
            cookie_name: format!("agentsh-ui-{}", address.port()),
            hosts: vec![address.ip().to_string(), "localhost".to_owned()],
            address,
        })
    }

    /// The link that opens the page, once.
    pub fn link(&self) -> Option<String> {
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        link.as_ref().map(|link| format!("http://{}/open?token={link}", self.address))
    }

    /// Every request goes through this, the one that opens the page too.
    pub fn same_site(&self, method: &Method, headers: &HeaderMap) -> Result<(), RequestRefusal> {
        let only_reads = matches!(*method, Method::GET | Method::HEAD);
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        let asked = site::BrowserRequest::of(only_reads, text);
        site::same_site(&asked, &self.hosts).map_err(RequestRefusal::Foreign)
    }

    /// Whether the request carries the cookie.
    pub fn check_cookie(&self, headers: &HeaderMap) -> Result<(), RequestRefusal> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let found = pairs
            .any(|(name, value)| name == self.cookie_name && equal_in_constant_time(value, &self.cookie));
        if found { Ok(()) } else { Err(RequestRefusal::Unknown) }
    }

    /// What the token of the link is exchanged for: the value of `Set-Cookie`. None: it is not that token, or it was used.
    pub fn exchange(&self, token: &str) -> Option<String> {
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        link.take_if(|link| equal_in_constant_time(link, token))?;
        Some(format!("{}={}; HttpOnly; SameSite=Strict; Path=/", self.cookie_name, self.cookie))
    }

    /// What a form has to send back.
    pub fn form(&self) -> &str {
        &self.form
    }

    pub fn is_form(&self, token: &str) -> bool {
        equal_in_constant_time(token, &self.form)
    }

    /// Whether a connection belongs to the user who started this, or to root: others of this machine may have read the link
    /// from the command line of a browser.
    pub fn is_own(&self, peer: SocketAddr) -> bool {
        let own = rustix::process::geteuid().as_raw();
        let invoker = || std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
        let is_ours = |uid: u32| uid == own || uid == 0 || (own == 0 && Some(uid) == invoker());
        owner(peer, self.address).is_some_and(is_ours)
    }
}

/// Compares in constant time.
fn equal_in_constant_time(one: &str, other: &str) -> bool {
    one.len() == other.len() && bool::from(one.as_bytes().ct_eq(other.as_bytes()))
}

/// The state of a connection that is open, in `/proc/net/tcp` (`tcp_states.h`).
const ESTABLISHED: &str = "01";

/// The user whose socket a connection from `peer` comes out of, as the kernel lists it.
fn owner(peer: SocketAddr, here: SocketAddr) -> Option<u32> {
    let table = std::fs::read_to_string("/proc/self/net/tcp").ok()?;
    let (SocketAddr::V4(peer), SocketAddr::V4(here)) = (peer, here) else { return None };
    let spelled = |address: std::net::SocketAddrV4| {
        format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
    };
    let (from, to) = (spelled(peer), spelled(here));
    table.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        // The kernel lists a socket that was closed as one of root.
        let is_it = words.next()? == from && words.next()? == to && words.next()? == ESTABLISHED;
        // After queues, timer and retransmissions.
        if is_it { words.nth(3)?.parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn the_link_opens_once_and_the_cookie_is_what_counts() {
        let gate = Gate::new("127.4.5.6:8123".parse().unwrap()).unwrap();
        let link = gate.link().unwrap();
        let token = link.split_once("token=").unwrap().1.to_owned();
        assert!(gate.exchange("").is_none() && gate.exchange(&token[1..]).is_none());
        let cookie = gate.exchange(&token).unwrap();
        assert!(gate.exchange(&token).is_none() && gate.link().is_none());
        let mut headers = HeaderMap::new();
        assert_eq!(gate.check_cookie(&headers), Err(RequestRefusal::Unknown));
        headers.insert("cookie", "agentsh-ui-8123=0".parse().unwrap());
        assert_eq!(gate.check_cookie(&headers), Err(RequestRefusal::Unknown));
        let sent = format!("a=b; {}", cookie.split(';').next().unwrap());
        headers.insert("cookie", sent.parse().unwrap());
        assert_eq!(gate.check_cookie(&headers), Ok(()));
    }

    #[test]
    fn a_connection_has_an_owner() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        let stream = std::net::TcpStream::connect(here).unwrap();
        let peer = stream.local_addr().unwrap();
        assert_eq!(owner(peer, here), Some(rustix::process::geteuid().as_raw()));
        assert_eq!(owner("127.0.0.1:1".parse().unwrap(), here), None);
        drop(stream);
        assert_eq!(owner(peer, here), None);
    }
}
