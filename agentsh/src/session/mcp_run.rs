//! `agentsh mcp run`: one server on standard input and output, for any client. A command runs in a sandbox; the session
//! connects to a URL.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
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
use super::stdio;
use super::{Session, SessionError, SessionOptions, load_policy, search, signals};
use agentsh_host::Backend;
use agentsh_host::{Facts, Record};
use agentsh_verifier::Registered;

#[derive(Clone, Debug)]
pub struct Request {
    pub id: Option<String>,
    pub policy: Option<String>,
    /// Flags for the server's policy.
    pub flags: Flags,
    pub allow_degraded: bool,
    /// The kind of sandboxes.
    pub tier: agentsh_sandbox::Tier,
    pub backend: Backend,
    /// Print at the end what would have to be allowed.
    pub learn: bool,
    pub what: ServerSource,
}

/// The built-in policy of no particular agent.
const AGENT: &str = "generic";

#[derive(Clone, Debug)]
pub enum ServerSource {
    Command(Vec<String>),
    Url {
        url: String,
        /// `NAME: VALUE`, with `${NAME}` for the user's variables.
        headers: Vec<String>,
    },
    /// From an agent's configuration.
    Configured(ServerId),
}

/// Timeout of a listing, including the fetch of packages.
const LISTING_TIMEOUT: Duration = Duration::from_secs(120);

/// Serves until the client closes standard input. Call inside a `LocalSet`.
///
/// # Errors
/// When the session cannot be opened. If the server cannot start, its messages get errors.
pub async fn run(request: Request) -> Result<u8, RunError> {
    let learn = request.learn;
    let command = request.what.program();
    let Opened { session, id, declared } = open(request, true).await?;
    let session = &session;
    if agentsh_base::paragraph::is_terminal(&std::io::stdin())
        && let Some(code) = report_missing(&session.facts, &session.record, command.as_deref())
    {
        // On a terminal nobody would send the protocol.
        session.close(code).await?;
        return Ok(code);
    }
    ContentScan::warm_up();
    let bridges = Bridges::new(Rc::clone(session), BTreeMap::new()).with_policy();
    let bridges = bridges.map_err(|source| RunError::Io { doing: "make a key", source })?;
    let is_over = Rc::new(Cell::new(false));
    let bridges = &bridges.with_classifier()?.with_standard_client(Rc::clone(&is_over));
    let io = |source| RunError::Io { doing: "use standard input and output", source };
    let (input, output) = stdio::streams().map_err(io)?;
    let (input, end_of_input) = stdio::StoppableReader::new(input);
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
            .or_else(|| report_missing(&session.facts, &session.record, command.as_deref()))
            .unwrap_or(0),
        Err(code) => code,
    };
    let code = session.exit_code(code);
    if learn {
        session.record.note(&network::allow_commands(session));
    }
    session.close(code).await?;
    Ok(code)
}

/// The server's whole interface, for a registry. Call inside a `LocalSet`.
///
/// # Errors
/// When the session cannot be opened; `NotStarted` if the server does not start, `Refused` if it does not answer.
pub async fn capture(request: Request) -> Result<Captured, RunError> {
    // The registry does not know this interface yet, so it is not checked.
    let Opened { session, id, declared } = open(request, false).await?;
    session.live.servers.starts_unpinned.set(true);
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

/// The interfaces of configured servers, with the policy's lists and without hiding by scans. `only`: these servers;
/// empty: all. Call inside a `LocalSet`.
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
    let bridges = Bridges::without_scanning(Rc::clone(&session), BTreeMap::new());
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

/// One server's interface; None if this process has to end. The server has ended.
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
    // After the last question, the server's input ends.
    let both = async move { tokio::join!(asking, serving).0 };
    Ok(signals::serve_until_end(both, || drop(stop)).await?.ok().flatten())
}

/// The exit status of a failed start.
type Failure = Rc<Cell<Option<u8>>>;

/// If the client left before its first message: reports that the program is missing or cannot be executed.
fn report_missing(facts: &Facts, record: &Record, program: Option<&str>) -> Option<u8> {
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
    /// The server.
    declared: Declared,
}

