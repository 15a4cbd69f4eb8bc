//! Accepts a bridge. It is not trusted: the header is bounded in size and time, and only pipes and stream sockets are
//! accepted.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fstat};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketType, recvmsg, sockopt,
};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::unix::pipe;
use tokio::net::{UnixStream, unix};

use crate::json::{self, Json};
use crate::types::ServerId;

use super::bridge::{BRIDGE_COPIES, DESCRIPTORS_TAKEN, MAX_HEADER};
use super::lazy_writer::LazyWriter;
use super::shared_reader::SharedReader;

/// Timeout for a bridge's header.
const HEADER_LIMIT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub server: ServerId,
    /// It offers its standard streams and waits for the decision.
    pub offers_stdio: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    #[error("the bridge did not name its server within 5 s")]
    TooSlow,
    #[error("the bridge closed the connection before it named its server")]
    Closed,
    #[error("the bridge's header is not one line of the form {{\"server\":\"ID\"}}")]
    Malformed,
    #[error("cannot talk to the bridge: {0}")]
    Io(#[from] io::Error),
}

/// A connection to the session's socket.
#[derive(Debug)]
pub enum Arrival {
    Bridge(Box<Accepted>),
    /// `{"why":"WORD"}`: a question about the policy, with the stream for the answer.
    Why {
        word: String,
        stream: UnixStream,
    },
}

/// The client's end of a connection.
#[derive(Debug)]
pub struct Accepted {
    pub header: Header,
    pub input: ClientInput,
    pub output: ClientOutput,
}

/// Reads the header and decides about the descriptors.
///
/// # Errors
/// See [`AcceptError`]; drop the connection then.
pub async fn arrive(stream: UnixStream) -> Result<Arrival, AcceptError> {
    let (line, passed) = first_line(&stream).await?;
    if let Some(word) = parse_question(&line) {
        return Ok(Arrival::Why { word, stream });
    }
    let (header, stdio) = accept_descriptors(&line, passed)?;
    accept(stream, header, stdio).await.map(|accepted| Arrival::Bridge(Box::new(accepted)))
}

async fn accept(
    stream: UnixStream,
    header: Header,
    stdio: Option<(OwnedFd, OwnedFd)>,
) -> Result<Accepted, AcceptError> {
    let streams = stdio.and_then(|(stdin, stdout)| Some((reader(stdin).ok()?, writer(stdout).ok()?)));
    let taken = streams.is_some();
    if header.offers_stdio {
        let decision = [if taken { DESCRIPTORS_TAKEN } else { BRIDGE_COPIES }];
        stream.writable().await?;
        // A new socket has room for one byte.
        stream.try_write(&decision)?;
    }
    let (read, write) = stream.into_split();
    let (input, output) = match streams {
        Some((input, output)) => {
            (Input::Taken { input, bridge: read }, Output::Taken { output, _bridge: write })
        }
        None => (Input::Bridge(read), Output::Bridge(write)),
    };
    Ok(Accepted { header, input: ClientInput(input), output: ClientOutput(output) })
}

/// Reads up to the header's newline, and its descriptors.
pub(super) async fn first_line(stream: &UnixStream) -> Result<(Vec<u8>, Vec<OwnedFd>), AcceptError> {
    let mut line = Vec::new();
    let mut passed = Vec::new();
    tokio::time::timeout(HEADER_LIMIT, read_header(stream, &mut line, &mut passed))
        .await
        .map_err(|_elapsed| AcceptError::TooSlow)??;
    Ok((line, passed))
}

/// Closes unacceptable descriptors and returns None.
pub(super) fn accept_descriptors(
    line: &[u8],
    passed: Vec<OwnedFd>,
) -> Result<(Header, Option<(OwnedFd, OwnedFd)>), AcceptError> {
    let header = parse_header(line).ok_or(AcceptError::Malformed)?;
    let stdio = match <[OwnedFd; 2]>::try_from(passed) {
        Ok([stdin, stdout]) if header.offers_stdio && is_stream(&stdin) && is_stream(&stdout) => {
            Some((stdin, stdout))
        }
        _ => None,
    };
    Ok((header, stdio))
}

fn parse_question(line: &[u8]) -> Option<String> {
    let tree = json::read(line).ok()?;
    let members = tree.as_object()?;
    let word = tree.member("why")?.as_text()?.into_owned();
    (members.len() == 1).then_some(word)
}

async fn read_header(
    stream: &UnixStream,
    line: &mut Vec<u8>,
    passed: &mut Vec<OwnedFd>,
) -> Result<(), AcceptError> {
    loop {
        // Byte by byte: data after the newline belongs to the connection.
        let byte = stream.async_io(Interest::READABLE, || receive_byte(stream, passed)).await?;
        match byte {
            None => return Err(AcceptError::Closed),
            Some(b'\n') => return Ok(()),
            Some(_) if line.len() == MAX_HEADER => return Err(AcceptError::Malformed),
            Some(byte) => line.push(byte),
        }
    }
}

