//! The command line of `node`: what it loads before the entry, and which argument is the entry.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::PinError;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// Words before the entry, without a closing `--`.
    pub flags: Vec<OsString>,
    /// Modules loaded before the entry: index of the word in `flags`, length of its `--flag=` part, the module.
    pub preloads: Vec<Preload>,
    pub program: Program,
    /// Words after the entry.
    pub rest: Vec<OsString>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Preload {
    pub flag: usize,
    pub prefix: usize,
    pub module: String,
    /// A file of settings: read, not resolved as a module.
    pub settings: bool,
    /// `--env-file-if-exists`.
    pub optional: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Program {
    Entry(OsString),
    /// `-e TEXT`.
    Inline(OsString),
    /// `--test`: what follows are flags of it, and files or patterns.
    Tests,
    #[default]
    Stdin,
}

/// Flags that take the next word when they have no `=`. A flag that is missing here cannot hide the real entry:
/// the entry is handed to node behind `--`, which no flag takes as its value.
const FLAGS_WITH_VALUE: &[&str] = &[
    "-C",
    "--conditions",
    "--input-type",
    "--inspect-port",
    "--debug-port",
    "--title",
    "--icu-data-dir",
    "--openssl-config",
    "--experimental-default-type",
    "--disable-warning",
    "--dns-result-order",
    "--diagnostic-dir",
    "--redirect-warnings",
    "--unhandled-rejections",
    "--tls-cipher-list",
    "--tls-keylog",
    "--trace-event-categories",
    "--trace-event-file-pattern",
    "--use-largepages",
    "--v8-pool-size",
    "--heapsnapshot-signal",
    "--report-dir",
    "--report-directory",
    "--report-filename",
    "--report-signal",
    "--cpu-prof-dir",
    "--cpu-prof-name",
    "--heap-prof-dir",
    "--heap-prof-name",
    "--localstorage-file",
    "--max-http-header-size",
    "--secure-heap",
    "--secure-heap-min",
    "--network-family-autoselection-attempt-timeout",
    "--disable-proto",
    "--allow-fs-read",
    "--allow-fs-write",
    "--stack-trace-limit",
    "--trace-require-module",
];
const PRELOAD: &[&str] = &["-r", "--require", "--import", "--loader", "--experimental-loader"];
const SETTINGS: &[&str] = &["--env-file", "--env-file-if-exists"];
const INLINE: &[&str] = &["-e", "--eval", "-p", "-pe", "--print"];
/// They run something other than the entry, or new bytes of it later.
const REFUSED_FLAGS: &[&str] = &[
    "--run",
    "--watch",
    "--watch-path",
    "--watch-preserve-output",
    "--snapshot-blob",
    "--build-snapshot",
    "--build-snapshot-config",
    "--experimental-config-file",
    "--experimental-default-config-file",
    "--experimental-sea-config",
    "--experimental-policy",
    "--prof-process",
    "--preserve-symlinks-main",
];

pub(super) fn parse(args: &[OsString]) -> Result<Line, PinError> {
    let mut line = Line::default();
    let (mut inline, mut is_closed) = (None, false);
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default();
        if text == "--" {
            is_closed = true;
            line.program = words.next().map_or(Program::Stdin, |entry| Program::Entry(entry.clone()));
            break;
        }
        if text == "-" {
            // It stands for standard input, and what follows are arguments.
            line.flags.push(word.clone());
            break;
        }
        if text == "--test" {
            line.flags.push(word.clone());
            line.program = Program::Tests;
            break;
        }
        if !text.starts_with('-') {
            line.program = Program::Entry(word.clone());
            break;
        }
        let (name, value) = match text.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value)),
            _ => (text, None),
        };
        // Node reads `_` in a long flag as `-`.
        let name = if name.starts_with("--") { name.replace('_', "-") } else { name.to_owned() };
        let among = |list: &[&str]| list.contains(&name.as_str());
        if among(REFUSED_FLAGS) {
            return Err(PinError::Unsupported {
                what: format!("node {name}"),
                instead: "start the script itself, without that flag".to_owned(),
            });
        }
        line.flags.push(word.clone());
        let takes_word =
            value.is_none() && [PRELOAD, SETTINGS, INLINE, FLAGS_WITH_VALUE].into_iter().any(among);
        // `-p -e TEXT`: a flag is never the text.
        let is_flag = |next: &OsString| among(INLINE) && next.as_bytes().starts_with(b"-");
        let next = match words.clone().next() {
            Some(next) if takes_word && !is_flag(next) => words.next(),
            _ => None,
        };
        // `-p` alone is a flag for the text that another word gives.
        if next.is_none() && takes_word && !among(INLINE) {
            return Err(PinError::Unsupported {
                what: format!("node {name} without a value"),
                instead: "give the flag its value".to_owned(),
            });
        }
        let given = value.map(OsStr::new).or(next.map(OsString::as_os_str));
        line.flags.extend(next.cloned());
        if among(INLINE) {
            inline = inline.or(given.map(OsStr::to_owned));
        } else if among(PRELOAD) || among(SETTINGS) {
            line.preloads.push(Preload {
                flag: line.flags.len() - 1,
                prefix: value.map_or(0, |value| text.len() - value.len()),
                module: given.and_then(OsStr::to_str).unwrap_or_default().to_owned(),
                settings: among(SETTINGS),
                optional: name == "--env-file-if-exists",
            });
        }
    }
    line.rest = words.cloned().collect();
    if let Some(text) = inline {
        // With inline code the first plain word is the first argument, not an entry.
        if let Program::Entry(first) = std::mem::take(&mut line.program) {
            line.rest.insert(0, first);
            if is_closed {
                line.rest.insert(0, "--".into());
            }
        }
        line.program = Program::Inline(text);
    }
    Ok(line)
}