/// `asks`: the policy's registry is asked. The behaviour of unconfigured servers is not stored.
async fn open(request: Request, asks: bool) -> Result<Opened, RunError> {
    let context = Context::find_for_server().map_err(SessionError::from)?;
    let id = ServerId(request.id.clone().unwrap_or_else(|| request.what.derive_id()));
    let declared = declare_server(&context.0, &request, &id)?;
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
            command: &request.what.redacted_command(),
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
        session.live.servers.registered = Registered::without_registry();
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
            let server = server.with_failure_flag(Rc::clone(failure));
            bridges.proxy(None, input, output, server, id, bridges::STDIO).await
        }
        Declared::Url(declaration) => {
            let server = Remote::new(Rc::clone(session), declaration);
            bridges.proxy(None, input, output, server, id, bridges::HTTP).await
        }
    }
}

fn declare_server(context: &Context, request: &Request, id: &ServerId) -> Result<Declared, RunError> {
    let id = id.clone();
    match &request.what {
        ServerSource::Command(command) => Ok(Declared::Command(Declaration {
            id,
            command: command.first().cloned().unwrap_or_default(),
            args: command.iter().skip(1).cloned().collect(),
            env: BTreeMap::new(),
            cwd: None,
            from_user: true,
            agreed: false,
            place: None,
            id_is_derived: request.id.is_none(),
        })),
        ServerSource::Url { url, headers } => Ok(Declared::Url(remote::Declaration {
            id,
            url: url.clone(),
            headers: headers.iter().map(|line| remote::header(line, &context.env)).collect(),
            from_user: true,
            place: None,
            is_configured: false,
        })),
        ServerSource::Configured(wanted) => {
            let mut configured = configured_here(context, request, &id)?;
            configured.remove(wanted).ok_or_else(|| not_configured(&configured, wanted))
        }
    }
}

/// With the policy from before the session.
fn configured_here(
    context: &Context,
    request: &Request,
    id: &ServerId,
) -> Result<BTreeMap<ServerId, Declared>, RunError> {
    let flags = Flags { server: Some(id.clone()), ..request.flags.clone() };
    let policy = load_policy(&search(context, request.policy.clone(), AGENT, flags))?;
    configured::configured(context, &policy)
}

/// Lists the configured ones.
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

    /// For the journal, without possible keys.
    fn redacted_command(&self) -> Vec<String> {
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

/// A stable name, because pins use it: the package or script.
fn derive_id(command: &[String]) -> String {
    let launcher = [
        "npx", "uvx", "pipx", "node", "python", "python3", "bun", "bunx", "deno", "uv", "run", "tool", "exec",
    ];
    let stem =
        |word: &Path| word.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let words = command.iter().filter(|word| !word.starts_with('-'));
    let word = words.into_iter().find(|word| !launcher.contains(&stem(Path::new(word)).as_str()));
    let word = word.or_else(|| command.first()).map_or("", String::as_str);
    // Many files and packages of servers have the same name: what is around them tells them apart.
    let common = [
        "app",
        "bin",
        "build",
        "cli",
        "dist",
        "index",
        "lib",
        "main",
        "mcp",
        "mcp-server",
        "mod",
        "out",
        "run",
        "server",
        "src",
        "start",
        "stdio",
    ];
    let name = |part: &Path| {
        let name = part.file_name().unwrap_or_default().to_string_lossy();
        let package = name.trim_start_matches('@').split('@').next().unwrap_or_default().to_owned();
        if name.contains('@') { package } else { stem(part) }
    };
    let mut names = Path::new(word).ancestors().map(name);
    let first = names.next().unwrap_or_default();
    let is_common = |name: &str| common.contains(&name);
    let around =
        if is_common(&first) { names.find(|name| !name.is_empty() && !is_common(name)) } else { None };
    match around {
        Some(around) => format!("{around}-{first}"),
        None if first.is_empty() => "server".to_owned(),
        None => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_with_common_file_names_get_distinct_ids() {
        for (command, id) in [
            ("npx -y @mui/mcp@latest", "mui-mcp"),
            ("npx @modelcontextprotocol/server-everything@1.0", "server-everything"),
            ("uvx mcp-server-fetch", "mcp-server-fetch"),
            ("node /srv/notes/build/index.js", "notes-index"),
            ("python3 server.py", "server"),
            ("python3 -m", "python3"),
        ] {
            let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            assert_eq!(derive_id(&words), id, "{command}");
        }
    }
}
