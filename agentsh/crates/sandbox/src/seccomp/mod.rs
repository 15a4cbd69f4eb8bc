//! The system call filter: default deny, every rule with its reason. Compiled to a search tree, because the kernel runs
//! the program once per call number at installation: 300 comparisons take 0.5 ms, a tree takes 0.05 ms.

pub mod calls;
mod compile;
mod container_rules;
mod files;
pub mod listener;
mod rule;
mod rules;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

pub use calls::{Architecture, Call};
pub use compile::{Instruction, Program, Refusal, compile};
pub use files::{FileEffect, MissingFile, RenameCall};
pub use rule::{Filter, Rule, Verdict};
pub use rules::RULES;

use super::plan::{Identity, Tier};
use super::stage::{StageContext, StageError};

/// Both programs, compiled once per session.
pub struct Filters {
    all_programs: Program,
    listed_programs: Program,
}

impl Filters {
    #[must_use]
    pub fn compile() -> Self {
        let compile = |filter| compile(filter, Tier::Namespaces, Refusal::Told);
        Self { all_programs: compile(Filter::AllPrograms), listed_programs: compile(Filter::ListedPrograms) }
    }

    #[must_use]
    pub fn get(&self, filter: Filter) -> &Program {
        match filter {
            Filter::AllPrograms => &self.all_programs,
            Filter::ListedPrograms => &self.listed_programs,
        }
    }
}

/// Installs the filter for this thread and its children, permanently. no_new_privs must be set.
///
/// # Errors
/// When the kernel refuses: nothing may then be executed.
pub fn install(program: &Program) -> Result<(), StageError> {
    install_with(program, 0).map(drop)
}

/// Like [`install_and_listen`]. If an outer filter already has a listener, the same calls are refused without a report.
///
/// # Errors
/// When the kernel refuses: nothing may then be executed.
pub fn install_and_tell(
    filters: &Filters,
    filter: Filter,
    identity: Identity,
    (tells_files, hears_renames): (bool, bool),
) -> Result<Option<OwnedFd>, StageError> {
    let listen = |program: &Program| {
        let program = program.of(identity, hears_renames);
        // A signal must not interrupt a call that the session works on. Kernels before 5.19 do not know that.
        let uninterrupted = install_and_listen(&program, libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV);
        uninterrupted.or_else(|_| install_and_listen(&program, 0)).ok()
    };
    let with_files = tells_files.then(|| compile(filter, Tier::Namespaces, Refusal::ToldWithFiles));
    let listener = with_files.and_then(|program| listen(&program)).or_else(|| listen(filters.get(filter)));
    if listener.is_some() {
        return Ok(listener);
    }
    install(&compile(filter, Tier::Namespaces, Refusal::Silent).of(identity, false))?;
    Ok(None)
}

/// Like [`install`], and returns the listener's descriptor.
///
/// # Errors
/// When the kernel refuses, or has no such descriptors: nothing may then be executed.
#[expect(unsafe_code, reason = "the kernel gives the descriptor as a bare number")]
pub fn install_and_listen(program: &Program, flags: libc::c_ulong) -> Result<OwnedFd, StageError> {
    let raw = install_with(program, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | flags)?;
    // SAFETY: the kernel just made this descriptor for this call; nothing else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

#[expect(
    unsafe_code,
    reason = "seccomp(2) takes a pointer to the program; no safe wrapper takes a prepared one"
)]
fn install_with(program: &Program, flags: libc::c_ulong) -> Result<RawFd, StageError> {
    let filter = libc::sock_fprog {
        len: u16::try_from(program.0.len())
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
            .at("size filter")?,
        filter: program.0.as_ptr().cast_mut().cast(),
    };
    // SAFETY: `filter` points at `len` instructions of the kernel's layout (`Instruction` is `repr(C)` with the
    // fields of `sock_filter`), both outlive the call, and the kernel copies them without writing.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter) };
    match RawFd::try_from(result) {
        Ok(number) if number >= 0 => Ok(number),
        _ => Err(io::Error::last_os_error()).at("install the system call filter"),
    }
}
