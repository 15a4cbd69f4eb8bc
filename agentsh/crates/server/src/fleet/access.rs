//! Authentication: a host by its signature, a person by a credential.

use agentsh_database::{Connection, Value};
use axum::http::{HeaderMap, Method, header};
use jiff::Timestamp;

use crate::fleet::arrival::{in_transaction, stopped_host};
use crate::fleet::refusal::Refusal;
use crate::fleet::sign_ins;
use agentsh_fleet::keys;
use agentsh_fleet::wire::CredentialOwner;

/// How far the clock of a host may be off, in milliseconds. What is repeated within it changes nothing: every request of a
/// host says the same again.
const SKEW_MS: i64 = 300_000;

/// The roles of people; each includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Looks.
    Viewer,
    /// Accepts what was found about a host.
    Approver,
    /// Makes tokens, and revokes.
    Admin,
}

impl Role {
    #[must_use]
    pub fn named(text: &str) -> Option<Self> {
        match text {
            "viewer" => Some(Self::Viewer),
            "approver" => Some(Self::Approver),
            "admin" => Some(Self::Admin),
            _ => None,
        }
    }

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Approver => "approver",
            Self::Admin => "admin",
        }
    }
}

/// A request of a host, as far as its head says.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub host: String,
    time: String,
    /// The announced body digest, until the body has arrived.
    body: String,
    signature: String,
}

impl Claim {
    /// None: it is not a host's request.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let text = |name: &str| headers.get(name)?.to_str().ok().map(str::to_owned);
        Some(Self {
            host: text(keys::HOST)?,
            time: text(keys::TIME)?,
            body: text(keys::BODY)?,
            signature: text(keys::SIGNATURE)?,
        })
    }

    /// # Errors
    /// The host's clock is wrong.
    pub fn is_now(&self) -> Result<(), Refusal> {
        let now = Timestamp::now().as_millisecond();
        let is_near = self.time.parse::<i64>().is_ok_and(|time| time.abs_diff(now) <= SKEW_MS.unsigned_abs());
        if is_near { Ok(()) } else { Err(Refusal::Unknown("the host's clock is off by more than 5 minutes")) }
    }

    /// The key of the host that it claims to be.
    pub fn key(&self, db: &mut dyn Connection) -> Result<String, Refusal> {
        let rows = db.rows("SELECT key, state FROM hosts WHERE id = $1", &[Value::text(&*self.host)])?;
        match rows.first().map(Vec::as_slice) {
            Some([_, state]) if state.as_text() == "revoked" => Err(stopped_host("revoked")),
            Some([key, _]) => Ok(key.as_text().to_owned()),
            _ => Err(Refusal::Unknown("no such host")),
        }
    }

    /// Whether the head is signed. What the body is has to be looked at too: [`Claim::check_body`].
    pub fn is_by(&self, key: &str, method: &Method, path: &str) -> Result<(), Refusal> {
        let text = keys::signed_text(method.as_str(), path, &self.host, &self.time, &self.body);
        if keys::is_signed(key, &text, &self.signature) {
            Ok(())
        } else {
            Err(Refusal::Unknown("the signature does not match this host's key"))
        }
    }

    pub fn check_body(&self, body: &[u8]) -> Result<(), Refusal> {
        if keys::digest(body) == self.body {
            Ok(())
        } else {
            Err(Refusal::Unknown("the body does not match the signature"))
        }
    }
}

/// The credential that a request carries.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<String> {
    let sent = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    Some(sent.strip_prefix("Bearer ")?.trim().to_owned())
}

/// The name of the caller in records. The role of the caller must be `least` or more.
pub(crate) fn authorize(db: &mut dyn Connection, credential: &str, least: Role) -> Result<String, Refusal> {
    let who = credential_owner(db, credential)?;
    match Role::named(&who.role) {
        Some(role) if role >= least => Ok(who.on_record()),
        _ => Err(Refusal::Role(least.as_str())),
    }
}

/// The person whose credential it is.
pub(crate) fn credential_owner(
    db: &mut dyn Connection,
    credential: &str,
) -> Result<CredentialOwner, Refusal> {
    if sign_ins::is_one(credential) {
        return sign_ins::credential_owner(db, credential);
    }
    let digest = Value::text(keys::digest(credential.as_bytes()));
    // By its digest: how long the search takes says nothing about the credential.
    let rows =
        db.rows("SELECT name, role FROM people WHERE digest = $1 AND revoked_at IS NULL", &[digest])?;
    let Some([name, role]) = rows.first().map(Vec::as_slice) else {
        return Err(Refusal::Unknown("no such credential; `agentsh fleet login` gets one"));
    };
    Ok(CredentialOwner { name: name.as_text().to_owned(), role: role.as_text().to_owned(), subject: None })
}

/// Takes nothing from a host any more; tokens that were made for it and not used are void.
pub(crate) fn revoke_host(db: &mut dyn Connection, host: &str) -> Result<(), Refusal> {
    in_transaction(db, |db| {
        let host = Value::text(host);
        let known =
            db.change("UPDATE hosts SET state = 'revoked' WHERE id = $1", std::slice::from_ref(&host))?;
        if known == 0 {
            return Err(Refusal::Missing("no such host"));
        }
        let now = Value::text(format!("{:.6}", Timestamp::now()));
        db.change("UPDATE tokens SET used_at = $2 WHERE again = $1 AND used_at IS NULL", &[host, now])?;
        Ok(())
    })
}

/// Revokes all credentials with this name, and its unused tokens. Returns the number of credentials.
pub(crate) fn revoke_people(db: &mut dyn Connection, name: &str) -> Result<u64, Refusal> {
    in_transaction(db, |db| {
        let values = [Value::text(name), Value::text(format!("{:.6}", Timestamp::now()))];
        let people = "UPDATE people SET revoked_at = $2 WHERE name = $1 AND revoked_at IS NULL";
        let revoked = db.change(people, &values)? + sign_ins::revoke(db, name, &values[1])?;
        let tokens = "UPDATE tokens SET used_at = $2 WHERE name = $1 AND role <> 'host' AND used_at IS NULL";
        let void = db.change(tokens, &values)?;
        if revoked + void == 0 {
            return Err(Refusal::Missing("no person's credential or token has this name"));
        }
        Ok(revoked)
    })
}
