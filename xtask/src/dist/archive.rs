//! A tarball, and a package for Debian and Ubuntu. The same sources give the same bytes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use md5::Md5;
use sha2::{Digest, Sha256};

use super::tree::{File, write};
use crate::run::{repository, succeed};

const MAGIC: &[u8] = b"!<arch>\n";
const HEADER: usize = 60;

/// Of every file: `SOURCE_DATE_EPOCH`, else the commit's, in seconds.
pub fn date() -> u64 {
    let given = std::env::var("SOURCE_DATE_EPOCH").ok();
    let of_commit = || {
        let mut git = Command::new("git");
        succeed(git.current_dir(repository()).args(["log", "-1", "--format=%ct"])).ok()
    };
    given.or_else(of_commit).and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

pub fn tarball(output: &Path, name: &str, files: &[File], when: u64, fast: bool) -> Result<PathBuf> {
    let place = tempfile::tempdir()?;
    for file in files {
        write(&place.path().join(name).join(&file.path), &file.bytes, file.mode)?;
    }
    let to = output.join(format!("{name}.tar.gz"));
    tar(place.path(), name, &to, when, fast)?;
    Ok(to)
}

/// The package: `ar` around two tarballs, as dpkg-deb makes it.
pub fn package(output: &Path, version: &str, files: &[File], when: u64, fast: bool) -> Result<PathBuf> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => bail!("no name of Debian for {other}"),
    };
    let place = tempfile::tempdir()?;
    let (data, control) = (place.path().join("data"), place.path().join("control"));
    let mut sums = String::new();
    for file in files {
        write(&data.join("usr").join(&file.path), &file.bytes, file.mode)?;
        writeln!(sums, "{}  usr/{}", hex(&Md5::digest(&file.bytes)), file.path)?;
    }
    let size: usize = files.iter().map(|file| file.bytes.len().div_ceil(1024)).sum();
    let fields = format!(
        "Package: agentsh\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: The agentsh authors <agentsh@localhost>\n\
         Installed-Size: {size}\nSection: utils\nPriority: optional\nSuggests: apparmor\n\
         Description: run AI agents and MCP servers that you do not trust\n \
         Puts an agent and every MCP server that it uses into a sandbox of its own, pins\n \
         what runs, polices connections, and judges what flows between them.\n"
    );
    write(&control.join("control"), fields.as_bytes(), 0o644)?;
    write(&control.join("md5sums"), sums.as_bytes(), 0o644)?;
    for script in ["postinst", "prerm"] {
        let bytes = std::fs::read(repository().join("packaging").join(script))?;
        write(&control.join(script), &bytes, 0o755)?;
    }
    let (control_tar, data_tar) = (place.path().join("control.tar.gz"), place.path().join("data.tar.gz"));
    tar(&control, ".", &control_tar, when, fast)?;
    tar(&data, ".", &data_tar, when, fast)?;
    let mut bytes = MAGIC.to_vec();
    member(&mut bytes, "debian-binary", b"2.0\n", when);
    member(&mut bytes, "control.tar.gz", &std::fs::read(control_tar)?, when);
    member(&mut bytes, "data.tar.gz", &std::fs::read(data_tar)?, when);
    let to = output.join(format!("agentsh_{version}_{architecture}.deb"));
    std::fs::write(&to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
    Ok(to)
}

pub fn sums(output: &Path, files: &[&Path]) -> Result<PathBuf> {
    let mut text = String::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        writeln!(text, "{}  {name}", hex(&Sha256::digest(std::fs::read(file)?)))?;
    }
    let to = output.join("SHA256SUMS");
    std::fs::write(&to, text).with_context(|| format!("cannot write {}", to.display()))?;
    Ok(to)
}

fn tar(directory: &Path, what: &str, to: &Path, when: u64, fast: bool) -> Result<()> {
    let compress = if fast { "gzip -n -1" } else { "gzip -n -9" };
    let mut tar = Command::new("tar");
    tar.args(["--create", "--format=gnu", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.args(["--mode=go-w", &format!("--mtime=@{when}"), &format!("--use-compress-program={compress}")]);
    succeed(tar.arg("--file").arg(to).arg("--directory").arg(directory).arg(what)).map(drop)
}

fn member(archive: &mut Vec<u8>, name: &str, bytes: &[u8], when: u64) {
    let header = format!("{name:<16}{when:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, "100644", bytes.len());
    archive.extend(header.as_bytes());
    archive.extend(bytes);
    if bytes.len() % 2 == 1 {
        archive.push(b'\n');
    }
}

/// The members of an archive, by name and in order.
pub fn members(archive: &[u8]) -> Result<Vec<(String, &[u8])>> {
    let mut rest = archive.strip_prefix(MAGIC).context("not an archive")?;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (header, after) = rest.split_at_checked(HEADER).context("a member's header is cut off")?;
        let header = std::str::from_utf8(header)?;
        let length: usize = header.get(48..58).context("a header without a length")?.trim().parse()?;
        let (bytes, after) = after.split_at_checked(length).context("a member is cut off")?;
        found.push((header.get(..16).unwrap_or_default().trim().to_owned(), bytes));
        rest = if length % 2 == 1 { after.get(1..).unwrap_or_default() } else { after };
    }
    Ok(found)
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_read_as_it_was_written() {
        let mut archive = MAGIC.to_vec();
        member(&mut archive, "odd", b"123", 7);
        member(&mut archive, "even", b"1234", 7);
        let found = members(&archive).unwrap();
        assert_eq!(found, [("odd".to_owned(), &b"123"[..]), ("even".to_owned(), &b"1234"[..])]);
        for cut in [4, 30, 69, archive.len() - 1] {
            assert!(members(&archive[..cut]).is_err(), "{cut}");
        }
    }
}
