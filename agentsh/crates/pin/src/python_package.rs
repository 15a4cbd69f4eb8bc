//! The package of an installed Python file, by its installer's list (`*.dist-info/RECORD`).

use std::path::{Component, Path, PathBuf};

use super::search;

/// A longer list of files is not read, in bytes.
const MAX_RECORD: u64 = 4 << 20;

/// `pypi:name@1.0` of the package that brought `file`, installed in one of `sites`.
pub(super) fn identity(sites: &[PathBuf], file: &Path) -> Option<String> {
    sites.iter().find_map(|site| {
        search::subdirectories(site).into_iter().find_map(|record| {
            let (name, version) = search::file_name(&record).strip_suffix(".dist-info")?.rsplit_once('-')?;
            // An unreadable record is ignored.
            let text = search::text(&record.join("RECORD"), MAX_RECORD).ok()??;
            let names =
                |line: &str| path_of_record(line).is_some_and(|place| leads_to(site, Path::new(place), file));
            text.lines().any(names).then(|| format!("pypi:{name}@{version}"))
        })
    })
}

/// `path,hash,size`, with quotation marks around a path that has a comma in it.
fn path_of_record(line: &str) -> Option<&str> {
    match line.strip_prefix('"') {
        Some(rest) => rest.split('"').next(),
        None => line.split(',').next(),
    }
}

/// Whether `place` below `site` is `file`; without a look at the disk for every line.
fn leads_to(site: &Path, place: &Path, file: &Path) -> bool {
    if place.file_name() != file.file_name() {
        return false;
    }
    let mut whole = site.to_owned();
    for part in place.components() {
        match part {
            Component::ParentDir => {
                whole.pop();
            }
            Component::Normal(name) => whole.push(name),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => whole = PathBuf::from("/"),
        }
    }
    whole == file
}
