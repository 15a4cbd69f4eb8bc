//! JSON messages between server and clients.

use serde::{Deserialize, Serialize};

/// Where the server is in the journal of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// 0: it has nothing.
    pub id: i64,
    /// The hash of the row there, as hex digits; empty if there is none.
    pub hash: String,
}

/// The end of a session's chain, or what was its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Hex digits.
    pub hash: String,
}

/// Asks to be enrolled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Enrol {
    pub token: String,
    pub name: String,
    /// Ed25519, as hex digits.
    pub key: String,
    pub version: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Enrolled {
    pub host: String,
}

/// Asks for a credential of a person.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Login {
    pub token: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoggedIn {
    pub name: String,
    pub role: String,
    /// The new value for `Authorization: Bearer`.
    pub credential: String,
}

/// The owner of the credential.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CredentialOwner {
    pub name: String,
    pub role: String,
    /// The subject at an identity provider, which people cannot change; None: a person with a token.
    #[serde(default)]
    pub subject: Option<String>,
}

impl CredentialOwner {
    /// The name of this person in records: the name, followed by the subject at the provider.
    #[must_use]
    pub fn on_record(&self) -> String {
        match &self.subject {
            Some(subject) => format!("{} [{subject}]", self.name),
            None => self.name.clone(),
        }
    }
}

/// An issued credential, without its value, which is never stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Person {
    pub name: String,
    pub role: String,
    pub made_at: String,
    pub revoked_at: Option<String>,
    /// The time when it expires; None: when it is revoked.
    #[serde(default)]
    pub expires_at: Option<String>,
    /// The subject at an identity provider; None: a person with a token.
    #[serde(default)]
    pub subject: Option<String>,
}

impl Person {
    /// Like [`Who::on_record`].
    #[must_use]
    pub fn on_record(&self) -> String {
        let (name, role, subject) = (self.name.clone(), self.role.clone(), self.subject.clone());
        CredentialOwner { name, role, subject }.on_record()
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AskToken {
    /// `host`, `viewer`, `approver` or `admin`.
    pub role: String,
    pub name: String,
    /// How long it can be used, in seconds.
    pub valid_s: u32,
    /// The host that continues with another key.
    #[serde(default)]
    pub again: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IssuedToken {
    pub token: String,
    pub expires_at: String,
}

/// Revokes the credentials of all people with one name. With the subject after the name, as in records: the
/// credentials of this person, under any name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RevokePeople {
    pub name: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Revoked {
    /// Number of revoked credentials; 0 if there was only a token.
    pub revoked: u64,
}

/// A row of some host's journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Place on the server, for the next page: later arrivals have larger ones.
    pub at: String,
    pub host: String,
    pub session: String,
    pub seq: u64,
    pub time: String,
    pub hash: String,
    pub body: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Rows {
    pub rows: Vec<Row>,
    /// Where the next page begins; null at the end.
    pub next: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Host {
    pub id: String,
    pub name: String,
    /// `active`, `refused` (its record no longer fits what it sent) or `revoked`.
    pub state: String,
    pub enrolled_at: String,
    pub seen_at: String,
    pub version: String,
    /// Rows of its journal that are here.
    pub events: i64,
    pub sessions: i64,
    /// The incidents, the newest first; at most ten.
    pub incidents: Vec<Incident>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Incident {
    pub at: String,
    /// `rewritten`, `missing`, `edited`, `foreign`.
    pub kind: String,
    pub session: String,
    pub detail: String,
    pub accepted_by: Option<String>,
}

/// A server of some host, as `mcp servers` lists them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerRow {
    pub host: String,
    pub server_id: String,
    pub last_status: String,
    pub last_at: String,
    pub calls: i64,
    pub refused: i64,
    pub program: String,
    pub hash: String,
    pub project: String,
    pub last_session: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionRow {
    pub session: String,
    pub host: String,
    pub events: i64,
    pub first_at: String,
    pub last_at: String,
    pub verb: String,
    pub project: String,
    pub ended: bool,
    /// The link of its first row, as hex digits.
    pub first_link: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SelfCheck {
    pub ok: bool,
    pub what: String,
    pub detail: String,
}

/// Asks people elsewhere about what a session of a host wants to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// 32 random hex digits.
    pub id: String,
    /// The question, as JSON: an answer is bound to these letters.
    pub question: String,
    /// Seconds since 1970.
    pub expires_at: i64,
}

/// A waiting question as people see it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Waiting {
    pub id: String,
    pub host: String,
    pub host_name: String,
    /// Seconds since 1970.
    pub asked_at: i64,
    pub expires_at: i64,
    /// Goes back with the answer: SHA-256 of the question.
    pub bound: String,
    pub question: String,
}

/// A person's answer to a question.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalAnswer {
    pub approve: bool,
    /// `once` or `session`.
    pub scope: String,
    /// Like [`Waiting`].
    pub bound: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QuestionStatus {
    /// `waiting`, `approved`, `denied`, or `over`: no answer in time.
    pub state: String,
    pub scope: String,
    pub by: String,
    /// The hash that the answer is bound to.
    pub bound: String,
}
