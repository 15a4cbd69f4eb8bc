//! Any pieces give the same events, none is longer than the limit, and the end is the same.

use super::remote::sse::{Event, Framer};

const LIMIT: usize = 300;

pub fn check(data: &[u8]) {
    let Some((size, bytes)) = data.split_first() else { return };
    let whole = run(bytes, bytes.len().max(1));
    assert_eq!(run(bytes, usize::from(*size).max(1)), whole, "the pieces made a difference");
    assert_eq!(run(bytes, 1), whole, "single bytes made a difference");
    assert!(whole.0.iter().all(|event| event.data.len() <= LIMIT), "an event is too long");
    let data: usize = whole.0.iter().map(|event| event.data.len()).sum();
    assert!(data <= bytes.len(), "more came out than went in");
}

/// The events, the last id, and whether it ended early.
fn run(bytes: &[u8], size: usize) -> (Vec<Event>, Option<String>, bool) {
    let mut framer = Framer::new(LIMIT);
    let mut events = Vec::new();
    let refused = bytes.chunks(size).any(|piece| framer.push(piece, &mut events).is_err());
    (events, framer.last_id().map(str::to_owned), refused)
}
