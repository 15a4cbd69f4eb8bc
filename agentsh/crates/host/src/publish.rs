//! Publishes ports of the agent's sandbox on this machine's loopback. A connection is carried by a socket that was
//! created inside the sandbox; the ports are known before the agent runs.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, sockopt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use agentsh_sandbox::network::unconnected;

/// A server on the sandbox's loopback takes a connection at once, or it does not listen.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// After running out of descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// `PORT` or `PORT:HOSTPORT`; 0 for the latter is any free one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedPort {
    pub port: u16,
    pub host_port: u16,
}

impl FromStr for PublishedPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<u16>().map_err(|_| format!("'{text}' is not a port"));
        let (port, host_port) = match text.split_once(':') {
            Some((port, host_port)) => (number(port)?, number(host_port)?),
            None => (number(text)?, number(text)?),
        };
        if port < 1024 {
            return Err("no program inside can listen on a port below 1024".to_owned());
        }
        Ok(Self { port, host_port })
    }
}

/// A port that is listened on.
#[derive(Debug)]
pub struct Published {
    listener: TcpListener,
    port: u16,
}

impl Published {
    /// # Errors
    /// When the port of this machine is taken.
    pub fn listen(asked: PublishedPort) -> Result<Self, String> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, asked.host_port));
        let listener = std::net::TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        });
        let port = asked.port;
        let listener = listener.map_err(|error| {
            format!("cannot publish port {port} at {address}: {error}; `--publish {port}:OTHER` takes another port")
        })?;
        Ok(Self { listener, port })
    }

    /// Inside.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The message for the user.
    #[must_use]
    pub fn line(&self) -> String {
        let address =
            self.listener.local_addr().map_or_else(|_| String::new(), |address| address.to_string());
        format!("port {} of the sandbox is reachable at http://{address}", self.port)
    }
}

/// Sockets in the network namespace of a process that the caller may enter.
///
/// # Errors
/// Without the right to enter.
pub fn enter(pid: u32) -> io::Result<Vec<OwnedFd>> {
    let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
    // A separate thread, which ends there.
    let inside = std::thread::Builder::new().name("published".to_owned()).spawn(move || {
        let kind = rustix::thread::LinkNameSpaceType::Network;
        rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(kind))?;
        unconnected()
    })?;
    inside.join().map_err(|_| io::Error::other("the thread that enters the sandbox's network failed"))?
}

/// Sockets for one connection, of each family that there is.
#[derive(Debug, Default)]
struct Pair {
    v4: Option<OwnedFd>,
    v6: Option<OwnedFd>,
}

/// Pairs that are not in use.
struct Pool {
    free: RefCell<Vec<Pair>>,
    places: Arc<Semaphore>,
}

impl Pool {
    fn new(sockets: Vec<OwnedFd>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for socket in sockets {
            match sockopt::socket_domain(&socket) {
                Ok(AddressFamily::INET) => v4.push(socket),
                Ok(AddressFamily::INET6) => v6.push(socket),
                _ => {}
            }
        }
        let free: Vec<Pair> = v4.into_iter().map(|v4| Pair { v4: Some(v4), v6: v6.pop() }).collect();
        Self { places: Arc::new(Semaphore::new(free.len())), free: RefCell::new(free) }
    }

    async fn carry(&self, port: u16, mut outside: TcpStream) {
        let Some(pair) = self.free.borrow_mut().pop() else { return };
        let to = [
            (&pair.v4, SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
            (&pair.v6, SocketAddr::from((Ipv6Addr::LOCALHOST, port))),
        ];
        for (socket, address) in to {
            let Some(socket) = socket else { continue };
            if let Ok(mut inside) = connect(socket, address).await {
                // How a connection ends is the business of its two ends.
                let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                break;
            }
        }
        drop(outside);
        let sockets = [pair.v4, pair.v6].map(|socket| socket.filter(is_free_again));
        let [v4, v6] = sockets;
        self.free.borrow_mut().push(Pair { v4, v6 });
    }
}

/// Connects without giving the socket away: it is used again.
async fn connect(socket: &OwnedFd, to: SocketAddr) -> io::Result<TcpStream> {
    let own = std::net::TcpStream::from(socket.try_clone()?);
    own.set_nonblocking(true)?;
    tokio::time::timeout(CONNECT_TIMEOUT, TcpSocket::from_std_stream(own).connect(to)).await?
}

/// Ends any connection of the socket.
fn is_free_again(socket: &OwnedFd) -> bool {
    rustix::net::connect_unspec(socket).is_ok()
}

/// Carries connections until dropped.
pub fn serve(published: Vec<Published>, sockets: Vec<OwnedFd>) -> JoinSet<()> {
    let pool = Rc::new(Pool::new(sockets));
    let mut serving = JoinSet::new();
    for one in published {
        let pool = Rc::clone(&pool);
        serving.spawn_local(async move {
            let mut connections = JoinSet::new();
            loop {
                // If all are in use, further connections wait in the kernel's queue.
                let Ok(place) = Arc::clone(&pool.places).acquire_owned().await else { return };
                match one.listener.accept().await {
                    Ok((outside, _)) => {
                        let (pool, port) = (Rc::clone(&pool), one.port);
                        connections.spawn_local(async move {
                            pool.carry(port, outside).await;
                            drop(place);
                        });
                    }
                    Err(_) => tokio::time::sleep(ACCEPT_BACKOFF).await,
                }
                while connections.try_join_next().is_some() {}
            }
        });
    }
    serving
}
