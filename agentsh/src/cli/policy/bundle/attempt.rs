//! `agentsh policy bundle try`: what a bundle would have refused of what is on record, here or on every host of a fleet.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::Surroundings;
use super::super::tried::{self, Tried};
use super::{Keys, open, organisation};
use crate::cli::fleet::Fleet;
use crate::cli::output::{Context, Failure, NO, OK};
use crate::policy::{self, Answer, Bundle, PathContext, Policy, Question};
use crate::store::{Reader, escape};

/// Sessions that are looked at, the newest ones.
const MOST_SESSIONS: u64 = 20_000;
/// Where no file of anybody stands.
const NOWHERE: &str = "/nonexistent";

#[derive(Debug, Args)]
pub(super) struct Attempt {
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// How far back
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=3650))]
    days: u16,
    #[command(flatten)]
    keys: Keys,
    /// On the hosts of this fleet server instead of here; policies of their own users are not known there
    #[arg(long, value_name = "URL")]
    fleet: Option<String>,
    /// On this host of the fleet alone
    #[arg(long, value_name = "NAME", requires = "fleet")]
    host: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What would be refused: who did it, what, how often, in how many sessions, and by which rule.
type Refused = BTreeMap<(String, String), (u64, u64, String)>;

/// The record of one host.
struct Looked {
    host: String,
    sessions: u64,
    calls: u64,
    refused: Refused,
    /// There is more than was looked at.
    is_cut: bool,
}

pub(super) async fn attempt(
    args: &Attempt,
    place: &Surroundings,
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    let bundle = open(&args.file, &args.keys, place)?;
    let since = Timestamp::now().checked_sub(SignedDuration::from_hours(24 * i64::from(args.days)));
    let since = since.map_err(|error| Failure::Usage(error.to_string()))?;
    let mut judge = Judge::of(place, &bundle, args.fleet.is_some())?;
    let mut all = Vec::new();
    if let Some(url) = &args.fleet {
        let mut fleet = Fleet::at(url, args.host.as_deref(), &Context::of_process()?)?;
        for (id, host) in fleet.named().await? {
            fleet.narrow(&id);
            let (mut reader, is_cut) = fleet.since(since, &tried::KINDS).await?;
            all.push(Looked { is_cut, ..judge.look(host, &mut reader, since).await? });
        }
    } else {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        all.push(match Reader::open(&place.state).await? {
            Some(mut reader) => judge.look(host, &mut reader, since).await?,
            None => Looked { host, sessions: 0, calls: 0, refused: Refused::new(), is_cut: false },
        });
    }
    if args.json {
        let about = json!({"bundle": bundle.name, "version": bundle.version, "days": args.days});
        let value = match (&args.fleet, all.first()) {
            (None, Some(here)) => joined(about, here.as_json()),
            _ => joined(about, json!({"hosts": all.iter().map(Looked::as_json).collect::<Vec<_>>()})),
        };
        writeln!(out, "{value}")?;
    } else {
        for one in &all {
            one.write(args, out)?;
        }
    }
    Ok(if all.iter().all(|one| one.refused.is_empty()) { OK } else { NO })
}

fn joined(mut one: Value, other: Value) -> Value {
    if let (Some(one), Value::Object(other)) = (one.as_object_mut(), other) {
        one.extend(other);
    }
    one
}

impl Looked {
    fn as_json(&self) -> Value {
        let list: Vec<Value> = self
            .refused
            .iter()
            .map(|((who, what), (times, sessions, rule))| {
                json!({"who": who, "what": what, "times": times, "sessions": sessions, "rule": rule})
            })
            .collect();
        json!({"host": self.host, "sessions": self.sessions, "looked_at": self.calls, "refused": list, "cut": self.is_cut})
    }

    fn write(&self, args: &Attempt, out: &mut dyn Write) -> Result<(), Failure> {
        let host = escape::line(&self.host);
        let on = if args.fleet.is_some() { format!("{host}: ") } else { String::new() };
        for ((who, what), (times, sessions, rule)) in &self.refused {
            let (who, what) = (escape::line(who), escape::line(what));
            writeln!(
                out,
                "{on}would be refused: {who}: {what}, {times} times in {sessions} sessions, by {rule}"
            )?;
        }
        let cut = if self.is_cut { "; older ones were not looked at" } else { "" };
        writeln!(
            out,
            "{host}: of {} calls and connections in {} sessions of {} days, {} kinds would be refused that are not now{cut}",
            self.calls,
            self.sessions,
            args.days,
            self.refused.len()
        )?;
        Ok(())
    }
}

