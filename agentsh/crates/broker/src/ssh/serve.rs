//! The socket inside: handles requests one after the other. Clients can list keys and sign; they cannot add, remove or
//! lock keys.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};

use agentsh_base::types::RuleRef;
use agentsh_policy::Ruled;
use agentsh_store::{Event, escape};

use super::holder::{AgentSocket, AgentSockets, receive, send};
use super::request::{Key, Purpose, Refusal, judge};
use super::session_bind::{self, BoundSession};
use super::wire::{self, Bytes};
use agentsh_host::Record;

/// Programs that speak with the agent at once; further ones are turned away.
const MAX_CLIENTS: usize = 32;
/// Refusals of one [`RefusalSubject`] that are recorded singly; the others are counted. A program inside can cause them
/// without end.
const MAX_RECORDED: u64 = 256;
/// Refusals of one [`RefusalSubject`] that are reported to the user at once.
const MAX_REPORTED: u64 = 5;
/// How long no further client is taken when one could not be: descriptors may be short for a moment.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

pub(super) struct Serving {
    keys: Rc<Keys>,
    task: tokio::task::JoinHandle<()>,
    /// Its own ssh agent ends with it.
    _holders: AgentSockets,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
        self.keys.tell_the_rest();
    }
}

struct Keys {
    record: Rc<Record>,
    keys: Vec<(Key, AgentSocket)>,
    clients: Cell<usize>,
    refused: BTreeMap<RefusalSubject, Cell<u64>>,
}

/// The subject of a refusal. Each has its own count, so that messages about other keys cannot use up the events of the
/// policy's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RefusalSubject {
    /// A key that the policy names.
    Key,
    /// Any other request. Programs can send these without knowing a key.
    Other,
}

impl Serving {
    pub(super) fn begin(
        record: &Rc<Record>,
        socket: &Path,
        keys: Vec<(Key, AgentSocket)>,
        holders: AgentSockets,
    ) -> std::io::Result<Self> {
        // Through a descriptor: the path of a socket has room for 107 bytes.
        let directory = std::fs::File::open(socket.parent().unwrap_or(socket))?;
        let name = socket.file_name().unwrap_or_default().to_string_lossy();
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()))?;
        let refused = [RefusalSubject::Key, RefusalSubject::Other].map(|about| (about, Cell::new(0))).into();
        let keys = Rc::new(Keys { record: Rc::clone(record), keys, clients: Cell::new(0), refused });
        let serving = Rc::clone(&keys);
        let task = agentsh_base::task::spawn_local(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                    continue;
                };
                let keys = Rc::clone(&serving);
                if keys.clients.get() >= MAX_CLIENTS {
                    continue;
                }
                keys.clients.set(keys.clients.get() + 1);
                agentsh_base::task::spawn_local(async move {
                    // A client that disconnected, or sends an invalid message, gets no answer.
                    let _ = serve_connection(&keys, stream).await;
                    keys.clients.set(keys.clients.get().saturating_sub(1));
                });
            }
        });
        Ok(Self { keys, task, _holders: holders })
    }
}

/// The proven server of a connection.
#[derive(Default)]
struct Server {
    bound: Option<BoundSession>,
    /// The message as received, for the holder of the key.
    message: Vec<u8>,
    /// A connection is for one session; a second one makes it useless.
    is_spoilt: bool,
}

async fn serve_connection(keys: &Keys, mut stream: UnixStream) -> std::io::Result<()> {
    let mut server = Server::default();
    while let Some(message) = receive(&mut stream).await? {
        let answer = match message.first() {
            Some(&wire::REQUEST_IDENTITIES) => list(&keys.keys),
            Some(&wire::SIGN_REQUEST) => {
                sign(keys, &message, &server).await.unwrap_or_else(|| vec![wire::FAILURE])
            }
            Some(&wire::EXTENSION) => vec![extension(keys, &message, &mut server).await],
            other => {
                let kind = other.copied().unwrap_or_default();
                let detail =
                    format!("message {kind} is not supported: this ssh agent only lists keys and signs");
                keys.refuse(None, Refusal::of_agent("request-not-allowed", detail)).await;
                vec![wire::FAILURE]
            }
        };
        send(&mut stream, &answer).await?;
    }
    Ok(())
}

fn list(keys: &[(Key, AgentSocket)]) -> Vec<u8> {
    let mut answer = vec![wire::IDENTITIES_ANSWER];
    answer.extend(u32::try_from(keys.len()).unwrap_or(0).to_be_bytes());
    for (key, _) in keys {
        wire::put(&mut answer, &key.public);
        wire::put(&mut answer, key.comment.as_bytes());
    }
    answer
}

