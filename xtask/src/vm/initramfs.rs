//! The first file system of a machine: a cpio archive in the kernel's `newc` format
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::directory;
use super::kernel::{self, Kernel};

/// What the machine needs to find its disks and read them.
const MODULES: [&str; 4] = ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4"];

/// Mounts the first disk and continues there.
const INIT: &str = "#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
for module in $(/bin/busybox cat /modules/order); do /bin/busybox insmod /modules/$module || echo no $module; done
/bin/busybox mount -t ext4 /dev/vda /new || exec /bin/busybox poweroff -f
/bin/busybox cp /run-suite /new/run-suite
exec /bin/busybox switch_root /new /bin/sh /run-suite
";

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

pub fn write(kernel: &Kernel, busybox: &Path, script: &str) -> Result<PathBuf> {
    let mut archive = Archive::default();
    for name in ["bin", "dev", "modules", "new"] {
        archive.add(name, DIRECTORY, b"");
    }
    archive.add("init", PROGRAM, INIT.as_bytes());
    archive.add("run-suite", PROGRAM, script.as_bytes());
    archive.add("bin/busybox", PROGRAM, &fs::read(busybox).context("cannot read busybox")?);
    let mut order = Vec::new();
    for wanted in MODULES {
        for path in kernel.closure(wanted)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let name = name.trim_end_matches(".xz").to_owned();
            if !order.contains(&name) {
                archive.add(&format!("modules/{name}"), PROGRAM, &kernel::decompressed_module(&path)?);
                order.push(name);
            }
        }
    }
    archive.add("modules/order", PROGRAM, order.join("\n").as_bytes());
    let path = directory().join(format!("initramfs-{}", kernel.release));
    fs::write(&path, archive.finish()).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            u32::try_from(content.len()).unwrap_or(u32::MAX),
            0,
            0,
            0,
            0,
            u32::try_from(name.len() + 1).unwrap_or(u32::MAX),
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    /// Header with name, and content, each end on a multiple of four.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, b"");
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initramfs_archive_is_read_by_cpio() {
        let mut archive = Archive::default();
        archive.add("bin", DIRECTORY, b"");
        archive.add("bin/a", PROGRAM, b"text");
        let bytes = archive.finish();
        assert!(bytes.starts_with(b"070701") && bytes.len().is_multiple_of(4));
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("bin/a\0") && text.contains("text") && text.contains("TRAILER!!!\0"));
    }
}
