//! TLS 1.3 HelloRetryRequest: the second ClientHello, which servers believe, must name the same host.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;

use super::copy::write_all;
use super::protocol_detection::{self, Closed, ExpectedPeer, more};
use super::reason::Reason;
use super::refuse::{ACCESS_DENIED, CloseReply};
use super::tls_sni::{Hello, Reader};
use super::traffic::{Direction, Traffic};

/// Timeout for a server's answer to a hello.
pub(super) const HELLO_TIMEOUT: Duration = Duration::from_secs(60);
const HEADER: usize = 5;
/// Type, length, version and random of a ServerHello.
const SERVER_HELLO_PREFIX_BYTES: usize = 38;
/// The random of a HelloRetryRequest (RFC 8446, section 4.1.3).
const RETRY: [u8; 32] = [
    0xCF, 0x21, 0xAD, 0x74, 0xE5, 0x9A, 0x61, 0x11, 0xBE, 0x1D, 0x8C, 0x02, 0x1E, 0x65, 0xB8, 0x91, 0xC2,
    0xA2, 0x11, 0x16, 0x7A, 0xBB, 0x8C, 0x5E, 0x07, 0x9E, 0x09, 0xE2, 0xC8, 0xA8, 0x33, 0x9C,
];

/// The end of the first hello in the bytes read. None if other data follows in its last record.
#[must_use]
pub fn end_of_hello(bytes: &[u8]) -> Option<usize> {
    let (mut at, mut message) = (0, Vec::with_capacity(4));
    let mut length = 0;
    loop {
        let record = first_record(bytes.get(at..)?)?;
        at += record.len();
        let body = record.get(HEADER..)?;
        length += body.len();
        message.extend(body.iter().take(4 - message.len()));
        if let [_, high, middle, low] = message[..] {
            let wanted = 4 + u32::from_be_bytes([0, high, middle, low]) as usize;
            if length >= wanted {
                return (length == wanted).then_some(at);
            }
        }
    }
}

