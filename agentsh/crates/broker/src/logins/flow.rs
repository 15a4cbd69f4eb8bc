//! One login in the user's browser, from the first request to the stored tokens.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use url::Url;

use super::store::Store;
use super::{LoginSession, clients, record};
use agentsh_approvals::notice;
use agentsh_base::types::ServerId;
use agentsh_content::content::since_1970;
use agentsh_host::Facts;
use agentsh_host::address::shown_url;
use agentsh_host::host_programs;
use agentsh_login::callback::Callback;
use agentsh_login::flow::Login;
use agentsh_login::grant::Grant;
use agentsh_login::{LoginError, discovery, registration};
use agentsh_store::{escape, words::LoginWord};

/// The command line of `login`.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// A name, or a URL.
    pub server: String,
    /// The URL of a profile of that name.
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

/// Why the login failed.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    #[error("{0}")]
    Refused(String),
    #[error("cannot keep the login: {0}")]
    Keep(std::io::Error),
}

/// Logs in and stores the tokens.
///
/// # Errors
/// Why it failed; this is recorded.
pub async fn log_in(
    session: &LoginSession,
    request: &Request,
    (id, url, secret): (&ServerId, &str, Option<String>),
    out: &mut dyn Write,
) -> Result<(), FlowError> {
    let shown = shown_url(url);
    let failed = |error: LoginError| {
        let why = escape::line(&error.to_string()).into_owned();
        record(&session.record, id, &shown, LoginWord::Refused, (None, why.clone()));
        FlowError::Refused(format!("cannot log in to '{}': {why}", escape::line(&id.0)))
    };
    match attempt(session, request, (id, url, secret), out).await {
        Ok(Ok(grant)) => {
            let scopes = match grant.scopes.is_empty() {
                true => String::new(),
                false => format!(", with the scopes {}", escape::line(&grant.scopes.join(" "))),
            };
            session.record.announce(&format!(
                "logged in to '{}' by {}{scopes}",
                escape::line(&id.0),
                escape::line(&grant.issuer)
            ));
            if grant.refresh_token.is_none() && grant.expires_at.is_some() {
                let minutes = grant.expires_at.unwrap_or_default().saturating_sub(grant.obtained_at) / 60;
                session
                    .record
                    .announce(&format!("this login cannot be renewed: it expires in {minutes} minutes"));
            }
            record(
                &session.record,
                id,
                &shown,
                LoginWord::LoggedIn,
                (Some(&grant.issuer), grant.scopes.join(" ")),
            );
            Ok(())
        }
        Ok(Err(error)) => Err(error),
        Err(error) => Err(failed(error)),
    }
}

/// Logs in again to a server of a running session, with additional scopes. Must be called inside a `LocalSet`.
///
/// # Errors
/// Why there is no new login.
pub async fn step_up(
    session: &LoginSession,
    (id, name, url): (&ServerId, &str, &str),
    scopes: Vec<String>,
    limit: Duration,
) -> Result<(), String> {
    let request = Request {
        server: name.to_owned(),
        url: Some(url.to_owned()),
        scopes,
        browser: true,
        limit,
        ..Request::default()
    };
    let mut out = UrlNotice { session, server: id, line: Vec::new() };
    log_in(session, &request, (id, url, None), &mut out).await.map_err(|error| error.to_string())
}

/// Tells the user of the session the URL for the browser.
struct UrlNotice<'s> {
    session: &'s LoginSession,
    server: &'s ServerId,
    line: Vec<u8>,
}

impl Write for UrlNotice<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.line.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).trim().to_owned();
        let server = escape::line(&self.server.0);
        notice(
            &self.session.facts,
            &self.session.record,
            &format!("log in to server '{server}' with more scopes"),
            &escape::line(&line),
        );
        Ok(())
    }
}

/// From the first question to the kept grant.
async fn attempt(
    session: &LoginSession,
    request: &Request,
    (id, url, secret): (&ServerId, &str, Option<String>),
    out: &mut dyn Write,
) -> Result<Result<Grant, FlowError>, LoginError> {
    let clients = clients(session, id, url, true).map_err(LoginError::NoClient)?;
    let server = Url::parse(url).map_err(|_| LoginError::NoClient("its URL is not valid".to_owned()))?;
    let shown = shown_url(url);
    let found = discovery::discover(&clients, &server).await?;
    let store = Store::of(&session.facts.context);
    let before = store.find(&shown).ok().flatten();
    let scopes = scopes(request, &found, before.as_ref());
    let callback = Callback::listen(request.port).await?;
    let same = before.filter(|grant| grant.issuer == found.server.issuer);
    let client = match (&request.client_id, same) {
        (Some(client), _) => registration::user_registration(&found.server, client.clone(), secret),
        // If the server registers no clients, the user registered one for the login before.
        (None, Some(before)) if found.server.registration_endpoint.is_none() => before.client,
        (None, _) => registration::register(&clients, &found.server, &callback.address(), &scopes).await?,
    };
    let issuer = found.server.issuer.clone();
    let login = Login::begin(found, client, callback, scopes)?;
    let opened = request.browser && open_browser(&session.facts, login.url());
    let where_to = if opened { "a browser opens this address" } else { "open this address in a browser" };
    session.record.announce(&format!("{where_to}, and log in at {}:", escape::line(&issuer)));
    // Without standard output the address was opened, or no person can be asked.
    let _ = writeln!(out, "{}", login.url()).and_then(|()| out.flush());
    let note = |text: &str| session.record.announce(text);
    let now = || since_1970().as_secs();
    let grant = login.finish(&clients, (&id.0, &shown), request.limit, &note, now).await?;
    let kept = store.lock(&shown).and_then(|lock| store.put(&grant, false, &lock));
    Ok(kept.map(|_| grant).map_err(FlowError::Keep))
}

/// The requested scopes: those of the server and the command line, and those of the login before.
fn scopes(request: &Request, found: &discovery::LoginServer, before: Option<&Grant>) -> Vec<String> {
    let mut all: Vec<String> = found.scopes.clone();
    let before = before.filter(|grant| grant.issuer == found.server.issuer && !request.scopes.is_empty());
    all.extend(before.map(|grant| grant.scopes.clone()).unwrap_or_default());
    all.extend(request.scopes.clone());
    let mut seen = BTreeSet::new();
    all.retain(|scope| seen.insert(scope.clone()));
    all
}

/// The user's browser, if there is one. It runs outside every sandbox.
fn open_browser(facts: &Facts, url: &Url) -> bool {
    let context = &facts.context;
    let has_display = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| context.env.contains_key(*name));
    let own = context.env.get("BROWSER").filter(|browser| !browser.is_empty());
    let program = match own {
        Some(browser) => host_programs::find(context, browser),
        None if has_display => host_programs::find(context, "xdg-open"),
        None => None,
    };
    let Some(program) = program else { return false };
    let mut command = host_programs::command(&program, &host_programs::environment(context));
    command.arg(url.as_str()).current_dir(&context.home);
    match command.spawn() {
        Ok(mut child) => {
            tokio::task::spawn_blocking(move || child.wait());
            true
        }
        Err(_) => false,
    }
}
