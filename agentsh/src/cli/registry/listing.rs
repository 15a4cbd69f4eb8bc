//! A directory with captured answers of a server.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use agentsh_registry::{Captured, Interface};
use agentsh_terminal::output::Failure;

/// Longest file, in bytes.
const MAX_LENGTH: u64 = 16 << 20;

pub(super) fn read(folder: &Path) -> Result<Interface, Failure> {
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure::Usage(format!("cannot read '{}': {error}", folder.display()))
    };
    let file = |name: &str| content(&folder.join(name)).map_err(|error| unreadable(&error));
    let opening = match file("initialize.json")? {
        Some(opening) => Some(opening),
        None => file("discover.json")?,
    };
    let captured = Captured {
        opening: opening.ok_or_else(|| unreadable(&"there is no initialize.json and no discover.json"))?,
        tools: file("tools.json")?.unwrap_or_default(),
        prompts: file("prompts.json")?.unwrap_or_default(),
        resources: file("resources.json")?.unwrap_or_default(),
    };
    agentsh_registry::read(&captured).map_err(|error| unreadable(&error))
}

/// None when there is no such file.
fn content(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut content = Vec::new();
    file.take(MAX_LENGTH + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_LENGTH {
        return Err(io::Error::other(format!("{} is longer than {MAX_LENGTH} bytes", path.display())));
    }
    Ok(Some(content))
}
