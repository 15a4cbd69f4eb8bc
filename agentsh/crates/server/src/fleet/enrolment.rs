//! One-time tokens: they enrol a host, or give a person a credential.

use agentsh_base::random;
use agentsh_database::{Connection, Database, DbError, Value};
use jiff::{SignedDuration, Timestamp};

use crate::fleet::access::Role;
use crate::fleet::arrival::in_transaction;
use crate::fleet::refusal::Refusal;
use crate::fleet::schema;
use crate::fleet::sign_ins;
use crate::fleet::tally::storable_text;
use agentsh_fleet::keys;
use agentsh_fleet::wire::{AskToken, Enrol, Enrolled, IssuedToken, LoggedIn};

/// A token that is wanted.
pub type NewToken = AskToken;

/// Creates a token directly in a database: the first one, on the server's own machine.
///
/// # Errors
/// When the database cannot be used, or the token is invalid.
pub fn make_token(database: &Database, asked: &NewToken) -> Result<IssuedToken, DbError> {
    schema::prepare(database)?;
    let mut db = database.connect(None)?;
    match create_token(db.as_mut(), asked, "the machine of the server") {
        Ok(token) => Ok(token),
        Err(Refusal::Wrong(why)) => Err(DbError(why)),
        Err(Refusal::Missing(why)) => Err(DbError(why.to_owned())),
        Err(Refusal::Unavailable(why)) => Err(DbError(why)),
        Err(other) => Err(DbError(other.as_str().to_owned())),
    }
}

pub(crate) fn create_token(
    db: &mut dyn Connection,
    asked: &AskToken,
    by: &str,
) -> Result<IssuedToken, Refusal> {
    if asked.role != "host" && Role::named(&asked.role).is_none() {
        return Err(Refusal::Wrong("a role is host, viewer, approver or admin".to_owned()));
    }
    if asked.name.starts_with(sign_ins::NAMES) {
        return Err(Refusal::Wrong(
            "names that begin with 'oidc:' are reserved for the identity provider".to_owned(),
        ));
    }
    if let Some(again) = &asked.again {
        let known = db.rows("SELECT id FROM hosts WHERE id = $1", &[Value::text(again.as_str())])?;
        if asked.role != "host" || known.is_empty() {
            return Err(Refusal::Missing("no such host to re-enrol"));
        }
    }
    let digits = random::hex::<24>().map_err(|error| Refusal::Unavailable(error.to_string()))?;
    let token = format!("agf_once_{digits}");
    let now = Timestamp::now();
    let expires = now.checked_add(SignedDuration::from_secs(i64::from(asked.valid_s))).unwrap_or(now);
    let expires_at = format!("{expires:.6}");
    db.change(
        "INSERT INTO tokens (digest, role, name, again, made_by, made_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7)",
        &[
            Value::text(keys::digest(token.as_bytes())),
            Value::text(&*asked.role),
            Value::Text(storable_text(&asked.name)),
            Value::optional(asked.again.as_deref()),
            Value::text(by),
            Value::text(format!("{now:.6}")),
            Value::text(&*expires_at),
        ],
    )?;
    Ok(IssuedToken { token, expires_at })
}

/// A token, as it was made.
struct Token {
    role: String,
    name: String,
    /// The host that may enrol again with it.
    again: Option<String>,
    /// The token was used for the same before: nothing happens now.
    was_used: bool,
}

/// Uses a token up, in the transaction that is open. One that was used for the same is found, and stays as it is.
fn use_token(db: &mut dyn Connection, token: &str, used_for: &str) -> Result<Token, Refusal> {
    let digest = Value::text(keys::digest(token.as_bytes()));
    let now = Value::text(format!("{:.6}", Timestamp::now()));
    let changed = db.change(
        "UPDATE tokens SET used_at = $2, used_for = $3 WHERE digest = $1 AND expires_at > $2 AND used_at IS NULL",
        &[digest.clone(), now.clone(), Value::text(used_for)],
    )?;
    let rows = db.rows(
        "SELECT role, name, again FROM tokens WHERE digest = $1 AND expires_at > $2 AND used_for = $3",
        &[digest, now, Value::text(used_for)],
    )?;
    match rows.first().map(Vec::as_slice) {
        Some([role, name, again]) => Ok(Token {
            role: role.as_text().to_owned(),
            name: name.as_text().to_owned(),
            again: again.as_option().map(str::to_owned),
            was_used: changed == 0,
        }),
        _ => Err(Refusal::Unknown(
            "this token is unknown, already used, or expired; `agentsh fleet token` makes a new one",
        )),
    }
}

/// The answer again, which may have been lost; only while it still holds. A host that was revoked, refused or given
/// another key since does not come back with a token that is spent.
fn repeat_answer(db: &mut dyn Connection, host: String, key: &str) -> Result<Enrolled, Refusal> {
    let rows = db.rows(
        "SELECT id FROM hosts WHERE id = $1 AND key = $2 AND state = 'active'",
        &[Value::text(&*host), Value::text(key)],
    )?;
    if rows.is_empty() {
        return Err(Refusal::Unknown(
            "this token was already used; `agentsh fleet token --again HOST` makes a new one",
        ));
    }
    Ok(Enrolled { host })
}

