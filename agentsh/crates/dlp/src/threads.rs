//! Runs two searches of one long text on two processors, and whole judgements off the session's thread.

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, Builder};

/// Shorter texts, in bytes, take less time than another thread does to start.
pub(crate) const OFFLOAD_BYTES: usize = 64 * 1024;

/// Does both; side by side when the text that they look at has a `length` that is worth it and a second thread can be
/// had. What the second thread did not begin when `here` is done is not waited for, but done here.
pub fn side_by_side<A, B: Send>(
    length: usize,
    here: impl FnOnce() -> A,
    there: impl FnOnce() -> B + Send,
) -> (A, B) {
    if length < OFFLOAD_BYTES {
        return (here(), there());
    }
    let pending = Mutex::new(Some(there));
    let take = || pending.lock().unwrap_or_else(PoisonError::into_inner).take();
    thread::scope(|scope| {
        let other =
            Builder::new().name("guard".to_owned()).spawn_scoped(scope, || take().map(|there| there()));
        let here = here();
        if let Some(there) = take() {
            return (here, there());
        }
        match other.map(thread::ScopedJoinHandle::join) {
            Ok(Ok(Some(there))) => (here, there),
            Ok(Err(panic)) => resume_unwind(panic),
            Ok(Ok(None)) | Err(_) => unreachable!("whoever took the job did it"),
        }
    })
}

type Job = Box<dyn FnOnce() + Send>;

/// Threads for long jobs: enough for one long judgement to use a second processor.
const POOL_THREADS: usize = 2;

static POOL: OnceLock<Sender<Job>> = OnceLock::new();

/// Does a job on a small pool, whose threads the whole process shares. Without threads, or when the job breaks, it is
/// dropped: code that waits for its answer has to notice that none will come.
pub fn run_in_pool(job: impl FnOnce() + Send + 'static) {
    // Fails where no thread could be had.
    let _ = POOL.get_or_init(pool).send(Box::new(job));
}

fn pool() -> Sender<Job> {
    let (jobs, queue) = channel();
    let queue = Arc::new(Mutex::new(queue));
    for _ in 0..POOL_THREADS {
        let queue = Arc::clone(&queue);
        let _ = Builder::new().name("judge".to_owned()).spawn(move || {
            while let Some(job) = next(&queue) {
                job();
            }
        });
    }
    jobs
}

fn next(queue: &Mutex<Receiver<Job>>) -> Option<Job> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detached_job_runs_on_another_thread_and_a_panic_yields_no_result() {
        let (tell, told) = std::sync::mpsc::channel();
        let here = std::thread::current().id();
        run_in_pool(move || {
            let both = side_by_side(OFFLOAD_BYTES, || 1, || 2);
            let _ = tell.send((std::thread::current().id() != here, both));
        });
        assert_eq!(told.recv(), Ok((true, (1, 2))));
        let (tell, told) = std::sync::mpsc::channel::<()>();
        run_in_pool(move || {
            let _dropped = tell;
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(told.recv().is_err());
    }

    #[test]
    fn side_by_side_runs_both_jobs_at_any_length() {
        for length in [0, OFFLOAD_BYTES] {
            let mut seen = 0;
            assert_eq!(side_by_side(length, || seen += 1, || length + 1), ((), length + 1));
            assert_eq!(seen, 1);
        }
    }
}
