//! What was made is unpacked as a person would, and started.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use md5::Md5;
use sha2::{Digest, Sha256};

use super::BuiltFiles;
use super::archive::{hex, members};
use crate::run::{find, is_root, succeed};

/// Must be there next to the executable.
const PARTS: [&str; 9] = [
    "share/man/man1/agentsh.1",
    "share/man/man1/agentsh-run.1",
    "share/bash-completion/completions/agentsh",
    "share/zsh/site-functions/_agentsh",
    "share/fish/vendor_completions.d/agentsh.fish",
    "share/agentsh/apparmor.profile",
    "lib/systemd/user/agentsh-gateway.service",
    "share/doc/agentsh/copyright",
    "share/doc/agentsh/agentsh.cdx.json",
];

/// # Errors
/// The first fault.
pub fn check(made: &BuiltFiles) -> Result<()> {
    checksums(&made.sums)?;
    super::release::check(&made.sums)?;
    let place = tempfile::tempdir()?;
    let from_tarball = place.path().join("tarball");
    unpack(&made.tarball, &from_tarball)?;
    let only = std::fs::read_dir(&from_tarball)?.next().context("the tarball is empty")??;
    works(&only.path())?;

    let package = std::fs::read(&made.package)?;
    let members = members(&package)?;
    let [(first, version), (second, control), (third, data)] = members.as_slice() else {
        bail!("a package has three members");
    };
    let names = [first.as_str(), second, third];
    ensure!(names == ["debian-binary", "control.tar.gz", "data.tar.gz"] && *version == b"2.0\n", "{names:?}");
    let root = place.path().join("root");
    for (name, bytes, to) in
        [("control", control, place.path().join("control")), ("data", data, root.clone())]
    {
        let file = place.path().join(name).with_extension("tar.gz");
        std::fs::write(&file, bytes)?;
        unpack(&file, &to)?;
    }
    works(&root.join("usr"))?;
    for line in std::fs::read_to_string(place.path().join("control/md5sums"))?.lines() {
        let (sum, name) = line.split_once("  ").context("a line of md5sums")?;
        ensure!(hex(&Md5::digest(std::fs::read(root.join(name))?)) == sum, "{name}: not what md5sums says");
    }
    if find("dpkg-deb").is_some() {
        let fields = succeed(Command::new("dpkg-deb").arg("--field").arg(&made.package))?;
        ensure!(fields.contains("Package: agentsh\n"), "{fields}");
    }
    let from_rpm = place.path().join("rpm");
    super::rpm::unpack(&made.rpm, &from_rpm)?;
    works(&from_rpm.join("usr"))?;
    // Nothing of the system is needed: in a root with the package alone it starts as well.
    let bytes = std::fs::read(root.join("usr/bin/agentsh"))?;
    let is_static = !bytes.windows(9).any(|window| window == b"/ld-linux");
    if is_root() && is_static {
        says_its_version(Command::new("chroot").arg(&root).args(["/usr/bin/agentsh", "--version"]))?;
    }
    Ok(())
}

fn checksums(sums: &Path) -> Result<()> {
    let directory = sums.parent().unwrap_or(sums);
    for line in std::fs::read_to_string(sums)?.lines() {
        let (sum, name) = line.split_once("  ").context("a line of SHA256SUMS")?;
        let bytes = std::fs::read(directory.join(name)).with_context(|| format!("cannot read {name}"))?;
        ensure!(hex(&Sha256::digest(bytes)) == sum, "{name}: not what SHA256SUMS says");
    }
    Ok(())
}

fn unpack(tarball: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    succeed(Command::new("tar").arg("--extract").arg("--file").arg(tarball).arg("--directory").arg(to))
        .map(drop)
}

fn works(prefix: &Path) -> Result<()> {
    for part in PARTS {
        let found = std::fs::metadata(prefix.join(part)).with_context(|| format!("{part} is missing"))?;
        ensure!(found.len() > 0, "{part} is empty");
    }
    let documents = prefix.join("share/doc/agentsh");
    let readme = std::fs::read_to_string(documents.join("README.md"))?;
    for link in readme.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
        let is_there = link.is_empty() || link.contains("://") || documents.join(link).exists();
        ensure!(is_there, "README.md links to {link}, which is not there");
    }
    for program in super::build::PROGRAMS {
        says_its_version(Command::new(prefix.join("bin").join(program)).arg("--version"))?;
    }
    Ok(())
}

fn says_its_version(command: &mut Command) -> Result<()> {
    let said = succeed(command)?;
    ensure!(said.starts_with("agentsh"), "it says {said:?}");
    Ok(())
}
