//! The UDP and TCP sockets of the sandbox's resolver, bounded.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::{sleep, timeout};

use super::allow::Allowlist;
use super::dns::{self, Answer, Transport};
use super::fake_ip_pool::FakeIpPool;

/// More wait in the listener's queue.
const MAX_CONNECTIONS: usize = 16;
/// Limit per TCP connection.
const MAX_QUESTIONS: usize = 1000;
/// For a query to arrive, and for a response to be sent.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
/// After an error of the socket: no descriptors or memory.
const ERROR_BACKOFF: Duration = Duration::from_millis(100);

/// Answers over UDP until dropped. `observe` gets every query first and may suppress the response, if it cannot be
/// recorded.
///
/// # Errors
/// When the socket is unusable.
pub async fn serve_udp(
    socket: std::net::UdpSocket,
    allow: &Allowlist,
    pool: &Mutex<FakeIpPool>,
    observe: &impl AsyncFn(&Answer) -> bool,
) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let socket = UdpSocket::from_std(socket)?;
    // One more byte, to detect truncation.
    let mut buffer = vec![0; dns::MAX_QUERY + 1];
    loop {
        let Ok((length, peer)) = socket.recv_from(&mut buffer).await else {
            // Usually the ICMP error of an earlier response.
            tokio::task::yield_now().await;
            continue;
        };
        let query = buffer.get(..length).unwrap_or_default();
        if let Some(response) = answer_query(query, Transport::Udp, allow, pool, observe).await {
            // The program will ask again.
            let _ = socket.send_to(&response, peer).await;
        }
    }
}

/// Like [`serve_udp`], over TCP: at most 16 connections, each closed after 5 idle seconds or 1000 queries.
///
/// # Errors
/// When the listener is unusable.
pub async fn serve_tcp(
    listener: std::net::TcpListener,
    allow: &Allowlist,
    pool: &Mutex<FakeIpPool>,
    observe: &impl AsyncFn(&Answer) -> bool,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let mut open: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = Vec::new();
    let mut accepting = Box::pin(accept(&listener));
    poll_fn(|context| {
        loop {
            open.retain_mut(|connection| connection.as_mut().poll(context).is_pending());
            if open.len() >= MAX_CONNECTIONS {
                return Poll::Pending;
            }
            let Poll::Ready(stream) = accepting.as_mut().poll(context) else { return Poll::Pending };
            accepting.set(accept(&listener));
            open.push(Box::pin(connection(stream, allow, pool, observe)));
        }
    })
    .await
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(_) => sleep(ERROR_BACKOFF).await,
        }
    }
}

/// Ends at the first invalid query, because the next one cannot be found.
async fn connection(
    mut stream: TcpStream,
    allow: &Allowlist,
    pool: &Mutex<FakeIpPool>,
    observe: &impl AsyncFn(&Answer) -> bool,
) {
    let mut buffer = vec![0; dns::MAX_QUERY];
    for _ in 0..MAX_QUESTIONS {
        let Ok(Ok(length)) = timeout(QUERY_TIMEOUT, read_message(&mut stream, &mut buffer)).await else {
            return;
        };
        let query = buffer.get(..length).unwrap_or_default();
        let Some(response) = answer_query(query, Transport::Tcp, allow, pool, observe).await else { return };
        let Ok(size) = u16::try_from(response.len()) else { return };
        let message = [size.to_be_bytes().as_slice(), &response].concat();
        if !matches!(timeout(QUERY_TIMEOUT, stream.write_all(&message)).await, Ok(Ok(()))) {
            return;
        }
    }
}

/// Preceded by its length.
async fn read_message(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    let length = usize::from(stream.read_u16().await?);
    let room = buffer.get_mut(..length).ok_or(io::ErrorKind::InvalidData)?;
    stream.read_exact(room).await
}

async fn answer_query(
    query: &[u8],
    over: Transport,
    allow: &Allowlist,
    pool: &Mutex<FakeIpPool>,
    observe: &impl AsyncFn(&Answer) -> bool,
) -> Option<Vec<u8>> {
    // An aborted lookup leaves a valid pool: names are added whole.
    let answered = {
        let mut pool = pool.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        dns::answer(query, over, allow, &mut pool)
    };
    if observe(&answered).await { answered.response } else { None }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]
    use std::cell::RefCell;

    use hickory_proto::op::{Message, MessageType, OpCode, Query};
    use hickory_proto::rr::{Name, RecordType};

    use super::*;

    fn allowlist() -> Allowlist {
        let policy = crate::policy::parse("p.yaml", "agent: {network: {allow: [api.example.com]}}");
        Allowlist::new(&policy.unwrap_or_else(|error| panic!("{}", error.render())).agent.network)
    }

    fn question(name: &str) -> Vec<u8> {
        let mut message = Message::new(7, MessageType::Query, OpCode::Query);
        message.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
        message.to_vec().unwrap()
    }

    fn run<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
    }

    #[test]
    fn dns_server_answers_over_udp() {
        run(async {
            let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let address = server.local_addr().unwrap();
            let (allow, seen) = (allowlist(), RefCell::new(Vec::new()));
            let pool = Mutex::new(FakeIpPool::new(&allow));
            let observe = async |answered: &Answer| {
                seen.borrow_mut().push(answered.asked.clone());
                true
            };
            let client = async {
                let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
                // Something that is not answered does not stop the server.
                socket.send_to(b"x", address).await.unwrap();
                for (name, answers) in [("api.example.com.", 1), ("evil.test.", 0)] {
                    socket.send_to(&question(name), address).await.unwrap();
                    let mut buffer = [0; 512];
                    let length = socket.recv(&mut buffer).await.unwrap();
                    assert_eq!(Message::from_vec(&buffer[..length]).unwrap().answers.len(), answers);
                }
            };
            tokio::select! {
                _ = serve_udp(server, &allow, &pool, &observe) => panic!("it ended"),
                () = client => {}
            }
            let names: Vec<String> =
                seen.into_inner().into_iter().flatten().map(|asked| asked.name).collect();
            assert_eq!(names, ["api.example.com", "evil.test"]);
        });
    }

    #[test]
    fn dns_server_answers_over_tcp() {
        run(async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let allow = allowlist();
            let pool = Mutex::new(FakeIpPool::new(&allow));
            let client = async {
                // More connections than are served at a time; all but one are idle.
                let mut idle = Vec::new();
                for _ in 0..MAX_CONNECTIONS - 1 {
                    idle.push(TcpStream::connect(address).await.unwrap());
                }
                let mut stream = TcpStream::connect(address).await.unwrap();
                for _ in 0..3 {
                    let query = question("api.example.com.");
                    stream.write_u16(u16::try_from(query.len()).unwrap()).await.unwrap();
                    // In two pieces.
                    stream.write_all(&query[..5]).await.unwrap();
                    tokio::task::yield_now().await;
                    stream.write_all(&query[5..]).await.unwrap();
                    let mut buffer = vec![0; usize::from(stream.read_u16().await.unwrap())];
                    stream.read_exact(&mut buffer).await.unwrap();
                    assert_eq!(Message::from_vec(&buffer).unwrap().answers.len(), 1);
                }
                drop(idle);
                // Too long, and what is not a question: both end the connection.
                stream.write_u16(u16::MAX).await.unwrap();
                assert!(stream.read_u16().await.is_err());
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(&[0, 1, 0]).await.unwrap();
                assert!(stream.read_u16().await.is_err());
            };
            tokio::select! {
                _ = serve_tcp(listener, &allow, &pool, &async |_: &Answer| true) => panic!("it ended"),
                () = client => {}
            }
        });
    }
}
