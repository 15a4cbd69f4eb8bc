//! `agentsh mcp run -- CMD ARGS` and `agentsh mcp run --url URL`: one server, policed, on our own standard input and
//! output, for clients that agentsh did not start. A command runs in a sandbox; a URL is asked by the session.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use agentsh_policy::Flags;
use tokio::io::{AsyncRead, AsyncWrite};

use agentsh_base::types::ServerId;
use agentsh_registry::Captured;
use agentsh_store::escape;

use super::address::shown_url;
use super::bridges::{self, Bridges};
use super::configured;
use super::content_scan::ContentScan;
use super::context::Context;
use super::declared::{Declaration, Declared};
use super::interface;
use super::network;
use super::remote::{self, Remote};
use super::run_error::{RunError, exit_code_of};
use super::server::{ErrorOutput, Server};
use super::standard;
use super::{Session, SessionError, SessionOptions, load_policy, search, signals};
use agentsh_host::Backend;
use agentsh_host::{Facts, Record};
use agentsh_verifier::Registered;

#[derive(Clone, Debug)]
pub struct Request {
    pub id: Option<String>,
    pub policy: Option<String>,
    /// What the command line adds to the policy of the server.
    pub flags: Flags,
    pub allow_degraded: bool,
    /// What sandboxes are made of.
    pub tier: agentsh_sandbox::Tier,
    pub backend: Backend,
    /// Print at the end what would have to be allowed.
    pub learn: bool,
    pub what: ServerSource,
}

/// Whose built-in policy lies below: that of no agent in particular.
const AGENT: &str = "generic";

/// Which server.
#[derive(Clone, Debug)]
pub enum ServerSource {
    Command(Vec<String>),
    Url {
        url: String,
        /// `NAME: VALUE`, with variables of the user's environment as `${NAME}`.
        headers: Vec<String>,
    },
    /// As the project or its user has configured it for an agent.
    Configured(ServerId),
}

/// How long a server may take to say all that it offers; its packages may have to be fetched first.
const LISTING_TIMEOUT: Duration = Duration::from_secs(120);

/// Serves until the client closes our standard input. Must be called inside a `LocalSet`.
///
/// # Errors
/// When the session cannot be opened. A server that cannot be started is told to the client, message by message.
pub async fn run(request: Request) -> Result<u8, RunError> {
    let learn = request.learn;
    let command = request.what.program();
    let Opened { session, id, declared } = open(request, true).await?;
    let session = &session;
    if std::io::stdin().is_terminal()
        && let Some(code) = missing(&session.facts, &session.record, command.as_deref())
    {
        // Nobody types the protocol, and so nobody would be told by an answer.
        session.close(code).await?;
        return Ok(code);
    }
    ContentScan::warm_up();
    let bridges = Bridges::new(Rc::clone(session), BTreeMap::new()).with_policy();
    let bridges = bridges.map_err(|source| RunError::Io { doing: "make a key", source })?;
    let is_over = Rc::new(Cell::new(false));
    let bridges = &bridges.with_classifier()?.with_standard_client(Rc::clone(&is_over));
    let io = |source| RunError::Io { doing: "use standard input and output", source };
    let (input, output) = standard::streams().map_err(io)?;
    let (input, end_of_input) = standard::StoppableReader::new(input);
    let failure = Failure::default();
    let serving = serve(bridges, session, (input, output), declared, id.clone(), &failure);
    let served = signals::serve_until_end(serving, || {
        is_over.set(true);
        drop(end_of_input);
    });
    let code = match served.await? {
        Ok(agentsh_mcp::ConnectionEnd { exit: Some(exit), .. }) => exit.code,
        Ok(_) => failure
            .get()
            .or_else(|| missing(&session.facts, &session.record, command.as_deref()))
            .unwrap_or(0),
        Err(code) => code,
    };
    if learn {
        session.record.note(&network::learned(session));
    }
    session.close(code).await?;
    Ok(code)
}

/// What the server offers, as it offers it: for a registry, which hides nothing. Must be called inside a `LocalSet`.
///
/// # Errors
/// When the session cannot be opened; `NotStarted` when the server cannot be started, `Refused` when it does not answer.
pub async fn capture(request: Request) -> Result<Captured, RunError> {
    // What a server offers is asked here for the registry, which has not heard of it yet.
    let Opened { session, id, declared } = open(request, false).await?;
    let session = &session;
    let bridges = &Bridges::as_offered(Rc::clone(session));
    let failure = Failure::default();
    let answer = ask(bridges, session, declared, id, &failure).await?;
    let answer = answer.unwrap_or_else(|| Err("interrupted".to_owned()));
    session.close(u8::from(answer.is_err())).await?;
    answer.map_err(|reason| {
        let reason = format!("cannot get the server's interface: {reason}");
        if failure.get().is_some() { RunError::NotStarted(reason) } else { RunError::Refused(reason) }
    })
}

