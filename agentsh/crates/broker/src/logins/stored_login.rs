//! The stored login to one server, for its connection: read again after a change, renewed before it expires or when
//! the server rejects it, and requested from the user if renewal fails.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::header::HeaderValue;

use agentsh_base::types::ServerId;
use agentsh_login::challenge::Challenge;
use agentsh_login::grant::Grant;
use agentsh_login::{Clients, LoginError};
use agentsh_remote::{CredentialFuture, Credentials};
use agentsh_store::{escape, words::LoginWord};

use super::store::{Stamp, Store};
use super::{LoginSession, Logins, flow, record, shell_word};
use agentsh_approvals::FurtherRights;
use agentsh_content::content::since_1970;
use agentsh_host::address::shown_url as shown;

/// Shared with a running renewal, which continues even if its request ends.
#[derive(Clone)]
pub struct StoredLogin(Rc<Inner>);

struct Inner {
    session: LoginSession,
    id: ServerId,
    /// The URL that is dialled.
    address: String,
    /// The URL without parts that may be a key.
    url: String,
    /// The name for `agentsh login`.
    name: String,
    clients: Clients,
    store: Store,
    seen: RefCell<Option<(Stamp, Option<Grant>)>>,
    /// The login as last read from disk.
    recent: RefCell<Option<(Instant, Option<Grant>)>>,
    /// Tokens that were sent, the newest last.
    handed: RefCell<VecDeque<SentToken>>,
    /// An access token that cannot be renewed.
    dead: RefCell<Option<String>>,
    /// Held by the request that renews; the others wait for its result.
    renewing: tokio::sync::Mutex<()>,
    /// Held by the request that asks for further rights; the others wait for its result.
    stepping: tokio::sync::Mutex<()>,
}

struct SentToken {
    token: String,
    /// Like [`Grant::login`].
    login: String,
    scopes: Vec<String>,
}

/// Interval between checks for a new login.
const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// How long requests use the cached login without reading the disk. After a refusal by the server it is read again.
const CACHE_LIFETIME: Duration = Duration::from_secs(1);
/// Maximum number of sent tokens that are remembered.
const MAX_SENT_TOKENS: usize = 16;

impl StoredLogin {
    #[must_use]
    pub fn new(
        session: LoginSession,
        id: ServerId,
        (address, name): (String, String),
        clients: Clients,
    ) -> Self {
        let store = Store::of(&session.facts.context);
        let url = shown(&address);
        Self(Rc::new(Inner {
            session,
            id,
            address,
            url,
            name,
            clients,
            store,
            seen: RefCell::default(),
            recent: RefCell::default(),
            handed: RefCell::default(),
            dead: RefCell::default(),
            renewing: tokio::sync::Mutex::default(),
            stepping: tokio::sync::Mutex::default(),
        }))
    }

    /// Another grant than one with this token, or why there is none. A waiting request may end, but not a renewal, because its
    /// answer holds the only valid refresh token.
    async fn renew_grant(&self, token: &str) -> Result<Grant, NoToken> {
        let (inner, token) = (Rc::clone(&self.0), token.to_owned());
        let renewal = agentsh_base::task::spawn_local(async move { inner.renew_grant(&token).await });
        renewal.await.map_err(|error| NoToken::Now(format!("cannot renew its login now: {error}")))?
    }
}

impl Inner {
    /// The login, cached for a moment.
    async fn recent(&self) -> Result<Option<Grant>, String> {
        if let Some((at, grant)) = &*self.recent.borrow()
            && at.elapsed() < CACHE_LIFETIME
        {
            return Ok(grant.clone());
        }
        self.grant().await
    }

    /// The login as it is on disk now: another process may have renewed it, or the user has logged in since.
    async fn grant(&self) -> Result<Option<Grant>, String> {
        let grant = self.on_disk().await?;
        *self.recent.borrow_mut() = Some((Instant::now(), grant.clone()));
        Ok(grant)
    }

    async fn on_disk(&self) -> Result<Option<Grant>, String> {
        let Some(stamp) = self.store.stamp(&self.url) else { return Ok(None) };
        if let Some((seen, grant)) = &*self.seen.borrow()
            && *seen == stamp
        {
            return Ok(grant.clone());
        }
        // The desktop may have to be asked.
        let (store, url) = (self.store.clone(), self.url.clone());
        let found = tokio::task::spawn_blocking(move || store.find(&url)).await;
        let grant = found.map_err(|error| error.to_string()).and_then(|found| found)?;
        *self.seen.borrow_mut() = Some((stamp, grant.clone()));
        Ok(grant)
    }

