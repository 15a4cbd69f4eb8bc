//! Two independent looks at one long text, on two processors.

/// Shorter texts, in bytes, take less time than a thread does to start.
const LONG: usize = 128 * 1024;

/// Does both; side by side when the text that they look at has a `length` that is worth it.
pub(crate) fn side_by_side<A, B: Send>(
    length: usize,
    here: impl FnOnce() -> A,
    there: impl FnOnce() -> B + Send,
) -> (A, B) {
    if length < LONG {
        return (here(), there());
    }
    std::thread::scope(|scope| {
        let there = scope.spawn(there);
        let here = here();
        match there.join() {
            Ok(there) => (here, there),
            Err(panic) => std::panic::resume_unwind(panic),
        }
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