/// What the configured servers offer, each as it offers it: with the lists of the policy and without what scans hide. `only`:
/// these servers; empty means all. Must be called inside a `LocalSet`.
///
/// # Errors
/// When the session cannot be opened, or one of `only` is not configured.
pub async fn capture_all(
    request: Request,
    only: &[String],
) -> Result<Vec<(ServerId, Result<Captured, String>)>, RunError> {
    let context = Context::find_for_server().map_err(SessionError::from)?;
    let id = ServerId(request.what.derive_id());
    let mut all = configured_here(&context.0, &request, &id)?;
    if let Some(id) = only.iter().map(|id| ServerId(id.clone())).find(|id| !all.contains_key(id)) {
        return Err(not_configured(&all, &id));
    }
    all.retain(|id, _| only.is_empty() || only.contains(&id.0));
    let session = open_in(context, &request, &id, false).await?;
    let bridges = Bridges::unscanned(Rc::clone(&session), BTreeMap::new());
    let mut answers = Vec::new();
    for (id, declared) in all {
        let Some(answer) = ask(&bridges, &session, declared, id.clone(), &Failure::default()).await? else {
            break;
        };
        answers.push((id, answer));
    }
    session.close(0).await?;
    Ok(answers)
}

/// What one server offers; None where this process is asked to end. The server has ended then.
async fn ask(
    bridges: &Bridges,
    session: &Rc<Session>,
    declared: Declared,
    id: ServerId,
    failure: &Failure,
) -> Result<Option<Result<Captured, String>>, RunError> {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let asking = async move {
        tokio::select! {
            answer = interface::ask(ours) => Some(answer),
            () = tokio::time::sleep(LISTING_TIMEOUT) => {
                Some(Err(format!("no answer within {} seconds", LISTING_TIMEOUT.as_secs())))
            }
            _ = stopped => None,
        }
    };
    let serving = serve(bridges, session, tokio::io::split(theirs), declared, id, failure);
    // When nobody asks any more, the server's input ends, and it ends in order.
    let both = async move { tokio::join!(asking, serving).0 };
    Ok(signals::serve_until_end(both, || drop(stop)).await?.ok().flatten())
}

/// The exit status that says why a server did not start, once that was tried.
type Failure = Rc<Cell<Option<u8>>>;

/// For a client that went away before it asked for anything: nobody else has told that there is no such program, or
/// that it cannot be executed.
fn missing(facts: &Facts, record: &Record, program: Option<&str>) -> Option<u8> {
    use std::os::unix::fs::PermissionsExt;
    let program = program?;
    let path = facts.context.env.get("PATH").map(String::as_str).unwrap_or_default();
    let found = if program.contains('/') {
        Some(facts.context.directory.join(program)).filter(|file| file.exists())
    } else {
        std::env::split_paths(path).map(|directory| directory.join(program)).find(|file| file.exists())
    };
    let executable =
        |file: &PathBuf| file.metadata().is_ok_and(|file| file.permissions().mode() & 0o111 != 0);
    let error = match found {
        None => agentsh_pin::PinError::NotFound { program: program.to_owned() },
        Some(path) if !executable(&path) => agentsh_pin::PinError::NotExecutable { path },
        Some(_) => return None,
    };
    record.note(&error.to_string());
    Some(exit_code_of(&error.into()))
}

struct Opened {
    session: Rc<Session>,
    id: ServerId,
    /// What is to be started or asked.
    declared: Declared,
}

/// `asks`: the registry of the policy is asked about what the server offers. Nothing is recorded of a server that nobody
/// configured.
async fn open(request: Request, asks: bool) -> Result<Opened, RunError> {
    let context = Context::find_for_server().map_err(SessionError::from)?;
    let id = ServerId(request.id.clone().unwrap_or_else(|| request.what.derive_id()));
    let declared = declared(&context.0, &request, &id)?;
    let session = open_in(context, &request, &id, asks).await?;
    Ok(Opened { session, id, declared })
}

