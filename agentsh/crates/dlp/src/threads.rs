//! Runs two searches of one long text on two processors, and whole judgements off the session's thread.

use std::sync::OnceLock;

use rayon_core::{ThreadPool, ThreadPoolBuilder};

/// Shorter texts, in bytes, take less time than another thread does to wake up.
pub(crate) const LONG: usize = 64 * 1024;

/// A pool of two: the thread that asked first, and one more.
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
    // A thread of a pool has its second one there.
    if rayon_core::current_thread_index().is_some() {
        return rayon_core::join(here, there);
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

/// Threads for long jobs: enough for one long judgement to use a second processor.
const APART: usize = 2;

static POOL: OnceLock<Option<ThreadPool>> = OnceLock::new();

/// Does a job on a small pool, whose threads the whole process shares. Without threads, or when the job breaks, it is
/// dropped: code that waits for its answer has to notice that none will come.
pub fn apart(job: impl FnOnce() + Send + 'static) {
    let pool = POOL.get_or_init(|| {
        let pool = ThreadPoolBuilder::new().num_threads(APART).thread_name(|_| "judge".to_owned());
        // Without a handler the process would end.
        pool.panic_handler(|_| {}).build().ok()
    });
    if let Some(pool) = pool {
        pool.spawn(job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detached_job_runs_on_another_thread_and_a_panic_yields_no_result() {
        let (tell, told) = std::sync::mpsc::channel();
        let here = std::thread::current().id();
        apart(move || {
            let both = side_by_side(LONG, || 1, || 2);
            let _ = tell.send((std::thread::current().id() != here, both));
        });
        assert_eq!(told.recv(), Ok((true, (1, 2))));
        let (tell, told) = std::sync::mpsc::channel::<()>();
        apart(move || {
            let _dropped = tell;
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(told.recv().is_err());
    }

    #[test]
    fn side_by_side_runs_both_jobs_at_any_length() {
        for length in [0, LONG] {
            let mut seen = 0;
            assert_eq!(side_by_side(length, || seen += 1, || length + 1), ((), length + 1));
            assert_eq!(seen, 1);
        }
    }
}
