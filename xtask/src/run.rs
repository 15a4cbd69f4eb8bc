//! Runs other programs, and prints messages line by line.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// What a program printed, both streams in the order in which they were written.
pub struct Captured {
    pub success: bool,
    pub output: String,
}

/// Runs to the end and keeps what was printed.
pub fn capture(command: &mut Command) -> Result<Captured> {
    let mut file: File = tempfile::tempfile().context("cannot make a temporary file")?;
    let (out, error) = (file.try_clone()?, file.try_clone()?);
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(error)
        .status()
        .with_context(|| format!("cannot start {name}"))?;
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(Captured { success: status.success(), output: String::from_utf8_lossy(&bytes).into_owned() })
}

/// Like [`capture`]; an unsuccessful program is an error that shows what it printed.
pub fn succeed(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let captured = capture(command)?;
    if !captured.success {
        bail!("{name} failed:\n{}", captured.output.trim_end());
    }
    Ok(captured.output)
}

/// cargo, the one that started us, in the repository.
pub fn cargo<I: AsRef<OsStr>>(arguments: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(repository()).args(arguments);
    // Cargo sets these for xtask itself. Where they differ, the build script of `ring` runs again, and half of everything is rebuilt.
    let is_of_xtask = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars().filter(|(name, _)| is_of_xtask(name)) {
        command.env_remove(name);
    }
    command
}

/// The directory that holds the workspace.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Where cargo puts what it builds.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| repository().join("target"), |path| repository().join(path))
}

/// Absolute path of a program on PATH.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|found| std::os::unix::fs::MetadataExt::uid(&found) == 0)
}

/// One line, or the beginning of one, to standard output at once.
pub fn print_text(text: &str) {
    let mut out = std::io::stdout().lock();
    // The output is closed, so the message is lost.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

pub fn warn(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
