//! The machine's disks in `/sys`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::{Links, normalised_path};
use crate::proc_file;

/// Each takes a mount.
const MAX_DISKS: usize = 32;

/// `/proc/partitions` lists all disks with data; disks without data have no partition.
pub(super) fn disks() -> std::io::Result<Vec<(Links, PathBuf)>> {
    const BLOCK: &str = "/sys/block";
    let mut found = Vec::new();
    let holding = proc_file::read("/proc/partitions").unwrap_or_default();
    let rows = || holding.lines().filter_map(numbered);
    for link in std::fs::read_dir(BLOCK)?.flatten().map(|entry| entry.path()) {
        if found.len() >= MAX_DISKS || is_unused(&link, &holding) {
            continue;
        }
        let Ok(to) = std::fs::read_link(&link) else { continue };
        // No part of it is a link.
        let device = normalised_path(&Path::new(BLOCK).join(&to));
        let disk = device.file_name().and_then(OsStr::to_str).unwrap_or_default().to_owned();
        let mut parts: Vec<_> = rows().filter(|(name, _)| is_part(&disk, name)).collect();
        if !parts.iter().any(|(name, _)| *name == disk) {
            let number = proc_file::value(device.join("dev")).unwrap_or_default();
            parts.push((&disk, number.trim().to_owned()));
        }
        let mut links = vec![(link, to)];
        for (name, number) in parts.into_iter().filter(|(_, number)| !number.is_empty()) {
            let part = if name == disk { device.clone() } else { device.join(name) };
            links.push((Path::new("/sys/dev/block").join(number), part.clone()));
            links.push((Path::new("/sys/class/block").join(name), part));
        }
        found.push((links, device));
    }
    Ok(found)
}

/// The name and `major:minor` of a line of `/proc/partitions`.
fn numbered(line: &str) -> Option<(&str, String)> {
    let mut words = line.split_whitespace();
    let (major, minor, name) = (words.next()?, words.next()?, words.nth(1)?);
    major.parse::<u32>().is_ok().then(|| (name, format!("{major}:{minor}")))
}

/// A partition has its disk's name and a number, after a `p` if the name ends in a digit.
fn is_part(disk: &str, name: &str) -> bool {
    let Some(rest) = name.strip_prefix(disk) else { return false };
    let ends_in_digit = disk.ends_with(|letter: char| letter.is_ascii_digit());
    let number = if ends_in_digit { rest.strip_prefix('p').unwrap_or_default() } else { rest };
    rest.is_empty() || (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Loop devices and memory disks without data: there may be many.
fn is_unused(link: &Path, holding: &str) -> bool {
    let name = link.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let lists = |name: &str| holding.lines().filter_map(numbered).any(|(listed, _)| listed == name);
    if name.starts_with("loop") && holding.lines().count() > 2 {
        return !lists(name);
    }
    ["loop", "ram"].iter().any(|kind| name.starts_with(kind))
        && proc_file::value(link.join("size")).unwrap_or_default().trim() == "0"
}
