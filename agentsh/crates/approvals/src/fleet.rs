//! Shows questions at the fleet server, where an approver may answer. They can still be answered here; the first
//! answer counts. An unreachable server is asked again until the question expires.

use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use agentsh_base::random;
use agentsh_fleet::keys;
use agentsh_fleet::wire::{Ask, QuestionStatus};
use agentsh_fleet::{Client, ClientError};
use agentsh_store::words::ApprovalScope;

use super::{Approvals, Item};
use agentsh_content::content::since_1970;
use agentsh_fleet::key_files;
use agentsh_host::outgoing;
use agentsh_host::{Facts, Record};

/// Between two looks for an answer.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// After a failure: from, to.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// How long the end of a question may take to say that it is over.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Characters of a name that is put on record, with who it is at an identity provider: as many as the server keeps.
const MAX_NAME: usize = 1000;

#[derive(Clone)]
pub struct Fleet(Rc<Client>);

/// A question at the server; dropped, it is taken back.
pub struct PendingQuestion {
    _over: oneshot::Sender<()>,
}

impl Fleet {
    /// None: the fleet is not asked. An unusable setting is reported.
    #[must_use]
    pub fn of(facts: &Facts, record: &Record) -> Option<Self> {
        let approvals = &facts.policy.mcp.approvals;
        let written = approvals.fleet.as_ref().filter(|_| approvals.asks_the_fleet())?;
        match client(facts) {
            Ok(client) => Some(Self(Rc::new(client))),
            Err(why) => {
                record.note(&format!("cannot ask the fleet, as {} requires: {why}", written.rule));
                None
            }
        }
    }

    /// Asks until there is an answer, or the question is over. Must be called inside a `LocalSet`.
    pub fn ask(&self, approvals: &Approvals, item: &Item) -> Option<PendingQuestion> {
        let (client, approvals, item) = (Rc::clone(&self.0), approvals.clone(), item.clone());
        let ask = Ask {
            id: random::hex::<16>().ok()?,
            question: serde_json::to_string(&item.for_others()).ok()?,
            expires_at: i64::try_from(item.expires_at).ok()?,
        };
        let (over, is_over) = oneshot::channel::<()>();
        agentsh_base::task::spawn_local(async move {
            tokio::select! {
                // Dropped, or never sent on: it ends both ways.
                _ = is_over => {
                    let path = format!("/v1/asks/{}/over", ask.id);
                    let nothing = serde_json::json!({});
                    let told = client.post::<Value>(&path, &nothing);
                    // Without this message the server notices by itself that the question is over.
                    let _may_be_untold = timeout(DRAIN_TIMEOUT, told).await;
                }
                answer = until_answered(&client, &ask) => match answer {
                    Ok((is_yes, scope, by)) => {
                        approvals.answer(&item.id, is_yes, scope, by);
                    }
                    Err(why) => {
                        approvals.0.session.record.note(&format!("the fleet did not answer question {}: {why}", item.id));
                    }
                },
            }
        });
        Some(PendingQuestion { _over: over })
    }
}

fn client(facts: &Facts) -> Result<Client, String> {
    let host = key_files::enrolled_host(&facts.context.state)
        .ok_or("this host is not enrolled: `agentsh fleet enrol --url URL --token TOKEN`")?;
    Client::host(outgoing::client()?, &host).map_err(|error| error.to_string())
}

async fn until_answered(client: &Client, ask: &Ask) -> Result<super::Answer, String> {
    let (mut wait, mut is_there) = (RETRY_DELAYS.0, false);
    let mut last = "it was not asked in time".to_owned();
    let answer = format!("/v1/asks/{}/answer", ask.id);
    loop {
        if since_1970().as_secs() >= u64::try_from(ask.expires_at).unwrap_or_default() {
            return Err(last);
        }
        let said: Result<Option<QuestionStatus>, ClientError> = if is_there {
            client.get(&answer).await.map(Some)
        } else {
            client.post::<Value>("/v1/asks", ask).await.map(|_| None)
        };
        match said {
            Ok(said) => {
                (wait, is_there) = (RETRY_DELAYS.0, true);
                "nobody answered there".clone_into(&mut last);
                if let Some(answer) = said.map(|said| judge(ask, said)).transpose()?.flatten() {
                    return Ok(answer);
                }
                sleep(POLL_INTERVAL).await;
            }
            Err(error) if error.is_final() => return Err(error.to_string()),
            Err(error) => {
                last = error.to_string();
                sleep(wait).await;
                wait = (wait * 2).min(RETRY_DELAYS.1);
            }
        }
    }
}

/// An answer counts when it is about the letters of this question.
fn judge(ask: &Ask, said: QuestionStatus) -> Result<Option<super::Answer>, String> {
    let is_yes = match said.state.as_str() {
        "waiting" => return Ok(None),
        "approved" => true,
        "denied" => false,
        _ => return Err("it is no longer pending there".to_owned()),
    };
    if said.bound != keys::digest(ask.question.as_bytes()) {
        return Err("its answer is for another question".to_owned());
    }
    let scope = match said.scope.as_str() {
        "session" => ApprovalScope::Session,
        "once" => ApprovalScope::Once,
        _ => return Err("its answer has an unknown scope".to_owned()),
    };
    let by: String = said.by.chars().filter(|letter| !letter.is_control()).take(MAX_NAME).collect();
    Ok(Some((is_yes, scope, format!("fleet: {by}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fleet_answer_to_another_question_does_not_count() {
        let ask = Ask { id: "a".repeat(32), question: "may I?".to_owned(), expires_at: 0 };
        let said = |state: &str, question: &str| QuestionStatus {
            state: state.to_owned(),
            scope: "once".to_owned(),
            by: "abe\n".to_owned(),
            bound: keys::digest(question.as_bytes()),
        };
        assert_eq!(judge(&ask, said("waiting", "may I?")), Ok(None));
        let yes = judge(&ask, said("approved", "may I?"));
        assert_eq!(yes, Ok(Some((true, ApprovalScope::Once, "fleet: abe".to_owned()))));
        assert!(judge(&ask, said("approved", "may we?")).is_err());
        assert!(judge(&ask, said("over", "may I?")).is_err());
        assert!(
            judge(&ask, QuestionStatus { scope: "always".to_owned(), ..said("approved", "may I?") }).is_err()
        );
    }
}
