//! `agentsh policy init`: a commented file to start from.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::CommandContext;
use agentsh_terminal::exit::FAILED;
use agentsh_terminal::output::Failure;

const STARTER: &str = include_str!("starter.yaml");

/// Writes the file, unless it exists.
pub fn init(
    file: Option<&Path>,
    place: &CommandContext,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    let path = file.map_or_else(|| place.config_home.join("agentsh").join("policy.yaml"), PathBuf::from);
    match write(&path) {
        Ok(()) => {
            writeln!(out, "{}", path.display())?;
            writeln!(err, "next: edit it, then `agentsh policy check` and `agentsh policy show`")?;
            Ok(0)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            writeln!(err, "error: {} already exists and is unchanged", path.display())?;
            Ok(FAILED)
        }
        Err(error) => {
            writeln!(err, "error: cannot write {}: {error}", path.display())?;
            Ok(FAILED)
        }
    }
}

fn write(path: &Path) -> io::Result<()> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(STARTER.as_bytes())
}
