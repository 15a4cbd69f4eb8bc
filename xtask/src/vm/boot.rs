//! One machine from its first line to its last.

use std::fs;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::image::END;
use super::kernel::Kernel;

/// A machine that is not done by then has hung.
const LIMIT: Duration = Duration::from_secs(45 * 60);

/// What a machine printed, and how it ended.
pub struct Report {
    /// `6.1.0-56-cloud-amd64 (6.1.192-2)`.
    pub kernel: String,
    pub output: String,
    /// Why the machine did not come to a good end; None when it did.
    pub failure: Option<String>,
}

pub fn run(kernel: &Kernel, initramfs: &Path, disks: &[&PathBuf]) -> Result<Report> {
    let mut console = tempfile::tempfile().context("cannot make a temporary file")?;
    let mut command = Command::new("qemu-system-x86_64");
    // Software emulation is chosen, not fallen back to: results must not depend on who has /dev/kvm.
    command.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "3G"]);
    command.args(["-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot", "-nic", "none"]);
    command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(initramfs);
    command.args(["-append", "console=ttyS0 quiet panic=-1 oops=panic"]);
    for disk in disks {
        command.arg("-drive").arg(format!("file={},if=virtio,format=raw,snapshot=on", disk.display()));
    }
    let started = Instant::now();
    let errors = console.try_clone()?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(console.try_clone()?)
        .stderr(errors)
        .spawn()
        .context("cannot start qemu-system-x86_64")?;
    let mut failure = None;
    while child.try_wait()?.is_none() {
        if started.elapsed() > LIMIT {
            child.kill()?;
            failure = Some(format!("no end after {} minutes", LIMIT.as_secs() / 60));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let mut bytes = Vec::new();
    console.rewind()?;
    console.read_to_end(&mut bytes)?;
    let output = String::from_utf8_lossy(&bytes).replace('\r', "");
    let _ = fs::write(super::directory().join(format!("console-{}", kernel.release)), &output);
    let kernel = format!("{} ({})", kernel.release, kernel.version);
    Ok(Report { kernel, failure: failure.or_else(|| judge(&output)), output })
}

/// Why a machine that stopped by itself did not come to a good end.
fn judge(output: &str) -> Option<String> {
    if let Some(line) = output.lines().find(|line| line.contains("Kernel panic")) {
        return Some(line.trim().to_owned());
    }
    let status = output.lines().find_map(|line| line.trim().strip_prefix(END));
    match status.map(str::trim) {
        Some("0") => None,
        Some(status) => Some(format!("the tests ended with status {status}")),
        None => Some("the machine stopped before its last line".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vm_result_is_read_from_the_last_line_only() {
        assert_eq!(judge("test result: ok. 1 passed\nagentsh-vm-end 0\n"), None);
        assert!(judge("test result: ok. 1 passed\n").is_some_and(|why| why.contains("last line")));
        assert!(
            judge("test result: ok. 1 passed\nagentsh-vm-end 101\n").is_some_and(|why| why.contains("101"))
        );
        let panic = judge("[ 1.0] Kernel panic - not syncing: x\nagentsh-vm-end 0\n");
        assert!(panic.is_some_and(|why| why.contains("Kernel panic")));
    }
}
