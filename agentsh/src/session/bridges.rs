//! The socket on which the agent's bridges arrive, and the proxy that serves each of them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::time::Instant;

use crate::guard::{ContentGuard, Guard, NotConfigured};
use crate::mcp::aggregate::{Front, Member};
use crate::mcp::{self, Audit, Note, Options};
use crate::store::{Journal, redact};
use crate::telemetry::alerts::Alerting;
use crate::telemetry::webhook::Webhook;
use crate::types::ServerId;

use super::Session;
use super::content::{self, Content};
use super::server::{Declaration, ErrorOutput, Server};

/// What every connection of a session shares: one guard, so that rates count over all of them.
pub struct Bridges {
    session: Rc<Session>,
    guard: Rc<RefCell<Guard>>,
    epoch: Instant,
    content: Rc<RefCell<dyn ContentGuard>>,
    audit: Option<Rc<dyn Audit>>,
    webhook: Option<Webhook<Journal>>,
    declared: BTreeMap<ServerId, Declaration>,
}

impl Bridges {
    #[must_use]
    pub fn new(session: Rc<Session>, declared: BTreeMap<ServerId, Declaration>) -> Self {
        let guard = Rc::new(RefCell::new(Guard::new(&session.policy.mcp)));
        Self {
            session,
            guard,
            epoch: Instant::now(),
            content: Rc::new(RefCell::new(NotConfigured)),
            audit: None,
            webhook: None,
            declared,
        }
    }

    /// With what the policy asks for under `exfiltration`.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub fn with_policy(self) -> std::io::Result<Self> {
        let policy = &self.session.policy.mcp.exfiltration;
        if !policy.enabled {
            return Ok(self);
        }
        let settings = content::Settings::of_policy(policy, Rc::clone(&self.session.labels));
        let content = Content::new(settings, self.session.journal.clone())?;
        Ok(self.with_content(Rc::new(RefCell::new(content))))
    }

    /// With somebody who looks into arguments and results.
    #[must_use]
    pub fn with_content(self, content: Rc<RefCell<dyn ContentGuard>>) -> Self {
        Self { content, ..self }
    }

    /// With somebody who is asked about every call.
    #[must_use]
    pub fn with_audit(self, audit: Option<Rc<dyn Audit>>) -> Self {
        Self { audit, ..self }
    }

    /// With somebody who is told of every detection of [`Bridges::aggregate`].
    #[must_use]
    pub fn with_webhook(self, webhook: Option<Webhook<Journal>>) -> Self {
        Self { webhook, ..self }
    }

    /// Accepts bridges until dropped.
    pub async fn serve(self: Rc<Self>, listener: UnixListener) {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Out of descriptors: let some connection end first.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let bridges = Rc::clone(&self);
            tokio::task::spawn_local(async move {
                match mcp::bridge_accept::accept(stream).await {
                    Ok(accepted) => bridges.connection(accepted).await,
                    Err(error) => {
                        bridges.session.note(&format!("a connection from the agent was refused: {error}"))
                    }
                }
            });
        }
    }

    async fn connection(&self, accepted: mcp::bridge_accept::Accepted) {
        let id = &accepted.header.server;
        let Some(declaration) = self.declared.get(id) else {
            let shown = crate::store::escape::line(&id.0);
            self.session.note(&format!("the agent asked for a server '{shown}' that nobody declared"));
            return;
        };
        let server = Server::new(Rc::clone(&self.session), declaration.clone(), ErrorOutput::Kept);
        self.proxy(accepted.input, accepted.output, server, id.clone()).await;
    }

    /// Serves one connection with one server, until the client closes it.
    pub async fn proxy(
        &self,
        input: impl tokio::io::AsyncRead + Unpin,
        output: impl tokio::io::AsyncWrite + Unpin,
        server: Server,
        id: ServerId,
    ) -> mcp::Ended {
        let options = self.options(id);
        mcp::serve(input, output, server, Rc::clone(&self.guard), self.session.journal.clone(), options).await
    }

    /// Serves one client with several servers as one, until it closes its end.
    pub async fn aggregate(
        &self,
        input: impl tokio::io::AsyncRead + Unpin,
        output: impl tokio::io::AsyncWrite + Unpin,
        servers: Vec<(ServerId, Server)>,
        own: Box<dyn mcp::aggregate::Own>,
    ) {
        let members =
            servers.into_iter().map(|(id, upstream)| Member { upstream, options: self.options(id) });
        let session = Rc::clone(&self.session);
        let front = Front {
            max_line_bytes: usize::try_from(session.policy.mcp.max_line_bytes).unwrap_or(usize::MAX),
            own,
            note: Box::new(move |message| session.note_lack(message)),
        };
        let record = Alerting::new(self.session.journal.clone(), self.webhook.clone(), self.session.id);
        mcp::aggregate::serve(input, output, members.collect(), Rc::clone(&self.guard), record, front).await;
    }

    fn options(&self, id: ServerId) -> Options {
        let policy = &self.session.policy.mcp;
        let mut options = Options::new(id);
        options.max_line_bytes = usize::try_from(policy.max_line_bytes).unwrap_or(usize::MAX);
        options.request_timeout = policy.request_timeout_s.map(Duration::from_secs);
        options.redact = |arguments| redact::redact(&arguments.to_value());
        options.epoch = self.epoch;
        options.content = Rc::clone(&self.content);
        options.audit.clone_from(&self.audit);
        let session = Rc::clone(&self.session);
        options.note = Note(Rc::new(move |message| session.note(&crate::store::escape::line(message))));
        options
    }
}

/// The listening socket, open to the sandbox's user alone: who reaches the directory is decided by the mounts.
///
/// # Errors
/// When the socket cannot be made.
pub fn listen(directory: &Path) -> std::io::Result<(UnixListener, PathBuf)> {
    use std::os::unix::fs::PermissionsExt;
    let path = directory.join("bridge");
    // By way of a descriptor: the path of a socket has room for 107 bytes, and the directory may be deep.
    let opened = std::fs::File::open(directory)?;
    let listener = UnixListener::bind(format!("/proc/self/fd/{}/bridge", opened.as_raw_fd()))?;
    // The directory is 0700 on the host; inside, the socket is bound alone and the sandbox may have another id.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))?;
    Ok((listener, path))
}
