//! `agentsh login` and `agentsh logout`.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use url::Url;

use crate::login::callback::Callback;
use crate::login::flow::Login;
use crate::login::grant::Grant;
use crate::login::{LoginError, discovery, registration};
use crate::store::{escape, words::LoginWord};
use crate::types::ServerId;

use super::super::approvals::notice;
use super::super::content::since_1970;
use super::super::context::Context;
use super::super::network::Backend;
use super::super::run::{self, RunError};
use super::super::{Opening, Session, SessionError, load_policy, registries, remote, search};
use super::store::Store;
use super::{clients, record, word};

/// Whose servers are meant: those of every agent.
const AGENT: &str = "generic";

/// The command line of `login`.
#[derive(Clone, Debug)]
pub struct Request {
    /// A name, or a URL.
    pub server: String,
    /// Where a profile of that name says so.
    pub url: Option<String>,
    /// Profiles of servers behind a URL.
    pub profiles: Vec<String>,
    pub policy: Option<String>,
    pub scopes: Vec<String>,
    pub client_id: Option<String>,
    /// Name of the variable that holds it.
    pub client_secret: Option<String>,
    pub port: Option<u16>,
    pub browser: bool,
    pub limit: Duration,
}

/// Logs in to a server. `out` gets the address for the browser, in a line of its own. Must be called inside a `LocalSet`.
///
/// # Errors
/// `Usage`, without a session, when the server or the variable of the secret is not known. When the session cannot be opened, or
/// nothing came of the login.
pub async fn login(request: Request, out: &mut dyn Write) -> Result<(), RunError> {
    let found = Context::find_for_server().map_err(SessionError::from)?;
    let (id, url) = find(&found.0, &request)?;
    let secret = match &request.client_secret {
        None => None,
        Some(name) => match found.0.env.get(name) {
            Some(value) => Some(value.clone()),
            None => return Err(RunError::Usage(format!("the variable {} is not set", escape::line(name)))),
        },
    };
    let session = open("login", found, &request.server, request.policy.clone()).await?;
    let done = log_in(&session, &request, (&id, &url, secret), out).await;
    session.close(u8::from(done.is_err())).await?;
    done
}

async fn open(
    verb: &str,
    (context, project_shown): (Context, bool),
    server: &str,
    policy: Option<String>,
) -> Result<Rc<Session>, RunError> {
    let shown = if server.contains("://") { remote::shown(server) } else { server.to_owned() };
    let opening = Opening {
        verb,
        command: &[shown],
        agent: AGENT,
        policy,
        flags: crate::policy::Flags::default(),
        allow_degraded: false,
        backend: Backend::Userns,
        project_shown,
        hold_messages: false,
        learns: false,
    };
    Ok(Rc::new(Session::open(context, opening).await?))
}

async fn log_in(
    session: &Rc<Session>,
    request: &Request,
    (id, url, secret): (&ServerId, &str, Option<String>),
    out: &mut dyn Write,
) -> Result<(), RunError> {
    let shown = remote::shown(url);
    let failed = |error: LoginError| {
        let why = escape::line(&error.to_string()).into_owned();
        record(session, id, &shown, LoginWord::Refused, (None, why.clone()));
        RunError::Refused(format!("cannot log in to '{}': {why}", escape::line(&id.0)))
    };
    match attempt(session, request, (id, url, secret), out).await {
        Ok(Ok(grant)) => {
            let scopes = match grant.scopes.is_empty() {
                true => String::new(),
                false => format!(", with the rights {}", escape::line(&grant.scopes.join(" "))),
            };
            session.announce(&format!(
                "logged in to '{}' by {}{scopes}",
                escape::line(&id.0),
                escape::line(&grant.issuer)
            ));
            if grant.refresh_token.is_none() && grant.expires_at.is_some() {
                let minutes = grant.expires_at.unwrap_or_default().saturating_sub(grant.obtained_at) / 60;
                session.announce(&format!("this login cannot be renewed: it is over in {minutes} minutes"));
            }
            record(session, id, &shown, LoginWord::LoggedIn, (Some(&grant.issuer), grant.scopes.join(" ")));
            Ok(())
        }
        Ok(Err(error)) => Err(error),
        Err(error) => Err(failed(error)),
    }
}

