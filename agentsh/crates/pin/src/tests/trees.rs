use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;

use super::super::file::Hasher;
use super::super::tree::{self, PinnedTree, Selection};
use super::super::{NoCache, PinError, Progress};
use super::{Machine, text};

fn pin(root: &Path) -> Result<PinnedTree, PinError> {
    let root = fs::canonicalize(root).unwrap();
    tree::pin(&mut Hasher::new(&mut NoCache, &mut |_: Progress<'_>| ()), "t", &root, Selection::default())
}

#[test]
fn links_are_recorded_with_their_targets() {
    let machine = Machine::new();
    machine.file("tree/file", "x");
    machine.file("outside", "secret");
    machine.file("elsewhere/code.js", "x");
    machine.link("tree/inside", "file");
    machine.link("tree/absolute", machine.at("tree/file"));
    machine.link("tree/out", "../outside");
    machine.link("tree/nowhere", "missing");
    machine.link("tree/there-and-back", "../elsewhere/back");
    machine.link("elsewhere/back", "../tree/file");
    machine.link("tree/loop", "loop");
    machine.link("tree/self", ".");
    machine.link("tree/directory", "../elsewhere");
    let tree = pin(&machine.at("tree")).unwrap();
    let entry = |name: &str| tree.manifest[Path::new(name)].clone();
    assert_eq!([entry("inside"), entry("absolute")], ["link:file", "link:{tree}/file"]);
    assert!(entry("there-and-back").starts_with("link:../elsewhere/back sha256:"));
    assert!(entry("out").starts_with("link:../outside sha256:"));
    assert_eq!([entry("nowhere"), entry("loop"), entry("self")], ["link:missing", "link:loop", "link:."]);
    assert_eq!(tree.outside, [("directory".into(), machine.at("elsewhere"))]);
    tree.unchanged_since().unwrap();
    machine.file("outside", "tampered");
    assert!(tree.unchanged_since().is_err());
    assert_ne!(tree.digest, pin(&machine.at("tree")).unwrap().digest);
    machine.file("outside", "secret");
    machine.file("tree/missing", "now it leads somewhere");
    assert!(pin(&machine.at("tree")).unwrap().manifest[Path::new("nowhere")] == "link:missing");
    assert_eq!(pin(&machine.at("tree")).unwrap().manifest.len(), tree.manifest.len() + 1);
}

#[test]
fn a_link_into_a_part_that_is_not_hashed_is_not_a_way_around() {
    let machine = Machine::new();
    machine.file("tree/.git/evil.js", "old");
    machine.link("tree/index.js", ".git/evil.js");
    machine.link("tree/lib", ".git");
    let before = pin(&machine.at("tree")).unwrap();
    assert_eq!(before.outside, [("lib".into(), machine.at("tree/.git"))]);
    machine.file("tree/.git/evil.js", "new");
    assert_ne!(before.digest, pin(&machine.at("tree")).unwrap().digest);
}

#[test]
fn special_files_are_refused_by_name() {
    let machine = Machine::new();
    fs::create_dir_all(machine.at("tree")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    let fifo = machine.at("tree/pipe.js");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let error = pin(&machine.at("tree")).unwrap_err();
    assert!(matches!(&error, PinError::SpecialFile { path, kind: "FIFO" } if *path == fifo), "{error}");
    fs::remove_file(&fifo).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(machine.at("tree/socket")).unwrap();
    assert!(matches!(pin(&machine.at("tree")), Err(PinError::SpecialFile { kind: "socket", .. })));
}

#[test]
fn depth_of_a_tree_is_bounded() {
    let machine = Machine::new();
    fs::create_dir_all(machine.at(&format!("tree/{}", "d/".repeat(200)))).unwrap();
    assert!(matches!(pin(&machine.at("tree")), Err(PinError::TooLarge { .. })));
}

#[test]
fn the_size_of_a_tree_is_bounded() {
    let machine = Machine::new();
    let path = machine.file("tree/huge", "");
    fs::File::options().write(true).open(path).unwrap().set_len((2 << 30) + 1).unwrap();
    let error = pin(&machine.at("tree")).unwrap_err();
    assert!(matches!(error, PinError::TooLarge { limit: "2 GiB", .. }), "{error}");
}

#[test]
fn file_names_that_are_not_utf8_stay_distinct() {
    use std::os::unix::ffi::OsStrExt;
    let machine = Machine::new();
    machine.file("project/package.json", r#"{"name":"p"}"#);
    machine.file("project/main.js", "x");
    for name in [&b"\xff.js"[..], b"\xfe.js", b"\\xff.js", b"new\nline.js"] {
        fs::write(machine.at("project").join(std::ffi::OsStr::from_bytes(name)), name).unwrap();
    }
    let state = machine.ok(&["node", "main.js"]).state();
    assert_eq!(state.manifest.len(), 1 + 2 + 4, "{:?}", state.manifest);
}

#[test]
fn linked_directories_are_trees_and_links_upwards_are_not() {
    let machine = Machine::new();
    machine.file("project/app/package.json", r#"{"name":"app"}"#);
    machine.file("project/app/main.js", "x");
    machine.file("project/library/index.js", "x");
    machine.link("project/library/back", "../app");
    machine.link("project/app/library", "../library");
    machine.link("project/app/up", "..");
    let resolved = machine.ok(&["node", &text(&machine.at("project/app/main.js"))]);
    let names: Vec<&str> = resolved.trees.iter().map(|tree| tree.name.as_str()).collect();
    assert_eq!(names, ["package", "package/library"]);
    assert!(resolved.unpinned.unwrap().contains("package/up"));
}

/// The author of a link does not decide what is shown: neither an agent in the project, nor the author of a server.
#[test]
fn links_to_what_a_person_keeps_show_nothing() {
    for place in ["project/app", "servers/app"] {
        let machine = Machine::new();
        machine.file(&format!("{place}/package.json"), r#"{"name":"app"}"#);
        machine.file(&format!("{place}/main.js"), "x");
        machine.file("home/.ssh/id_rsa", "secret");
        machine.file("home/clients/other/customers.txt", "secret");
        machine.file("home/node_modules/dep/index.js", "x");
        machine.link(&format!("{place}/keys"), "../../home/.ssh");
        machine.link(&format!("{place}/other"), "../../home/clients/other");
        machine.link(&format!("{place}/home"), "../../home");
        machine.link(&format!("{place}/dep"), "../../home/node_modules/dep");
        let resolved = machine.ok(&["node", &text(&machine.at(&format!("{place}/main.js")))]);
        let names: Vec<&str> = resolved.trees.iter().map(|tree| tree.name.as_str()).collect();
        assert_eq!(names, ["package", "package/dep"], "{place}");
        let shown = |name: &str| resolved.read_roots.iter().any(|root| machine.at(name).starts_with(root));
        assert!(!shown("home/.ssh/id_rsa") && !shown("home/clients/other/customers.txt"), "{place}");
        let unpinned = resolved.unpinned.unwrap();
        for name in ["package/keys", "package/other", "package/home"] {
            assert!(unpinned.contains(name), "{place}: {unpinned}");
        }
    }
}

/// A young directory is looked at again: a link that was not read because of where it leads is not a new one.
#[test]
fn a_link_to_a_file_that_is_no_code_is_not_taken_for_a_change() {
    let machine = Machine::new();
    machine.file("project/main.js", "x");
    machine.file("elsewhere.txt", "x");
    machine.link("project/notes", "../elsewhere.txt");
    machine.ok(&["node", "main.js"]).unchanged_since().unwrap();
}

fn build(root: &Path, files: &BTreeMap<String, Vec<u8>>, backwards: bool) {
    let mut all: Vec<_> = files.iter().collect();
    if backwards {
        all.reverse();
    }
    for (name, bytes) in all {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        let _ = symlink(root.join(name), root.join(format!("{}.link", name.replace('/', "_"))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_digest_depends_on_content_alone(
        files in proptest::collection::btree_map("[a-d]{1,2}/[a-d]{1,3}", proptest::collection::vec(any::<u8>(), 0..40), 1..12),
        place in "[a-z]{1,12}",
        victim in any::<prop::sample::Index>(),
    ) {
        let one = tempfile::tempdir().unwrap();
        let two = tempfile::tempdir().unwrap();
        let (here, there) = (one.path().join("here"), two.path().join(place));
        build(&fs::canonicalize(one.path()).unwrap().join("here"), &files, false);
        build(&fs::canonicalize(two.path()).unwrap().join(there.file_name().unwrap()), &files, true);
        let (first, second) = (pin(&here).unwrap(), pin(&there).unwrap());
        prop_assert_eq!(&first.manifest, &second.manifest);
        prop_assert_eq!(&first.digest, &second.digest);

        let name = files.keys().nth(victim.index(files.len())).unwrap();
        let mut bytes = files[name].clone();
        bytes.push(1);
        fs::write(here.join(name), bytes).unwrap();
        prop_assert!(first.unchanged_since().is_err());
        prop_assert_ne!(&pin(&here).unwrap().digest, &second.digest);
    }
}

#[test]
fn moved_installation_has_the_same_digest() {
    let machine = Machine::new();
    machine.program("opt/bin/npx", "#!/usr/bin/env node\n");
    machine.package("home/.npm/_npx/aa/node_modules", "server", "1.0.0");
    let before = machine.ok(&["npx", "server", "x"]);
    fs::rename(machine.at("home/.npm/_npx/aa"), machine.at("home/.npm/_npx/bb")).unwrap();
    let after = machine.resolve_in("home", &["npx", "server", "y"]).unwrap();
    assert_ne!(before.argv, after.argv);
    assert_eq!(before.digest, after.digest);
}
