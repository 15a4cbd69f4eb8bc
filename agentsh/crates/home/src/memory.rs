//! Files that the agent writes in the user's home and obeys in later sessions, outside a sandbox too. They are
//! compared, and reported at the end as the project's instruction files are.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use agentsh_agents::{Kind, Launch};
use agentsh_guards::changed_instructions::{Instructions, compare};
use agentsh_host::copies::Copy;
use agentsh_host::undo::SavedVersions;
use agentsh_host::{Facts, Record};
use agentsh_store::words::GuardChange;
use agentsh_store::{Event, escape};

use super::remember::{Stamp, stamp};

const WHY: &str = "the agent's memory, which it reads at every start, outside too";
/// Names of transcripts in one line.
const MAX_NAMES: usize = 5;

type Transcripts = BTreeMap<OsString, Stamp>;

/// The state before the agent starts.
pub struct MemoryState(Vec<ProjectMemory>);

struct ProjectMemory {
    transcripts_in: PathBuf,
    memory_in: PathBuf,
    transcripts: Transcripts,
    memory: Instructions,
}

impl MemoryState {
    /// # Errors
    /// When the directory of a project cannot be made.
    pub fn of(launch: &Launch) -> std::io::Result<Self> {
        let mut places = Vec::new();
        for files in &launch.memory {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&files.transcripts)?;
            let transcripts_in = files.transcripts.canonicalize()?;
            let below = files.memory.strip_prefix(&files.transcripts).unwrap_or(&files.memory);
            let memory_in = transcripts_in.join(below);
            let (transcripts, memory) = (transcripts(&transcripts_in), memory(&memory_in));
            places.push(ProjectMemory { transcripts_in, memory_in, transcripts, memory });
        }
        Ok(Self(places))
    }

    /// After the agent's end.
    pub fn report_changes(&self, facts: &Facts, record: &Record, kind: Kind) {
        let kept = SavedVersions::new(&facts.context.state, &facts.id.to_string());
        // Names in it are escaped.
        let say = |path: &Path, text: String| {
            record.note(&text);
            record.journal.record(Event::GuardChanged {
                server_id: None,
                path: path.to_string_lossy().into_owned(),
                what: GuardChange::Instructions,
                detail: text,
            });
        };
        for place in &self.0 {
            for change in compare(&place.memory, &memory(&place.memory_in)) {
                // If no copy can be kept, the report still shows the difference.
                let _ = kept.keep(&change.path, &change.before);
                say(&change.path, change.text);
            }
            let now = transcripts(&place.transcripts_in);
            let names = place
                .transcripts
                .keys()
                .chain(now.keys().filter(|name| !place.transcripts.contains_key(*name)));
            let written: Vec<&OsString> =
                names.filter(|name| place.transcripts.get(*name) != now.get(*name)).collect();
            // A session writes its own.
            if written.len() < 2 {
                continue;
            }
            let is_new = |name: &&&OsString| !place.transcripts.contains_key(**name);
            for name in written.iter().filter(is_new) {
                let _ = kept.keep(&place.transcripts_in.join(name), &Copy::Absent);
            }
            let shown: Vec<_> = written.iter().take(MAX_NAMES).map(|name| name.to_string_lossy()).collect();
            let more = if written.len() > MAX_NAMES { ", …" } else { "" };
            let text = format!(
                "{} transcripts in {} were written or removed during this run, by it or another one ({}{more}), and {} outside the \
                 sandbox can continue them: check them; `agentsh undo FILE` removes a new one",
                written.len(),
                place.transcripts_in.display(),
                shown.join(", "),
                kind.title()
            );
            say(&place.transcripts_in, escape::line(&text).into_owned());
        }
    }
}

fn memory(directory: &Path) -> Instructions {
    BTreeMap::from([(directory.to_owned(), (Copy::of_own(directory), WHY.into()))])
}

fn transcripts(directory: &Path) -> Transcripts {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let entries = entries.filter(|entry| entry.file_name().as_encoded_bytes().ends_with(b".jsonl"));
    let found = entries.filter_map(|entry| {
        let found = entry.path().symlink_metadata().ok()?;
        Some((entry.file_name(), stamp(&found)))
    });
    found.collect()
}