/// Makes a host. With the same token and key again: the same one, since the first answer may have been lost.
pub(crate) fn enrol(db: &mut dyn Connection, asked: &Enrol) -> Result<Enrolled, Refusal> {
    if keys::hash(&asked.key).is_none() {
        return Err(Refusal::Wrong("the key is not 64 hex digits".to_owned()));
    }
    // A host is known by its key, so that the same question has the same answer.
    let host = keys::digest(asked.key.as_bytes()).chars().take(24).collect::<String>();
    spend(db, |db| {
        let Token { role, name, again, was_used } = use_token(db, &asked.token, &asked.key)?;
        if role != "host" {
            return Err(Refusal::Wrong("this is a person's token: use `agentsh fleet login`".to_owned()));
        }
        if was_used {
            return repeat_answer(db, again.unwrap_or(host), &asked.key);
        }
        let now = Value::text(format!("{:.6}", Timestamp::now()));
        let name = if name.is_empty() { storable_text(&asked.name) } else { name };
        if let Some(again) = again {
            let sql = "UPDATE hosts SET key = $2, version = $3, state = 'active' WHERE id = $1";
            let values =
                [Value::text(&*again), Value::text(&*asked.key), Value::Text(storable_text(&asked.version))];
            db.change(sql, &values)?;
            return Ok(Enrolled { host: again });
        }
        db.change(
            "INSERT INTO hosts (id, name, key, state, version, enrolled_at, seen_at, last_id, last_hash) \
             VALUES ($1, $2, $3, 'active', $4, $5, $5, 0, '') ON CONFLICT (id) DO NOTHING",
            &[
                Value::text(&*host),
                Value::Text(name),
                Value::text(&*asked.key),
                Value::Text(storable_text(&asked.version)),
                now,
            ],
        )?;
        Ok(Enrolled { host })
    })
}

/// Gives a person a credential.
pub(crate) fn login(db: &mut dyn Connection, token: &str) -> Result<LoggedIn, Refusal> {
    let random = |_| Refusal::Unavailable("the system's random number generator failed".to_owned());
    let credential = format!("agf_{}", random::hex::<32>().map_err(random)?);
    spend(db, |db| {
        let Token { role, name, .. } = use_token(db, token, &keys::digest(credential.as_bytes()))?;
        if role == "host" {
            return Err(Refusal::Wrong("this is a host's token: use `agentsh fleet enrol`".to_owned()));
        }
        db.change(
            "INSERT INTO people (digest, name, role, made_at) VALUES ($1, $2, $3, $4)",
            &[
                Value::text(keys::digest(credential.as_bytes())),
                Value::text(&*name),
                Value::text(&*role),
                Value::text(format!("{:.6}", Timestamp::now())),
            ],
        )?;
        Ok(LoggedIn { name, role, credential: credential.clone() })
    })
}

/// A refused request does not use up its token.
fn spend<T>(
    db: &mut dyn Connection,
    work: impl FnOnce(&mut dyn Connection) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let mut refused = None;
    let done = in_transaction(db, |db| {
        work(db).map_err(|refusal| {
            refused = Some(refusal);
            Refusal::Unavailable(String::new())
        })
    });
    match (done, refused) {
        (Err(_), Some(refusal)) => Err(refusal),
        (done, _) => done,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::fleet::access::revoke_host;

    const OLD: &str = "aa";
    const NEW: &str = "bb";

    fn database() -> (tempfile::TempDir, Database) {
        let dir = tempfile::tempdir().unwrap();
        let database = Database::File(dir.path().join("fleet.db"));
        (dir, database)
    }

    fn token(database: &Database, role: &str, name: &str, again: Option<&str>) -> String {
        let again = again.map(str::to_owned);
        let asked = AskToken { role: role.to_owned(), name: name.to_owned(), valid_s: 3600, again };
        make_token(database, &asked).unwrap().token
    }

    fn ask(token: &str, key: &str) -> Enrol {
        Enrol { token: token.to_owned(), name: "h".to_owned(), key: key.repeat(32), version: "1".to_owned() }
    }

    fn now(db: &mut dyn Connection, host: &str) -> (String, String) {
        let rows = db.rows("SELECT key, state FROM hosts WHERE id = $1", &[Value::text(host)]).unwrap();
        (rows[0][0].as_text().to_owned(), rows[0][1].as_text().to_owned())
    }

    #[test]
    fn used_enrolment_token_does_not_enrol_again() {
        let (_dir, database) = database();
        let first = token(&database, "host", "", None);
        let mut db = database.connect(None).unwrap();
        let db = db.as_mut();
        let host = enrol(db, &ask(&first, OLD)).unwrap().host;
        // The answer was lost.
        assert_eq!(enrol(db, &ask(&first, OLD)).unwrap().host, host);
        let second = token(&database, "host", "", Some(&host));
        assert_eq!(enrol(db, &ask(&second, NEW)).unwrap().host, host);
        assert_eq!(enrol(db, &ask(&second, NEW)).unwrap().host, host);
        let third = token(&database, "host", "", Some(&host));
        enrol(db, &ask(&third, OLD)).unwrap();
        // A key that was replaced does not come back.
        assert!(enrol(db, &ask(&second, NEW)).is_err());
        assert_eq!(now(db, &host), (OLD.repeat(32), "active".to_owned()));
        let unspent = token(&database, "host", "", Some(&host));
        for state in ["refused", "revoked"] {
            db.change(
                "UPDATE hosts SET state = $2 WHERE id = $1",
                &[Value::text(&*host), Value::text(state)],
            )
            .unwrap();
            assert!(enrol(db, &ask(&third, OLD)).is_err(), "{state}");
            assert_eq!(now(db, &host), (OLD.repeat(32), state.to_owned()));
        }
        // Revoking also cancels the host's earlier tokens.
        revoke_host(db, &host).unwrap();
        assert!(enrol(db, &ask(&unspent, NEW)).is_err());
        let again = token(&database, "host", "", Some(&host));
        enrol(db, &ask(&again, NEW)).unwrap();
        assert_eq!(now(db, &host), (NEW.repeat(32), "active".to_owned()));
    }
}
