//! `agentsh policy bundle try`: what a bundle would have refused of what was recorded, here or on every host of a
//! fleet.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::Keys;
use crate::cli::fleet::Fleet;
use agentsh_authoring::CommandContext;
use agentsh_authoring::bundle::{open, organisation};
use agentsh_authoring::replay::{self, ReplayedItem};
use agentsh_policy::{Answer, Bundle, PathContext, Policy, Question};
use agentsh_store::{Reader, escape};
use agentsh_terminal::output::{Context, Failure, NO, OK};

/// Maximum number of sessions that are examined, the newest ones.
const MAX_SESSIONS: u64 = 20_000;
/// Stands for "no bundle" in place of a bundle's name.
const NONE: &str = "none";
/// A path at which there is no file.
const MISSING_DIRECTORY: &str = "/nonexistent";

#[derive(Debug, Args)]
pub(super) struct Attempt {
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// How far back
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=3650))]
    days: u16,
    #[command(flatten)]
    keys: Keys,
    /// On the hosts of this fleet server instead of here; their users' own policies are not considered
    #[arg(long, value_name = "URL")]
    fleet: Option<String>,
    /// The bundle to compare with, instead of the one stored here; `none`: no bundle
    #[arg(long, value_name = "FILE|none", requires = "fleet")]
    against: Option<PathBuf>,
    /// Only on this host of the fleet
    #[arg(long, value_name = "NAME", requires = "fleet")]
    host: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What would be refused: the key is the actor and the action; the value is how often, in how many sessions, and by
/// which rule.
type RefusalCounts = BTreeMap<(String, String), (u64, u64, String)>;

struct HostReplay {
    host: String,
    sessions: u64,
    calls: u64,
    refused: RefusalCounts,
    /// There are more sessions than were examined.
    is_cut: bool,
}

pub(super) async fn attempt(
    args: &Attempt,
    place: &CommandContext,
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    let bundle = open(&args.file, &args.keys.public_key, place)?;
    let since = Timestamp::now().checked_sub(SignedDuration::from_hours(24 * i64::from(args.days)));
    let since = since.map_err(|error| Failure::Usage(error.to_string()))?;
    let against = ComparedBundle::of(args, &bundle, place)?;
    let mut judge = Judge { place, bundle: &bundle, against: &against, policies: BTreeMap::new() };
    let mut all = Vec::new();
    if let Some(url) = &args.fleet {
        let mut fleet = Fleet::at(url, args.host.as_deref(), &Context::of_process()?)?;
        for (id, host) in fleet.host_names().await? {
            fleet.narrow(&id);
            let (mut reader, is_cut) = fleet.events_since(since, &replay::KINDS).await?;
            let looked = judge.replay_host(host, &mut reader, since).await?;
            all.push(HostReplay { is_cut: is_cut || looked.is_cut, ..looked });
        }
    } else {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        all.push(match Reader::open(&place.state).await? {
            Some(mut reader) => judge.replay_host(host, &mut reader, since).await?,
            None => HostReplay { host, sessions: 0, calls: 0, refused: RefusalCounts::new(), is_cut: false },
        });
    }
    if args.json {
        let about = json!({
            "bundle": bundle.name, "version": bundle.version, "days": args.days, "against": against.as_json(),
        });
        let value = match (&args.fleet, all.first()) {
            (None, Some(here)) => merge_objects(about, here.as_json()),
            _ => merge_objects(
                about,
                json!({"hosts": all.iter().map(HostReplay::as_json).collect::<Vec<_>>()}),
            ),
        };
        writeln!(out, "{value}")?;
    } else {
        let name = escape::line(&bundle.name);
        writeln!(out, "'{name}' version {} is compared with {}", bundle.version, against.description())?;
        for one in &all {
            one.write(args, out)?;
        }
    }
    Ok(if all.iter().all(|one| one.refused.is_empty()) { OK } else { NO })
}

fn merge_objects(mut one: Value, other: Value) -> Value {
    if let (Some(one), Value::Object(other)) = (one.as_object_mut(), other) {
        one.extend(other);
    }
    one
}

impl HostReplay {
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
        let cut = if self.is_cut { "; more was not examined" } else { "" };
        writeln!(
            out,
            "{host}: of {} calls and connections in {} sessions of {} days, {} kinds that are allowed now would \
             be refused{cut}",
            self.calls,
            self.sessions,
            args.days,
            self.refused.len()
        )?;
        Ok(())
    }
}

enum ComparedBundle {
    /// On the record of this machine: what is in force here, with this bundle of the organisation.
    Here(Option<Bundle>),
    /// On the records of other machines, with the bundle in force there, and its file.
    Fleet(Option<(Bundle, PathBuf)>),
}

impl ComparedBundle {
    fn of(args: &Attempt, bundle: &Bundle, place: &CommandContext) -> Result<Self, Failure> {
        let named = organisation(place)?;
        let failed = |error: agentsh_policy::PolicyError| Failure::Failed(error.to_string());
        if args.fleet.is_none() {
            let found = named.map(|named| named.in_force(Timestamp::now())).transpose().map_err(failed)?;
            return Ok(Self::Here(found.map(|(bundle, _)| bundle)));
        }
        match &args.against {
            Some(none) if none.as_os_str() == NONE => return Ok(Self::Fleet(None)),
            Some(file) => {
                return Ok(Self::Fleet(Some((open(file, &args.keys.public_key, place)?, file.clone()))));
            }
            None => {}
        }
        let unknown = |why: &str| {
            Failure::Usage(format!(
                "the bundle in force on the hosts is not known: {why}; give that bundle as `--against FILE`, or `--against none` \
                 where none is in force"
            ))
        };
        let named = named.ok_or_else(|| unknown("no organisation is configured here"))?;
        if named.name != bundle.name {
            let (here, other) = (escape::line(&named.name), escape::line(&bundle.name));
            return Err(unknown(&format!(
                "the organisation here is '{here}', but the bundle is for '{other}'"
            )));
        }
        let kept = named.bundle().map_err(failed)?;
        let kept = kept.ok_or_else(|| unknown("no bundle of the organisation was fetched here yet"))?;
        Ok(Self::Fleet(Some((kept, named.kept()))))
    }

