//! Plain HTTP: forwards requests after they are judged, and responses unchanged.

use std::cell::RefCell;
use std::io;

use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::copy::{
    HalfConnection, IDLE_TIMEOUT, MIN_SPLICE_BYTES, close_sending_side, one_way, read_some,
    reset_when_dropped, write_all,
};
use super::http_host;
use super::protocol_detection::{Closed, Http};
use super::traffic::{Direction, Traffic};

/// How the connection ends.
#[derive(Debug)]
pub enum End {
    /// Both sides are done, or one failed.
    Done(io::Result<()>),
    /// A request was refused; the server's side is closed, the program was not answered.
    Refused(http_host::Refusal),
    /// Refused in the middle; not answered yet.
    Closed(Closed),
    /// A channel takes a request: these bytes, and the following ones.
    Picked(Vec<u8>),
}

struct Shared {
    http: RefCell<Http>,
    /// The server's answer, for which a request is held.
    answered: Notify,
}

/// Carries requests and responses until both sides have ended.
pub async fn both_ways(inside: &TcpStream, outside: &TcpStream, http: Http, traffic: &Traffic) -> End {
    let shared = Shared { http: RefCell::new(http), answered: Notify::new() };
    let both = async {
        tokio::try_join!(
            forward_requests(inside, outside, &shared, traffic),
            forward_responses(outside, inside, &shared, traffic)
        )
    };
    let result = tokio::select! {
        result = both => result.map(|_| ()),
        () = traffic.idle(IDLE_TIMEOUT) => Err(Stop::Broken(io::ErrorKind::TimedOut.into())),
    };
    match result {
        Ok(()) => End::Done(Ok(())),
        Err(Stop::Picked) => End::Picked(shared.http.into_inner().into_bytes()),
        Err(Stop::Refused(refusal)) => {
            reset_when_dropped(outside);
            End::Refused(refusal)
        }
        Err(Stop::Broken(error)) => {
            reset_when_dropped(inside);
            reset_when_dropped(outside);
            End::Done(Err(error))
        }
    }
}

enum Stop {
    Broken(io::Error),
    Refused(http_host::Refusal),
    Picked,
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

async fn forward_requests(
    inside: &TcpStream,
    outside: &TcpStream,
    shared: &Shared,
    traffic: &Traffic,
) -> Result<(), Stop> {
    loop {
        let (released, is_free, refused) = {
            let mut http = shared.http.borrow_mut();
            let is_free = http.reader.free() == u64::MAX && http.held.is_empty();
            (http.release().0, is_free, http.reader.refusal().cloned())
        };
        write_all(outside, &released).await?;
        traffic.count_bytes(Direction::Up, released.len());
        // The refused request arrived together with a permitted one.
        if let Some(refusal) = refused {
            return Err(Stop::Refused(refusal));
        }
        // A client that sends requests one by one has all earlier responses.
        if shared.http.borrow().reader.is_picked() {
            return Err(Stop::Picked);
        }
        if is_free {
            return Ok(one_way(inside, outside, traffic, Direction::Up).await?);
        }
        tokio::task::coop::consume_budget().await;
        tokio::select! {
            () = shared.answered.notified() => judge(shared, &[])?,
            ready = inside.readable() => {
                ready?;
                match read_some(inside, |bytes| (bytes.len(), judge(shared, bytes))) {
                    Ok((0, _)) => break,
                    Ok((_, judged)) => judged?,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
    if traffic.ends(Direction::Up).await {
        close_sending_side(outside);
    }
    Ok(())
}

fn judge(shared: &Shared, bytes: &[u8]) -> Result<(), Stop> {
    shared.http.borrow_mut().take(bytes).map_err(Stop::Refused)
}

async fn forward_responses(
    outside: &TcpStream,
    inside: &TcpStream,
    shared: &Shared,
    traffic: &Traffic,
) -> Result<(), Stop> {
    let mut way = HalfConnection::default();
    let mut buffer = Vec::new();
    loop {
        outside.readable().await?;
        let moved = if shared.http.borrow().reader.awaits_answer() {
            buffer.resize(16 * 1024, 0);
            match outside.try_read(&mut buffer) {
                Ok(read) => {
                    let bytes = buffer.get(..read).unwrap_or_default();
                    shared.http.borrow_mut().reader.answer(bytes).map_err(Stop::Refused)?;
                    shared.answered.notify_one();
                    write_all(inside, bytes).await?;
                    Some(read)
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
                Err(error) => return Err(error.into()),
            }
        } else {
            way.copy_available(outside, inside, traffic.bytes(Direction::Down) > MIN_SPLICE_BYTES).await?
        };
        match moved {
            None => {}
            Some(0) => break,
            Some(moved) => traffic.count_bytes(Direction::Down, moved),
        }
        tokio::task::coop::consume_budget().await;
    }
    if traffic.ends(Direction::Down).await {
        close_sending_side(inside);
    }
    Ok(())
}
