//! A signed question to a URL of the user, such as a chat bridge, and its signed reply. The reply is the response to
//! this request or to a later one, so no inbound connection is needed.

use std::time::Duration;

use ring::hmac;
use serde::Deserialize;
use serde_json::json;
use tokio::task::AbortHandle;
use url::Url;

use agentsh_base::random;
use agentsh_egress::{Client, Post};
use agentsh_store::escape;
use agentsh_store::words::ApprovalScope;
use agentsh_telemetry::webhook::headers;

use super::{Approvals, Item};
use agentsh_content::content::since_1970;
use agentsh_host::outgoing;
use agentsh_host::{Facts, Record};

/// Between two requests about the same question.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// How long the receiver may hold one request open.
const MAX_REQUEST_DURATION: Duration = Duration::from_secs(60);
const MAX_ANSWER: usize = 64 << 10;
/// Characters of a name that is put on record.
const MAX_NAME: usize = 80;

#[derive(Clone)]
pub struct Hook {
    url: Url,
    secret: Vec<u8>,
    client: Client,
}

/// A question on its way; dropped, it is not asked any more.
pub struct PendingQuestion(AbortHandle);

impl Drop for PendingQuestion {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reply {
    nonce: String,
    approval: String,
    answer: String,
    #[serde(default)]
    scope: String,
    by: String,
    signature: String,
}

impl Hook {
    /// None: there is no webhook. An unusable setting is reported.
    #[must_use]
    pub fn of(facts: &Facts, record: &Record) -> Option<Self> {
        let written = facts.policy.mcp.approvals.webhook.as_ref()?;
        match Self::read(facts, &written.value) {
            Ok(hook) => Some(hook),
            Err(why) => {
                record.note(&format!("cannot use the webhook of {}: {why}", written.rule));
                None
            }
        }
    }

    fn read(facts: &Facts, url: &str) -> Result<Self, String> {
        let url = Url::parse(url).map_err(|error| error.to_string())?;
        let name = facts.policy.mcp.approvals.webhook_secret_env.as_ref();
        let name = &name.ok_or("`webhook_secret_env` is missing, so answers cannot be verified")?.value;
        let secret = facts.context.env.get(name).filter(|secret| !secret.is_empty());
        let secret = secret.ok_or_else(|| format!("the variable {name} is not set"))?.clone().into_bytes();
        Ok(Self { url, secret, client: outgoing::client()? })
    }

    /// Asks until there is an answer, or the question is over. Must be called inside a `LocalSet`.
    pub fn ask(&self, approvals: &Approvals, item: &Item) -> Option<PendingQuestion> {
        let (hook, approvals, item) = (self.clone(), approvals.clone(), item.clone());
        let nonce = random::hex::<16>().ok()?;
        let task = agentsh_base::task::spawn_local(async move {
            match hook.until_answered(&item, &nonce).await {
                Ok((is_yes, scope, by)) => {
                    approvals.answer(&item.id, is_yes, scope, by);
                }
                Err(why) => {
                    let id = &item.id;
                    approvals
                        .0
                        .session
                        .record
                        .note(&format!("the webhook did not answer question {id}: {why}"));
                }
            }
        });
        Some(PendingQuestion(task.abort_handle()))
    }

    async fn until_answered(&self, item: &Item, nonce: &str) -> Result<super::Answer, String> {
        let body = json!({ "type": "approval", "nonce": nonce, "question": item.for_others() })
            .to_string()
            .into_bytes();
        let mut last = "it was not asked in time".to_owned();
        loop {
            let now = since_1970().as_secs();
            let left = Duration::from_secs(item.expires_at.saturating_sub(now));
            if left.is_zero() {
                return Err(last);
            }
            let post = Post {
                url: self.url.clone(),
                headers: headers(Some(&self.secret), &body, i64::try_from(now).unwrap_or_default()),
                body: body.clone(),
                within: left.min(MAX_REQUEST_DURATION),
                max_answer: MAX_ANSWER,
            };
            match self.client.post(post).await {
                Ok(answer) if answer.status == 200 && !answer.body.trim_ascii().is_empty() => {
                    return self.judge(item, nonce, &answer.body);
                }
                Ok(answer) if (200..300).contains(&answer.status) => {
                    "nobody has answered yet".clone_into(&mut last)
                }
                Ok(answer) if answer.status >= 500 || matches!(answer.status, 408 | 425 | 429) => {
                    last = format!("it answered with status {}", answer.status);
                }
                Ok(answer) => return Err(format!("it answered with status {}", answer.status)),
                Err(error) if error.is_permanent() => return Err(error.to_string()),
                Err(error) => last = error.to_string(),
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// A reply counts when it is about this question and has the signature of who knows the secret.
    fn judge(&self, item: &Item, nonce: &str, body: &[u8]) -> Result<super::Answer, String> {
        let reply: Reply =
            serde_json::from_slice(body).map_err(|error| format!("its reply is not valid: {error}"))?;
        if reply.nonce != nonce || reply.approval != item.id {
            return Err("its reply is for another question".to_owned());
        }
        let signed = [nonce, &item.id, &reply.answer, &reply.scope, &reply.by].join("\n");
        if !is_signed(&self.secret, signed.as_bytes(), &reply.signature) {
            return Err("its reply is not signed with the secret".to_owned());
        }
        let scope = match reply.scope.as_str() {
            "" | "once" => ApprovalScope::Once,
            "session" => ApprovalScope::Session,
            other => return Err(format!("its reply has an unknown scope '{}'", escape::line(other))),
        };
        let is_yes = match reply.answer.as_str() {
            "approve" => true,
            "deny" => false,
            other => return Err(format!("its reply has an unknown answer '{}'", escape::line(other))),
        };
        let by: String = reply.by.chars().filter(|letter| !letter.is_control()).take(MAX_NAME).collect();
        Ok((is_yes, scope, format!("webhook: {by}")))
    }
}

/// `sha256=` and HMAC-SHA256 in hex digits, compared in constant time.
fn is_signed(secret: &[u8], text: &[u8], signature: &str) -> bool {
    let Some(hex) = signature.strip_prefix("sha256=").filter(|hex| hex.len() == 64 && hex.is_ascii()) else {
        return false;
    };
    let byte = |at: usize| hex.get(2 * at..2 * at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    let Some(bytes) = (0..32).map(byte).collect::<Option<Vec<u8>>>() else { return false };
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, secret), text, &bytes).is_ok()
}
