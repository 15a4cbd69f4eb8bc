//! The hashes of what a person was shown of a layer: exactly that is applied.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::directory_handle::bytes;
use super::journal::Mark;
use super::{Result, Review, io_at};

const SHOWN_FILE: &str = "shown";

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    #[serde(with = "bytes")]
    path: PathBuf,
    mark: Option<Mark>,
}

/// By path; None: the path was shown as missing.
pub type ShownPaths = BTreeMap<PathBuf, Option<Mark>>;

impl Review {
    /// Keeps what was shown, in place of what was shown before.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_shown(&self, shown: ShownPaths) -> Result<()> {
        let lines: Vec<Line> = shown.into_iter().map(|(path, mark)| Line { path, mark }).collect();
        let place = self.directory.join(SHOWN_FILE);
        let error = io_at("write", &place);
        let new = self.directory.join(format!("{SHOWN_FILE}.new"));
        let text = serde_json::to_vec(&lines).map_err(|source| error(source.into()))?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written = options.open(&new).and_then(|mut file| file.write_all(&text));
        written.and_then(|()| fs::rename(&new, &place)).map_err(error)
    }

    /// None: nothing was shown yet.
    pub(super) fn shown_paths(&self) -> Result<Option<ShownPaths>> {
        let place = self.directory.join(SHOWN_FILE);
        let error = io_at("read", &place);
        let text = match fs::read(&place) {
            Ok(text) => text,
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(error(source)),
        };
        let lines: Vec<Line> = serde_json::from_slice(&text).map_err(|source| error(source.into()))?;
        Ok(Some(lines.into_iter().map(|line| (line.path, line.mark)).collect()))
    }
}
