//! `agentsh proxy`: several servers as one, on our own standard input and output. Every server is pinned, sandboxed,
//! policed and recorded as if it were alone.

mod alerts;
mod auditing;
mod report;
mod settings;
mod standalone;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use agentsh_base::types::ServerId;
use agentsh_policy::proxy_file::{self, ProxyFile, ServerTransport};
use agentsh_policy::{OnFlow, PolicyError};

use super::bridges::Bridges;
use super::content::{self, Content, Destinations};
use super::content_scan::ContentScan;
use super::context::Context;
use super::declared::Declaration;
use super::either::UpstreamKind;
use super::remote::{self, Remote};
use super::run_error::RunError;
use super::server::{ErrorOutput, Server};
use super::{Session, SessionError, SessionOptions, signals, standard};
use agentsh_host::Backend;

pub use settings::{Settings, SettingsError};

#[derive(Clone, Debug)]
pub struct Request {
    /// None: the file that the environment names.
    pub config: Option<PathBuf>,
    pub policy: Option<String>,
    pub backend: Backend,
    pub allow_degraded: bool,
}

/// Serves until the client closes our standard input. Must be called inside a `LocalSet`.
///
/// # Errors
/// A configuration that cannot be used, or a session that cannot be opened. A server that cannot be started is told
/// to the client and the user, and the others go on.
pub async fn run(request: Request) -> Result<u8, RunError> {
    let (context, project_shown) = Context::find_for_server().map_err(SessionError::from)?;
    let settings = Settings::read(&context.env).map_err(|error| RunError::Refused(error.to_string()))?;
    let path = request.config.or_else(|| settings.config.clone());
    let file = match &path {
        Some(path) => proxy_file::load(path).map_err(|error| RunError::Refused(shown(&error)))?,
        None => ProxyFile::default(),
    };
    let command: Vec<String> =
        path.iter().flat_map(|path| ["--config".to_owned(), path.display().to_string()]).collect();
    let mut session = Session::open(
        context,
        SessionOptions {
            verb: "proxy",
            command: &command,
            agent: "generic",
            policy: request.policy,
            backend: request.backend,
            allow_degraded: request.allow_degraded,
            project_shown,
            ..SessionOptions::default()
        },
    )
    .await?;
    session.narrow(|policy| policy.mcp = file.narrow(&policy.mcp))?;
    let session = Rc::new(session);
    session.record.set_quiet(settings.is_quiet);
    for warning in &file.warnings {
        session.record.note(&format!("{}: {}", warning.rule, warning.value));
    }
    let servers = servers(&session, &file);
    session.live.neighbours.set(servers.len() > 1);
    let order: Vec<ServerId> = servers.iter().map(|(id, _)| id.clone()).collect();
    let content = content(&session, &file, &settings).await?;
    let store = content.store();
    let content = Rc::new(RefCell::new(content));
    let audit = auditing::of_file(&session.facts, &file, &content)?;
    let mode = content.borrow().mode();
    let found = Rc::clone(&content);
    let report =
        report::Report::new(session.facts.id, settings.key.clone(), move || found.borrow_mut().report());
    let alone = Rc::clone(&content);
    let alerts = alerts::start(&session.record, &settings, mode)?;
    ContentScan::warm_up();
    let bridges =
        Bridges::in_order(Rc::clone(&session), BTreeMap::new(), &order).with_check(content).with_audit(audit);
    let is_over = Rc::new(Cell::new(false));
    let bridges = bridges.with_classifier()?.with_standard_client(Rc::clone(&is_over));
    let io = |doing| move |source| RunError::Io { doing, source };
    let (input, output) = standard::streams().map_err(io("use standard input and output"))?;
    let (input, end_of_input) = standard::StoppableReader::new(input);
    let serving = async {
        if path.is_some() {
            return bridges.aggregate(input, output, servers, Box::new(report)).await;
        }
        let record = session.record.journal.clone();
        let tools = standalone::Standalone::new(report, alone, record.clone());
        agentsh_mcp::served::serve(input, output, standalone::MAX_LINE, record, tools).await;
    };
    let served = signals::serve_until_end(serving, || {
        is_over.set(true);
        drop(end_of_input);
    });
    let code = served.await?.err().unwrap_or(0);
    if let Some(alerts) = alerts {
        // Without the disk nobody is told; the end of the session says so.
        let _ = session.record.journal.flush().await;
        alerts.finish(alerts::DRAIN_TIMEOUT).await;
    }
    Content::flush(store).await;
    session.close(code).await?;
    Ok(code)
}

/// Who looks into arguments and results. Always on: a proxy that was asked for and does not look would be a lie.
async fn content(session: &Session, file: &ProxyFile, settings: &Settings) -> Result<Content, RunError> {
    let policy =
        content::Settings::of_policy(&session.facts.policy.mcp.exfiltration, Rc::clone(&session.live.labels));
    let written = session.facts.policy.mcp.exfiltration.is_written().then_some(policy.mode);
    let asked = content::Settings {
        // What a policy asks for holds; where neither it nor the environment says anything, detections are written down.
        mode: settings.mode.or(written).unwrap_or(OnFlow::Allow),
        lifetime: settings.token_ttl,
        destinations: Some(Destinations::closed(&file.allowed_domains, file.domains_rule.clone())),
        ..policy
    };
    let journal = session.record.journal.clone();
    match &settings.persist_path {
        None => Content::new(asked, journal).map_err(|source| RunError::Io { doing: "make a key", source }),
        Some(path) => Content::persistent(asked, journal, path).await.map_err(|error| {
            RunError::Refused(format!("cannot use CANARY_MCP_PERSIST_PATH {}: {error}", path.display()))
        }),
    }
}

fn servers(session: &Rc<Session>, file: &ProxyFile) -> Vec<(ServerId, UpstreamKind)> {
    let each = file.servers.iter().map(|server| {
        let place = Some(format!("{}:{}", server.rule.file, server.rule.line));
        let server = server.value.clone();
        let id = ServerId(server.id);
        let session = Rc::clone(session);
        // Whoever names the file means what it says.
        let users_word = true;
        let upstream = match server.way {
            ServerTransport::Command { command, args, env } => {
                let (id, agreed) = (id.clone(), false);
                let declaration =
                    Declaration { id, command, args, env, cwd: None, users_word, agreed, place };
                UpstreamKind::Program(Box::new(Server::new(session, declaration, ErrorOutput::Shown)))
            }
            ServerTransport::Url { url, headers } => {
                let headers = remote::filled(&headers, &session.facts.context.env);
                let (id, is_configured) = (id.clone(), false);
                let declaration = remote::Declaration { id, url, headers, users_word, place, is_configured };
                UpstreamKind::Url(Box::new(Remote::new(session, declaration)))
            }
        };
        (id, upstream)
    });
    each.collect()
}

/// Every mistake with its line; the first one gets its `error: ` where it is printed.
fn shown(error: &PolicyError) -> String {
    if let PolicyError::Unreadable { file, why } = error {
        return format!("cannot read the proxy configuration {file}: {why}");
    }
    let text = error.render();
    text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned()
}