    /// Another grant than one with this token, or why there is none.
    async fn renew_grant(&self, token: &str) -> Result<Grant, NoToken> {
        let _only = self.renewing.lock().await;
        let broken = |error: std::io::Error| NoToken::Now(format!("cannot store its login: {error}"));
        let (store, url) = (self.store.clone(), self.url.clone());
        let lock = tokio::task::spawn_blocking(move || store.lock(&url)).await;
        let lock = lock.map_err(std::io::Error::other).and_then(|lock| lock).map_err(broken)?;
        let grant = self.grant().await.map_err(NoToken::Now)?.ok_or(NoToken::Login)?;
        if grant.access_token != token {
            return Ok(grant);
        }
        if grant.refresh_token.is_none() || self.dead.borrow().as_deref() == Some(token) {
            return Err(NoToken::Login);
        }
        match grant.renew(&self.clients, since_1970().as_secs()).await {
            Ok(new) => {
                let (store, grant) = (self.store.clone(), new.clone());
                let kept = tokio::task::spawn_blocking(move || store.put(&grant, true, &lock)).await;
                kept.map_err(std::io::Error::other).and_then(|kept| kept).map_err(broken)?;
                *self.recent.borrow_mut() = Some((Instant::now(), Some(new.clone())));
                self.record(LoginWord::Renewed, Some(&new.issuer), String::new());
                Ok(new)
            }
            Err(error) => Err(self.not_renewed(&grant, &error)),
        }
    }

    fn not_renewed(&self, grant: &Grant, error: &LoginError) -> NoToken {
        let why = error.to_string();
        self.record(LoginWord::Refused, Some(&grant.issuer), format!("the login was not renewed: {why}"));
        if error.is_final() {
            *self.dead.borrow_mut() = Some(grant.access_token.clone());
            return NoToken::Login;
        }
        NoToken::Now(format!("cannot renew its login now: {why}"))
    }

    /// The error for the client; the user is told once.
    fn ask(&self, what: &str, more: &str) -> String {
        let how = format!("agentsh login {}{more}", shell_word(&self.name));
        let server = escape::line(&self.id.0);
        if Logins::ask(&self.session, &format!("server '{server}' {what}"), &how) {
            self.record(LoginWord::Wanted, None, what.to_owned());
        }
        format!("it {what}: the user has to run `{how}`; then try again")
    }

    fn wants_login(&self, has_one: bool) -> String {
        if has_one {
            return self.ask("no longer accepts the login (HTTP 401)", "");
        }
        let said = self.ask("requires a login (HTTP 401)", "");
        format!("{said}. To use your own token, add to its headers: Authorization: Bearer ${{NAME}}")
    }

