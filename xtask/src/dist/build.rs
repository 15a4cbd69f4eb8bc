//! The executables, without a path of the machine that built it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run::{cargo, repository, succeed, target};

/// Each is a package with one executable of its name.
pub const PROGRAMS: [&str; 2] = ["agentsh", "agentsh-server"];

/// Built, stripped, and read. A development build is taken as it is, and keeps its paths.
pub fn binary(program: &str, output: &Path, debug: bool) -> Result<Vec<u8>> {
    if debug {
        let built = target().join("debug").join(program);
        if !built.is_file() {
            bail!("{} is not built yet: cargo build --workspace", built.display());
        }
        let stripped = output.join("stripped");
        succeed(Command::new("strip").arg("-o").arg(&stripped).arg(built))?;
        let bytes = std::fs::read(&stripped)?;
        std::fs::remove_file(&stripped)?;
        return Ok(bytes);
    }
    let places = places()?;
    // A directory of its own: other flags would make the next development build begin anew.
    let own = target().join("dist-build");
    // One after the other: built together, each would have the features that the other one needs.
    let mut command = cargo(["build", "--locked", "--release", "--package", program, "--bin", program]);
    command.env("CARGO_TARGET_DIR", &own).env_remove("CARGO_BUILD_BUILD_DIR").env_remove("RUSTFLAGS");
    command.env("CARGO_ENCODED_RUSTFLAGS", rust_flags(&places).join("\x1f"));
    command.env("CFLAGS", c_flags(&places));
    succeed(&mut command)?;
    let file = own.join("release").join(program);
    let bytes = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let found = paths_in(&bytes, &places);
    if !found.is_empty() {
        bail!("the executable names paths of this machine:\n{}", found.join("\n"));
    }
    Ok(bytes)
}

/// Directories of this machine, and their replacements. The narrowest last: the last that fits is taken.
fn places() -> Result<Vec<(PathBuf, &'static str)>> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let of =
        |name: &str, default: &str| std::env::var_os(name).map_or_else(|| home.join(default), PathBuf::from);
    let sysroot = succeed(Command::new("rustc").current_dir(repository()).args(["--print", "sysroot"]))?;
    let mut places = vec![
        (of("CARGO_HOME", ".cargo"), "/cargo"),
        (Path::new(sysroot.trim()).join("lib/rustlib/src/rust"), "/rust"),
        (repository(), "/agentsh"),
    ];
    if let Some(elsewhere) = std::env::var_os("CARGO_BUILD_BUILD_DIR") {
        places.push((elsewhere.into(), "/build"));
    }
    Ok(places)
}

fn rust_flags(places: &[(PathBuf, &str)]) -> Vec<String> {
    places.iter().map(|(path, name)| format!("--remap-path-prefix={}={name}", path.display())).collect()
}

fn c_flags(places: &[(PathBuf, &str)]) -> String {
    let flags = places.iter().map(|(path, name)| format!("-ffile-prefix-map={}={name}", path.display()));
    flags.collect::<Vec<_>>().join(" ")
}

/// The first places in the executable that name each of the directories, with the text around them.
fn paths_in(bytes: &[u8], places: &[(PathBuf, &str)]) -> Vec<String> {
    const SHOWN: usize = 120;
    let mut found = Vec::new();
    for (path, _) in places {
        let needle = path.as_os_str().as_encoded_bytes();
        let at = bytes.windows(needle.len().max(1)).position(|window| window == needle);
        if let Some(at) = at {
            let around = &bytes[at..bytes.len().min(at + SHOWN)];
            let text = around.split(|byte| !(b' '..=b'~').contains(byte)).next().unwrap_or_default();
            found.push(String::from_utf8_lossy(text).into_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags of a release, on a small program that names its own source.
    #[test]
    fn no_path_of_the_machine_stays_in_the_executable() {
        let place = tempfile::tempdir().unwrap();
        let source = place.path().join("named.rs");
        std::fs::write(&source, "fn main() { std::process::exit(file!().len() as i32); }").unwrap();
        let places = vec![(place.path().to_owned(), "/agentsh")];
        let built = |flags: &[String]| {
            let out = place.path().join("named");
            succeed(Command::new("rustc").args(flags).arg("-o").arg(&out).arg(&source)).unwrap();
            succeed(Command::new("strip").arg(&out)).unwrap();
            let bytes = std::fs::read(out).unwrap();
            (paths_in(&bytes, &places), bytes)
        };
        // `file!()` alone is not kept: what the panic of an overflow would name is.
        std::fs::write(
            &source,
            "fn main() { let all: Vec<u8> = std::env::args().map(|a| a.len() as u8).collect(); \
             std::process::exit(i32::from(all[std::env::args().count() - 1])); }",
        )
        .unwrap();
        let (found, _) = built(&[]);
        assert_eq!(found.len(), 1, "without the flags it is there");
        let (found, bytes) = built(&rust_flags(&places));
        assert!(found.is_empty(), "{found:?}");
        assert!(!paths_in(&bytes, &[("/agentsh".into(), "")]).is_empty(), "and what stands for it is");
    }

    #[test]
    fn c_compiler_gets_the_same_path_flags() {
        assert_eq!(
            c_flags(&[("/a".into(), "/b"), ("/c".into(), "/d")]),
            "-ffile-prefix-map=/a=/b -ffile-prefix-map=/c=/d"
        );
    }
}
