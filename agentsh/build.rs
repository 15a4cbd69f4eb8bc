//! Links the executable of a package, `agentsh` or `agentsh-server`, statically where the machine can: every sandbox re-executes it, and without a dynamic
//! loader that takes half the time and works in an empty root.
//!
//! `crt-static` would do the same, but Cargo cannot set it for one target and still build procedural macros for the
//! host without a `--target`, which would move the executable. So the linker is given what `crt-static` gives it:
//! `-static-pie`, and linker scripts that name the archives in place of the shared objects.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Libraries that the standard library links against, and the archives that replace them.
const LIBRARIES: &[(&str, &[&str])] = &[
    ("gcc_s", &["libgcc_eh.a", "libgcc.a"]),
    ("c", &["libc.a", "libgcc_eh.a", "libgcc.a"]),
    ("m", &["libm.a"]),
    ("util", &[]),
    ("rt", &[]),
    ("pthread", &[]),
    ("dl", &[]),
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=AGENTSH_DYNAMIC");
    println!("cargo:rustc-env=AGENTSH_VERSION={}", version());
    let target = std::env::var("TARGET").unwrap_or_default();
    let host = std::env::var("HOST").unwrap_or_default();
    if target != "x86_64-unknown-linux-gnu" || host != target || std::env::var_os("AGENTSH_DYNAMIC").is_some()
    {
        return;
    }
    let Some(out) = std::env::var_os("OUT_DIR").map(PathBuf::from) else { return };
    // Without the archives (a distribution that ships them apart) the executable is dynamic, and works the same.
    if link_scripts(&out).is_none() {
        println!(
            "cargo:warning=no static C library here: agentsh is linked dynamically and starts a little slower"
        );
        return;
    }
    let program = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    let mut arguments = vec!["-static-pie".to_owned(), format!("-L{}", out.display())];
    if packs_relocations() {
        arguments.push("-Wl,-z,pack-relative-relocs".to_owned());
    }
    if std::env::var("PROFILE").as_deref() == Ok("release") && has_own_linker() {
        arguments.push("-Wl,--icf=all".to_owned());
        arguments.extend(without_unwind_tables(&out));
    }
    for argument in arguments {
        println!("cargo:rustc-link-arg-bin={program}={argument}");
    }
}

/// A linker script that leaves out the tables by which a stack is unwound: 5 MB of a release, which nothing reads where a panic
/// aborts and the names of functions are stripped.
fn without_unwind_tables(out: &Path) -> Option<String> {
    let script = out.join("discard.ld");
    let text = "SECTIONS { /DISCARD/ : { *(.eh_frame) *(.eh_frame_hdr) *(.gcc_except_table*) } } INSERT AFTER .text;\n";
    std::fs::write(&script, text).ok()?;
    Some(format!("-Wl,-T,{}", script.display()))
}

/// Whether LLD links, as it comes with the toolchain: another linker may know neither that script, nor how to keep one of equal
/// functions.
#[expect(clippy::disallowed_methods, reason = "the compiler is asked at build time, where no sandbox is")]
fn has_own_linker() -> bool {
    println!("cargo:rerun-if-env-changed=CARGO_ENCODED_RUSTFLAGS");
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(["--print", "sysroot"]).output();
    let root = output.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    let linker = Path::new(root.trim()).join("lib/rustlib/x86_64-unknown-linux-gnu/bin/gcc-ld/ld.lld");
    linker.exists() && std::env::var_os("RUSTC_LINKER").is_none() && !flags.contains("link")
}

/// Whether the C library applies relocations in the compact format (`DT_RELR`), as glibc does since 2.36. Without it they take
/// 2.4 MB of the executable, which every start reads. A linker that does not know the format ignores the argument.
#[expect(clippy::disallowed_methods, reason = "asked at build time, where no sandbox is")]
fn packs_relocations() -> bool {
    let version = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let version = version.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    let minor = version
        .trim()
        .strip_prefix("glibc 2.")
        .and_then(|minor| minor.split('.').next()?.parse::<u32>().ok());
    minor.is_some_and(|minor| minor >= 36)
}

/// With the commit it was built from. A development build has none: it would be wrong after the next one.
fn version() -> String {
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    println!("cargo:rerun-if-env-changed=AGENTSH_COMMIT");
    if std::env::var("PROFILE").as_deref() != Ok("release") {
        return format!("{version} (development build)");
    }
    let given = std::env::var("AGENTSH_COMMIT").ok().filter(|commit| !commit.is_empty());
    match given.or_else(|| git(&["rev-parse", "--short=12", "HEAD"])) {
        Some(commit) => {
            if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
                println!("cargo:rerun-if-changed={log}");
            }
            format!("{version} ({commit})")
        }
        None => version,
    }
}

#[expect(clippy::disallowed_methods, reason = "git is asked at build time, where no sandbox is")]
fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

fn link_scripts(out: &Path) -> Option<()> {
    for (name, archives) in LIBRARIES {
        let mut script = String::from("/* GNU ld script */\n");
        for archive in *archives {
            script += &format!("GROUP ( {} )\n", place_of(archive)?);
        }
        std::fs::write(out.join(format!("lib{name}.so")), script).ok()?;
    }
    Some(())
}

/// The compiler driver answers with the bare name when it does not find the file.
#[expect(clippy::disallowed_methods, reason = "the compiler is asked at build time, where no sandbox is")]
fn place_of(archive: &str) -> Option<String> {
    let output = Command::new("cc").arg(format!("-print-file-name={archive}")).output().ok()?;
    let place = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    place.contains('/').then_some(place)
}
