//! Sources of advisories: files, directories and URLs. Large ones are not held in memory.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use super::AdvisoryContext;
use agentsh_advisories::read::SIGNATURES;
use agentsh_host::outgoing;

/// Largest source, in bytes: archives say no larger places.
const MAX_SOURCE: u64 = 4 << 30;
/// Largest file of signatures, in bytes.
const MAX_SIGNATURES: usize = 256 << 10;
/// Files of a directory that are read.
const MAX_FILES: usize = 1_000_000;

fn is_url(source: &str) -> bool {
    source.starts_with("https://") || source.starts_with("http://")
}

/// The files of a source, or its URL.
pub(super) fn names_of(here: &AdvisoryContext, source: &str) -> Result<Vec<String>, String> {
    if is_url(source) {
        return Ok(vec![source.to_owned()]);
    }
    let path = at(here, source);
    let is_directory = std::fs::metadata(&path).map_err(|error| error.to_string())?.is_dir();
    if !is_directory {
        return Ok(vec![source.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&path).map_err(|error| error.to_string())?.take(MAX_FILES) {
        let path = entry.map_err(|error| error.to_string())?.path();
        if path.extension().is_some_and(|ending| ending == "json" || ending == "jsonl") && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err("no file in it ends in .json or .jsonl".to_owned());
    }
    Ok(files.iter().map(|path| path.display().to_string()).collect())
}

/// A file of a source as it is; a download is first written to disk, in a place private to this user.
pub(super) async fn open_source(here: &AdvisoryContext, name: &str) -> Result<File, String> {
    if !is_url(name) {
        let file = File::open(at(here, name)).map_err(|error| error.to_string())?;
        let length = file.metadata().map_err(|error| error.to_string())?.len();
        return if length > MAX_SOURCE { Err(too_large()) } else { Ok(file) };
    }
    let mut answer =
        outgoing::request_stream(name, usize::try_from(MAX_SOURCE).unwrap_or(usize::MAX)).await?;
    let path = here.places.data.join(format!("advisories.fetched-{}", std::process::id()));
    // A file left by a killed process with the same pid.
    let _may_be_none = std::fs::remove_file(&path);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let mut file = options.open(&path).map_err(|error| error.to_string())?;
    std::fs::remove_file(&path).map_err(|error| error.to_string())?;
    while let Some(piece) = answer.chunk().await.map_err(|error| error.to_string())? {
        file.write_all(&piece).map_err(|error| format!("cannot store its answer: {error}"))?;
    }
    file.rewind().map_err(|error| error.to_string())?;
    Ok(file)
}

fn too_large() -> String {
    format!("it is larger than {} MiB", MAX_SOURCE >> 20)
}

/// The signatures next to a list: a file or URL with `.minisig` behind its name.
pub(super) async fn signatures_of(here: &AdvisoryContext, name: &str) -> Result<String, String> {
    let beside = format!("{name}{SIGNATURES}");
    let bytes = match is_url(name) {
        true => outgoing::get(&beside, MAX_SIGNATURES).await,
        false => {
            let file = File::open(at(here, &beside)).map_err(|error| error.to_string());
            file.and_then(|file| read_rest(&file, MAX_SIGNATURES as u64))
        }
    };
    let bytes =
        bytes.map_err(|why| format!("the signatures of the list cannot be read ({beside}): {why}"))?;
    String::from_utf8(bytes).map_err(|_| "the signatures of the list are not text".to_owned())
}

fn at(here: &AdvisoryContext, source: &str) -> PathBuf {
    match source.strip_prefix("~/") {
        Some(rest) => here.home.join(rest),
        None => PathBuf::from(source),
    }
}

/// The rest of a file, from its current position.
pub(super) fn read_rest(file: &File, max: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    match bytes.len() as u64 > max {
        true => Err(format!("it is larger than {} KiB", max >> 10)),
        false => Ok(bytes),
    }
}