/// Logs in anew to a server of a running session, with rights beside those that were had. Must be called inside a `LocalSet`.
///
/// # Errors
/// Why nothing came of it.
pub async fn step_up(
    session: &Rc<Session>,
    (id, name, url): (&ServerId, &str, &str),
    scopes: Vec<String>,
    limit: Duration,
) -> Result<(), String> {
    let request = Request {
        server: name.to_owned(),
        url: Some(url.to_owned()),
        profiles: Vec::new(),
        policy: None,
        scopes,
        client_id: None,
        client_secret: None,
        port: None,
        browser: true,
        limit,
    };
    let mut out = Told { session, server: id, line: Vec::new() };
    log_in(session, &request, (id, url, None), &mut out).await.map_err(|error| error.to_string())
}

/// Says the address for the browser to whoever sits before the session.
struct Told<'s> {
    session: &'s Session,
    server: &'s ServerId,
    line: Vec<u8>,
}

impl Write for Told<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.line.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).trim().to_owned();
        let server = escape::line(&self.server.0);
        notice(
            self.session,
            &format!("log in to server '{server}' with further rights"),
            &escape::line(&line),
        );
        Ok(())
    }
}

/// From the first question to the kept grant.
async fn attempt(
    session: &Rc<Session>,
    request: &Request,
    (id, url, secret): (&ServerId, &str, Option<String>),
    out: &mut dyn Write,
) -> Result<Result<Grant, RunError>, LoginError> {
    let clients = clients(session, id, url, true).map_err(LoginError::NoClient)?;
    let server = Url::parse(url).map_err(|_| LoginError::NoClient("its URL cannot be read".to_owned()))?;
    let shown = remote::shown(url);
    let found = discovery::discover(&clients, &server).await?;
    let store = Store::of(&session.context);
    let before = store.find(&shown).ok().flatten();
    let scopes = scopes(request, &found, before.as_ref());
    let callback = Callback::listen(request.port).await?;
    let same = before.filter(|grant| grant.issuer == found.server.issuer);
    let client = match (&request.client_id, same) {
        (Some(client), _) => registration::known(&found.server, client.clone(), secret),
        // Where nobody is registered, the user did that for the login before.
        (None, Some(before)) if found.server.registration_endpoint.is_none() => before.client,
        (None, _) => registration::register(&clients, &found.server, &callback.address(), &scopes).await?,
    };
    let issuer = found.server.issuer.clone();
    let login = Login::begin(found, client, callback, scopes)?;
    let opened = request.browser && open_browser(session, login.url());
    let where_to = if opened { "a browser opens this address" } else { "open this address in a browser" };
    session.announce(&format!("{where_to}, and log in at {}:", escape::line(&issuer)));
    // Without standard output the address was opened, or nobody can be asked.
    let _ = writeln!(out, "{}", login.url()).and_then(|()| out.flush());
    let note = |text: &str| session.announce(text);
    let now = || since_1970().as_secs();
    let grant = login.finish(&clients, (&id.0, &shown), request.limit, &note, now).await?;
    let kept = store.lock(&shown).and_then(|lock| store.put(&grant, false, &lock));
    Ok(kept.map(|_| grant).map_err(|source| RunError::Io { doing: "keep the login", source }))
}

/// What is asked for: what the server wants and the command line says, and what was had before.
fn scopes(request: &Request, found: &discovery::Found, before: Option<&Grant>) -> Vec<String> {
    let mut all: Vec<String> = found.scopes.clone();
    let before = before.filter(|grant| grant.issuer == found.server.issuer && !request.scopes.is_empty());
    all.extend(before.map(|grant| grant.scopes.clone()).unwrap_or_default());
    all.extend(request.scopes.clone());
    let mut seen = BTreeSet::new();
    all.retain(|scope| seen.insert(scope.clone()));
    all
}

