//! agentsh's standard error, written by a separate thread: its reader may be slow, and the session's thread must not
//! wait for it.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use agentsh_base::paragraph;

/// Pieces that wait for a reader.
const MAX_WAITING: usize = 64;
/// How long a message is waited for, so that it appears before the next output. Only once: a reader that let one
/// message wait this long is not waited for again until it has read everything.
const WRITE_TIMEOUT: Duration = Duration::from_millis(250);

/// Pieces that are not written yet.
static QUEUED_WRITES: AtomicUsize = AtomicUsize::new(0);

/// The reader has not read for a while.
static IS_STUCK: AtomicBool = AtomicBool::new(false);

/// Hands a piece over. False: there is no reader, and it was not taken.
pub fn send(text: String) -> bool {
    QUEUED_WRITES.fetch_add(1, Ordering::AcqRel);
    let is_taken = writer().is_some_and(|writer| writer.try_send(text).is_ok());
    if !is_taken {
        QUEUED_WRITES.fetch_sub(1, Ordering::AcqRel);
    }
    is_taken
}

/// Whether something is not written yet.
pub fn is_behind() -> bool {
    QUEUED_WRITES.load(Ordering::Acquire) > 0
}

/// Writes one message, wrapped for a terminal. Dropped without a reader.
pub fn print_message(message: &str) {
    let message = paragraph::wrap_for_stream(message, &std::io::stderr());
    if !send(format!("{message}\n")) || IS_STUCK.load(Ordering::Acquire) {
        return;
    }
    let until = Instant::now() + WRITE_TIMEOUT;
    let mut pause = Duration::from_micros(20);
    while is_behind() {
        if Instant::now() >= until {
            return IS_STUCK.store(true, Ordering::Release);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

fn writer() -> Option<&'static SyncSender<String>> {
    static WRITER: OnceLock<Option<SyncSender<String>>> = OnceLock::new();
    let make = || {
        let (sender, pieces) = sync_channel::<String>(MAX_WAITING);
        let write = move || {
            for piece in pieces {
                // There is no way to report it.
                let _ = anstream::stderr().write_all(piece.as_bytes());
                if QUEUED_WRITES.fetch_sub(1, Ordering::AcqRel) == 1 {
                    IS_STUCK.store(false, Ordering::Release);
                }
            }
        };
        std::thread::Builder::new().name("standard-error".to_owned()).spawn(write).ok().map(|_| sender)
    };
    WRITER.get_or_init(make).as_ref()
}
