//! Kernels and busybox, from the package manager, unpacked and never installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::directory;
use crate::run::succeed;

/// An unpacked kernel package.
pub struct Kernel {
    /// As the package names it: `6.1.0-56-cloud-amd64`.
    pub release: String,
    /// As the package manager counts it: `6.1.192-2`.
    pub version: String,
    pub image: PathBuf,
    /// `lib/modules/RELEASE`.
    pub modules: PathBuf,
}

/// The newest cloud kernel of a series, such as `6.12`.
pub fn newest(series: &str) -> Result<Kernel> {
    let pattern = format!("^linux-image-{}\\.[0-9].*-cloud-amd64$", series.replace('.', "\\."));
    let search = || succeed(Command::new("apt-cache").args(["search", "--names-only", &pattern]));
    let mut found = search()?;
    if found.is_empty() {
        // A machine that never asked for its package lists has none.
        let _ = succeed(Command::new("apt-get").arg("update"));
        found = search()?;
    }
    let names = found.lines().filter_map(|line| line.split_whitespace().next());
    let newest = names.max_by_key(|name| numbers(name));
    let Some(package) = newest else {
        bail!("the package manager knows no cloud kernel {series} (the tests need Debian's packages)");
    };
    let (unpacked, version) = unpack(package)?;
    let release = package.trim_start_matches("linux-image-").to_owned();
    let modules = ["lib/modules", "usr/lib/modules"]
        .into_iter()
        .map(|place| unpacked.join(place).join(&release))
        .find(|path| path.is_dir())
        .with_context(|| format!("{package} has no modules"))?;
    Ok(Kernel { image: unpacked.join(format!("boot/vmlinuz-{release}")), version, modules, release })
}

/// A shell that needs nothing else, for the first moments of a machine.
pub fn busybox() -> Result<PathBuf> {
    let (unpacked, _) = unpack("busybox-static")?;
    ["bin/busybox", "usr/bin/busybox"]
        .into_iter()
        .map(|place| unpacked.join(place))
        .find(|path| path.is_file())
        .context("busybox-static brings no busybox")
}

/// Downloads the candidate version of a package, if it is not here yet, and unpacks it next to the others.
fn unpack(package: &str) -> Result<(PathBuf, String)> {
    let shown = succeed(Command::new("apt-cache").args(["show", "--no-all-versions", package]))?;
    let version = shown
        .lines()
        .find_map(|line| line.strip_prefix("Version: "))
        .with_context(|| format!("the package manager does not know {package}"))?
        .to_owned();
    let place = directory().join("packages").join(format!("{package}_{}", version.replace(':', "_")));
    if place.is_dir() {
        return Ok((place, version));
    }
    let download = tempfile::tempdir().context("cannot make a temporary directory")?;
    succeed(Command::new("apt-get").args(["download", package]).current_dir(download.path()))
        .with_context(|| format!("cannot download {package}"))?;
    let archive = fs::read_dir(download.path())?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|end| end == "deb"))
        .with_context(|| format!("the download of {package} left no package"))?;
    // Under its final name only when it is whole.
    let half = place.with_extension("half");
    let _ = fs::remove_dir_all(&half);
    fs::create_dir_all(&half)?;
    succeed(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&half))?;
    fs::rename(&half, &place)?;
    Ok((place, version))
}

/// What orders versions here: the numbers in the name, one after the other.
fn numbers(name: &str) -> Vec<u64> {
    name.split(|character: char| !character.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

impl Kernel {
    /// Paths of the module and of everything that it needs, in the order of loading; empty when it is built in.
    pub fn closure(&self, wanted: &str) -> Result<Vec<PathBuf>> {
        let read = |name: &str| {
            let path = self.modules.join(name);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        if read("modules.builtin")?.lines().any(|line| is_module(line, wanted)) {
            return Ok(Vec::new());
        }
        // `depmod` runs when a package is installed: an unpacked one has no list of dependencies.
        let mut order = Vec::new();
        self.visit(wanted, &self.all()?, &mut order)?;
        Ok(order)
    }

    fn all(&self) -> Result<Vec<PathBuf>> {
        let (mut found, mut left) = (Vec::new(), vec![self.modules.join("kernel")]);
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(&directory)?.flatten() {
                let path = entry.path();
                if path.is_dir() { left.push(path) } else { found.push(path) }
            }
        }
        Ok(found)
    }

    fn visit(&self, wanted: &str, all: &[PathBuf], order: &mut Vec<PathBuf>) -> Result<()> {
        let Some(path) = all.iter().find(|path| is_module(&path.to_string_lossy(), wanted)) else {
            return Ok(());
        };
        if order.contains(path) {
            return Ok(());
        }
        for needed in dependencies(&decompressed_module(path)?) {
            self.visit(&needed, all, order)?;
        }
        order.push(path.clone());
        Ok(())
    }
}

fn is_module(path: &str, wanted: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = name.split(".ko").next().unwrap_or(name);
    name.contains(".ko") && stem.replace('-', "_") == wanted.replace('-', "_")
}

/// The module's bytes, decompressed.
pub fn decompressed_module(path: &Path) -> Result<Vec<u8>> {
    if path.extension().is_some_and(|end| end == "xz") {
        let output = Command::new("xz").arg("-dc").arg(path).output().context("cannot start xz")?;
        return Ok(output.stdout);
    }
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The field `depends=a,b` of a module's own description.
fn dependencies(module: &[u8]) -> Vec<String> {
    const FIELD: &[u8] = b"\0depends=";
    let Some(at) = module.windows(FIELD.len()).position(|window| window == FIELD) else { return Vec::new() };
    let rest = module.get(at + FIELD.len()..).unwrap_or_default();
    let value = rest.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(value).split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_the_one_with_the_largest_numbers() {
        let names = ["linux-image-6.1.0-9-cloud-amd64", "linux-image-6.1.0-56-cloud-amd64"];
        assert_eq!(names.into_iter().max_by_key(|name| numbers(name)), Some(names[1]));
    }

    #[test]
    fn module_dependencies_are_read_from_the_module() {
        assert_eq!(dependencies(b"x\0depends=jbd2,crc16\0retpoline=Y\0"), ["jbd2", "crc16"]);
        assert!(dependencies(b"\0depends=\0").is_empty() && dependencies(b"").is_empty());
    }

    #[test]
    fn modules_are_known_by_either_spelling() {
        assert!(is_module("kernel/drivers/block/virtio_blk.ko.xz", "virtio-blk"));
        assert!(!is_module("kernel/fs/ext4/ext4.ko", "ext"));
    }
}
