//! The agent's model endpoint: a listener inside the sandbox's network namespace, served by the session, which
//! dials the one destination that belongs to it.
//!
//! What stands behind the name is not inspected: whoever answers for the model's address answers.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::{TcpListener, TcpStream};

/// One destination that the agent must reach.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// A name, or an address literal.
    pub host: String,
    pub port: u16,
}

/// Where an endpoint is found inside the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    pub endpoint: Endpoint,
    pub listen: SocketAddr,
}

/// Gives each name a loopback address of its own, so that two names may share a port. Returns the listeners and
/// the names for `/etc/hosts`.
#[must_use]
pub fn plan(endpoints: &[Endpoint]) -> (Vec<Opened>, BTreeMap<String, IpAddr>) {
    let mut opened = Vec::new();
    let mut names = BTreeMap::new();
    for endpoint in endpoints {
        let mut open = |address: IpAddr| {
            let listen = SocketAddr::new(address, endpoint.port);
            if !opened.iter().any(|other: &Opened| other.listen == listen) {
                opened.push(Opened { endpoint: endpoint.clone(), listen });
            }
        };
        let literal = endpoint.host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        match literal {
            Ok(address) if address.is_loopback() => open(address),
            // An address elsewhere cannot be given to a loopback device: such an endpoint stays unreachable.
            Ok(_) => {}
            Err(_) if endpoint.host.eq_ignore_ascii_case("localhost") => {
                open(Ipv4Addr::LOCALHOST.into());
                open(Ipv6Addr::LOCALHOST.into());
            }
            Err(_) => {
                let next = u8::try_from(names.len() + 1).unwrap_or(u8::MAX);
                let address = *names.entry(endpoint.host.clone()).or_insert(IpAddr::from([127, 77, 0, next]));
                open(address);
            }
        }
    }
    (opened, names)
}

/// Accepts until dropped. One connection at a time fails without harm to the others.
///
/// # Errors
/// When the listener itself is unusable.
pub async fn relay(listener: std::net::TcpListener, endpoint: Endpoint) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    loop {
        let Ok((inside, _)) = listener.accept().await else {
            // Out of descriptors: let some connection end first.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        let endpoint = endpoint.clone();
        tokio::task::spawn_local(async move {
            // A failed dial closes the connection, which is what the program would see from the network.
            let _ = connect_and_copy(inside, &endpoint).await;
        });
    }
}

async fn connect_and_copy(mut inside: TcpStream, endpoint: &Endpoint) -> io::Result<()> {
    let host = endpoint.host.trim_start_matches('[').trim_end_matches(']');
    let mut outside = TcpStream::connect((host, endpoint.port)).await?;
    inside.set_nodelay(true)?;
    outside.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut inside, &mut outside).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(host: &str, port: u16) -> Endpoint {
        Endpoint { host: host.to_owned(), port }
    }

    #[test]
    fn names_get_addresses_of_their_own_and_loopback_stays_loopback() {
        let (opened, names) = plan(&[
            endpoint("api.example.com", 443),
            endpoint("127.0.0.1", 8080),
            endpoint("login.example.com", 443),
        ]);
        let listens: Vec<String> = opened.iter().map(|open| open.listen.to_string()).collect();
        assert_eq!(listens, ["127.77.0.1:443", "127.0.0.1:8080", "127.77.0.2:443"]);
        assert_eq!(names.len(), 2);
    }

    #[test]
    fn localhost_listens_on_both_families_and_far_addresses_on_none() {
        let (opened, names) = plan(&[endpoint("localhost", 1), endpoint("192.0.2.7", 443)]);
        assert_eq!(opened.len(), 2);
        assert!(names.is_empty());
    }
}
