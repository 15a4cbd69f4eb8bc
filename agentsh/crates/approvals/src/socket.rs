//! The socket on which `agentsh approvals` lists and answers a session's questions. One line of JSON each way.
//!
//! It is in the state directory of agentsh (0700), which no sandbox sees. The caller has to be the user who started the
//! session, or root, and has to be in the same user namespace, in which no process of a sandbox is.

use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use agentsh_base::proc_file;
use agentsh_store::words::ApprovalScope;

use super::{Approvals, Inner, Item, READ_TIMEOUT};

/// Longest question, in bytes.
const MAX_LINE: u64 = 64 << 10;
/// Longest answer, in bytes.
const MAX_ANSWER: u64 = 4 << 20;

/// A request from outside to a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SocketRequest {
    List,
    Answer { id: String, approve: bool, scope: ApprovalScope },
}

/// Before the next caller is accepted where one could not be.
const ACCEPT_BACKOFF: std::time::Duration = std::time::Duration::from_millis(100);

/// The session's reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SocketReply {
    Waiting(Vec<Item>),
    /// Whether the question was still open.
    Answered(bool),
    Refused(String),
}

/// The open socket. It goes with the session.
pub struct ApprovalSocket {
    task: tokio::task::JoinHandle<()>,
    path: PathBuf,
}

impl Drop for ApprovalSocket {
    fn drop(&mut self) {
        self.task.abort();
        let _may_be_gone = std::fs::remove_file(&self.path);
    }
}

impl ApprovalSocket {
    pub fn open(approvals: &Approvals) -> std::io::Result<Self> {
        let session = &approvals.0.session;
        let directory = directory(&session.facts.context.state);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let name = session.facts.id.to_string();
        // Through a descriptor: the path of a socket has room for 107 bytes.
        let opened = std::fs::File::open(&directory)?;
        let path = directory.join(&name);
        // It gets its name once it listens, because other sessions remove a socket without a listener.
        let hidden = format!(".{name}");
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/{hidden}", opened.as_raw_fd()))?;
        let hidden = directory.join(hidden);
        std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(&hidden, &path)?;
        let task = agentsh_base::task::spawn_local(serve(listener, Rc::downgrade(&approvals.0)));
        Ok(Self { task, path })
    }
}

/// The directory of the sockets, below the state directory, which no sandbox sees. The runtime directory differs under
/// `sudo` and `ssh`.
fn directory(state: &Path) -> PathBuf {
    state.join("approvals")
}

async fn serve(listener: UnixListener, inner: Weak<Inner>) {
    loop {
        let accepted = listener.accept().await;
        let Some(inner) = inner.upgrade() else { return };
        let Ok((stream, _)) = accepted else {
            // No descriptors, or the caller is gone: the next one is accepted anyway.
            tokio::time::sleep(ACCEPT_BACKOFF).await;
            continue;
        };
        // One connection after the other: a person types.
        let _in_time = tokio::time::timeout(READ_TIMEOUT, serve_connection(stream, &Approvals(inner))).await;
    }
}

async fn serve_connection(stream: UnixStream, approvals: &Approvals) -> std::io::Result<()> {
    let credentials = stream.peer_cred()?;
    let (reader, mut writer) = stream.into_split();
    let mut line = Vec::new();
    BufReader::new(reader.take(MAX_LINE)).read_until(b'\n', &mut line).await?;
    let said = match serde_json::from_slice::<SocketRequest>(&line) {
        _ if !is_user(credentials.uid(), credentials.pid()) => SocketReply::Refused(
            "only the user who started the session can answer, and not from a sandbox".to_owned(),
        ),
        Err(error) => SocketReply::Refused(format!("cannot read this: {error}")),
        Ok(SocketRequest::List) => SocketReply::Waiting(approvals.items()),
        Ok(SocketRequest::Answer { id, approve, scope }) => {
            let by = format!("uid {} (process {})", credentials.uid(), credentials.pid().unwrap_or_default());
            SocketReply::Answered(approvals.answer(&id, approve, scope, by))
        }
    };
    let mut text = serde_json::to_vec(&said)?;
    text.push(b'\n');
    writer.write_all(&text).await
}

/// The same user or root, in our own user namespace.
fn is_user(uid: u32, pid: Option<i32>) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/user")).ok();
    let Some(pid) = pid else { return false };
    (uid == own || uid == 0)
        && namespace("self").is_some()
        && namespace("self") == namespace(&pid.to_string())
}

/// The sockets of all sessions of this user that have asked a question, by session.
#[must_use]
pub fn sockets(state: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory(state)).into_iter().flatten().flatten();
    let is_named = |entry: &std::fs::DirEntry| !entry.file_name().as_encoded_bytes().starts_with(b".");
    let mut found: Vec<PathBuf> = entries.filter(is_named).map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// Asks one session. None: it has ended.
pub async fn ask(path: &Path, asking: &SocketRequest) -> Option<std::io::Result<SocketReply>> {
    let directory = std::fs::File::open(path.parent()?).ok()?;
    let name = path.file_name()?.to_str()?;
    let stream = UnixStream::connect(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd())).await;
    let stream = match stream {
        // Left behind by a session that was killed.
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            let _may_be_gone = std::fs::remove_file(path);
            return None;
        }
        Err(error) => return Some(Err(error)),
        Ok(stream) => stream,
    };
    if stream.peer_cred().ok().and_then(|peer| peer.pid()).is_some_and(proc_file::is_stopped) {
        let why = "it is suspended; `fg` in its terminal resumes it";
        return Some(Err(std::io::Error::new(std::io::ErrorKind::WouldBlock, why)));
    }
    let talk = async {
        let (reader, mut writer) = stream.into_split();
        let mut text = serde_json::to_vec(asking)?;
        text.push(b'\n');
        writer.write_all(&text).await?;
        let mut line = Vec::new();
        BufReader::new(reader.take(MAX_ANSWER)).read_until(b'\n', &mut line).await?;
        serde_json::from_slice(&line).map_err(std::io::Error::other)
    };
    let silent = || std::io::Error::new(std::io::ErrorKind::TimedOut, "the session does not answer");
    Some(tokio::time::timeout(READ_TIMEOUT * 2, talk).await.unwrap_or_else(|_| Err(silent())))
}
