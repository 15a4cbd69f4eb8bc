//! The command line of `python`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::PinError;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// Words before the program.
    pub flags: Vec<OsString>,
    pub program: Program,
    pub rest: Vec<OsString>,
    /// `-I`, `-P`: neither the script's nor the working directory is searched for modules.
    pub safe_path: bool,
    /// `-I`, `-s`: nor is the user's own library.
    pub no_user_site: bool,
    /// `-I`, `-E`: variables that begin with PYTHON are ignored.
    pub no_environment: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Program {
    Script(OsString),
    Module(String),
    Inline(OsString),
    #[default]
    Stdin,
}

pub(super) fn parse(args: &[OsString]) -> Result<Line, PinError> {
    let mut line = Line::default();
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let bytes = word.as_bytes();
        if bytes == b"--" {
            line.program = words.next().map_or(Program::Stdin, |script| Program::Script(script.clone()));
            break;
        }
        if !bytes.starts_with(b"-") || bytes == b"-" {
            if bytes != b"-" {
                line.program = Program::Script(word.clone());
            }
            break;
        }
        if bytes.starts_with(b"--") {
            line.flags.push(word.clone());
            if bytes == b"--check-hash-based-pycs" {
                line.flags.extend(words.next().cloned());
            }
            continue;
        }
        if let Some(program) = cluster(&mut line, bytes, &mut words)? {
            line.program = program;
            break;
        }
    }
    line.rest = words.cloned().collect();
    Ok(line)
}

/// One word of short flags; the last of them may take the rest of the word, or the next word, as its value.
fn cluster<'a>(
    line: &mut Line,
    word: &[u8],
    words: &mut impl Iterator<Item = &'a OsString>,
) -> Result<Option<Program>, PinError> {
    let whole = OsStr::from_bytes(word).to_owned();
    for (index, flag) in word.iter().enumerate().skip(1) {
        match flag {
            b'I' => (line.safe_path, line.no_user_site, line.no_environment) = (true, true, true),
            b'P' => line.safe_path = true,
            b's' => line.no_user_site = true,
            b'E' => line.no_environment = true,
            b'c' | b'm' | b'W' | b'X' => {
                let attached = word.get(index + 1..).filter(|rest| !rest.is_empty());
                let value = match attached {
                    Some(rest) => OsStr::from_bytes(rest).to_owned(),
                    None => words.next().cloned().ok_or_else(|| PinError::Unsupported {
                        what: format!("python -{} without a value", char::from(*flag)),
                        instead: "give the flag its value".to_owned(),
                    })?,
                };
                let before = word.get(..index).filter(|before| before.len() > 1);
                if matches!(flag, b'c' | b'm') {
                    line.flags.extend(before.map(|before| OsStr::from_bytes(before).to_owned()));
                    return Ok(Some(match flag {
                        b'c' => Program::Inline(value),
                        _ => Program::Module(value.to_string_lossy().into_owned()),
                    }));
                }
                if value.as_bytes().starts_with(b"pycache_prefix") {
                    return Err(PinError::Unsupported {
                        what: "python -X pycache_prefix".to_owned(),
                        instead: "leave it out: agentsh never lets Python read compiled modules from a writable directory"
                            .to_owned(),
                    });
                }
                line.flags.push(whole);
                line.flags.extend(attached.is_none().then_some(value));
                return Ok(None);
            }
            _ => {}
        }
    }
    line.flags.push(whole);
    Ok(None)
}
