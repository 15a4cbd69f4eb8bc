//! Limits that the kernel keeps per process or per user namespace.

use rustix::process::{Resource, Rlimit, setrlimit};

use super::plan::Limits;
use super::stage::{At, StageError};

/// Set by init for itself and all that it starts.
///
/// # Errors
/// When a limit above the inherited hard limit is asked for and cannot be had.
pub fn apply(limits: &Limits) -> Result<(), StageError> {
    let fixed = |value: u64| Rlimit { current: Some(value), maximum: Some(value) };
    setrlimit(Resource::Nproc, fixed(limits.pids)).at("limit processes")?;
    let hard = rustix::process::getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    setrlimit(Resource::Nofile, fixed(limits.open_files.min(hard))).at("limit open files")?;
    setrlimit(Resource::Core, fixed(0)).at("switch off core dumps")?;
    if let Some(bytes) = limits.data {
        setrlimit(Resource::Data, fixed(bytes)).at("limit memory")?;
    }
    Ok(())
}
