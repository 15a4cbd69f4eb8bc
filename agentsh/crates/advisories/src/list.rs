//! Reads a JSON list of any length item by item.

use std::cell::Cell;
use std::fmt;
use std::io::{self, BufReader, Read};
use std::rc::Rc;

use serde::Deserializer as _;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde_json::Value;

use super::read::MAX_RECORD;
use super::source::{Reading, Source};

/// Read ahead of what is looked at, in bytes.
const READ_AHEAD_BYTES: usize = 64 << 10;

/// Ends a read that is longer than an item may be.
struct LimitedReader<R> {
    inner: R,
    left: Rc<Cell<usize>>,
}

impl<R: Read> Read for LimitedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let left = self.left.get().checked_sub(count);
        let long = || io::Error::other(format!("an entry is larger than {} MiB", MAX_RECORD >> 20));
        self.left.set(left.ok_or_else(long)?);
        Ok(count)
    }
}

struct Items<F> {
    take: F,
    left: Rc<Cell<usize>>,
    /// The refusal of `take`.
    refused: Rc<Cell<Option<String>>>,
}

impl<'de, F: FnMut(u64, Value) -> Result<(), String>> Visitor<'de> for Items<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        for number in 1.. {
            self.left.set(MAX_RECORD + READ_AHEAD_BYTES);
            let Some(item) = items.next_element::<Value>()? else { break };
            if let Err(why) = (self.take)(number, item) {
                self.refused.set(Some(why));
                return Err(A::Error::custom("refused"));
            }
        }
        Ok(())
    }
}

/// Hands on every item, with its number.
///
/// # Errors
/// `take` failed, the text is not a complete list, or an item is too long.
pub(crate) fn for_each_item(
    source: &impl Source,
    take: impl FnMut(u64, Value) -> Result<(), String>,
) -> Result<(), String> {
    let left = Rc::new(Cell::new(MAX_RECORD + READ_AHEAD_BYTES));
    let refused = Rc::new(Cell::new(None));
    let inner = BufReader::with_capacity(READ_AHEAD_BYTES, Reading::of(source));
    let bounded = LimitedReader { inner, left: Rc::clone(&left) };
    let mut json = serde_json::Deserializer::from_reader(bounded);
    let items = Items { take, left, refused: Rc::clone(&refused) };
    let read = json.deserialize_seq(items).and_then(|()| json.end());
    read.map_err(|error| refused.take().unwrap_or_else(|| format!("it is not JSON: {error}")))
}
