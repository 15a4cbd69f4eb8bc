//! What a release says of itself: from which tag it was made, of what (a provenance statement), and by whom (a signature).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::archive::hex;
use crate::run::{repository, succeed};

/// `ssh-keygen -Y` binds a signature to what it is for.
const NAMESPACE: &str = "agentsh-release";

/// # Errors
/// When the sources are not exactly what the tag `v<version>` names.
pub fn check_tag(tag: &str, version: &str) -> Result<()> {
    ensure!(
        tag == format!("v{version}"),
        "the sources are of version {version}: its tag is v{version}, not {tag}"
    );
    let changed = git(&["status", "--porcelain"])?;
    ensure!(changed.is_empty(), "these files are not as committed:\n{changed}");
    let (named, head) =
        (git(&["rev-parse", &format!("refs/tags/{tag}^{{commit}}")])?, git(&["rev-parse", "HEAD"])?);
    ensure!(named == head, "{tag} is commit {named}; the sources are of {head}");
    Ok(())
}

/// An [in-toto statement](https://in-toto.io/Statement/v1) with a [SLSA provenance](https://slsa.dev/spec/v1.0/provenance) about
/// these files.
///
/// # Errors
/// When a file cannot be read, or git or rustc does not answer.
pub fn provenance(to: &Path, files: &[&Path], tag: Option<&str>) -> Result<()> {
    let rustc = succeed(Command::new("rustc").current_dir(repository()).arg("--version"))?;
    let commit = git(&["rev-parse", "HEAD"])?;
    let subjects = files.iter().map(|file| digested(file)).collect::<Result<Vec<_>>>()?;
    let lock = digested(&repository().join("Cargo.lock"))?;
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://slsa.dev/spec/v1.0/provenance",
                "externalParameters": {"command": "cargo xtask dist", "tag": tag},
                "internalParameters": {"rustc": rustc.trim()},
                "resolvedDependencies": [{"name": "agentsh", "digest": {"gitCommit": commit}}, lock],
            },
            "runDetails": {"builder": {"id": "urn:agentsh:xtask-dist"}},
        },
    });
    let text = format!("{statement:#}\n");
    std::fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))
}

/// Writes `FILE.sig` with the key of ssh, or of its agent where `key` is a public one.
///
/// # Errors
/// When `ssh-keygen` does not sign.
pub fn sign(key: &Path, file: &Path) -> Result<PathBuf> {
    let signature = signature_of(file);
    // It would ask before it writes over one.
    if signature.exists() {
        std::fs::remove_file(&signature)?;
    }
    succeed(Command::new("ssh-keygen").args(["-q", "-Y", "sign", "-n", NAMESPACE, "-f"]).arg(key).arg(file))?;
    Ok(signature)
}

/// # Errors
/// When there is a signature next to the file that does not belong to it.
pub fn check(file: &Path) -> Result<()> {
    let signature = signature_of(file);
    if !signature.exists() {
        return Ok(());
    }
    let mut command = Command::new("sh");
    command.args(["-c", "ssh-keygen -Y check-novalidate -n \"$1\" -s \"$2\" < \"$3\"", "sh", NAMESPACE]);
    succeed(command.arg(signature).arg(file)).map(drop)
}

fn signature_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".sig");
    name.into()
}

fn digested(file: &Path) -> Result<Value> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    Ok(json!({"name": name, "digest": {"sha256": hex(&Sha256::digest(bytes))}}))
}

fn git(words: &[&str]) -> Result<String> {
    let said = succeed(Command::new("git").arg("-C").arg(repository()).args(words))?;
    Ok(said.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_of_the_file_that_was_signed() {
        let place = tempfile::tempdir().unwrap();
        let (key, sums) = (place.path().join("key"), place.path().join("SHA256SUMS"));
        succeed(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key)).unwrap();
        std::fs::write(&sums, "one\n").unwrap();
        for _ in 0..2 {
            assert_eq!(sign(&key, &sums).unwrap(), place.path().join("SHA256SUMS.sig"));
        }
        check(&sums).unwrap();
        std::fs::write(&sums, "other\n").unwrap();
        assert!(check(&sums).is_err());
    }

    #[test]
    fn a_release_is_made_from_its_tag() {
        let error = |tag: &str| check_tag(tag, "9.9.9").unwrap_err().to_string();
        assert!(error("v0.1.0").contains("its tag is v9.9.9"));
        // Either the sources are changed or the tag does not exist: both are refused.
        assert!(check_tag("v9.9.9", "9.9.9").is_err());
    }

    #[test]
    fn a_provenance_names_each_file_by_its_digest() {
        let place = tempfile::tempdir().unwrap();
        let (file, to) = (place.path().join("a.tar.gz"), place.path().join("a.provenance.json"));
        std::fs::write(&file, "abc").unwrap();
        provenance(&to, &[&file], Some("v1")).unwrap();
        let statement: Value = serde_json::from_slice(&std::fs::read(&to).unwrap()).unwrap();
        let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(statement["subject"], json!([{"name": "a.tar.gz", "digest": {"sha256": digest}}]));
        let from =
            &statement["predicate"]["buildDefinition"]["resolvedDependencies"][0]["digest"]["gitCommit"];
        assert_eq!(from.as_str().map(str::len), Some(40));
    }
}
