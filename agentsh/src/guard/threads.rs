//! Two independent looks at one long text, on two processors.

use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, ScopedJoinHandle};

/// Shorter texts, in bytes, take less time than a thread does to start.
const LONG: usize = 128 * 1024;

/// Does both; side by side when the text that they look at has a `length` that is worth it and a second thread can be
/// had.
pub(crate) fn side_by_side<A, B: Send>(
    length: usize,
    here: impl FnOnce() -> A,
    there: impl FnOnce() -> B + Send,
) -> (A, B) {
    if length < LONG {
        return (here(), there());
    }
    let there = Mutex::new(Some(there));
    let run = || {
        let there = there.lock().unwrap_or_else(PoisonError::into_inner).take();
        there.map(|there| there())
    };
    std::thread::scope(|scope| {
        let other = Builder::new().spawn_scoped(scope, run);
        let here = here();
        let there = match other.map(ScopedJoinHandle::join) {
            Ok(Ok(there)) => there,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            // No thread can be had.
            Err(_) => run(),
        };
        // It was taken once, there or here.
        let Some(there) = there else { std::process::abort() };
        (here, there)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_done_whatever_the_length() {
        for length in [0, LONG] {
            let mut seen = 0;
            assert_eq!(side_by_side(length, || seen += 1, || length + 1), ((), length + 1));
            assert_eq!(seen, 1);
        }
    }
}
