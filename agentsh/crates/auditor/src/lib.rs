//! Two auditor models that check a call before it is sent: both must answer that it is clean.
//!
//! [`redact`] removes secrets from the text and bounds it; random boundaries surround it. An answer in any other form
//! is a failure, and a failure refuses the call unless the user's file allows it.

mod answer;
pub mod classifier;
mod provider;
mod request;

use std::collections::BTreeMap;

use hyper::header::HeaderValue;
use serde_json::{Value, json};
use url::Url;

use agentsh_base::json::Json;
use agentsh_base::types::{RuleRef, ServerId};
use agentsh_egress::{Client, HttpError};
use agentsh_policy::Ruled;
use agentsh_policy::proxy_file::{AuditTimeout, Auditor, ProxyFile};
use agentsh_secrets::values;
use agentsh_store::redact;

use answer::AuditAnswer;
pub(crate) use answer::without_thoughts;
use request::Question;

/// The longest arguments that auditors are asked about, as JSON: about 30,000 tokens. What is longer has no verdict, since a model
/// that sees a part would call the rest clean.
pub const MAX_ARGUMENTS: usize = 100 << 10;
/// Room for the same arguments, with escapes and with names of what was replaced.
const ARGUMENT_LIMITS: redact::RedactionLimits =
    redact::RedactionLimits { bytes: 4 * MAX_ARGUMENTS, chars: MAX_ARGUMENTS };

/// The pair.
pub struct Auditors {
    pair: [ReadyAuditor; 2],
    on_failure: AuditTimeout,
    client: Client,
}

/// One auditor, ready for requests.
struct ReadyAuditor {
    who: AuditorName,
    auditor: Auditor,
    url: Url,
    /// Marked as sensitive, so that nothing prints it.
    key: Option<HeaderValue>,
}

/// One auditor's name in messages and events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditorName {
    /// `openai/MODEL`
    pub name: String,
    /// The rule that configures it.
    pub rule: RuleRef,
}

/// The verdict of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Audit {
    Clean,
    /// `why` is what a model wrote: escaped, redacted, at most 200 characters.
    Flagged {
        by: AuditorName,
        why: String,
    },
    TimedOut {
        by: AuditorName,
    },
    Failed {
        by: AuditorName,
        why: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuditorError {
    #[error("{rule}: there must be two auditors, or none")]
    NotTwo { rule: String },
    #[error("{rule}: the variable {variable} is not set; it must contain the key of auditor {name}")]
    NoKey { rule: String, variable: String, name: String },
    #[error("{rule}: the variable {variable} does not contain a key: a key is one word")]
    BadKey { rule: String, variable: String },
    #[error("{rule}: the address of auditor {name} cannot be used: {why}")]
    Address { rule: String, name: String, why: String },
}

impl std::fmt::Debug for Auditors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auditors").field("pair", &self.pair).finish_non_exhaustive()
    }
}

impl Auditors {
    /// The auditors of a file; None when it names none. Keys come from the named variables of `env` alone.
    ///
    /// # Errors
    /// There are not exactly two, a key is missing, or an address is invalid.
    pub fn of_file(
        file: &ProxyFile,
        env: &BTreeMap<String, String>,
        client: Client,
    ) -> Result<Option<Self>, AuditorError> {
        let pair = match file.auditors.as_slice() {
            [] => return Ok(None),
            [first, second] => [ready_auditor(first, env)?, ready_auditor(second, env)?],
            [first, ..] => return Err(AuditorError::NotTwo { rule: first.rule.to_string() }),
        };
        Ok(Some(Self { pair, on_failure: file.audit_timeout, client }))
    }

    /// Asks both at once about what [`redacted_call`] gave.
    pub async fn judge(&self, data: &Value) -> Audit {
        let [first, second] = &self.pair;
        let (first, second) = tokio::join!(self.ask(first, data), self.ask(second, data));
        // The worst word counts.
        match (first, second) {
            (flagged @ Audit::Flagged { .. }, _) | (_, flagged @ Audit::Flagged { .. }) => flagged,
            (Audit::Clean, other) | (other, _) => other,
        }
    }

    /// The verdict on arguments that are longer than [`MAX_ARGUMENTS`].
    #[must_use]
    pub fn too_long(&self) -> Audit {
        let why = format!(
            "the arguments are longer than {MAX_ARGUMENTS} bytes, and auditors see all of them or none"
        );
        Audit::Failed { by: self.pair[0].who.clone(), why }
    }

