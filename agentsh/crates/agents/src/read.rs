//! Reads files that an attacker may have prepared: bounded, and never blocking on a pipe or a device.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::AgentError;
use agentsh_base::missing::is_missing;

/// Longest configuration file that is read, in bytes.
pub(super) const LIMIT: u64 = 1 << 20;
/// Longest file of state that an agent itself writes, in bytes: those grow over the years.
pub(super) const STATE_LIMIT: u64 = 64 << 20;

/// The text of a file of at most `limit` bytes; None when there is none.
///
/// # Errors
/// When the path is not a regular file, is too large, is unreadable or is not UTF-8.
pub(super) fn text(path: &Path, limit: u64) -> Result<Option<String>, AgentError> {
    let failed = |source| AgentError::Read { path: path.to_owned(), source };
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if is_missing(&error) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(AgentError::NotAFile { path: path.to_owned() });
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > limit {
        return Err(AgentError::TooLarge { path: path.to_owned(), limit });
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))),
        Err(_) => Err(AgentError::Config {
            path: path.to_owned(),
            line: 1,
            what: "not UTF-8 text".to_owned(),
            fix: "save it as UTF-8".to_owned(),
        }),
    }
}
