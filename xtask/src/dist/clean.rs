//! Each package is installed in a root of Debian that has nothing else, and used by an ordinary user: `doctor`, the demo,
//! `run`, `mcp run`, the reports. The root comes by mmdebstrap from the mirror that this machine uses.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use super::BuiltFiles;
use crate::run::{find, is_root, print_text, repository, succeed};

const RELEASE: &str = "bookworm";

/// # Errors
/// What is missing on this machine, or the first step that failed, with its output.
pub fn check(made: &BuiltFiles) -> Result<()> {
    ensure!(is_root(), "a clean root is made and entered by root");
    ensure!(find("mmdebstrap").is_some(), "mmdebstrap is missing: apt-get install mmdebstrap");
    let place = tempfile::tempdir()?;
    for package in [&made.package, &made.rpm, &made.tarball] {
        let root = place.path().join("root");
        if root.exists() {
            std::fs::remove_dir_all(&root)?;
        }
        succeed(
            Command::new("mmdebstrap")
                .args(["--quiet", "--variant=minbase", "--include=rpm2cpio,cpio", RELEASE])
                .arg(&root),
        )?;
        let said = succeed(Command::new("sh").arg(script()).arg(&root).arg(package))?;
        ensure!(said.contains("WORKS as user"), "{}: {said}", package.display());
        print_text(&format!("{} is installed in a clean root and used by an ordinary user\n", name(package)));
    }
    Ok(())
}

fn script() -> PathBuf {
    repository().join("xtask/src/dist/clean.sh")
}

fn name(package: &Path) -> String {
    package.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
