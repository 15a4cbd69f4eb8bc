//! Sign-ins through an identity provider: credentials that expire. They have their own table: a server that does not
//! know it refuses them, and does not ignore their expiry.

use agentsh_base::random;
use agentsh_database::{Connection, DbError, Value};
use jiff::Timestamp;

use crate::fleet::access::Role;
use crate::fleet::refusal::Refusal;
use crate::fleet::tally::storable_text;
use agentsh_fleet::keys;
use agentsh_fleet::wire::{CredentialOwner, Person};

/// How their credentials begin.
const PREFIX: &str = "agf_in_";
/// How their names begin: no holder of a token has such a name.
pub(crate) const NAMES: &str = "oidc:";
/// Between a subject and its issuer, which is a URL: the last one is it.
const AT: &str = " at ";
/// How long one counts, in seconds: a provider's revocation takes effect at the next sign-in.
pub(crate) const SIGN_IN_LIFETIME_S: i64 = 8 * 3600;
/// Seconds after which expired sign-ins are deleted.
const EXPIRED_RETENTION_SECONDS: i64 = 90 * 24 * 3600;

/// A person according to the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignIn {
    /// The displayed name. Providers may give the same one to several people.
    pub name: String,
    pub role: Role,
    pub issuer: String,
    /// The subject, which the provider never gives to another person.
    pub subject: String,
}

/// Whether a credential is one of these.
pub(crate) fn is_one(credential: &str) -> bool {
    credential.starts_with(PREFIX)
}

/// Gives a credential.
pub(crate) fn open(db: &mut dyn Connection, sign_in: &SignIn) -> Result<String, Refusal> {
    let digits = random::hex::<32>().map_err(|error| Refusal::Unavailable(error.to_string()))?;
    let credential = format!("{PREFIX}{digits}");
    let now = Timestamp::now();
    db.change(
        "INSERT INTO sign_ins (digest, name, role, issuer, subject, made_at, expires_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        &[
            Value::text(keys::digest(credential.as_bytes())),
            Value::Text(storable_text(&clean(&format!("{NAMES}{}", sign_in.name)))),
            Value::text(sign_in.role.as_str()),
            Value::Text(storable_text(&sign_in.issuer)),
            Value::Text(storable_text(&sign_in.subject)),
            Value::text(format!("{now:.6}")),
            Value::Int(now.as_second() + SIGN_IN_LIFETIME_S),
        ],
    )?;
    Ok(credential)
}

/// A name has no brackets, because the subject follows it in brackets. Servers of earlier versions keep them.
fn clean(name: &str) -> String {
    name.replace('[', "(").replace(']', ")")
}

/// The person whose credential it is, while it counts.
pub(crate) fn credential_owner(
    db: &mut dyn Connection,
    credential: &str,
) -> Result<CredentialOwner, Refusal> {
    let values = [Value::text(keys::digest(credential.as_bytes())), timestamp_value()];
    let rows = db.rows(
        "SELECT name, role, issuer, subject FROM sign_ins WHERE digest = $1 AND expires_at > $2 AND revoked_at IS NULL",
        &values,
    )?;
    let Some([name, role, issuer, subject]) = rows.first().map(Vec::as_slice) else {
        return Err(Refusal::Unknown("this sign-in has expired; sign in again"));
    };
    let subject = Some(at_issuer(subject, issuer));
    Ok(CredentialOwner { name: clean(name.as_text()), role: role.as_text().to_owned(), subject })
}

/// Ends one; an unknown one is ignored.
pub(crate) fn close(db: &mut dyn Connection, credential: &str) -> Result<(), DbError> {
    let at = Value::text(format!("{:.6}", Timestamp::now()));
    let values = [Value::text(keys::digest(credential.as_bytes())), at];
    db.change("UPDATE sign_ins SET revoked_at = $2 WHERE digest = $1 AND revoked_at IS NULL", &values)?;
    Ok(())
}

fn at_issuer(subject: &Value, issuer: &Value) -> String {
    format!("{}{AT}{}", subject.as_text(), issuer.as_text())
}

/// Subject and issuer of the person whom records name in this way.
fn parse_person(on_record: &str) -> Option<(&str, &str)> {
    let (_, known_as) = on_record.strip_prefix(NAMES)?.strip_suffix(']')?.split_once(" [")?;
    known_as.rsplit_once(AT)
}

/// Ends those of a name, or of a person as records have it; gives their number. `at`: now.
pub(crate) fn revoke(db: &mut dyn Connection, name: &str, at: &Value) -> Result<u64, DbError> {
    if let Some((subject, issuer)) = parse_person(name) {
        return db.change(
            "UPDATE sign_ins SET revoked_at = $3 WHERE subject = $1 AND issuer = $2 AND revoked_at IS NULL AND expires_at > $4",
            &[Value::text(subject), Value::text(issuer), at.clone(), timestamp_value()],
        );
    }
    db.change(
        "UPDATE sign_ins SET revoked_at = $2 WHERE (name = $1 OR replace(replace(name, '[', '('), ']', ')') = $1) \
         AND revoked_at IS NULL AND expires_at > $3",
        &[Value::text(name), at.clone(), timestamp_value()],
    )
}