/// The server that is meant, and where it is.
fn find(context: &Context, request: &Request) -> Result<(ServerId, String), RunError> {
    let name = &request.server;
    if let Some(url) = &request.url {
        return Ok((ServerId(name.clone()), url.clone()));
    }
    if name.contains("://") {
        let host = Url::parse(name).ok().and_then(|url| Some(url.host_str()?.to_owned()));
        let host = host.ok_or_else(|| RunError::Usage(format!("'{}' is no URL", escape::line(name))))?;
        return Ok((ServerId(host), name.clone()));
    }
    let search = search(context, request.policy.clone(), AGENT, crate::policy::Flags::default());
    let known = run::configured_urls(context, &load_policy(&search)?);
    let places = known.get(name.as_str());
    match places.map(|places| places.iter().collect::<Vec<_>>()).as_deref() {
        Some([url]) => Ok((ServerId(name.clone()), (*url).clone())),
        Some(several) => {
            let urls: Vec<String> =
                several.iter().map(|url| format!("`agentsh login {}`", word(&remote::shown(url)))).collect();
            let shown = escape::line(name);
            Err(RunError::Usage(format!("'{shown}' is more than one server: {}", urls.join(", "))))
        }
        None => Err(RunError::Usage(format!(
            "no server '{}' behind a URL is configured here; configured: {}; a URL will do as well",
            escape::line(name),
            listed(known.keys().chain(&request.profiles))
        ))),
    }
}

/// Names, each once.
fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: BTreeSet<String> = names.map(|name| format!("'{}'", escape::line(name))).collect();
    if names.is_empty() { "none is".to_owned() } else { names.into_iter().collect::<Vec<_>>().join(", ") }
}

/// The user's browser, where there is one. It is his, and outside.
fn open_browser(session: &Session, url: &Url) -> bool {
    let context = &session.context;
    let has_display = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| context.env.contains_key(*name));
    let own = context.env.get("BROWSER").filter(|browser| !browser.is_empty());
    let program = match own {
        Some(browser) if browser.starts_with('/') => Some(browser.into()),
        Some(browser) => registries::program(context, browser),
        None if has_display => registries::program(context, "xdg-open"),
        None => None,
    };
    let Some(program) = program else { return false };
    #[expect(clippy::disallowed_methods, reason = "the user's own browser, as the user asked")]
    let mut command = Command::new(program);
    command.arg(url.as_str()).current_dir(&context.home).env_clear().envs(&context.env);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        Ok(mut child) => {
            tokio::task::spawn_blocking(move || child.wait());
            true
        }
        Err(_) => false,
    }
}

/// Forgets a login, here and at its authorization server. Must be called inside a `LocalSet`.
///
/// # Errors
/// `Usage`, without a session, when there is no such login. When it cannot be removed.
pub async fn logout(server: &str, policy: Option<String>) -> Result<(), RunError> {
    let found = Context::find_for_server().map_err(SessionError::from)?;
    let url = if server.contains("://") { remote::shown(server) } else { server.to_owned() };
    let all: Vec<Grant> = Store::new(&found.0.state).all().into_iter().flatten().collect();
    let is_meant = |grant: &&Grant| grant.name == server || grant.url == url;
    let meant: Vec<Grant> = all.iter().filter(is_meant).cloned().collect();
    if meant.is_empty() {
        return Err(RunError::Usage(format!(
            "no login to '{}' is kept; kept: {}; `agentsh login --list` tells more of them",
            escape::line(server),
            listed(all.iter().map(|grant| &grant.name))
        )));
    }
    let session = open("logout", found, server, policy).await?;
    let done = log_out(&session, meant).await;
    session.close(u8::from(done.is_err())).await?;
    done
}

async fn log_out(session: &Rc<Session>, meant: Vec<Grant>) -> Result<(), RunError> {
    let store = Store::of(&session.context);
    let io = |source| RunError::Io { doing: "forget the login", source };
    for grant in meant {
        let lock = store.lock(&grant.url).map_err(io)?;
        // With its tokens, to revoke them; where they cannot be had it is forgotten all the same.
        let grant = store.find(&grant.url).ok().flatten().unwrap_or(grant);
        store.remove(&grant.url, &lock).map_err(io)?;
        let id = ServerId(grant.name.clone());
        let revoked = match clients(session, &id, &grant.url, true) {
            Ok(clients) => grant.revoke(&clients).await.map_err(|error| error.to_string()),
            Err(why) => Err(why),
        };
        let detail = match revoked {
            Ok(true) => "its tokens are revoked".to_owned(),
            Ok(false) => {
                "its tokens stay good until their end: the authorization server revokes none".to_owned()
            }
            Err(why) => format!("its tokens stay good until their end: {}", escape::line(&why)),
        };
        session.announce(&format!("logged out of '{}': {detail}", escape::line(&grant.name)));
        record(session, &id, &grant.url, LoginWord::LoggedOut, (Some(&grant.issuer), detail));
    }
    Ok(())
}
