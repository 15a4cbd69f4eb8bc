//! The parts that do not need a connection: framing, the outbox, what is pending.

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::rig::run;
use crate::framing::{Frame, LineReader};
use crate::json::Json;
use crate::jsonrpc::{Id, Key};
use crate::outbox::Outbox;
use crate::pending::{Answer, InsertError, Kind, MAX_PENDING, Pending};

/// All frames of `input`, read in pieces of `step` bytes.
async fn frames(input: &[u8], limit: usize, step: usize) -> Vec<Result<Vec<u8>, (u64, usize, usize)>> {
    let (mut write, read) = duplex(step);
    let mut reader = LineReader::new(read, limit);
    let input = input.to_vec();
    tokio::task::spawn_local(async move { write.write_all(&input).await.unwrap() });
    let mut found = Vec::new();
    loop {
        let more = reader.fill().await.unwrap();
        while let Some(frame) = reader.next_frame() {
            found.push(match frame {
                Frame::Line(line) => Ok(line.to_vec()),
                Frame::Oversized { bytes, head, tail } => Err((bytes, head.len(), tail.len())),
            });
        }
        if !more {
            assert!(reader.is_at_end());
            return found;
        }
    }
}

#[test]
fn lines_are_read_in_any_pieces() {
    run(async || {
        let long = vec![b'x'; 9000];
        let input = [b"a\r\n\n  \nbb\n", long.as_slice(), b"\n12345678\r\n123456789\r\nlast"].concat();
        let expected: Vec<Result<Vec<u8>, (u64, usize, usize)>> = vec![
            Ok(b"a".to_vec()),
            Ok(b"bb".to_vec()),
            Err((9000, 4096, 512)),
            Ok(b"12345678".to_vec()),
            Err((10, 10, 10)),
            Ok(b"last".to_vec()),
        ];
        for step in [1, 2, 3, 7, 100, 4096, 100_000] {
            assert_eq!(frames(&input, 8, step).await, expected, "{step}");
        }
        assert_eq!(frames(b"123456789", 8, 3).await, [Err((9, 9, 9))]);
        assert_eq!(frames(b"\n\r\n", 8, 3).await, []);
    });
}

#[test]
fn endless_line_is_read_in_bounded_memory() {
    run(async || {
        let (mut write, read) = duplex(64 << 10);
        let mut reader = LineReader::new(read, 100_000);
        tokio::task::spawn_local(async move {
            let piece = vec![b'x'; 64 << 10];
            for _ in 0..200 {
                write.write_all(&piece).await.unwrap();
            }
            write.write_all(b"tail\nok\n").await.unwrap();
        });
        let mut found = Vec::new();
        while reader.fill().await.unwrap() {
            assert!(reader.capacity() < 400_000, "{}", reader.capacity());
            while let Some(frame) = reader.next_frame() {
                found.push(match frame {
                    Frame::Line(line) => line.len() as u64,
                    Frame::Oversized { bytes, tail, .. } => {
                        assert!(tail.ends_with(b"tail"));
                        bytes
                    }
                });
            }
        }
        assert_eq!(found, [200 * (64 << 10) + 4, 2]);
    });
}

#[test]
fn the_buffer_shrinks_after_a_big_message() {
    run(async || {
        let (mut write, read) = duplex(1 << 20);
        let mut reader = LineReader::new(read, 16 << 20);
        tokio::task::spawn_local(async move {
            write.write_all(&vec![b'x'; 8 << 20]).await.unwrap();
            write.write_all(b"\n").await.unwrap();
            tokio::task::yield_now().await;
            write.write_all(b"small\n").await.unwrap();
        });
        let mut largest = 0;
        while reader.fill().await.unwrap() {
            largest = largest.max(reader.capacity());
            while reader.next_frame().is_some() {}
        }
        assert!(largest >= 8 << 20);
        assert!(reader.capacity() <= 1 << 20, "{}", reader.capacity());
    });
}

#[test]
fn messages_of_one_turn_are_sent_in_one_write() {
    run(async || {
        let (mut near, mut far) = duplex(1 << 20);
        let mut outbox = Outbox::default();
        for _ in 0..100 {
            outbox.push(|out| out.extend_from_slice(b"0123456789"));
        }
        assert!(!outbox.is_idle() && !outbox.is_full());
        outbox.flush_some(&mut near).await.unwrap();
        assert!(outbox.is_idle());
        let mut all = vec![0; 1100];
        assert_eq!(far.read(&mut all).await.unwrap(), 1100);
        outbox.append(&vec![b'y'; 2 << 20]);
        assert!(outbox.is_full());
        outbox.flush_some(&mut near).await.unwrap();
        assert_eq!(outbox.waiting(), 1 << 20);
    });
}

fn id(number: usize) -> Id {
    Id::from_json(&Json::Number(&number.to_string())).unwrap()
}

#[test]
fn the_number_of_requests_in_flight_is_bounded() {
    let mut pending = Pending::default();
    for number in 0..MAX_PENDING {
        assert_eq!(pending.check(&id(number).key), Ok(()));
        pending.insert(id(number), "m", Kind::Other, None, None);
    }
    assert_eq!(pending.check(&id(MAX_PENDING).key), Err(InsertError::Full));
    assert_eq!(pending.check(&id(3).key), Err(InsertError::Duplicate));
    assert!(matches!(pending.answer(&id(3).key), Answer::Open(_)));
    assert!(matches!(pending.answer(&id(3).key), Answer::Repeated));
    assert_eq!(pending.check(&id(MAX_PENDING).key), Ok(()));
}

#[test]
fn requests_that_were_given_up_are_forgotten_in_the_end() {
    let mut pending = Pending::default();
    for number in 0..10_000 {
        pending.insert(id(number), "m", Kind::Other, None, None);
        pending.give_up(&id(number).key);
    }
    assert!(matches!(pending.answer(&id(0).key), Answer::Unknown));
    assert!(matches!(pending.answer(&id(9_999).key), Answer::Expired));
    pending.insert(id(9_998), "again", Kind::Other, None, None);
    assert!(matches!(pending.answer(&id(9_998).key), Answer::Open(_)));
    assert_eq!(pending.len(), 0);
}

#[test]
fn request_ids_are_compared_as_json_values() {
    let key = |text: &str| Id::from_json(&crate::json::read(text.as_bytes()).unwrap()).map(|id| id.key);
    assert_eq!(key("1"), Ok(Key::Number("1".into())));
    assert_ne!(key("1"), key("\"1\""));
    for (left, right) in [("0", "-0"), ("1.0", "1"), ("1e3", "1000"), ("-20e-1", "-2"), ("0.0", "-0.0")] {
        assert_eq!(key(left), key(right), "{left}");
    }
    assert_eq!(key("12345678901234567890"), Ok(Key::Number("12345678901234567890".into())));
    assert_eq!(key(r#""a\/b""#), key("\"a/b\""));
    for wrong in ["1.5", "1e300", "1e-3", "12345678901234567890.0", "null", "true", "[1]", "{}"] {
        assert!(key(wrong).is_err(), "{wrong}");
    }
}