    /// A header with further scopes. If a person can be asked, the request waits for the login; after `is_last`, and if nobody
    /// can, the error says how to get one.
    async fn step_up(&self, challenge: &Challenge, used: &str, is_last: bool) -> Result<HeaderValue, String> {
        let options: String =
            challenge.scopes.iter().map(|scope| format!(" --scope {}", shell_word(scope))).collect();
        let scopes = challenge.scopes.join(" ");
        let names = if scopes.is_empty() {
            "that it does not name".to_owned()
        } else {
            format!("'{}'", escape::line(&scopes))
        };
        let what = format!("requires more scopes (HTTP 403): {names}");
        if !is_last && let Some(grant) = self.grant_with(challenge, used).await {
            return self.header(&grant);
        }
        let approvals = self.session.logins.approvals().filter(|_| !is_last);
        let Some(approvals) = approvals else { return Err(self.ask(&what, &options)) };
        let _only = self.stepping.lock().await;
        if let Some(grant) = self.grant_with(challenge, used).await {
            return self.header(&grant);
        }
        let command = format!("agentsh login {}{options}", shell_word(&self.name));
        let wanted = FurtherRights {
            server: self.id.clone(),
            scopes,
            why: format!("the server {what}; or run `{command}`"),
            command: command.clone(),
        };
        let logged_in = async {
            while self.grant_with(challenge, used).await.is_none() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let log_in = async |limit| {
            let about = (&self.id, self.name.as_str(), self.address.as_str());
            flow::step_up(&self.session, about, challenge.scopes.clone(), limit).await
        };
        self.record(LoginWord::Wanted, None, what.clone());
        match approvals.further_rights(&wanted, logged_in, log_in).await {
            Ok(()) => match self.grant_with(challenge, used).await {
                Some(grant) => self.header(&grant),
                None => Err(self.ask(&what, &options)),
            },
            Err(why) => {
                let why = escape::line(&why);
                Err(format!("it {what}; {why}: the user can run `{command}`; then try again"))
            }
        }
    }

    /// The grant that brought further rights since this token was used: another login, with the wanted scopes if it
    /// names any, or a renewal that names more scopes. A plain renewal brings none.
    async fn grant_with(&self, challenge: &Challenge, token: &str) -> Option<Grant> {
        let grant = self.grant().await.ok()??;
        let has = |scopes: &[String]| challenge.scopes.iter().all(|scope| scopes.contains(scope));
        let handed = self.handed.borrow();
        let is_gained = match handed.iter().find(|handed| handed.token == token) {
            Some(used) if used.login == grant.login => has(&grant.scopes) && !has(&used.scopes),
            _ => grant.access_token != token && (grant.scopes.is_empty() || has(&grant.scopes)),
        };
        is_gained.then_some(grant)
    }

    /// The header with its token.
    fn header(&self, grant: &Grant) -> Result<HeaderValue, String> {
        let mut handed = self.handed.borrow_mut();
        if handed.back().is_none_or(|last| last.token != grant.access_token) {
            if handed.len() >= MAX_SENT_TOKENS {
                handed.pop_front();
            }
            let (token, login) = (grant.access_token.clone(), grant.login.clone());
            handed.push_back(SentToken { token, login, scopes: grant.scopes.clone() });
        }
        header(grant)
    }

    fn record(&self, what: LoginWord, issuer: Option<&str>, detail: String) {
        record(&self.session.record, &self.id, &self.url, what, (issuer, detail));
    }
}

/// Why there is no other token.
enum NoToken {
    /// The user has to log in.
    Login,
    /// It may become available later.
    Now(String),
}

fn header(grant: &Grant) -> Result<HeaderValue, String> {
    let value = HeaderValue::from_str(&format!("Bearer {}", grant.access_token));
    let mut value = value.map_err(|_| "its login has a token that is not a valid header value".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

/// The token of such a header.
fn token(value: Option<&HeaderValue>) -> &str {
    value.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer ")).unwrap_or_default()
}

impl Credentials for StoredLogin {
    fn current(&self) -> CredentialFuture<'_, Result<Option<HeaderValue>, String>> {
        Box::pin(async move {
            let Some(grant) = self.0.recent().await? else { return Ok(None) };
            if grant.refresh_token.is_some() && grant.is_old(since_1970().as_secs()) {
                // If that fails the old one may still be valid: the server's answer shows whose clock is right.
                if let Ok(new) = self.renew_grant(&grant.access_token).await {
                    return self.0.header(&new).map(Some);
                }
            }
            self.0.header(&grant).map(Some)
        })
    }

    fn handle_refusal(
        &self,
        status: StatusCode,
        challenges: Vec<String>,
        used: Option<HeaderValue>,
        is_last: bool,
    ) -> CredentialFuture<'_, Result<Option<HeaderValue>, String>> {
        Box::pin(async move {
            let challenge = Challenge::read(challenges.iter().map(String::as_str)).unwrap_or_default();
            if status == StatusCode::FORBIDDEN {
                let is_about_rights = challenge.error.as_deref() == Some("insufficient_scope");
                return match is_about_rights {
                    true => self.0.step_up(&challenge, token(used.as_ref()), is_last).await.map(Some),
                    false => Ok(None),
                };
            }
            if is_last {
                let said = self.0.wants_login(true);
                return Err(format!(
                    "{said}. A token issued just now was refused too: the clocks of the server and its authorization server may differ"
                ));
            }
            if used.is_none() && self.0.grant().await?.is_none() {
                return Err(self.0.wants_login(false));
            }
            match self.renew_grant(token(used.as_ref())).await {
                Ok(grant) => self.0.header(&grant).map(Some),
                Err(NoToken::Login) => Err(self.0.wants_login(used.is_some())),
                Err(NoToken::Now(why)) => Err(why),
            }
        })
    }
}