/// The newest ones.
pub(crate) fn people(db: &mut dyn Connection, most: i64) -> Result<Vec<Person>, DbError> {
    let text = "SELECT name, role, made_at, revoked_at, expires_at, issuer, subject FROM sign_ins \
                ORDER BY made_at DESC LIMIT $1";
    let rows = db.rows(text, &[Value::Int(most)])?;
    let person = |row: &Vec<Value>| {
        let [name, role, made_at, revoked_at, expires_at, issuer, subject] = row.as_slice() else {
            return None;
        };
        let text = |value: &Value| value.as_text().to_owned();
        Some(Person {
            name: clean(name.as_text()),
            role: text(role),
            made_at: text(made_at),
            revoked_at: revoked_at.as_option().map(str::to_owned),
            expires_at: Timestamp::from_second(expires_at.as_int()).ok().map(|at| at.to_string()),
            subject: Some(at_issuer(subject, issuer)),
        })
    };
    Ok(rows.iter().filter_map(person).collect())
}

/// Forgets what was over long ago.
pub(crate) fn forget(db: &mut dyn Connection) -> Result<u64, DbError> {
    let before = Value::Int(Timestamp::now().as_second() - EXPIRED_RETENTION_SECONDS);
    db.change("DELETE FROM sign_ins WHERE expires_at < $1", &[before])
}

fn timestamp_value() -> Value {
    Value::Int(Timestamp::now().as_second())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use agentsh_database::Database;

    use super::*;
    use crate::fleet::{access, schema};

    #[test]
    fn sign_in_expires_or_is_ended_by_its_user_or_an_admin() {
        let dir = tempfile::tempdir().unwrap();
        let database = Database::File(dir.path().join("fleet.db"));
        schema::prepare(&database).unwrap();
        let mut db = database.connect(None).unwrap();
        let db = db.as_mut();
        let ada = SignIn {
            name: "ada".to_owned(),
            role: Role::Approver,
            issuer: "https://login.example".to_owned(),
            subject: "17".to_owned(),
        };
        let [first, second, third] = [(); 3].map(|()| open(db, &ada).unwrap());
        assert_eq!(access::credential_owner(db, &first).unwrap().name, "oidc:ada");
        let known_as = "oidc:ada [17 at https://login.example]";
        assert_eq!(access::authorize(db, &first, Role::Approver).unwrap(), known_as);
        assert!(access::authorize(db, &first, Role::Admin).is_err());
        close(db, &first).unwrap();
        assert!(
            access::credential_owner(db, &first).is_err() && access::credential_owner(db, &second).is_ok()
        );
        db.change(
            "UPDATE sign_ins SET expires_at = $1 WHERE digest = $2",
            &[timestamp_value(), Value::text(keys::digest(second.as_bytes()))],
        )
        .unwrap();
        assert!(access::credential_owner(db, &second).is_err());
        assert_eq!(access::revoke_people(db, "oidc:ada").unwrap(), 1);
        assert!(access::credential_owner(db, &third).is_err());
        assert!(access::revoke_people(db, "oidc:ada").is_err(), "there is nothing left");
        assert_eq!(people(db, 10).unwrap().len(), 3);
        assert_eq!(forget(db).unwrap(), 0);
        db.change("UPDATE sign_ins SET expires_at = 1", &[]).unwrap();
        assert_eq!(forget(db).unwrap(), 3);

        // One person takes the name of another one, and that of a record.
        let again = open(db, &ada).unwrap();
        let liar = SignIn { subject: "18".to_owned(), ..ada.clone() };
        let worse = SignIn { name: known_as.trim_start_matches(NAMES).to_owned(), ..liar.clone() };
        let [liar, worse] = [&liar, &worse].map(|one| open(db, one).unwrap());
        let seen = access::credential_owner(db, &worse).unwrap().on_record();
        assert_eq!(seen, "oidc:ada (17 at https://login.example) [18 at https://login.example]");
        assert_eq!(access::revoke_people(db, &seen).unwrap(), 2, "both of the person, whatever the name");
        assert!(access::credential_owner(db, &liar).is_err() && access::credential_owner(db, &again).is_ok());
        assert_eq!(access::revoke_people(db, known_as).unwrap(), 1);
        assert!(access::credential_owner(db, &again).is_err());

        // As a server of an earlier version kept it.
        let kept = open(db, &SignIn { subject: "19".to_owned(), ..ada }).unwrap();
        let values = [Value::text(known_as), Value::text(keys::digest(kept.as_bytes()))];
        db.change("UPDATE sign_ins SET name = $1 WHERE digest = $2", &values).unwrap();
        let cleaned = "oidc:ada (17 at https://login.example)";
        assert_eq!(
            access::credential_owner(db, &kept).unwrap().on_record(),
            format!("{cleaned} [19 at https://login.example]")
        );
        assert!(people(db, 10).unwrap().iter().all(|person| !person.name.contains('[')));
        assert_eq!(access::revoke_people(db, cleaned).unwrap(), 1);
        assert!(access::credential_owner(db, &kept).is_err());
    }
}
