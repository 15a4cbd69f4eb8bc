//! Changes a file that a person or another program wrote: shows the difference and replaces the file whole. Of another
//! program's file it keeps a copy.

use std::io::Write;
use std::path::{Path, PathBuf};

use agentsh_host::copies::write_anew;
use agentsh_store::escape;
use agentsh_terminal::output::Failure;
use agentsh_terminal::style::{BAD, GOOD, paint};

/// Longest file that is read, in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// The text of a file; empty when there is none.
pub fn read(path: &Path) -> Result<String, Failure> {
    use std::io::Read;
    let failed = |error: std::io::Error| Failure::Failed(format!("cannot read {}: {error}", path.display()));
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// The changes, as `diff -u` prints them.
pub fn show(out: &mut dyn Write, path: &Path, before: &str, after: &str) -> Result<(), Failure> {
    let name = path.display().to_string();
    let diff = similar::TextDiff::from_lines(before, after);
    for line in diff.unified_diff().context_radius(2).header(&name, &name).to_string().lines() {
        let shown = escape::line(line);
        match line.chars().next() {
            Some('+') => writeln!(out, "{}", paint(GOOD, &shown))?,
            Some('-') => writeln!(out, "{}", paint(BAD, &shown))?,
            _ => writeln!(out, "{shown}")?,
        }
    }
    Ok(())
}

/// Writes the file, and a copy of the old one next to it. Returns the name of the copy, if there was a file.
pub fn write(path: &Path, before: &str, after: &str, mode: u32) -> Result<Option<PathBuf>, Failure> {
    let FileLocation { real, mode } = file_location(path, mode)?;
    let backup = (!before.is_empty()).then(|| backup_of(&real));
    if let Some(backup) = &backup {
        write_anew(backup, before.as_bytes(), mode).map_err(|error| file_failure(path, &error))?;
    }
    replace(path, before, after, mode)?;
    Ok(backup)
}

/// Writes the file in one step, if it has not changed since it was read. Links are followed, and its mode is kept.
pub fn replace(path: &Path, before: &str, after: &str, mode: u32) -> Result<(), Failure> {
    let FileLocation { real, mode } = file_location(path, mode)?;
    // Another program may have written the file since it was read.
    if read(&real)? != before {
        return Err(Failure::Failed(format!(
            "another program changed {} in the meantime: try again",
            path.display()
        )));
    }
    write_anew(&real, after.as_bytes(), mode).map_err(|error| file_failure(path, &error))
}

/// The real path of a file, and its mode.
struct FileLocation {
    real: PathBuf,
    mode: u32,
}

/// Its directory is created if it is missing.
fn file_location(path: &Path, mode: u32) -> Result<FileLocation, Failure> {
    use std::os::unix::fs::PermissionsExt;
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mode = real.metadata().map_or(mode, |found| found.permissions().mode() & 0o777);
    if let Some(directory) = real.parent() {
        std::fs::create_dir_all(directory).map_err(|error| file_failure(path, &error))?;
    }
    Ok(FileLocation { real, mode })
}

fn file_failure(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("cannot write {}: {error}", path.display()))
}

/// A name that is free.
fn backup_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let numbered = |number: u32| path.with_file_name(format!("{name}.agentsh-backup-{number}"));
    (1..).map(numbered).find(|path| !path.exists()).unwrap_or_else(|| numbered(0))
}