async fn extension(keys: &Keys, message: &[u8], server: &mut Server) -> u8 {
    let mut rest = Bytes(message.get(1..).unwrap_or_default());
    // Programs ask for the extensions that they know; an unknown one gets an answer, too.
    if rest.text() != Some(session_bind::NAME) {
        return wire::FAILURE;
    }
    let reason = match session_bind::read(rest.0) {
        Ok(bound) if server.bound.as_ref().is_none_or(|known| *known == bound) => {
            server.message = message.to_vec();
            server.bound = Some(bound);
            return wire::SUCCESS;
        }
        Ok(_) => "bound-twice",
        Err(reason) => reason,
    };
    server.is_spoilt = true;
    let detail = "the program did not prove which server it talks to".to_owned();
    keys.refuse(None, Refusal::of_agent(reason, detail)).await;
    wire::FAILURE
}

/// None: it is not signed.
async fn sign(keys: &Keys, message: &[u8], server: &Server) -> Option<Vec<u8>> {
    let mut rest = Bytes(message.get(1..)?);
    let (public, data, flags) = (rest.string()?, rest.string()?, rest.number()?);
    rest.end()?;
    let Some((key, holder)) = keys.keys.iter().find(|(key, _)| key.public == public) else {
        let detail = format!("the policy does not name the key {}", super::fingerprint(public));
        keys.refuse(None, Refusal::of_agent("key-not-allowed", detail)).await;
        return None;
    };
    let bound = server.bound.as_ref().filter(|_| !server.is_spoilt);
    let purpose = match judge(key, data, flags, bound) {
        Ok(purpose) => purpose,
        Err(refusal) => {
            keys.refuse(Some(key), refusal).await;
            return None;
        }
    };
    // The event is on disk before the program gets the signature.
    keys.record.journal.commit(signature_event(key, &purpose)).await.ok()?;
    let is_login = matches!(purpose.value, Purpose::Login { .. });
    let bind = bound.map(|_| server.message.as_slice()).filter(|_| is_login);
    let messages: Vec<&[u8]> = bind.into_iter().chain([message]).collect();
    let answer = holder.ask(&messages).await;
    match answer {
        Ok(answer) if answer.first() == Some(&wire::SIGN_RESPONSE) => Some(answer),
        answer => {
            let why = answer.err().map_or("it refuses".to_owned(), |error| error.to_string());
            let shown = escape::line(&key.comment);
            keys.record.note(&format!("the ssh agent outside did not sign with '{shown}': {why}"));
            None
        }
    }
}

fn signature_event(key: &Key, purpose: &Ruled<Purpose>) -> Event {
    let rule = purpose.rule.clone();
    let (purpose, destination, user) = match &purpose.value {
        Purpose::Login { host, user } => ("login", host.to_string(), user.clone()),
        Purpose::Signature { namespace } => ("signature", namespace.clone(), String::new()),
    };
    Event::SshKeyUsed { key: key.fingerprint.clone(), purpose: purpose.to_owned(), destination, user, rule }
}

impl Keys {
    /// None: it is about no key that the policy names.
    async fn refuse(&self, key: Option<&Key>, refusal: Refusal) {
        let Refusal { reason, detail, change, rule } = refusal;
        let about = if key.is_some() { RefusalSubject::Key } else { RefusalSubject::Other };
        let number = self.refused.get(&about).map_or(u64::MAX, |count| count.replace(count.get() + 1) + 1);
        if number <= MAX_REPORTED {
            let change = change.map_or(String::new(), |change| format!("; to allow it: `{change}`"));
            let what = key.map_or("the ssh agent refuses a request".to_owned(), |key| {
                format!("the ssh key '{}' is not used", escape::line(&key.comment))
            });
            self.record.note(&format!("{what}: {}, by {rule}{change}", escape::line(&detail)));
        } else if number == MAX_REPORTED + 1 {
            let more = match about {
                RefusalSubject::Key => "the ssh agent refused more uses of keys",
                RefusalSubject::Other => {
                    "the ssh agent refused more requests for keys that the policy does not list"
                }
            };
            self.record.note(&format!("{more}; `agentsh mcp events --type ssh_key_refused` lists them"));
        }
        if number <= MAX_RECORDED {
            let key = key.map_or(String::new(), |key| key.fingerprint.clone());
            let event = Event::SshKeyRefused { key, reason: reason.to_owned(), detail, rule };
            // If the event is not recorded, nothing is signed.
            let _ = self.record.journal.commit(event).await;
        }
    }

    /// Records the number of refusals without an event of their own.
    fn tell_the_rest(&self) {
        for (about, count) in &self.refused {
            let count = count.get().saturating_sub(MAX_RECORDED);
            let what = match about {
                RefusalSubject::Key => "of keys that the policy names",
                RefusalSubject::Other => "of requests that name no key of the policy",
            };
            if count > 0 {
                self.record.journal.record(Event::SshKeyRefused {
                    key: String::new(),
                    reason: "further-refusals".to_owned(),
                    detail: format!("{count} further refusals {what}"),
                    rule: RuleRef::default_rule("ssh"),
                });
            }
        }
    }
}
