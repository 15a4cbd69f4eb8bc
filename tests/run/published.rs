//! The crates can be published: each contains the files that it needs, and its dependencies name versions.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn crates() -> Vec<PathBuf> {
    let below = repository().join("agentsh/crates").read_dir().unwrap().map(|entry| entry.unwrap().path());
    below.chain(["agentsh", "agentsh-ebpf"].map(|name| repository().join(name))).collect()
}

/// Without `.` and `..`, as the compiler reads what is included.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut found, part| {
        match part {
            Component::ParentDir => assert!(found.pop(), "{} leaves the crate", path.display()),
            part => found.push(part),
        }
        found
    })
}

#[test]
#[ignore = "takes long"]
fn included_files_of_a_crate_are_packaged_with_it() {
    let mut included = 0;
    for directory in crates() {
        let list = Command::new(env!("CARGO"))
            .args(["package", "--list", "--allow-dirty", "--offline", "--quiet"])
            .current_dir(&directory)
            .output()
            .unwrap();
        assert!(list.status.success(), "{} {list:?}", directory.display());
        let list = String::from_utf8(list.stdout).unwrap();
        let packaged: BTreeSet<&Path> = list.lines().map(Path::new).collect();
        for source in packaged.iter().filter(|path| path.extension().is_some_and(|name| name == "rs")) {
            let text = std::fs::read_to_string(directory.join(source)).unwrap();
            // Tests run in the repository.
            if source.to_string_lossy().ends_with("_tests.rs") {
                continue;
            }
            for word in ["include_str!(\"", "include_bytes!(\""] {
                for rest in text.split(word).skip(1) {
                    let path = plain(&source.parent().unwrap().join(rest.split('"').next().unwrap()));
                    assert!(packaged.contains(&*path), "{}: {}", directory.display(), path.display());
                    included += 1;
                }
            }
        }
    }
    assert!(included > 60, "only {included} were found");
}

#[test]
fn crates_and_their_dependencies_have_versions() {
    let text = std::fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let own: Vec<&str> =
        text.lines().filter(|line| line.starts_with("agentsh") && line.contains("path = ")).collect();
    assert!(own.len() > 20);
    for line in own {
        assert!(line.contains("version = "), "{line}");
    }
    for directory in crates() {
        let text = std::fs::read_to_string(directory.join("Cargo.toml")).unwrap();
        assert!(text.contains("description = "), "{}", directory.display());
        assert!(text.contains("license.workspace = true"), "{}", directory.display());
    }
}
