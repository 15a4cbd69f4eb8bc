//! The files that are installed, below `usr`. `agentsh` writes its own pages and completions.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::sbom::BillOfMaterials;
use crate::run::{repository, succeed};

pub struct File {
    /// Below `usr`.
    pub path: String,
    pub mode: u32,
    pub bytes: Vec<u8>,
}

const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/agentsh"),
    ("zsh", "share/zsh/site-functions/_agentsh"),
    ("fish", "share/fish/vendor_completions.d/agentsh.fish"),
];
/// In the repository, and where they go.
const COPIED: [(&str, &str); 10] = [
    ("packaging/systemd/agentsh-gateway.service", "lib/systemd/user/agentsh-gateway.service"),
    ("packaging/systemd/agentsh-registry.service", "lib/systemd/user/agentsh-registry.service"),
    ("packaging/systemd/agentsh-fleet.service", "lib/systemd/user/agentsh-fleet.service"),
    ("packaging/systemd/agentsh-fleet-forward.service", "lib/systemd/user/agentsh-fleet-forward.service"),
    // Not in /etc: `agentsh setup` puts it there where the machine knows such rules and needs it.
    ("agentsh/src/cli/setup/apparmor.profile", "share/agentsh/apparmor.profile"),
    ("README.md", "share/doc/agentsh/README.md"),
    ("SECURITY.md", "share/doc/agentsh/SECURITY.md"),
    ("CONTRIBUTING.md", "share/doc/agentsh/CONTRIBUTING.md"),
    ("LICENSE-APACHE", "share/doc/agentsh/LICENSE-APACHE"),
    ("LICENSE-MIT", "share/doc/agentsh/LICENSE-MIT"),
];

/// # Errors
/// When the executable does not start, or a file is missing.
pub fn files(binaries: &[(&str, Vec<u8>)], bill: &BillOfMaterials) -> Result<Vec<File>> {
    let place = tempfile::tempdir()?;
    let executable = place.path().join("agentsh");
    let plain = |path: &str, bytes: Vec<u8>| File { path: path.to_owned(), mode: 0o644, bytes };

    let mut files = Vec::new();
    for (name, bytes) in binaries {
        write(&place.path().join(name), bytes, 0o755)?;
        files.push(File { path: format!("bin/{name}"), mode: 0o755, bytes: bytes.clone() });
    }
    let pages = place.path().join("man");
    succeed(Command::new(&executable).args(["man", "--directory"]).arg(&pages))?;
    for page in std::fs::read_dir(&pages)? {
        let page = page?;
        let name = page.file_name().to_string_lossy().into_owned();
        files.push(plain(&format!("share/man/man1/{name}"), std::fs::read(page.path())?));
    }
    for (shell, path) in COMPLETIONS {
        let script = succeed(Command::new(&executable).args(["completions", shell]))?;
        files.push(plain(path, script.into_bytes()));
    }
    for (from, to) in COPIED {
        let bytes = std::fs::read(repository().join(from)).with_context(|| format!("cannot read {from}"))?;
        files.push(plain(to, bytes));
    }
    // The README links to them.
    for page in succeed(Command::new("git").args(["ls-files", "docs"]).current_dir(repository()))?.lines() {
        let bytes = std::fs::read(repository().join(page)).with_context(|| format!("cannot read {page}"))?;
        files.push(plain(&format!("share/doc/agentsh/{page}"), bytes));
    }
    files.push(plain("share/doc/agentsh/copyright", bill.licences()?.into_bytes()));
    files.push(plain("share/doc/agentsh/agentsh.cdx.json", bill.text().into_bytes()));
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

/// Writes a file, and the directories above it.
pub fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if let Some(above) = path.parent() {
        std::fs::create_dir_all(above)?;
    }
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok(())
}
