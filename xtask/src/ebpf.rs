//! `cargo xtask ebpf`: the kernel programs from source, and whether the object in the repository is what comes out.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::run::{self, print_text, repository, succeed};

#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Build the object and write it, with its digest and how it was made, into the repository
    Build {
        /// Use rustup's nightly with rust-src and the bpf-linker on PATH instead of the distribution's compiler
        #[arg(long)]
        nightly: bool,
    },
    /// Build one next to it that logs what it decides, for a build of agentsh with the feature `ebpf-log`
    Log,
    /// Build it again and compare every byte with what the repository holds
    Verify,
}

/// The compiler that knows the target, its standard library for both sides, and the LLVM that it was made with.
const PACKAGES: [&str; 7] = [
    "rustc-web",
    "libstd-rust-web-dev",
    "libstd-rust-web-1.96",
    "libstd-rust-web-dev-bpf",
    "libllvm22",
    "llvm-22",
    "llvm-22-dev",
];
const LINKER: &str = "0.13.0";
const TARGET: &str = "bpfel-unknown-none";
const OBJECT: &str = "agentsh/crates/net/src/ebpf/object/agentsh.bpf.o";
const FACTS: &str = "agentsh/crates/net/src/ebpf/object/agentsh.bpf.json";
/// Everything else in the object is read by the loader or the kernel.
const STRIP: [&str; 3] = ["--strip-debug", "--remove-section=.BTF.ext", "--remove-section=.rel.BTF.ext"];

/// True when the object is (now) the one that the sources give.
pub fn main(options: &Options) -> Result<bool> {
    match options.task {
        Task::Build { nightly } => build(nightly).map(|()| true),
        Task::Log => log().map(|()| true),
        Task::Verify => {
            verify()?;
            print_text("the object in the repository is what its sources give\n");
            Ok(true)
        }
    }
}

/// A compiler and what belongs to it.
struct Toolchain {
    /// The directory into which the packages were unpacked; None for a nightly of rustup.
    root: Option<PathBuf>,
    linker: PathBuf,
}

struct Built {
    bytes: Vec<u8>,
    facts: Value,
}

fn build(nightly: bool) -> Result<()> {
    let toolchain = if nightly { nightly_toolchain()? } else { packaged_toolchain()? };
    let Built { bytes, facts } = compile(&toolchain)?;
    std::fs::write(repository().join(OBJECT), &bytes).with_context(|| format!("cannot write {OBJECT}"))?;
    std::fs::write(repository().join(FACTS), format!("{facts:#}\n"))
        .with_context(|| format!("cannot write {FACTS}"))?;
    print_text(&format!("{OBJECT}: {} bytes, sha256 {}\n", bytes.len(), text(&facts, "sha256")));
    Ok(())
}

/// Nothing of the repository is written.
fn log() -> Result<()> {
    let object = link(&packaged_toolchain()?, "log")?;
    print_text(&format!(
        "{}\nAGENTSH_BPF_OBJECT={} cargo build --features ebpf-log\n",
        "agentsh that prints what this object logs, on standard error, when it is started as root:",
        object.display()
    ));
    Ok(())
}

/// An error when the bytes differ or cannot be compared.
pub fn verify() -> Result<()> {
    let recorded =
        std::fs::read_to_string(repository().join(FACTS)).with_context(|| format!("cannot read {FACTS}"))?;
    let recorded: Value =
        serde_json::from_str(&recorded).with_context(|| format!("cannot understand {FACTS}"))?;
    let kept = std::fs::read(repository().join(OBJECT)).with_context(|| format!("cannot read {OBJECT}"))?;
    let Built { bytes, facts } = compile(&packaged_toolchain()?)?;
    for tool in ["rustc", "llvm", "linker"] {
        if recorded[tool] != facts[tool] {
            bail!(
                "the object was made with {tool} {}, and here is {}: `cargo xtask ebpf build`, and review what changed",
                recorded[tool],
                facts[tool]
            );
        }
    }
    if bytes != kept {
        bail!(
            "{OBJECT} is not what its sources give: it has {} bytes and sha256 {}, the sources give {} bytes and sha256 {}; \
             after a change of agentsh-ebpf run `cargo xtask ebpf build`",
            kept.len(),
            text(&recorded, "sha256"),
            bytes.len(),
            text(&facts, "sha256")
        );
    }
    if recorded != facts {
        bail!("{FACTS} does not belong to the object: it says {recorded}, and the build says {facts}");
    }
    Ok(())
}

