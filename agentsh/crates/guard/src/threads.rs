//! Two independent looks at one long text, on two processors.

use std::sync::OnceLock;

use rayon_core::{ThreadPool, ThreadPoolBuilder};

/// Shorter texts, in bytes, take less time than another thread does to wake up.
const LONG: usize = 64 * 1024;

/// The thread that asked first, and one more.
static BOTH: OnceLock<Option<ThreadPool>> = OnceLock::new();

/// Does both; side by side when the text that they look at has a `length` that is worth it and a second thread can be
/// had. What the second thread did not begin when `here` is done is not waited for, but done here.
pub fn side_by_side<A: Send, B: Send>(
    length: usize,
    here: impl FnOnce() -> A + Send,
    there: impl FnOnce() -> B + Send,
) -> (A, B) {
    if length < LONG {
        return (here(), there());
    }
    let both = BOTH.get_or_init(|| {
        let pool = ThreadPoolBuilder::new().num_threads(2).thread_name(|_| "guard".to_owned());
        pool.use_current_thread().build().ok()
    });
    match both {
        Some(both) => both.join(here, there),
        None => (here(), there()),
    }
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
