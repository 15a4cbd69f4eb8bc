//! `agentsh mcp run -- CMD ARGS`: one server, sandboxed and policed, on our own standard input and output, for
//! clients that agentsh did not start.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use crate::types::ServerId;

use super::bridges::Bridges;
use super::context::Context;
use super::network::{self, Backend};
use super::run::RunError;
use super::server::{Declaration, ErrorOutput, Server};
use super::standard;
use super::{Opening, Session, SessionError, signals};

#[derive(Clone, Debug)]
pub struct Request {
    pub id: Option<String>,
    pub policy: Option<String>,
    pub allow_degraded: bool,
    pub backend: Backend,
    /// Print at the end what would have to be allowed.
    pub learn: bool,
    pub command: Vec<String>,
}

/// Serves until the client closes our standard input. Must be called inside a `LocalSet`.
///
/// # Errors
/// When the session cannot be opened. A server that cannot be started is told to the client, message by message.
pub async fn run(request: Request) -> Result<u8, RunError> {
    let context = Context::find_for_server().map_err(SessionError::from)?;
    let project_shown = context.1;
    let session = Session::open(
        context.0,
        Opening {
            verb: "mcp run",
            command: &request.command,
            agent: "generic",
            policy: request.policy,
            allow_degraded: request.allow_degraded,
            backend: request.backend,
            project_shown,
            hold_messages: false,
        },
    )
    .await?;
    let session = Rc::new(session);
    let id = ServerId(request.id.unwrap_or_else(|| derive_id(&request.command)));
    let mut words = request.command.into_iter();
    let declaration = Declaration {
        id: id.clone(),
        command: words.next().unwrap_or_default(),
        args: words.collect(),
        env: BTreeMap::new(),
        cwd: None,
        users_word: true,
        place: None,
    };
    let bridges = Bridges::new(Rc::clone(&session), BTreeMap::new()).with_policy();
    let bridges = bridges.map_err(|source| RunError::Io { doing: "make a key", source })?;
    let server = Server::new(Rc::clone(&session), declaration, ErrorOutput::Shown);
    let io = |source| RunError::Io { doing: "use standard input and output", source };
    let (input, output) = standard::streams().map_err(io)?;
    let end = signals::end()?;
    let code = tokio::select! {
        ended = bridges.proxy(input, output, server, id) => ended.exit.map_or(0, |exit| exit.code),
        code = end => code,
    };
    if request.learn {
        session.note(&network::learned(&session));
    }
    session.close(code).await?;
    Ok(code)
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