    /// Whether the call may continue.
    #[must_use]
    pub fn allows_call(&self, audit: &Audit) -> bool {
        match audit {
            Audit::Clean => true,
            Audit::Flagged { .. } => false,
            Audit::TimedOut { .. } | Audit::Failed { .. } => self.on_failure == AuditTimeout::Allow,
        }
    }

    async fn ask(&self, asked: &ReadyAuditor, data: &Value) -> Audit {
        let by = asked.who.clone();
        let Some(question) = Question::new(data) else {
            return Audit::Failed { by, why: "the system's random number generator failed".to_owned() };
        };
        let answer = match self.client.post(provider::post(asked, &question)).await {
            Ok(answer) => answer,
            Err(HttpError::TimedOut(_)) => return Audit::TimedOut { by },
            Err(error) => return Audit::Failed { by, why: error.to_string() },
        };
        if answer.status != 200 {
            return Audit::Failed { by, why: format!("it answered with status {}", answer.status) };
        }
        let text = match provider::text_of(asked.auditor.provider, &answer.body) {
            Ok(text) => text,
            Err(why) => return Audit::Failed { by, why: why.to_owned() },
        };
        match answer::read(&text, &question.code) {
            Some(AuditAnswer::Clean) => Audit::Clean,
            Some(AuditAnswer::Flagged(why)) => {
                Audit::Flagged { by, why: agentsh_store::escape::line(&redact::text(why)).into_owned() }
            }
            None => Audit::Failed { by, why: "its answer does not have the requested format".to_owned() },
        }
    }
}

/// The data of a call for the auditors: no secret that is known by its form or name, and nothing that identifies a person.
/// `finding` describes an earlier finding in our own words.
#[must_use]
pub fn redacted_call(
    server: &ServerId,
    tool: &str,
    arguments: Option<&Json<'_>>,
    finding: Option<&str>,
) -> Value {
    json!({
        "server": redact::text(&server.0),
        "tool": redact::text(tool),
        "finding": finding.map(redact::text),
        "arguments": redact::redact_with_limits(&without_personal_values(arguments.map_or(Value::Null, Json::to_value)), ARGUMENT_LIMITS),
    })
}

/// Replaces every personal value by its kind: only its presence matters.
fn without_personal_values(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(nameless_text(&text)),
        Value::Array(items) => items.into_iter().map(without_personal_values).collect(),
        Value::Object(members) => {
            let mut out = serde_json::Map::new();
            for (name, value) in members {
                let name = nameless_text(&name);
                // Two people under two names are two members still: none may hide behind the other.
                let free = (out.len() + 1..).map(|number| format!("{name} {number}"));
                let name = std::iter::once(name.clone()).chain(free).find(|name| !out.contains_key(name));
                out.extend(name.map(|name| (name, without_personal_values(value))));
            }
            out.into()
        }
        other => other,
    }
}

fn nameless_text(text: &str) -> String {
    let (mut out, mut done) = (String::new(), 0);
    for entity in values::find(text, text.len()) {
        let says_who = entity.kind.is_personal() || entity.kind == values::Kind::Email;
        if !says_who || entity.start < done {
            continue;
        }
        out.push_str(text.get(done..entity.start).unwrap_or_default());
        out.push_str(&format!("[{}]", entity.kind.as_str()));
        done = entity.end;
    }
    out.push_str(text.get(done..).unwrap_or_default());
    out
}

fn ready_auditor(
    Ruled { value: auditor, rule }: &Ruled<Auditor>,
    env: &BTreeMap<String, String>,
) -> Result<ReadyAuditor, AuditorError> {
    let who_rule = rule.clone();
    let rule = rule.to_string();
    let name = format!("{}/{}", provider::provider_name(auditor.provider), auditor.model);
    let url = provider::url(auditor).map_err(|why| AuditorError::Address {
        rule: rule.clone(),
        name: name.clone(),
        why,
    })?;
    let key = match &auditor.api_key_env {
        None => None,
        Some(variable) => {
            let key = env.get(variable).map(|key| key.trim()).filter(|key| !key.is_empty());
            let Some(key) = key else {
                return Err(AuditorError::NoKey { rule, variable: variable.clone(), name });
            };
            let Some(value) = provider::key(auditor.provider, key) else {
                return Err(AuditorError::BadKey { rule, variable: variable.clone() });
            };
            Some(value)
        }
    };
    Ok(ReadyAuditor { who: AuditorName { name, rule: who_rule }, auditor: auditor.clone(), url, key })
}

impl std::fmt::Debug for ReadyAuditor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asked").field("who", &self.who).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
