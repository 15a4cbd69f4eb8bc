//! `agentsh bridge ID`, which the agent starts in place of a server. Connects to the session, names its server, and
//! passes its standard streams on, or copies.
//!
//! The header is one line: `{"server":"ID"}`. With `"stdio":"offered"`, both descriptors are attached, and the session
//! answers with [`DESCRIPTORS_TAKEN`] or [`BRIDGE_COPIES`].

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::json::write_text;

/// Names the session's socket.
pub const SOCKET_VARIABLE: &str = "AGENTSH_SOCKET";
/// Longest header, in bytes.
pub const MAX_HEADER: usize = 4096;
/// The session reads and writes the agent's descriptors itself.
pub const DESCRIPTORS_TAKEN: u8 = b'T';
/// The bridge has to copy.
pub const BRIDGE_COPIES: u8 = b'C';

const CHUNK: usize = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    #[error(
        "{SOCKET_VARIABLE} is not set: a bridge is started by the MCP configuration that `agentsh run` gives the agent"
    )]
    NoSocket,
    #[error(
        "cannot reach the session at {path}: {error}; it may have ended, start the agent again with `agentsh run`"
    )]
    Connect { path: String, error: io::Error },
    #[error(
        "the session does not know server '{server}' or closed the connection; see `agentsh mcp servers`"
    )]
    NotServed { server: String },
    #[error("lost the session while copying for server '{server}': {error}")]
    Copy { server: String, error: io::Error },
}

/// Runs the bridge for one server until the agent or the session ends it.
///
/// # Errors
/// No session, or no answer.
pub fn run(server: &str) -> Result<(), BridgeError> {
    let path = std::env::var_os(SOCKET_VARIABLE).map(PathBuf::from).ok_or(BridgeError::NoSocket)?;
    let stream = connect(&path)?;
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let lost = |error: io::Error| BridgeError::Copy { server: server.to_owned(), error };
    match offer_stdio(&stream, server, stdin.as_fd(), stdout.as_fd()) {
        Ok(DESCRIPTORS_TAKEN) => wait_for_end(stream).map_err(lost),
        Ok(BRIDGE_COPIES) => {
            // Unbuffered, because a message must leave at once.
            let input = stdin.as_fd().try_clone_to_owned().map(File::from).map_err(lost)?;
            let output = stdout.as_fd().try_clone_to_owned().map(File::from).map_err(lost)?;
            copy(stream, input, output).map_err(lost)
        }
        Ok(_) | Err(_) => Err(BridgeError::NotServed { server: server.to_owned() }),
    }
}

/// Longest answer to [`ask_session`], in bytes.
const MAX_ANSWER: u64 = 64 << 10;

/// Asks the session about a path, host or command. The answer begins with `+` (allowed) or `-`; the rest is for
/// people.
///
/// # Errors
/// No session, or no answer.
pub fn ask_session(path: &Path, word: &str) -> Result<(bool, String), BridgeError> {
    let lost = |error| BridgeError::Connect { path: path.display().to_string(), error };
    let mut stream = connect(path)?;
    let mut line = b"{\"why\":".to_vec();
    write_text(word, &mut line);
    line.extend_from_slice(b"}\n");
    if line.len() > MAX_HEADER {
        return Err(lost(io::Error::new(io::ErrorKind::InvalidInput, "the question is too long")));
    }
    stream.write_all(&line).map_err(lost)?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER).read_to_string(&mut answer).map_err(lost)?;
    match (answer.strip_prefix('+'), answer.strip_prefix('-')) {
        (Some(text), _) => Ok((true, text.to_owned())),
        (_, Some(text)) => Ok((false, text.to_owned())),
        _ => Err(lost(io::ErrorKind::UnexpectedEof.into())),
    }
}

/// Connects to the session's socket.
///
/// # Errors
/// Those of `connect`, with what to do.
pub fn connect(path: &Path) -> Result<UnixStream, BridgeError> {
    UnixStream::connect(path)
        .map_err(|error| BridgeError::Connect { path: path.display().to_string(), error })
}

/// The header of a bridge that copies.
#[must_use]
pub fn header(server: &str) -> Vec<u8> {
    let mut line = b"{\"server\":".to_vec();
    write_text(server, &mut line);
    line.extend_from_slice(b"}\n");
    line
}

/// Sends the header with both descriptors, and returns the session's decision.
///
/// # Errors
/// Those of the socket; `UnexpectedEof` if the session closes it instead.
pub fn offer_stdio(
    stream: &UnixStream,
    server: &str,
    stdin: BorrowedFd<'_>,
    stdout: BorrowedFd<'_>,
) -> io::Result<u8> {
    let mut line = header(server);
    line.truncate(line.len() - 2);
    line.extend_from_slice(b",\"stdio\":\"offered\"}\n");
    let descriptors = [stdin, stdout];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let sent = sendmsg(stream, &[IoSlice::new(&line)], &mut ancillary, SendFlags::NOSIGNAL)?;
    let mut stream = stream;
    stream.write_all(&line[sent..])?;
    let mut decision = [0];
    stream.read_exact(&mut decision)?;
    Ok(decision[0])
}

/// The session has the descriptors: waits for its end.
fn wait_for_end(mut stream: UnixStream) -> io::Result<()> {
    let mut byte = [0];
    loop {
        match stream.read(&mut byte) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Copies both ways. The end of the input closes only the sending half; the end of the session ends the bridge.
fn copy(stream: UnixStream, mut input: impl Read + Send + 'static, mut output: impl Write) -> io::Result<()> {
    let mut to_session = stream.try_clone()?;
    // Not joined: it may wait for input forever, and ends with the process.
    std::thread::Builder::new().name("agent-to-session".to_owned()).stack_size(128 << 10).spawn(
        move || {
            let _session_ended = transfer(&mut input, &mut to_session);
            let _already_closed = to_session.shutdown(Shutdown::Write);
        },
    )?;
    let mut from_session = stream;
    match transfer(&mut from_session, &mut output) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
        outcome => outcome,
    }
}

fn transfer(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        to.write_all(&buffer[..count])?;
        to.flush()?;
    }
}

#[cfg(test)]
#[path = "bridge_tests.rs"]
mod tests;