async fn open_in(
    (context, project_shown): (Context, bool),
    request: &Request,
    id: &ServerId,
    asks: bool,
) -> Result<Rc<Session>, RunError> {
    let flags = Flags { server: Some(id.clone()), ..request.flags.clone() };
    let mut session = Session::open(
        context.of_tier(request.tier),
        SessionOptions {
            verb: "mcp run",
            command: &request.what.shown(),
            agent: AGENT,
            policy: request.policy.clone(),
            flags,
            allow_degraded: request.allow_degraded,
            backend: request.backend,
            project_shown,
            ..SessionOptions::default()
        },
    )
    .await?;
    if !asks {
        session.live.registered = Registered::unasked();
    }
    Ok(Rc::new(session))
}

async fn serve(
    bridges: &Bridges,
    session: &Rc<Session>,
    (input, output): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
    declared: Declared,
    id: ServerId,
    failure: &Failure,
) -> agentsh_mcp::ConnectionEnd {
    match declared {
        Declared::Command(declaration) => {
            let server = Server::new(Rc::clone(session), declaration, ErrorOutput::Shown);
            let server = server.telling(Rc::clone(failure));
            bridges.proxy(input, output, server, id, bridges::STDIO).await
        }
        Declared::Url(declaration) => {
            let server = Remote::new(Rc::clone(session), declaration);
            bridges.proxy(input, output, server, id, bridges::HTTP).await
        }
    }
}

fn declared(context: &Context, request: &Request, id: &ServerId) -> Result<Declared, RunError> {
    let id = id.clone();
    match &request.what {
        ServerSource::Command(command) => Ok(Declared::Command(Declaration {
            id,
            command: command.first().cloned().unwrap_or_default(),
            args: command.iter().skip(1).cloned().collect(),
            env: BTreeMap::new(),
            cwd: None,
            users_word: true,
            agreed: false,
            place: None,
        })),
        ServerSource::Url { url, headers } => Ok(Declared::Url(remote::Declaration {
            id,
            url: url.clone(),
            headers: headers.iter().map(|line| remote::header(line, &context.env)).collect(),
            users_word: true,
            place: None,
            is_configured: false,
        })),
        ServerSource::Configured(wanted) => {
            let mut configured = configured_here(context, request, &id)?;
            configured.remove(wanted).ok_or_else(|| not_configured(&configured, wanted))
        }
    }
}

/// By the policy as it is before a session is opened.
fn configured_here(
    context: &Context,
    request: &Request,
    id: &ServerId,
) -> Result<BTreeMap<ServerId, Declared>, RunError> {
    let flags = Flags { server: Some(id.clone()), ..request.flags.clone() };
    let policy = load_policy(&search(context, request.policy.clone(), AGENT, flags))?;
    configured::configured(context, &policy)
}

/// With the names of those that are.
fn not_configured(configured: &BTreeMap<ServerId, Declared>, wanted: &ServerId) -> RunError {
    let known: Vec<String> = configured.keys().map(|id| format!("'{}'", escape::line(&id.0))).collect();
    let known = if known.is_empty() { "none is".to_owned() } else { known.join(", ") };
    RunError::Refused(format!(
        "no server '{}' is configured here for Claude Code or Codex; configured: {known}",
        escape::line(&wanted.0)
    ))
}

impl ServerSource {
    fn program(&self) -> Option<String> {
        match self {
            Self::Command(command) => command.first().cloned(),
            Self::Url { .. } | Self::Configured(_) => None,
        }
    }

    /// For the record: without what may be a key.
    fn shown(&self) -> Vec<String> {
        match self {
            Self::Command(command) => command.clone(),
            Self::Url { url, .. } => vec![shown_url(url)],
            Self::Configured(id) => vec![id.0.clone()],
        }
    }

    fn derive_id(&self) -> String {
        match self {
            Self::Command(command) => derive_id(command),
            Self::Configured(id) => id.0.clone(),
            Self::Url { url, .. } => {
                let host = url::Url::parse(url).ok().and_then(|url| Some(url.host_str()?.to_owned()));
                host.unwrap_or_else(|| "server".to_owned())
            }
        }
    }
}

/// A name that stays the same from start to start, since pins are kept by it: the package or the script.
fn derive_id(command: &[String]) -> String {
    let launcher = [
        "npx", "uvx", "pipx", "node", "python", "python3", "bun", "bunx", "deno", "uv", "run", "tool", "exec",
    ];
    let word = command
        .iter()
        .filter(|word| !word.starts_with('-'))
        .map(|word| {
            PathBuf::from(word)
                .file_stem()
                .map(|stem| stem.to_string_lossy().into_owned())
                .unwrap_or_default()
        })
        .find(|word| !launcher.contains(&word.as_str()))
        .or_else(|| command.first().cloned())
        .unwrap_or_default();
    word.split('@').find(|part| !part.is_empty()).unwrap_or("server").to_owned()
}