fn receive_byte(stream: &UnixStream, passed: &mut Vec<OwnedFd>) -> io::Result<Option<u8>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(stream.as_fd(), &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            // More than two are not an offer; the surplus is closed.
            passed.extend(descriptors.take(3_usize.saturating_sub(passed.len())));
        }
    }
    Ok((received.bytes == 1).then_some(byte[0]))
}

fn parse_header(line: &[u8]) -> Option<Header> {
    let tree = json::read(line).ok()?;
    let members = tree.as_object()?;
    let server = tree.member("server")?.as_text()?.into_owned();
    let offered = tree.member("stdio").and_then(Json::as_text);
    let known = members.len() == 1 + usize::from(offered.is_some());
    let offers_stdio = offered.as_deref() == Some("offered");
    (known && !server.is_empty() && offered.is_some() == offers_stdio)
        .then_some(Header { server: ServerId(server), offers_stdio })
}

/// A pipe or a connected unix stream socket.
fn is_stream(descriptor: &OwnedFd) -> bool {
    let Ok(status) = fstat(descriptor) else { return false };
    match FileType::from_raw_mode(status.st_mode) {
        FileType::Fifo => true,
        FileType::Socket => is_unix_stream(descriptor),
        _ => false,
    }
}

fn is_unix_stream(descriptor: &OwnedFd) -> bool {
    sockopt::socket_domain(descriptor).is_ok_and(|domain| domain == AddressFamily::UNIX)
        && sockopt::socket_type(descriptor).is_ok_and(|kind| kind == SocketType::STREAM)
        && !sockopt::socket_acceptconn(descriptor).unwrap_or(true)
}

/// The agent's messages.
#[derive(Debug)]
pub struct ClientInput(Input);

#[derive(Debug)]
pub struct ClientOutput(Output);

#[derive(Debug)]
enum Input {
    Bridge(unix::OwnedReadHalf),
    /// The end of the bridge ends the connection, even if other processes hold the pipe.
    Taken {
        input: Stream,
        bridge: unix::OwnedReadHalf,
    },
}

/// The client's input.
#[derive(Debug)]
enum Stream {
    /// Reopened, so its file description is ours alone.
    Pipe(pipe::Receiver),
    Socket(SharedReader),
}

#[derive(Debug)]
enum Output {
    Bridge(unix::OwnedWriteHalf),
    Taken { output: LazyWriter, _bridge: unix::OwnedWriteHalf },
}

fn reader(descriptor: OwnedFd) -> io::Result<Stream> {
    if is_socket(&descriptor) {
        return SharedReader::new(descriptor).map(Stream::Socket);
    }
    let own = own_description(&descriptor, OFlags::RDONLY)?;
    pipe::Receiver::from_owned_fd_unchecked(own).map(Stream::Pipe)
}

fn writer(descriptor: OwnedFd) -> io::Result<LazyWriter> {
    if is_socket(&descriptor) {
        return Ok(LazyWriter::new(descriptor));
    }
    own_description(&descriptor, OFlags::WRONLY).map(LazyWriter::new)
}

fn is_socket(descriptor: &OwnedFd) -> bool {
    fstat(descriptor).is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Socket)
}

/// The same pipe, non-blocking. `O_NONBLOCK` belongs to the open file description, which other processes share and
/// could reset, so the pipe is reopened; if that fails, the bridge copies.
fn own_description(descriptor: &OwnedFd, access: OFlags) -> io::Result<OwnedFd> {
    let flags = fcntl_getfl(descriptor)?;
    let has_access = [access, OFlags::RDWR].contains(&(flags & OFlags::ACCMODE));
    if !has_access {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    Ok(rustix::fs::open(path, access | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?)
}

impl AsyncRead for ClientInput {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Input::Bridge(stream) => Pin::new(stream).poll_read(cx, buffer),
            Input::Taken { input, bridge } => {
                let outcome = match input {
                    Stream::Pipe(pipe) => Pin::new(pipe).poll_read(cx, buffer),
                    Stream::Socket(socket) => Pin::new(socket).poll_read(cx, buffer),
                };
                if outcome.is_ready() {
                    return outcome;
                }
                poll_bridge_end(bridge, cx)
            }
        }
    }
}

/// Ready when the bridge is gone: the end of the input.
fn poll_bridge_end(bridge: &mut unix::OwnedReadHalf, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    loop {
        let mut space = [MaybeUninit::uninit(); 16];
        let mut ignored = ReadBuf::uninit(&mut space);
        match ready!(Pin::new(&mut *bridge).poll_read(cx, &mut ignored)) {
            // A bridge that passed its descriptors sends nothing.
            Ok(()) if !ignored.filled().is_empty() => {}
            Ok(()) | Err(_) => return Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for ClientOutput {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().0 {
            Output::Bridge(stream) => Pin::new(stream).poll_write(cx, bytes),
            Output::Taken { output, .. } => Pin::new(output).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Output::Bridge(stream) => Pin::new(stream).poll_shutdown(cx),
            Output::Taken { output, .. } => Pin::new(output).poll_shutdown(cx),
        }
    }
}
