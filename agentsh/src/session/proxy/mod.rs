//! `agentsh proxy`: several servers as one, on standard input and output. Each is pinned, sandboxed, policed and
//! recorded as if it were alone.

mod alerts;
mod auditing;
mod report;
mod settings;
mod standalone;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use agentsh_base::types::{RuleRef, ServerId};
use agentsh_policy::proxy_file::{self, ProxyFile, ServerTransport};
use agentsh_policy::{OnFlow, PolicyError};

use super::bridges::Bridges;
use super::content::{self, Content, Destinations};
use super::content_scan::ContentScan;
use super::context::Context;
use super::declared::Declaration;
use super::remote::{self, Remote};
use super::run_error::RunError;
use super::server::{ErrorOutput, Server};
use super::upstream_kind::UpstreamKind;
use super::{Session, SessionError, SessionOptions, signals, stdio};
use agentsh_host::Backend;

pub use settings::{Settings, SettingsError};

#[derive(Clone, Debug)]
pub struct Request {
    /// None: from the environment.
    pub config: Option<PathBuf>,
    pub policy: Option<String>,
    pub backend: Backend,
    pub allow_degraded: bool,
}

/// Serves until the client closes standard input. Call inside a `LocalSet`.
///
/// # Errors
/// An invalid configuration, or a session that cannot be opened. If a server cannot start, client and user are told,
/// and the others continue.
pub async fn run(request: Request) -> Result<u8, RunError> {
    let (context, project_shown) = Context::find_for_server().map_err(SessionError::from)?;
    let settings = Settings::read(&context.env).map_err(|error| RunError::Refused(error.to_string()))?;
    let path = request.config.or_else(|| settings.config.clone());
    let file = match &path {
        Some(path) => proxy_file::load(path).map_err(|error| RunError::Refused(error_text(&error)))?,
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
    session.live.agent.has_neighbours.set(servers.len() > 1);
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
    let (input, output) = stdio::streams().map_err(io("use standard input and output"))?;
    let (input, end_of_input) = stdio::StoppableReader::new(input);
    let serving = async {
        if path.is_some() {
            return bridges.aggregate(input, output, servers, Box::new(report)).await;
        }
        let record = session.record.journal.clone();
        let tools = standalone::Standalone::new(report, alone, record.clone());
        agentsh_mcp::local_server::serve(input, output, standalone::MAX_LINE, record, tools).await;
    };
    let served = signals::serve_until_end(serving, || {
        is_over.set(true);
        drop(end_of_input);
    });
    let code = session.exit_code(served.await?.err().unwrap_or(0));
    if let Some(alerts) = alerts {
        // If the disk fails, the session's end reports it.
        let _ = session.record.journal.flush().await;
        if let Some((count, why)) = alerts.finish(alerts::DRAIN_TIMEOUT).await {
            session.record.note(&format!("alerts not delivered: {count}; the last one: {why}"));
        }
    }
    Content::flush(store).await;
    session.close(code).await?;
    Ok(code)
}

/// The content checks. Always on, because a proxy is started for them.
async fn content(session: &Session, file: &ProxyFile, settings: &Settings) -> Result<Content, RunError> {
    let mut policy = content::Settings::of_policy(
        &session.facts.policy.mcp.exfiltration,
        Rc::clone(&session.live.servers.labels),
    );
    let written = policy.policy.is_written().then_some(policy.mode);
    if settings.mode.is_some() {
        let file = "CANARY_MCP_RESPONSE_MODE".to_owned();
        let rule = RuleRef { id: "the environment".to_owned(), file, line: 0 };
        policy.policy.written.insert("on_detection", rule);
    }
    let asked = content::Settings {
        // The environment decides, then the policy; otherwise detections are recorded.
        mode: settings.mode.or(written).unwrap_or(OnFlow::Allow),
        lifetime: settings.token_ttl,
        destinations: Some(Destinations::only_listed(&file.allowed_domains, file.domains_rule.clone())),
        ..policy
    };
    let journal = session.record.journal.clone();
    match &settings.persist_path {
        None => Content::new(asked, journal).map_err(|source| RunError::Io { doing: "make a key", source }),
        Some(path) => {
            let (content, set_aside) = Content::persistent(asked, journal, path).await.map_err(|error| {
                RunError::Refused(format!("cannot use CANARY_MCP_PERSIST_PATH {}: {error}", path.display()))
            })?;
            if let Some(aside) = set_aside {
                session.record.note(&format!(
                    "CANARY_MCP_PERSIST_PATH {} is no database of agentsh ({}): it is {} now, and nothing of it is remembered",
                    path.display(),
                    aside.reason,
                    aside.moved_to.display()
                ));
            }
            Ok(content)
        }
    }
}

fn servers(session: &Rc<Session>, file: &ProxyFile) -> Vec<(ServerId, UpstreamKind)> {
    let each = file.servers.iter().map(|server| {
        let place = Some(format!("{}:{}", server.rule.file, server.rule.line));
        let server = server.value.clone();
        let id = ServerId(server.id);
        let session = Rc::clone(session);
        // The user named the file.
        let from_user = true;
        let upstream = match server.way {
            ServerTransport::Command { command, args, env } => {
                let (id, agreed) = (id.clone(), false);
                let declaration = Declaration {
                    id,
                    command,
                    args,
                    env,
                    cwd: None,
                    from_user,
                    agreed,
                    place,
                    id_is_derived: false,
                };
                UpstreamKind::Program(Box::new(Server::new(session, declaration, ErrorOutput::Shown)))
            }
            ServerTransport::Url { url, headers } => {
                let headers = remote::expand_headers(&headers, &session.facts.context.env);
                let (id, is_configured) = (id.clone(), false);
                let declaration = remote::Declaration { id, url, headers, from_user, place, is_configured };
                UpstreamKind::Url(Box::new(Remote::new(session, declaration)))
            }
        };
        (id, upstream)
    });
    each.collect()
}

/// All errors with lines; the caller prints the first `error: `.
fn error_text(error: &PolicyError) -> String {
    if let PolicyError::Unreadable { file, why } = error {
        return format!("cannot read the proxy configuration {file}: {why}");
    }
    let text = error.render();
    text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned()
}
