//! `agentsh policy bundle try`: what a bundle would have refused of what is on record.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::{Surroundings, tried};
use super::{Keys, open};
use crate::cli::output::{Failure, NO, OK};
use crate::policy::{self, Bundle, PathContext, Policy};
use crate::store::{Reader, escape};

/// Sessions that are looked at, the newest ones.
const MOST_SESSIONS: u64 = 20_000;

/// What would be refused: who did it, what, how often, in how many sessions, and by which rule.
type Refused = BTreeMap<(String, String), (u64, u64, String)>;

pub(super) async fn attempt(
    file: &Path,
    days: u16,
    keys: &Keys,
    as_json: bool,
    place: &Surroundings,
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    let bundle = open(file, keys, place)?;
    let since = Timestamp::now().checked_sub(SignedDuration::from_hours(24 * i64::from(days)));
    let since = since.map_err(|error| Failure::Usage(error.to_string()))?;
    let mut policies = BTreeMap::new();
    let (mut refused, mut sessions, mut calls) = (Refused::new(), 0_u64, 0_u64);
    if let Some(mut reader) = Reader::open(&place.state).await? {
        for session in reader.sessions(MOST_SESSIONS).await? {
            if session.last_at.parse::<Timestamp>().is_ok_and(|at| at < since) {
                continue;
            }
            let agent = session.agent.first().map_or("", |word| word.rsplit('/').next().unwrap_or(word));
            let agent = policy::AGENTS.iter().find(|known| **known == agent).copied().unwrap_or("default");
            let project = PathBuf::from(session.project.clone().unwrap_or_default());
            let key = (agent, project.clone());
            if !policies.contains_key(&key) {
                policies.insert(key.clone(), both(place, agent, &project, &bundle)?);
            }
            let Some((now, then)) = policies.get(&key) else { continue };
            sessions += 1;
            let context = PathContext { home: place.home.clone(), project };
            let tally = reader.tally(session.session).await?;
            for one in tried::of(&tally) {
                calls += one.times;
                let answer = one.ask(then, &context);
                if one.passed && !answer.allow && one.ask(now, &context).allow {
                    let who = one.server.as_ref().map_or("the agent".to_owned(), |id| id.0.clone());
                    let sum = refused.entry((who, one.what)).or_insert((0, 0, answer.rule.to_string()));
                    *sum = (sum.0 + one.times, sum.1 + 1, std::mem::take(&mut sum.2));
                }
            }
        }
    }
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if as_json {
        let list: Vec<Value> = refused
            .iter()
            .map(|((who, what), (times, sessions, rule))| {
                json!({"who": who, "what": what, "times": times, "sessions": sessions, "rule": rule})
            })
            .collect();
        let value = json!({
            "host": host, "bundle": bundle.name, "version": bundle.version, "days": days, "sessions": sessions,
            "looked_at": calls, "refused": list,
        });
        writeln!(out, "{value}")?;
    } else {
        for ((who, what), (times, sessions, rule)) in &refused {
            let (who, what) = (escape::line(who), escape::line(what));
            writeln!(
                out,
                "would be refused: {who}: {what}, {times} times in {sessions} sessions, by {rule}"
            )?;
        }
        writeln!(
            out,
            "{}: of {calls} calls and connections in {sessions} sessions of {days} days, {} kinds would be refused that are \
             not now",
            escape::line(&host),
            refused.len()
        )?;
    }
    Ok(if refused.is_empty() { OK } else { NO })
}

/// What is in force for an agent in a project, and what would be.
fn both(
    place: &Surroundings,
    agent: &str,
    project: &Path,
    bundle: &Bundle,
) -> Result<(Policy, Policy), Failure> {
    let search = policy::Search { project: project.to_owned(), ..place.search(None, agent) };
    let failed = |error: policy::PolicyError| Failure::Failed(error.to_string());
    let now = policy::find(&search).map_err(failed)?.policy;
    let then = policy::find_with(&search, bundle).map_err(failed)?.policy;
    Ok((now, then))
}
