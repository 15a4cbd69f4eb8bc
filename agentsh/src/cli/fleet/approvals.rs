//! Questions of sessions on all hosts, and the answers: for `agentsh approvals --fleet` and for the pages.

use serde::Serialize;
use serde_json::Value;

use super::people::{FleetTarget, failure};
use agentsh_approvals::Item;
use agentsh_fleet::wire::{ApprovalAnswer, Waiting};
use agentsh_fleet::{Client, ClientError};
use agentsh_store::escape;
use agentsh_terminal::output::{Context, Failure};

/// Fewest letters of an id that say which question is meant.
const MIN_COUNT: usize = 4;

/// A fleet server that is asked for questions.
pub(in crate::cli) struct FleetApprovals(Client);

#[derive(Clone, Debug, Serialize)]
pub struct HostQuestion {
    #[serde(flatten)]
    pub waiting: Waiting,
    pub item: Item,
}

impl FleetApprovals {
    pub(in crate::cli) fn at(url: &str, context: &Context) -> Result<Self, Failure> {
        Ok(Self(FleetTarget { fleet: Some(url.to_owned()) }.client(context)?))
    }

    pub async fn waiting(&self) -> Result<Vec<HostQuestion>, Failure> {
        waiting(&self.0).await.map_err(failure)
    }

    /// By its id, or the beginning of one.
    pub(in crate::cli) fn find<'w>(all: &'w [HostQuestion], id: &str) -> Result<&'w HostQuestion, Failure> {
        let mut found = all.iter().filter(|one| id.len() >= MIN_COUNT && one.waiting.id.starts_with(id));
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(one),
            _ => Err(Failure::No(format!(
                "no pending question '{}'; `agentsh approvals list --fleet URL` shows them",
                escape::line(id)
            ))),
        }
    }

    pub async fn answer(&self, one: &HostQuestion, approve: bool, scope: &str) -> Result<(), Failure> {
        let said = ApprovalAnswer { approve, scope: scope.to_owned(), bound: one.waiting.bound.clone() };
        answer(&self.0, &one.waiting.id, &said).await.map_err(failure)
    }
}

/// The pending questions. Entries of hosts that are no valid questions are left out.
pub async fn waiting(client: &Client) -> Result<Vec<HostQuestion>, ClientError> {
    let all: Vec<Waiting> = client.get("/v1/asks").await?;
    let read = |waiting: Waiting| {
        let item = serde_json::from_str(&waiting.question).ok()?;
        Some(HostQuestion { waiting, item })
    };
    Ok(all.into_iter().filter_map(read).collect())
}

pub async fn answer(client: &Client, id: &str, said: &ApprovalAnswer) -> Result<(), ClientError> {
    client.post::<Value>(&format!("/v1/asks/{id}/answer"), said).await.map(drop)
}
