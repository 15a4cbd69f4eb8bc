//! `agentsh login` and `agentsh logout`.

use std::collections::BTreeSet;
use std::io::Write;
use std::rc::Rc;

use url::Url;

use agentsh_base::types::ServerId;
use agentsh_login::grant::Grant;
use agentsh_store::{escape, words::LoginWord};

use super::address::shown_url;
use super::configured;
use super::context::Context;
use super::run_error::RunError;
use super::{Session, SessionError, SessionOptions, load_policy, search};
use agentsh_broker::logins::flow::{Request, log_in};
use agentsh_broker::logins::{Store, clients, record, shell_word};
use agentsh_host::Backend;

/// All agents' servers.
const AGENT: &str = "generic";

/// Logs in to a server. `out` gets the URL for the browser on its own line. Call inside a `LocalSet`.
///
/// # Errors
/// `Usage`, without a session, for an unknown server or variable. When the session cannot be opened, or the login
/// fails.
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
    let done = log_in(&session.for_logins(), &request, (&id, &url, secret), out).await;
    session.close(u8::from(done.is_err())).await?;
    Ok(done?)
}

async fn open(
    verb: &str,
    (context, project_shown): (Context, bool),
    server: &str,
    policy: Option<String>,
) -> Result<Rc<Session>, RunError> {
    let shown = if server.contains("://") { shown_url(server) } else { server.to_owned() };
    let opening = SessionOptions {
        verb,
        command: &[shown],
        agent: AGENT,
        policy,
        backend: Backend::Userns,
        project_shown,
        ..SessionOptions::default()
    };
    Ok(Rc::new(Session::open(context, opening).await?))
}

/// The server and its URL.
fn find(context: &Context, request: &Request) -> Result<(ServerId, String), RunError> {
    let name = &request.server;
    if let Some(url) = &request.url {
        return Ok((ServerId(name.clone()), url.clone()));
    }
    if name.contains("://") {
        let host = Url::parse(name).ok().and_then(|url| Some(url.host_str()?.to_owned()));
        let host = host.ok_or_else(|| RunError::Usage(format!("'{}' is not a URL", escape::line(name))))?;
        return Ok((ServerId(host), name.clone()));
    }
    let search = search(context, request.policy.clone(), AGENT, agentsh_policy::Flags::default());
    let known = configured::configured_urls(context, &load_policy(&search)?);
    let places = known.get(name.as_str());
    match places.map(|places| places.iter().collect::<Vec<_>>()).as_deref() {
        Some([url]) => Ok((ServerId(name.clone()), (*url).clone())),
        Some(several) => {
            let urls: Vec<String> = several
                .iter()
                .map(|url| format!("`agentsh login {}`", shell_word(&shown_url(url))))
                .collect();
            let shown = escape::line(name);
            Err(RunError::Usage(format!("'{shown}' is more than one server: {}", urls.join(", "))))
        }
        None => Err(RunError::Usage(format!(
            "no remote server '{}' is configured here; configured: {}; a URL works too",
            escape::line(name),
            join_names(known.keys().chain(&request.profiles))
        ))),
    }
}

/// Names, each once.
fn join_names<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: BTreeSet<String> = names.map(|name| format!("'{}'", escape::line(name))).collect();
    if names.is_empty() { "none is".to_owned() } else { names.into_iter().collect::<Vec<_>>().join(", ") }
}

/// Removes a login, here and at its authorization server. Call inside a `LocalSet`.
///
/// # Errors
/// `Usage` if there is no login; another error if the login cannot be removed.
pub async fn logout(server: &str, policy: Option<String>) -> Result<(), RunError> {
    let found = Context::find_for_server().map_err(SessionError::from)?;
    let url = if server.contains("://") { shown_url(server) } else { server.to_owned() };
    let all: Vec<Grant> = Store::new(&found.0.state).all().into_iter().flatten().collect();
    let is_meant = |grant: &&Grant| grant.name == server || grant.url == url;
    let meant: Vec<Grant> = all.iter().filter(is_meant).cloned().collect();
    if meant.is_empty() {
        return Err(RunError::Usage(format!(
            "no login to '{}' is stored; stored: {}; see `agentsh login --list`",
            escape::line(server),
            join_names(all.iter().map(|grant| &grant.name))
        )));
    }
    let session = open("logout", found, server, policy).await?;
    let done = log_out(&session, meant).await;
    session.close(u8::from(done.is_err())).await?;
    done
}

async fn log_out(session: &Rc<Session>, meant: Vec<Grant>) -> Result<(), RunError> {
    let store = Store::of(&session.facts.context);
    let io = |source| RunError::Io { doing: "forget the login", source };
    for grant in meant {
        let lock = store.lock(&grant.url).map_err(io)?;
        // With its tokens, to revoke them; without them it is removed anyway.
        let grant = store.find(&grant.url).ok().flatten().unwrap_or(grant);
        store.remove(&grant.url, &lock).map_err(io)?;
        let id = ServerId(grant.name.clone());
        let revoked = match clients(&session.for_logins(), &id, &grant.url, true) {
            Ok(clients) => grant.revoke(&clients).await.map_err(|error| error.to_string()),
            Err(why) => Err(why),
        };
        let detail = match revoked {
            Ok(true) => "its tokens are revoked".to_owned(),
            Ok(false) => {
                "its tokens stay valid until they expire: the authorization server has no revocation"
                    .to_owned()
            }
            Err(why) => format!("its tokens stay valid until they expire: {}", escape::line(&why)),
        };
        session.record.announce(&format!("logged out of '{}': {detail}", escape::line(&grant.name)));
        record(&session.record, &id, &grant.url, LoginWord::LoggedOut, (Some(&grant.issuer), detail));
    }
    Ok(())
}
