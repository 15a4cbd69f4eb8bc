//! Prints the log of the eBPF programs for debugging.

use std::fmt::Display;
use std::io::Write;
use std::os::fd::AsRawFd;

use aya_log::EbpfLogger;
use log::{Log, Metadata, Record};
use rustix::event::{PollFd, PollFlags, poll};

use super::EbpfError;
use super::load::Program;

struct StandardError;

impl Log for StandardError {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        // Standard error may be closed.
        let _ = writeln!(std::io::stderr(), "ebpf: {}", record.args());
    }

    fn flush(&self) {}
}

/// Prints lines until this process ends.
///
/// # Errors
/// Without CAP_SYS_ADMIN, or if the object has no log.
pub fn follow(programs: &[Program]) -> Result<(), EbpfError> {
    let ids = programs.iter().filter_map(id);
    // Programs without a log do not have the map.
    let logger = ids.map(|id| EbpfLogger::init_from_id_with_logger(id, StandardError)).find_map(Result::ok);
    let mut logger = logger.ok_or_else(|| failed(&"no program logs; build with `cargo xtask ebpf log`"))?;
    let print = move || loop {
        // Interrupted: there is nothing to print.
        let _ = poll(&mut [PollFd::new(&logger, PollFlags::IN)], None);
        logger.flush();
    };
    std::thread::Builder::new().spawn(print).map(|_| ()).map_err(|error| failed(&error))
}

fn id(program: &Program) -> Option<u32> {
    let facts =
        std::fs::read_to_string(format!("/proc/self/fdinfo/{}", program.descriptor.as_raw_fd())).ok()?;
    facts.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok())
}

fn failed(why: &dyn Display) -> EbpfError {
    EbpfError::Map { name: "AYA_LOGS".to_owned(), why: why.to_string() }
}