fn text<'a>(facts: &'a Value, key: &str) -> &'a str {
    facts[key].as_str().unwrap_or("?")
}

/// The stripped object of the programs with a feature, below the target directory.
fn link(toolchain: &Toolchain, feature: &str) -> Result<PathBuf> {
    let target_directory = run::target().join("ebpf");
    let mut arguments: Vec<&str> =
        "build --package agentsh-ebpf --bin agentsh-bpf --profile ebpf --locked --target"
            .split(' ')
            .collect();
    arguments.extend([TARGET, "--features", feature]);
    let mut cargo = run::cargo(&arguments);
    cargo.arg("--target-dir").arg(&target_directory);
    // The rustup proxy would put its own compiler first.
    cargo.env_remove("RUSTFLAGS").env_remove("RUSTC_WRAPPER").env_remove("RUSTC_WORKSPACE_WRAPPER");
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags()?.join("\x1f"));
    let mut search = vec![toolchain.linker.parent().unwrap_or(Path::new("/")).to_owned()];
    search.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    cargo.env("PATH", std::env::join_paths(search)?);
    match &toolchain.root {
        Some(root) => {
            // Not 1: with that the build scripts of aya take the compiler for a nightly one.
            cargo.env("RUSTC", root.join("usr/bin/rustc")).env("RUSTC_BOOTSTRAP", "aya_ebpf");
            cargo.env("LD_LIBRARY_PATH", libraries(root));
        }
        None => {
            cargo
                .args(["-Zbuild-std=core"])
                .env("RUSTUP_TOOLCHAIN", "nightly")
                .env_remove("RUSTC")
                .env_remove("CARGO");
        }
    }
    succeed(&mut cargo).context("cannot build the kernel programs")?;
    let linked = target_directory.join(TARGET).join("ebpf/agentsh-bpf");
    let stripped = target_directory.join(feature).with_extension("bpf.o");
    succeed(tool(toolchain, "llvm-objcopy").args(STRIP).arg(&linked).arg(&stripped))?;
    Ok(stripped)
}

fn compile(toolchain: &Toolchain) -> Result<Built> {
    let stripped = link(toolchain, "programs")?;
    let bytes = std::fs::read(&stripped)?;
    let digest = succeed(Command::new("sha256sum").arg(&stripped))?;
    let facts = json!({
        "abi": abi()?,
        "bytes": bytes.len(),
        "flags": "-Cdebuginfo=2 -Clink-arg=--btf --remap-path-prefix, profile ebpf, RUSTC_BOOTSTRAP=aya_ebpf",
        "linker": succeed(Command::new(&toolchain.linker).arg("--version").env("LD_LIBRARY_PATH", library_path(toolchain)))?.trim(),
        "llvm": version_line(toolchain, "LLVM version: ")?,
        "rustc": version_line(toolchain, "release: ")?,
        "sha256": digest.split(' ').next().unwrap_or_default(),
        "strip": STRIP.join(" "),
        "target": TARGET,
    });
    Ok(Built { bytes, facts })
}

/// No byte of the object may depend on the path of the clone or of the registry.
fn flags() -> Result<Vec<String>> {
    let mut flags = vec![
        r#"--cfg=bpf_target_arch="x86_64""#.to_owned(),
        "-Cdebuginfo=2".to_owned(),
        "-Clink-arg=--btf".to_owned(),
        format!("--remap-path-prefix={}=.", repository().display()),
    ];
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let registries = home.context("no home directory")?.join("registry/src");
    for registry in std::fs::read_dir(&registries).into_iter().flatten().flatten() {
        flags.push(format!("--remap-path-prefix={}=registry", registry.path().display()));
    }
    Ok(flags)
}

fn abi() -> Result<u64> {
    let source = std::fs::read_to_string(repository().join("agentsh-ebpf/src/lib.rs"))?;
    let number = source.split("ABI_VERSION: u16 = ").nth(1).and_then(|rest| rest.split(';').next());
    number.and_then(|number| number.parse().ok()).context("agentsh-ebpf/src/lib.rs names no ABI_VERSION")
}

