//! Links the executable of a package, `agentsh` or `agentsh-server`, statically if the machine can. Every sandbox
//! executes it again: without a dynamic loader that takes half the time and works in an empty root.
//!
//! `crt-static` would do the same, but Cargo cannot set it for one target and still build procedural macros for the
//! host without a `--target`, which would move the executable. So the linker is given what `crt-static` gives it:
//! `-static-pie`, and linker scripts that name the archives in place of the shared objects.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What the standard library asks for, and the archives that answer.
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
    for argument in ["-static-pie".to_owned(), format!("-L{}", out.display())] {
        println!("cargo:rustc-link-arg-bin={program}={argument}");
    }
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
