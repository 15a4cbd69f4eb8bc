//! The two disks of a machine: a minimal Debian, made once, and the programs under test, made each time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{Tests, directory};
use crate::run::{capture, cargo, is_root, succeed, target};

/// What the suites start besides the shell and its tools.
const PACKAGES: [&str; 7] = ["python3-minimal", "python3", "git", "curl", "openssl", "iproute2", "procps"];

/// The last line of a machine that came to its end, followed by the exit status of the tests.
pub const END: &str = "agentsh-vm-end";

/// Of the same release as this machine: the programs under test are linked against its C library.
pub fn root() -> Result<PathBuf> {
    let release = release()?;
    let place = directory().join(format!("root-{release}.ext4"));
    let wanted = format!("{release} {}", PACKAGES.join(" "));
    let stamp = place.with_extension("stamp");
    if place.is_file() && fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(place);
    }
    if !is_root() {
        bail!("the disk of the machines has to be made by root once");
    }
    let tree = directory().join("root");
    let _ = fs::remove_dir_all(&tree);
    fs::create_dir_all(directory())?;
    let include = format!("--include={}", PACKAGES.join(","));
    let mut command = Command::new("debootstrap");
    command.args(["--variant=minbase", &include, &release]).arg(&tree);
    succeed(command.args(mirror(&release)))?;
    let _ = fs::remove_dir_all(tree.join("var/cache/apt"));
    format_disk(&tree, &place, 2048)?;
    fs::remove_dir_all(&tree)?;
    fs::write(stamp, wanted)?;
    Ok(place)
}

/// The directories of the build that the tests read, as they are in `target`.
pub fn programs(tests: &[TestBinary]) -> Result<PathBuf> {
    let tree = directory().join("programs");
    let _ = fs::remove_dir_all(&tree);
    let examples = target().join("debug/examples");
    let mut files = vec![target().join("debug/agentsh"), target().join("debug/agentsh-server")];
    files.extend(tests.iter().map(|test| test.path.clone()));
    files.extend(["probe", "internet", "fixture_server", "fixture_agent"].map(|name| examples.join(name)));
    for file in files {
        let relative = file.strip_prefix(target()).context("a program outside the target directory")?;
        let to = tree.join(relative);
        fs::create_dir_all(to.parent().unwrap_or(&tree))?;
        // Symbols are most of a debug build, and the emulated disk is slow.
        succeed(Command::new("strip").arg("-o").arg(&to).arg(&file))
            .with_context(|| format!("cannot copy {}", file.display()))?;
    }
    let place = directory().join("programs.ext4");
    format_disk(&tree, &place, 256)?;
    Ok(place)
}

/// What runs on the first disk: mounts, the tests, the last line.
pub fn script(tests: &[TestBinary]) -> String {
    let target = target();
    let target = target.display();
    let command = |test: &TestBinary| {
        let (path, filters) = (test.path.display(), test.filters.join(" "));
        format!("'{path}' --test-threads=2 --color=never {filters} 2>&1 || status=$?")
    };
    let commands = tests.iter().map(command).collect::<Vec<_>>().join("\n");
    format!(
        "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mkdir -p /dev/pts /dev/shm '{target}'
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set lo up
mount -t ext4 -o ro /dev/vdb '{target}'
echo kernel $(uname -r) $(cat /sys/kernel/security/lsm 2>/dev/null)
export RUST_BACKTRACE=0 AGENTSH_TEST_PATIENCE=20
cd /tmp
status=0
{commands}
echo {END} $status
echo o > /proc/sysrq-trigger
sleep 60
"
    )
}

/// A test binary as cargo built it last, and which of its tests are run.
pub struct TestBinary {
    path: PathBuf,
    filters: &'static [&'static str],
}

impl TestBinary {
    pub fn find(tests: &Tests) -> Result<Self> {
        let mut command = cargo(["test", "--locked", "--no-run"]);
        let captured = capture(command.args(tests.target))?;
        let line = captured.output.lines().find_map(|line| line.trim().strip_prefix("Executable "));
        let path = line.and_then(|line| Some(line.split_once('(')?.1.trim_end_matches(')')));
        let path = path.with_context(|| format!("cannot build the tests:\n{}", captured.output))?;
        // Cargo names it from the repository on, or from the root.
        Ok(Self { path: crate::run::repository().join(path), filters: tests.filters })
    }
}

fn format_disk(tree: &Path, place: &Path, mebibytes: u32) -> Result<()> {
    let half = place.with_extension("half");
    let _ = fs::remove_file(&half);
    let size = format!("{mebibytes}M");
    succeed(
        Command::new("mkfs.ext4").args(["-q", "-E", "root_owner=0:0", "-d"]).arg(tree).arg(&half).arg(size),
    )?;
    Ok(fs::rename(&half, place)?)
}

fn release() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim_matches('"').to_owned())
    };
    if field("ID=").as_deref() != Some("debian") {
        bail!("the machines are made of Debian's packages, and this is not Debian");
    }
    field("VERSION_CODENAME=").context("/etc/os-release names no release")
}

/// The mirror from which this machine has its own packages. None: debootstrap chooses one.
fn mirror(release: &str) -> Option<String> {
    let lines =
        succeed(Command::new("apt-get").args(["indextargets", "--format", "$(CODENAME) $(REPO_URI)"]))
            .ok()?;
    lines.lines().find_map(|line| {
        let (codename, uri) = line.split_once(' ')?;
        (codename == release).then(|| uri.to_owned())
    })
}