/// Whose record is looked at.
enum On {
    Here,
    /// That of other machines; what is in force of the organisation, as far as it is known here.
    Fleet(Option<Bundle>),
}

/// Policies as they are, and as they would be with the bundle: by agent and project.
struct Judge<'p> {
    place: &'p Surroundings,
    bundle: &'p Bundle,
    on: On,
    policies: BTreeMap<(&'static str, PathBuf), (Policy, Policy)>,
}

impl<'p> Judge<'p> {
    fn of(place: &'p Surroundings, bundle: &'p Bundle, is_fleet: bool) -> Result<Self, Failure> {
        let on = if is_fleet {
            let found = organisation(place)?.map(|named| named.in_force(Timestamp::now()));
            // An organisation of which nothing was fetched yet has nothing in force.
            On::Fleet(found.and_then(Result::ok).map(|(bundle, _)| bundle))
        } else {
            On::Here
        };
        Ok(Self { place, bundle, on, policies: BTreeMap::new() })
    }

    async fn look(&mut self, host: String, reader: &mut Reader, since: Timestamp) -> Result<Looked, Failure> {
        let mut looked = Looked { host, sessions: 0, calls: 0, refused: Refused::new(), is_cut: false };
        for session in reader.sessions(MOST_SESSIONS).await? {
            if session.last_at.parse::<Timestamp>().is_ok_and(|at| at < since) {
                continue;
            }
            let agent = session.agent.first().map_or("", |word| word.rsplit('/').next().unwrap_or(word));
            let agent = policy::AGENTS.iter().find(|known| **known == agent).copied().unwrap_or("default");
            let project = match self.on {
                On::Here => PathBuf::from(session.project.clone().unwrap_or_default()),
                On::Fleet(_) => PathBuf::from(NOWHERE),
            };
            let key = (agent, project.clone());
            if !self.policies.contains_key(&key) {
                let both = self.both(agent, &project)?;
                self.policies.insert(key.clone(), both);
            }
            let Some((now, then)) = self.policies.get(&key) else { continue };
            looked.sessions += 1;
            let context = PathContext { home: self.place.home.clone(), project };
            let tally = reader.tally(session.session).await?;
            for one in tried::of(&tally) {
                looked.calls += one.times;
                let answer = one.ask(then, &context);
                let is_open_now = || {
                    one.ask(now, &context).allow
                        || (matches!(self.on, On::Fleet(_)) && is_locked(&one, &answer, then))
                };
                if one.passed && !answer.allow && is_open_now() {
                    let who = one.server.as_ref().map_or("the agent".to_owned(), |id| id.0.clone());
                    let new = (0, 0, answer.rule.to_string());
                    let sum = looked.refused.entry((who, one.what.clone())).or_insert(new);
                    *sum = (sum.0 + one.times, sum.1 + 1, std::mem::take(&mut sum.2));
                }
            }
        }
        Ok(looked)
    }

    /// What is in force for an agent in a project, and what would be.
    fn both(&self, agent: &str, project: &Path) -> Result<(Policy, Policy), Failure> {
        let here = policy::Search { project: project.to_owned(), ..self.place.search(None, agent) };
        let failed = |error: policy::PolicyError| Failure::Failed(error.to_string());
        let (search, now) = match &self.on {
            On::Here => {
                let now = policy::find(&here).map_err(failed)?;
                (here, now)
            }
            On::Fleet(in_force) => {
                let (config_home, system) = (PathBuf::from(NOWHERE), Path::new(NOWHERE).join("policy.yaml"));
                let search = policy::Search { config_home, system, ..here };
                let now = match in_force {
                    Some(bundle) => policy::find_with(&search, bundle),
                    None => policy::find(&search),
                };
                (search, now.map_err(failed)?)
            }
        };
        let then = policy::find_with(&search, self.bundle).map_err(failed)?.policy;
        Ok((now.policy, then))
    }
}

/// Whether what let it through on its host cannot stand beside the bundle: whoever wrote that, it is in a section that the bundle
/// locks. What agentsh itself gave, such as the endpoint of a model, stands in no section.
fn is_locked(one: &Tried, answer: &Answer, then: &Policy) -> bool {
    let section = match (&one.question, &one.server) {
        (Question::Connect(..), None) => "agent.network",
        (Question::Connect(..), Some(_)) => "sandbox.mcp.servers",
        _ => answer.rule.id.split('[').next().unwrap_or_default(),
    };
    then.is_locked(section) && one.by.as_ref().is_none_or(|rule| rule.line > 0)
}
