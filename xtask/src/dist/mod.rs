//! `cargo xtask dist`: what people install, made from the sources and tried.

mod archive;
mod build;
mod check;
mod clean;
mod release;
mod rpm;
mod sbom;
mod tree;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use crate::run::{print_text, target};

#[derive(Debug, Args)]
pub struct Options {
    /// Where to put it; by default target/dist
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Make the release of this tag: refused unless the sources are exactly what it names
    #[arg(long, value_name = "TAG", conflicts_with = "debug")]
    tag: Option<String>,
    /// Sign SHA256SUMS with this key of ssh; a public one means the key in the agent of ssh
    #[arg(long, value_name = "KEY")]
    sign: Option<PathBuf>,
    /// Pack the development build that `cargo build --workspace` made: for trying the packing, not for people
    #[arg(long)]
    debug: bool,
    /// Install what was made in clean roots of Debian, and use it as an ordinary user; takes root, mmdebstrap, and minutes
    #[arg(long)]
    clean: bool,
    /// Unpack what was made, and start it
    #[arg(long)]
    check: bool,
}

#[derive(Debug)]
pub struct BuiltFiles {
    pub tarball: PathBuf,
    pub package: PathBuf,
    pub rpm: PathBuf,
    pub sums: PathBuf,
}

/// # Errors
/// When something cannot be built or packed, or does not work once it is unpacked.
pub fn main(options: &Options) -> Result<bool> {
    let output = options.output.clone().unwrap_or_else(|| target().join("dist"));
    if let Some(tag) = &options.tag {
        release::check_tag(tag, env!("CARGO_PKG_VERSION"))?;
    }
    let made = make_tagged(&output, options.debug, options.tag.as_deref())?;
    for file in [&made.tarball, &made.package, &made.rpm, &made.sums] {
        print_text(&format!("{}\n", file.display()));
    }
    if let Some(key) = &options.sign {
        print_text(&format!("{}\n", release::sign(key, &made.sums)?.display()));
    }
    if options.check {
        check::check(&made)?;
        print_text("unpacked from each, it starts, and every checksum holds\n");
    }
    if options.clean {
        clean::check(&made)?;
    }
    Ok(true)
}

/// # Errors
/// When something cannot be built or packed.
pub fn make(output: &Path, debug: bool) -> Result<BuiltFiles> {
    make_tagged(output, debug, None)
}

fn make_tagged(output: &Path, debug: bool, tag: Option<&str>) -> Result<BuiltFiles> {
    std::fs::create_dir_all(output).with_context(|| format!("cannot make {}", output.display()))?;
    let binaries = build::PROGRAMS.map(|program| Ok((program, build::binary(program, output, debug)?)));
    let binaries = binaries.into_iter().collect::<Result<Vec<_>>>()?;
    let bill = sbom::read()?;
    let files = tree::files(&binaries, &bill)?;
    let name = format!("agentsh-{}-{}-linux", bill.version, std::env::consts::ARCH);
    let when = archive::date();
    let tarball = archive::tarball(output, &name, &files, when, debug)?;
    let package = archive::package(output, &bill.version, &files, when, debug)?;
    let rpm = rpm::package(output, &bill.version, &files, when, debug)?;
    let bill_file = output.join(format!("{name}.cdx.json"));
    std::fs::write(&bill_file, bill.text())
        .with_context(|| format!("cannot write {}", bill_file.display()))?;
    let provenance = output.join(format!("{name}.provenance.json"));
    release::provenance(&provenance, &[&tarball, &package, &rpm, &bill_file], tag)?;
    let sums = archive::sums(output, &[&tarball, &package, &rpm, &bill_file, &provenance])?;
    Ok(BuiltFiles { tarball, package, rpm, sums })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_is_unpacked_and_starts() {
        let place = tempfile::tempdir().unwrap();
        let made = make(place.path(), true).unwrap();
        check::check(&made).unwrap();
        // A changed byte is noticed.
        let mut bytes = std::fs::read(&made.package).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&made.package, bytes).unwrap();
        assert!(check::check(&made).unwrap_err().to_string().contains("SHA256SUMS"));
    }
}
