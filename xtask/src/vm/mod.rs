//! `cargo xtask test vm`: the suites on the kernels of Debian's cloud images, in virtual machines that emulate the
//! processor, so that they run where no hardware virtualisation is to be had.
//!
//! A machine boots an initramfs that is written here (a static busybox, a script and the kernel's own modules), mounts
//! two disks (a minimal Debian and the programs under test) and runs the same test binaries as everywhere else.

mod boot;
mod image;
mod initramfs;
mod kernel;

use std::path::PathBuf;

use anyhow::Result;

use crate::install;
use crate::run;

pub use boot::Report;

/// Kernel series that are tried, each with the newest version that the package manager knows.
pub const SERIES: [&str; 2] = ["6.1", "6.12"];

/// A program that must be on PATH, and the package of Debian that brings it.
const PROGRAMS: [(&str, &str); 6] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("debootstrap", "debootstrap"),
    ("mkfs.ext4", "e2fsprogs"),
    ("dpkg-deb", "dpkg"),
    ("xz", "xz-utils"),
    ("strip", "binutils"),
];

/// Tests that depend on the kernel: a target of the package as cargo names it, and what their names contain.
pub struct Tests {
    pub target: &'static [&'static str],
    pub filters: &'static [&'static str],
}

/// Everything that the machines share.
pub struct Bench {
    tests: Vec<image::TestBinary>,
    root: PathBuf,
    programs: PathBuf,
    busybox: PathBuf,
}

/// Makes the disks; what was made before is used again where nothing has changed.
///
/// # Errors
/// When a package cannot be had, or the programs under test are not built.
pub fn prepare(tests: &[Tests]) -> Result<Bench> {
    install::programs(&PROGRAMS)?;
    let root = image::root()?;
    let tests = tests.iter().map(image::TestBinary::find).collect::<Result<Vec<_>>>()?;
    let programs = image::programs(&tests)?;
    Ok(Bench { tests, root, programs, busybox: kernel::busybox()? })
}

/// Boots the newest kernel of a series and runs the tests.
///
/// # Errors
/// When the kernel cannot be had or the emulator not be started. What happens in the machine is in the report.
pub fn test(bench: &Bench, series: &str) -> Result<Report> {
    let kernel = kernel::newest(series)?;
    let initramfs = initramfs::write(&kernel, &bench.busybox, &image::script(&bench.tests))?;
    boot::run(&kernel, &initramfs, &[&bench.root, &bench.programs])
}

fn directory() -> PathBuf {
    run::target().join("vm")
}
