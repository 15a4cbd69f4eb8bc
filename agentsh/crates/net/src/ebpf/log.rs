//! What the programs log, on standard error, for who debugs them.

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
        // Who closed it does not want to know.
        let _ = writeln!(std::io::stderr(), "ebpf: {}", record.args());
    }

    fn flush(&self) {}
}

/// Prints line by line, until this process ends.
///
/// # Errors
/// Without CAP_SYS_ADMIN, or when the object has no log.
pub fn follow(programs: &[Program]) -> Result<(), EbpfError> {
    let ids = programs.iter().filter_map(id);
    // Which of them logs is not asked: the others do not know the map.
    let logger = ids.map(|id| EbpfLogger::init_from_id_with_logger(id, StandardError)).find_map(Result::ok);
    let mut logger = logger.ok_or_else(|| failed(&"no program logs; build with `cargo xtask ebpf log`"))?;
    let print = move || loop {
        // A signal ends the wait: then there is nothing to print.
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
