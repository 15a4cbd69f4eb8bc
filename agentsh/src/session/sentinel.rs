//! A watchdog thread: one thread serves the whole session. If it does not respond, or the process uses too much memory,
//! the watchdog ends all sandboxes and the run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, gettid};
use tokio::sync::Notify;

use agentsh_base::proc_file;
use agentsh_store::{Event, Journal};

/// Between two looks.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Missed responses of an idle thread. Counted in looks, because a suspended machine or process does not look.
const MAX_MISSED_BEATS: u32 = 6;
/// Missed responses of a working thread: searching a project on a slow disk takes long.
const MAX_BUSY: u32 = 90;
/// Memory limit, far above the sum of all bounds.
const MAX_MEMORY: u64 = 1 << 30;
/// For the last message and event.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// The exit code of all errors of agentsh.
const EXIT_CODE: u8 = 125;

/// Ends the watch on drop.
#[derive(Debug)]
pub struct Sentinel {
    shared: Arc<Shared>,
    answering: tokio::task::JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    question: Notify,
    answers: AtomicU64,
    is_over: AtomicBool,
}

impl Sentinel {
    /// Watches the calling thread. Call inside a `LocalSet`.
    ///
    /// # Errors
    /// Without a thread.
    pub fn start(journal: Journal, max_line_bytes: u64) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let answers = Arc::clone(&shared);
        let answering = agentsh_base::task::spawn_local(async move {
            loop {
                answers.question.notified().await;
                answers.answers.fetch_add(1, Ordering::Relaxed);
            }
        });
        let watch = Watch {
            shared: Arc::clone(&shared),
            thread: gettid(),
            journal,
            most_memory: MAX_MEMORY.max(max_line_bytes.saturating_mul(24)),
        };
        let builder = std::thread::Builder::new().name("sentinel".to_owned()).stack_size(256 << 10);
        builder.spawn(move || watch.watch_main_thread())?;
        Ok(Self { shared, answering })
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.answering.abort();
    }
}

struct Watch {
    shared: Arc<Shared>,
    thread: Pid,
    journal: Journal,
    most_memory: u64,
}

impl Watch {
    fn watch_main_thread(self) {
        let (mut answers, mut step) = (0, String::new());
        let (mut still, mut busy) = (0, 0);
        loop {
            self.shared.question.notify_one();
            std::thread::sleep(POLL_INTERVAL);
            if self.shared.is_over.load(Ordering::Relaxed) {
                return;
            }
            let (now, last) = (self.shared.answers.load(Ordering::Relaxed), answers);
            answers = now;
            let here = std::mem::replace(&mut step, steps(self.thread));
            if now > last {
                (still, busy) = (0, 0);
            } else {
                busy += 1;
                still = if here == step { still + 1 } else { 0 };
            }
            if still >= MAX_MISSED_BEATS || busy >= MAX_BUSY {
                let seconds = POLL_INTERVAL.as_secs() * u64::from(still.max(busy));
                return self.end(&format!("its I/O thread did not answer for {seconds} s"));
            }
            let memory = resident();
            if memory > self.most_memory {
                let mebibytes = memory >> 20;
                return self.end(&format!("agentsh itself used {mebibytes} MiB of memory"));
            }
        }
    }

    /// Nothing is enforced or recorded any more: ends the sandboxes first.
    fn end(self, why: &str) {
        let message = format!("agentsh ended the session and all its processes: {why}");
        for child in children() {
            // It may be gone.
            let _ = kill(child, Signal::SIGKILL);
        }
        let (done, said) = std::sync::mpsc::channel::<()>();
        let journal = self.journal;
        // This may block on locks or readers, so only for a moment.
        let _no_thread_no_words = std::thread::Builder::new().spawn(move || {
            agentsh_host::standard_error::print_message(&format!("agentsh: {message}"));
            super::signals::reclaim_terminal();
            journal.record(Event::Enforcement {
                server_id: None,
                layer: "session".to_owned(),
                asked: "a session that answers, in bounded memory".to_owned(),
                got: "ended".to_owned(),
                state: agentsh_store::words::LayerState::Absent,
                why: message,
            });
            journal.record(Event::SessionEnded {
                exit_code: EXIT_CODE,
                duration_ms: 0,
                head: None,
                left: Vec::new(),
            });
            if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() {
                let _told_above = runtime.block_on(journal.close());
            }
            drop(done);
        });
        let _whether_or_not = said.recv_timeout(DRAIN_TIMEOUT);
        std::process::exit(EXIT_CODE.into());
    }
}

/// Changes with the thread's activity: CPU time and context switches.
fn steps(thread: Pid) -> String {
    let read = |file: &str| proc_file::read(format!("/proc/self/task/{thread}/{file}"));
    let status = read("status").unwrap_or_default();
    let switches: String = status.lines().filter(|line| line.contains("ctxt_switches")).collect();
    switches + &read("schedstat").unwrap_or_default()
}

fn resident() -> u64 {
    let statm = proc_file::read("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// Child processes.
fn children() -> Vec<Pid> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let pids = lists.flat_map(|list| {
        list.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw).collect::<Vec<_>>()
    });
    pids.collect()
}