/// Forwards the server's answer, and a second hello if requested. Nothing else of the program is forwarded before;
/// `early` is what it sent after its hello.
///
/// # Errors
/// The connection's own. Inner: why the second hello is refused.
pub async fn follow(
    inside: &TcpStream,
    outside: &TcpStream,
    early: Vec<u8>,
    wanted: ExpectedPeer<'_>,
    traffic: &Traffic,
) -> io::Result<Result<(), Closed>> {
    let work = async {
        if asks_again(inside, outside, traffic).await? {
            return second(inside, outside, early, wanted, traffic).await;
        }
        // More handshake data before the answer can only be meant for a retry.
        if holds_handshake(&early) {
            return refused(Reason::HelloInterrupted);
        }
        write_all(outside, &early).await?;
        traffic.count_bytes(Direction::Up, early.len());
        Ok(Ok(()))
    };
    tokio::time::timeout(HELLO_TIMEOUT, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn asks_again(inside: &TcpStream, outside: &TcpStream, traffic: &Traffic) -> io::Result<bool> {
    let mut answer = Vec::new();
    loop {
        let before = answer.len();
        match more(outside, &mut answer).await {
            // The next reader finds the end again.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            result => result?,
        }
        let new = answer.get(before..).unwrap_or_default();
        write_all(inside, new).await?;
        traffic.count_bytes(Direction::Down, new.len());
        if let Some(is_retry) = judge(&answer) {
            return Ok(is_retry);
        }
    }
}

/// None: incomplete.
fn judge(mut answer: &[u8]) -> Option<bool> {
    let mut message = Vec::with_capacity(SERVER_HELLO_PREFIX_BYTES);
    while message.len() < SERVER_HELLO_PREFIX_BYTES {
        match answer {
            [22, _, _, high, low, rest @ ..] => {
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                let body = rest.get(..length).unwrap_or(rest);
                message.extend(body.iter().take(SERVER_HELLO_PREFIX_BYTES - message.len()));
                answer = rest.get(body.len()..).unwrap_or_default();
                if length == 0 || message.first().is_some_and(|kind| *kind != 2) {
                    return Some(false);
                }
            }
            [] | [22] | [22, _] | [22, _, _] | [22, _, _, _] => return None,
            _ => return Some(false),
        }
    }
    Some(message.get(6..) == Some(&RETRY))
}

fn refused(reason: Reason) -> io::Result<Result<(), Closed>> {
    let detail = "a second TLS ClientHello that agentsh does not forward".to_owned();
    let close_reply = CloseReply::Alert(ACCESS_DENIED);
    Ok(Err(Closed::Refused { protocol: Some("tls"), reason, detail, close_reply }))
}

/// Whether a handshake record begins there.
fn holds_handshake(mut bytes: &[u8]) -> bool {
    while let Some(kind) = bytes.first() {
        if *kind == 22 {
            return true;
        }
        let Some(record) = first_record(bytes) else { return false };
        bytes = bytes.get(record.len()..).unwrap_or_default();
    }
    false
}

async fn second(
    inside: &TcpStream,
    outside: &TcpStream,
    mut held: Vec<u8>,
    wanted: ExpectedPeer<'_>,
    traffic: &Traffic,
) -> io::Result<Result<(), Closed>> {
    let mut hello = Reader::default();
    // Before `judged` are complete records of the hello.
    let mut judged = 0;
    loop {
        while let Some(record) = first_record(held.get(judged..).unwrap_or_default()) {
            let is_last = match (record.first(), judged) {
                (Some(22), _) => match hello.feed(record) {
                    Hello::NeedMore => false,
                    answer => match protocol_detection::judge(&answer, wanted) {
                        Some(closed) => return Ok(Err(closed)),
                        None => true,
                    },
                },
                // Early data that the server discards, compatibility records and alerts.
                (Some(20 | 21 | 23), 0) => {
                    let length = record.len();
                    write_all(outside, record).await?;
                    traffic.count_bytes(Direction::Up, length);
                    held.drain(..length);
                    continue;
                }
                _ => return refused(Reason::HelloInterrupted),
            };
            if is_last {
                write_all(outside, &held).await?;
                traffic.count_bytes(Direction::Up, held.len());
                return Ok(Ok(()));
            }
            judged += record.len();
        }
        match more(inside, &mut held).await {
            // The next reader finds the end again.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && held.is_empty() => {
                return Ok(Ok(()));
            }
            result => result?,
        }
    }
}

/// The first record, if complete.
fn first_record(bytes: &[u8]) -> Option<&[u8]> {
    let [_, _, _, high, low, ..] = bytes else { return None };
    bytes.get(..HEADER + usize::from(u16::from_be_bytes([*high, *low])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_a_tls_hello_is_found() {
        let record = |body: &[u8]| [&[22, 3, 1, 0, u8::try_from(body.len()).unwrap_or(0)], body].concat();
        let message = [&[1, 0, 0, 6][..], b"hello!"].concat();
        let (one, two) = (record(&message), [record(&message[..3]), record(&message[3..])].concat());
        for hello in [&one, &two] {
            for early in [&b""[..], &[20, 3, 3, 0, 1, 1], &[22, 3]] {
                assert_eq!(end_of_hello(&[hello, early].concat()), Some(hello.len()));
                assert_eq!(holds_handshake(early), early.first() == Some(&22));
            }
            assert_eq!(end_of_hello(&hello[..hello.len() - 1]), None);
        }
        assert_eq!(end_of_hello(&record(&[&message[..], &[1]].concat())), None);
        assert!(holds_handshake(&[20, 3, 3, 0, 1, 1, 22]));
        assert!(!holds_handshake(&[23, 3, 3, 0, 9, 22, 22]));
    }

    #[test]
    fn hello_retry_request_is_recognised_by_its_random() {
        let hello = |random: &[u8; 32]| [&[2, 0, 0, 40, 3, 3][..], random, &[0, 0x13, 1, 0]].concat();
        for (random, expected) in [(&RETRY, true), (&[1; 32], false)] {
            for size in [1, 5, 37, 38, 100] {
                let mut bytes = Vec::new();
                for piece in hello(random).chunks(size) {
                    bytes.extend([22, 3, 3, 0, u8::try_from(piece.len()).unwrap_or(0)]);
                    bytes.extend(piece);
                }
                assert_eq!(judge(&bytes), Some(expected), "in pieces of {size}");
                assert_eq!(judge(bytes.get(..20).unwrap_or_default()), None);
            }
        }
        for other in [&b"hello"[..], &[21, 3, 3, 0, 2, 2, 40], &[22, 3, 3, 0, 1, 11], &[22, 3, 3, 0, 0]] {
            assert_eq!(judge(other), Some(false));
        }
        assert_eq!(judge(&[]), None);
    }
}