fn version_line(toolchain: &Toolchain, prefix: &str) -> Result<String> {
    let mut rustc = match &toolchain.root {
        Some(root) => Command::new(root.join("usr/bin/rustc")),
        None => {
            let mut rustup = Command::new("rustup");
            rustup.args(["run", "nightly", "rustc"]);
            rustup
        }
    };
    let text = succeed(rustc.arg("-vV").env("LD_LIBRARY_PATH", library_path(toolchain)))?;
    let line = text.lines().find_map(|line| line.strip_prefix(prefix));
    Ok(line.with_context(|| format!("rustc -vV has no line {prefix}"))?.to_owned())
}

fn tool(toolchain: &Toolchain, name: &str) -> Command {
    let mut command = match &toolchain.root {
        Some(root) => Command::new(root.join("usr/lib/llvm-22/bin").join(name)),
        None => Command::new(name),
    };
    command.env("LD_LIBRARY_PATH", library_path(toolchain));
    command
}

fn library_path(toolchain: &Toolchain) -> PathBuf {
    toolchain.root.as_deref().map(libraries).unwrap_or_default()
}

fn libraries(root: &Path) -> PathBuf {
    root.join("usr/lib/x86_64-linux-gnu")
}

fn nightly_toolchain() -> Result<Toolchain> {
    let linker = run::find("bpf-linker").context(
        "there is no bpf-linker on PATH: cargo install bpf-linker, against an LLVM as new as the nightly's",
    )?;
    Ok(Toolchain { root: None, linker })
}

/// Unpacks the packages next to the repository's own build: installed, they would be in the way of rustup.
fn packaged_toolchain() -> Result<Toolchain> {
    let directory = run::target().join("ebpf-toolchain");
    let toolchain =
        Toolchain { root: Some(directory.join("root")), linker: directory.join("linker/bin/bpf-linker") };
    let wanted = format!("{PACKAGES:?} {LINKER}\n");
    let stamp = directory.join("stamp");
    if std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(toolchain);
    }
    if !cfg!(target_arch = "x86_64") {
        bail!("the packages of the compiler are known for x86-64 only; use --nightly");
    }
    unpack(&directory).with_context(|| {
        format!("the distribution's compiler for BPF cannot be had (packages {})", PACKAGES.join(", "))
    })?;
    install_linker(&directory).context("cannot build bpf-linker")?;
    std::fs::write(stamp, wanted)?;
    Ok(toolchain)
}

fn unpack(directory: &Path) -> Result<()> {
    for tool in ["apt-get", "dpkg"] {
        if run::find(tool).is_none() {
            bail!("there is no {tool} here");
        }
    }
    let (archives, root) = (directory.join("debs"), directory.join("root"));
    let _ = std::fs::remove_dir_all(&archives);
    let _ = std::fs::remove_dir_all(&root);
    std::fs::create_dir_all(&archives)?;
    let download = || succeed(Command::new("apt-get").arg("download").args(PACKAGES).current_dir(&archives));
    if download().is_err() {
        // The lists may be old, or missing.
        succeed(Command::new("apt-get").arg("update"))?;
        download()?;
    }
    for archive in std::fs::read_dir(&archives)? {
        succeed(Command::new("dpkg").arg("-x").arg(archive?.path()).arg(&root))?;
    }
    std::fs::remove_dir_all(&archives)?;
    Ok(())
}

/// Without optimisation: it links one small object, and would take minutes to build.
fn install_linker(directory: &Path) -> Result<()> {
    let root = directory.join("root");
    let mut cargo =
        run::cargo("install bpf-linker --locked --no-default-features --features llvm-22 --force".split(' '));
    cargo.args(["--version", &format!("={LINKER}"), "--root"]).arg(directory.join("linker"));
    cargo.env("CARGO_TARGET_DIR", directory.join("linker-build"));
    cargo.env("CARGO_PROFILE_RELEASE_DEBUG", "0").env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0");
    cargo.env("LLVM_PREFIX", root.join("usr/lib/llvm-22")).env("LD_LIBRARY_PATH", libraries(&root));
    succeed(&mut cargo)?;
    std::fs::remove_dir_all(directory.join("linker-build"))?;
    Ok(())
}
