//! The ssh agent with the keys: the user's own, or one that the session starts for key files. Both speak OpenSSH's
//! protocol on a socket outside; no private key is read here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::wire;
use crate::credentials;
use agentsh_host::{Context, host_programs};

/// A key that has to be touched, or agreed to, takes its time.
const SIGN_TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Longest message, in bytes.
pub(super) const MAX_BYTES: usize = 256 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AgentSocket(PathBuf);

type HeldKey = (Vec<u8>, String);

pub(super) struct AgentSockets {
    context: SshPrograms,
    directory: PathBuf,
    user: Option<(AgentSocket, Vec<HeldKey>)>,
    own: Option<OwnAgent>,
}

/// The programs that are needed when keys are added.
struct SshPrograms {
    agent: Option<PathBuf>,
    add: Option<PathBuf>,
    env: BTreeMap<String, String>,
}

/// An ssh agent of the session. It ends with the program that it was started for, which ends with its input: so it does not
/// outlive a session that is killed.
struct OwnAgent(Child);

impl Drop for OwnAgent {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl AgentSockets {
    pub(super) async fn new(context: &Context, directory: &Path) -> Self {
        let socket = context.env.get("SSH_AUTH_SOCK").map(PathBuf::from).filter(|path| path.is_absolute());
        let mut user = None;
        if let Some(holder) = socket.map(AgentSocket) {
            let answer = holder.ask(&[&[wire::REQUEST_IDENTITIES]]).await;
            user = answer.ok().and_then(|answer| wire::identities(&answer)).map(|keys| (holder, keys));
        }
        let program = |name| host_programs::find(context, name);
        let found = SshPrograms {
            agent: program("ssh-agent"),
            add: program("ssh-add"),
            env: host_programs::environment(context),
        };
        Self { context: found, directory: directory.to_owned(), user, own: None }
    }

    /// A key in the user's agent.
    pub(super) fn of_user(&self, is_it: impl Fn(&[u8]) -> bool) -> Option<(AgentSocket, Vec<u8>, String)> {
        let (holder, keys) = self.user.as_ref()?;
        let (public, comment) = keys.iter().find(|(public, _)| is_it(public))?;
        Some((holder.clone(), public.clone(), comment.clone()))
    }

    /// A key in a file: by the user's agent where it holds it, else by the session's own.
    pub(super) async fn of_file(&mut self, private: &Path, public: &[u8]) -> Result<AgentSocket, String> {
        if let Some((holder, _, _)) = self.of_user(|known| known == public) {
            return Ok(holder);
        }
        if !private.is_file() {
            return Err(format!(
                "{} does not exist, and your ssh agent does not have the key",
                private.display()
            ));
        }
        let holder = AgentSocket(self.directory.join("ssh-keys"));
        if self.own.is_none() {
            self.own = Some(self.start(&holder).await?);
        }
        let program = self.context.add.clone().ok_or("there is no `ssh-add` in PATH")?;
        let mut env = self.context.env.clone();
        for (name, value) in
            [("SSH_AUTH_SOCK", "ssh-keys"), ("SSH_ASKPASS", "/bin/false"), ("SSH_ASKPASS_REQUIRE", "force")]
        {
            env.insert(name.to_owned(), value.to_owned());
        }
        let (args, place) = (["-q".to_owned(), private.display().to_string()], self.directory.clone());
        let added = move || credentials::ask_program(&program, &args, &place, &env, "");
        let added = tokio::task::spawn_blocking(added).await.map_err(|error| error.to_string())?;
        let shown = private.display();
        added.map_err(|_| {
            format!("it needs a passphrase, or cannot be read; run `ssh-add {shown}` before you start")
        })?;
        match holder.ask(&[&[wire::REQUEST_IDENTITIES]]).await.ok().and_then(|said| wire::identities(&said)) {
            Some(keys) if keys.iter().any(|(known, _)| known == public) => Ok(holder),
            _ => Err(format!("{shown}.pub is not its public key")),
        }
    }

    /// Started in its directory: the path of a socket has room for 107 bytes.
    async fn start(&self, holder: &AgentSocket) -> Result<OwnAgent, String> {
        let program = self.context.agent.as_ref().ok_or("there is no `ssh-agent` in PATH")?;
        let mut command = host_programs::command(program, &self.context.env);
        command.args(["-a", "ssh-keys", "cat"]).current_dir(&self.directory);
        command.stdin(Stdio::piped());
        let own = OwnAgent(command.spawn().map_err(|error| format!("cannot start `ssh-agent`: {error}"))?);
        let since = tokio::time::Instant::now();
        while !holder.0.exists() {
            if since.elapsed() > CONNECT_TIMEOUT {
                return Err("`ssh-agent` does not start".to_owned());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(own)
    }
}

impl AgentSocket {
    /// The answer to the last of these messages, sent one after the other.
    pub(super) async fn ask(&self, messages: &[&[u8]]) -> std::io::Result<Vec<u8>> {
        let talk = async {
            let directory = std::fs::File::open(self.0.parent().unwrap_or(&self.0))?;
            let name = self.0.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let number = std::os::fd::AsRawFd::as_raw_fd(&directory);
            let mut stream = UnixStream::connect(format!("/proc/self/fd/{number}/{name}")).await?;
            let mut answer = Vec::new();
            for message in messages {
                send(&mut stream, message).await?;
                answer = receive(&mut stream).await?.ok_or(std::io::ErrorKind::UnexpectedEof)?;
            }
            Ok(answer)
        };
        tokio::time::timeout(SIGN_TIMEOUT, talk)
            .await
            .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
    }
}

pub(super) async fn send(stream: &mut UnixStream, message: &[u8]) -> std::io::Result<()> {
    let mut framed = Vec::with_capacity(message.len() + 4);
    wire::put(&mut framed, message);
    stream.write_all(&framed).await
}

/// None at the end of the stream.
pub(super) async fn receive(stream: &mut UnixStream) -> std::io::Result<Option<Vec<u8>>> {
    let length = match stream.read_u32().await {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        length => usize::try_from(length?).unwrap_or(usize::MAX),
    };
    if length > MAX_BYTES {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    Ok(Some(message))
}
