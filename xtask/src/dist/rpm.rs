//! A package for Fedora, openSUSE and their kin.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use rpm::{BuildConfig, CompressionType, Dependency, FileOptions, Package, PackageBuilder};

use super::tree::File;
use crate::run::{find, succeed};

/// As the scripts of the Debian package; `$1` counts the versions that are there afterwards.
const AFTER_INSTALLING: &str =
    "/usr/bin/agentsh setup || echo \"agentsh: \\`agentsh doctor\\` says what is in the way\" >&2";
const BEFORE_REMOVING: &str = "if [ \"$1\" = 0 ]; then /usr/bin/agentsh setup --undo || true; fi";

/// Packs the files below `/usr`, all with one date, in seconds.
///
/// # Errors
/// When the package cannot be built or written.
pub fn package(output: &Path, version: &str, files: &[File], when: u64, fast: bool) -> Result<PathBuf> {
    let architecture = std::env::consts::ARCH;
    let level = if fast { 1 } else { 9 };
    let config = BuildConfig::v4()
        .source_date(u32::try_from(when)?)
        .compression(rpm::CompressionWithLevel::Gzip(level));
    let summary = "Run AI agents and MCP servers that you do not trust";
    let mut builder = PackageBuilder::new("agentsh", version, "Apache-2.0 OR MIT", architecture, summary);
    builder
        .using_config(config)
        .build_host("localhost")
        .description(
            "Puts an agent and every MCP server that it uses into a sandbox of its own, pins what runs, polices\n\
             connections, and judges what flows between them.",
        )
        .suggests(Dependency::any("git"))
        .post_install_script(AFTER_INSTALLING)
        .pre_uninstall_script(BEFORE_REMOVING);
    for file in files {
        let mode = u16::try_from(file.mode).context("a mode")?;
        let options = FileOptions::new(format!("/usr/{}", file.path)).permissions(mode);
        builder.with_file_contents(file.bytes.clone(), options)?;
    }
    let to = output.join(format!("agentsh-{version}-1.{architecture}.rpm"));
    builder.build()?.write_file(&to).with_context(|| format!("cannot write {}", to.display()))?;
    Ok(to)
}

/// Unpacks a package; its digests hold, and `rpm` reads it where it is there.
///
/// # Errors
/// The first fault.
pub fn unpack(package: &Path, to: &Path) -> Result<()> {
    let read = Package::open(package)?;
    read.verify_digests()?;
    ensure!(
        read.metadata.get_payload_compressor()? == CompressionType::Gzip,
        "not compressed as it was to be"
    );
    read.extract(to)?;
    if find("rpm").is_some() {
        let said = succeed(Command::new("rpm").args(["--query", "--package", "--requires"]).arg(package))?;
        let foreign = said.lines().find(|line| !line.starts_with("rpmlib(") && *line != "/bin/sh");
        if let Some(foreign) = foreign {
            bail!("it requires {foreign}");
        }
        succeed(Command::new("rpm").args(["--checksig", "--nosignature"]).arg(package))?;
    }
    Ok(())
}