    fn is_fleet(&self) -> bool {
        matches!(self, Self::Fleet(_))
    }

    fn as_json(&self) -> Value {
        match self {
            Self::Here(None) | Self::Fleet(None) => Value::Null,
            Self::Here(Some(bundle)) => json!({"bundle": bundle.name, "version": bundle.version}),
            Self::Fleet(Some((bundle, file))) => {
                json!({"bundle": bundle.name, "version": bundle.version, "file": file})
            }
        }
    }

    fn description(&self) -> String {
        let named = |bundle: &Bundle| format!("'{}' version {}", escape::line(&bundle.name), bundle.version);
        match self {
            Self::Here(None) => "what is in force here: no bundle".to_owned(),
            Self::Here(Some(bundle)) => format!("what is in force here: {}", named(bundle)),
            Self::Fleet(None) => "what is allowed without a bundle".to_owned(),
            Self::Fleet(Some((bundle, file))) => {
                format!("{} ({})", named(bundle), escape::line(&file.display().to_string()))
            }
        }
    }
}

/// Policies as they are, and as they would be with the bundle: by agent and project.
struct Judge<'p> {
    place: &'p CommandContext,
    bundle: &'p Bundle,
    against: &'p ComparedBundle,
    policies: BTreeMap<(&'static str, PathBuf), (Policy, Policy)>,
}

impl<'p> Judge<'p> {
    async fn replay_host(
        &mut self,
        host: String,
        reader: &mut Reader,
        since: Timestamp,
    ) -> Result<HostReplay, Failure> {
        let mut looked =
            HostReplay { host, sessions: 0, calls: 0, refused: RefusalCounts::new(), is_cut: false };
        for (number, session) in (0_u64..).zip(reader.sessions(MAX_SESSIONS + 1).await?) {
            // A transferred session is in the requested period, even if the clock of its host is wrong.
            let is_old = session.last_at.parse::<Timestamp>().is_ok_and(|at| at < since);
            if is_old && !self.against.is_fleet() {
                continue;
            }
            if number >= MAX_SESSIONS {
                looked.is_cut = true;
                break;
            }
            let agent = session.agent.first().map_or("", |word| word.rsplit('/').next().unwrap_or(word));
            let agent =
                agentsh_policy::AGENTS.iter().find(|known| **known == agent).copied().unwrap_or("default");
            let project = match self.against {
                ComparedBundle::Here(_) => PathBuf::from(session.project.clone().unwrap_or_default()),
                ComparedBundle::Fleet(_) => PathBuf::from(MISSING_DIRECTORY),
            };
            let key = (agent, project.clone());
            if !self.policies.contains_key(&key) {
                let both = self.current_and_candidate(agent, &project)?;
                self.policies.insert(key.clone(), both);
            }
            let Some((now, then)) = self.policies.get(&key) else { continue };
            looked.sessions += 1;
            let context = PathContext { home: self.place.home.clone(), project };
            let tally = reader.tally(session.session).await?;
            for one in replay::replayed_items(&tally) {
                looked.calls += one.times;
                let answer = one.ask(then, &context);
                let is_open_now = || {
                    one.ask(now, &context).allow
                        || (self.against.is_fleet() && is_locked(&one, &answer, then))
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

    /// The policy in force for an agent in a project, and the one that would be.
    fn current_and_candidate(&self, agent: &str, project: &Path) -> Result<(Policy, Policy), Failure> {
        let here = agentsh_policy::Search { project: project.to_owned(), ..self.place.search(None, agent) };
        let failed = |error: agentsh_policy::PolicyError| Failure::Failed(error.to_string());
        let (search, now) = match self.against {
            ComparedBundle::Here(_) => {
                let now = agentsh_policy::find(&here).map_err(failed)?;
                (here, now)
            }
            ComparedBundle::Fleet(in_force) => {
                let (config_home, system) =
                    (PathBuf::from(MISSING_DIRECTORY), Path::new(MISSING_DIRECTORY).join("policy.yaml"));
                let search = agentsh_policy::Search { config_home, system, ..here };
                let now = match in_force {
                    Some((bundle, _)) => agentsh_policy::find_with(&search, bundle),
                    None => agentsh_policy::find(&search),
                };
                (search, now.map_err(failed)?)
            }
        };
        let then = agentsh_policy::find_with(&search, self.bundle).map_err(failed)?.policy;
        Ok((now.policy, then))
    }
}

/// Whether the rule that let it through on its host conflicts with the bundle: it is in a section that the bundle
/// locks, whichever layer wrote it. What agentsh itself gave, such as the endpoint of a model, is in no section.
fn is_locked(one: &ReplayedItem, answer: &Answer, then: &Policy) -> bool {
    let section = match (&one.question, &one.server) {
        (Question::Connect(..), None) => "agent.network",
        (Question::Connect(..), Some(_)) => "sandbox.mcp.servers",
        _ => answer.rule.id.split('[').next().unwrap_or_default(),
    };
    then.is_locked(section) && one.by.as_ref().is_none_or(|rule| rule.line > 0)
}
