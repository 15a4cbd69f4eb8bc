//! `agentsh policy explain`: answers one question with its rule.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use clap::Args;

use crate::package::ServerFacts;
use crate::{CommandContext, PolicySelection};
use agentsh_base::json::Json;
use agentsh_base::types::{RuleRef, ServerId};
use agentsh_guard::{Guard, Outcome, SubjectKind};
use agentsh_host::project_sources::ApprovedSources;
use agentsh_host::{registries, remotes};
use agentsh_model::endpoints::of_endpoints;
use agentsh_policy::{Answer, PathContext, Policy, ProcessPolicy, Question, Ruled};
use agentsh_store::escape;
use agentsh_terminal::exit::{FAILED, NO};
use agentsh_terminal::output::Failure;

/// Grants outside the policy, which the answer therefore lacks.
const FROM_COMMAND: &str = "this answer covers the policy only: when the server starts, it can also read and \
    write the paths on its command line and what its profile takes from its arguments and variables";

/// Programs that inspect other processes.
const TRACERS: [&str; 7] = ["gdb", "gdbserver", "lldb", "strace", "ltrace", "perf", "rr"];
const TRACING: &str =
    "it reaches only processes of its own sandbox, not those of this machine, other servers or the agent";

#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Ask for this MCP server instead of the agent
    #[arg(long, value_name = "ID")]
    server: Option<String>,
    /// Arguments of the tool call
    #[arg(long, value_name = "JSON", requires = "tool")]
    arguments: Option<String>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct QuestionArgs {
    /// Open a connection
    #[arg(long, value_name = "HOST:PORT")]
    connect: Option<String>,
    /// Read a file
    #[arg(long, value_name = "PATH")]
    read: Option<String>,
    /// Write or create a file
    #[arg(long, value_name = "PATH")]
    write: Option<String>,
    /// Execute a program
    #[arg(long, value_name = "PATH")]
    exec: Option<String>,
    /// See an environment variable
    #[arg(long, value_name = "NAME")]
    env: Option<String>,
    /// Call a tool
    #[arg(long, value_name = "SERVER/TOOL")]
    tool: Option<String>,
    /// Data from the first server in a call to the second
    #[arg(long, num_args = 2, value_names = ["FROM", "TO"])]
    pub flow: Vec<String>,
    /// Say what each check finds in a text; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub content: Option<PathBuf>,
}

/// An answer, and whose it is.
pub struct Explained {
    pub answer: Answer,
    /// The policy that answers.
    pub source: String,
    known: ServerFacts,
    note: Option<&'static str>,
    beware: Option<String>,
    /// The profile's reason.
    reason: Option<String>,
    /// The named server, if it is unknown.
    unknown: Option<ServerId>,
}

impl Explained {
    /// `arguments`: those of a call that is asked about, as JSON.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn of(
        which: &PolicySelection,
        from: Option<ServerId>,
        question: Question,
        arguments: Option<&str>,
        place: &CommandContext,
    ) -> Result<Self, String> {
        let question = from_here(question, place);
        let mut policy = place.policy(which).map_err(|error| error.render())?;
        as_started(&mut policy, &which.agent, place);
        let known = match (&which.profile, &from) {
            (Some(_), None) => {
                return Err("error: a profile belongs to a server: add `--server ID`\n".to_owned());
            }
            (Some(name), Some(_)) => ServerFacts::named(name, place),
            (None, Some(id)) => ServerFacts::of_server(id, &policy, place).await,
            (None, None) => Ok(ServerFacts::default()),
        };
        let known = known.map_err(|error| format!("error: {error}\n"))?;
        let unknown = from.clone().filter(|id| !known.is_known && !policy.mcp.servers.contains_key(id));
        let profile = known.profile.as_ref();
        let mut answer = policy.ask_with(from.as_ref(), profile, &question, &place.context());
        if let (Some(server), Question::Tool(tool), true) = (&from, &question, answer.allow) {
            let arguments = arguments.map(|text| agentsh_base::json::read(text.as_bytes())).transpose();
            let arguments = arguments.map_err(|why| format!("error: --arguments is not JSON: {why}\n"))?;
            called(&policy, server, tool, arguments.as_ref(), &mut answer);
        }
        let beware = answer.change.as_ref().filter(|_| !answer.allow);
        Ok(Self {
            note: note(from.is_some(), &answer, &question),
            beware: beware.and_then(|_| agentsh_policy::beware(&question, &place.context())),
            reason: profile.and_then(|profile| profile.reason(&answer.rule)).map(str::to_owned),
            source: policy.source,
            answer,
            known,
            unknown,
        })
    }

    /// The remarks below the answer.
    pub fn remarks(&self) -> Vec<String> {
        let beware = self.beware.as_ref().map(|beware| format!("beware: {beware}"));
        let reason = self.reason.as_ref().map(|reason| format!("why: {reason}"));
        let note = self.note.map(|note| format!("note: {note}"));
        [beware, reason, self.known.source_of_answer(), note].into_iter().flatten().collect()
    }

    fn json(&self) -> serde_json::Value {
        let answer = &self.answer;
        let mut whole = json!({
            "allow": answer.allow, "rule": answer.rule, "text": answer.text, "change": answer.change,
            "policy": self.source,
        });
        let more = [
            ("reason", self.reason.as_deref()),
            ("profile", self.known.profile.as_ref().map(|profile| profile.file.as_str())),
            ("package", self.known.package.as_deref()),
            ("note", self.note),
            ("beware", self.beware.as_deref()),
        ];
        for (key, value) in more {
            if let (Some(value), Some(fields)) = (value, whole.as_object_mut()) {
                fields.insert(key.to_owned(), value.into());
            }
        }
        whole
    }
}

/// Exit code 0: allowed; 1: denied; 125: not a question.
pub async fn explain(
    which: &PolicySelection,
    of: &ServerArgs,
    args: &QuestionArgs,
    json: bool,
    place: &CommandContext,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    let server = of.server.as_deref();
    let (from, question) = match question_of(server, args) {
        Ok(asked) => asked,
        Err(why) => {
            writeln!(err, "error: {why}")?;
            return Ok(FAILED);
        }
    };
    let explained = match Explained::of(which, from, question, of.arguments.as_deref(), place).await {
        Ok(explained) => explained,
        Err(why) => {
            write!(err, "{why}")?;
            return Ok(FAILED);
        }
    };
    if let Some(id) = explained.unknown.as_ref().filter(|_| server.is_some()) {
        writeln!(
            err,
            "note: no server '{}' is pinned or in the policy: this is the answer for any unknown server",
            escape::line(&id.0)
        )?;
    }
    if json {
        writeln!(out, "{}", explained.json())?;
    } else {
        write!(out, "{}", explained.answer)?;
        for remark in explained.remarks() {
            writeln!(out, "  {remark}")?;
        }
    }
    Ok(if explained.answer.allow { 0 } else { NO })
}

/// The verdicts of the checks about a call that the lists let pass. Checks that count over time, or over calls, find nothing
/// in a single one.
fn called(policy: &Policy, server: &ServerId, tool: &str, arguments: Option<&Json<'_>>, answer: &mut Answer) {
    let matter = SubjectKind::Call { tool, hash: None, arguments, unlisted: false };
    let decision = Guard::without_lists(&policy.mcp).decide(server, matter, Duration::ZERO);
    let Some(found) = decision.deciding_finding() else { return };
    answer.rule = found.verdict.rule.clone();
    answer.change = None;
    answer.allow = decision.verdict.outcome != Outcome::Block;
    answer.text = match decision.verdict.outcome {
        Outcome::Ask => format!("a person is asked first: {}", found.what),
        Outcome::Alert => format!("{}: an alert is recorded", found.what),
        _ => found.what.clone(),
    };
}

/// Below the top of a repository a path counts from where it was typed.
fn from_here(question: Question, place: &CommandContext) -> Question {
    if place.directory == place.project {
        return question;
    }
    let typed = PathContext { home: place.home.clone(), project: place.directory.clone() };
    let whole = |text: &str| agentsh_policy::place::resolve(text, &typed).display().to_string();
    match question {
        Question::Read(text) => Question::Read(whole(&text)),
        Question::Write(text) => Question::Write(whole(&text)),
        Question::Exec(text) if text.contains('/') => Question::Exec(whole(&text)),
        other => other,
    }
}

/// Rights that a start adds to the policy: the model's addresses, sources of the project, and the variables of the agent's own
/// account.
fn as_started(policy: &mut Policy, agent: &str, place: &CommandContext) {
    let kind = agentsh_agents::Kind::of(agent);
    let argv = [agent.to_owned()];
    let env: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let context = agentsh_agents::Context {
        argv: &argv,
        env: &env,
        home: &place.home,
        project: &place.project,
        cwd: &place.project,
        bridge: "",
        socket: "",
        inject_dir: Path::new("/"),
        generic_config: None,
        extra: &BTreeMap::new(),
        agreed: &BTreeSet::new(),
        told: None,
    };
    // An agent that cannot be started has no connections: then the policy alone answers.
    if let Ok(launch) = agentsh_agents::adapt(kind, &context) {
        let part = of_endpoints(&launch.endpoints, |_| false);
        part.hosts.into_iter().for_each(|host| policy.agent.network.insert(host));
        part.loopback.into_iter().for_each(|port| policy.agent.network.open_loopback(port));
        // The answer does not say to which addresses a name may resolve.
        let own = policy.agent.network.allow.iter_mut().filter(|rule| rule.rule.file == "agent");
        own.for_each(|rule| rule.value.addresses.clear());
    }
    open_sources(&mut policy.agent, place);
    for pattern in kind.own_environment() {
        let names = env.keys().filter(|name| agentsh_policy::glob::matches(pattern, name));
        let rule =
            |name: &str| RuleRef { id: format!("{name} of {agent}"), file: "agent".to_owned(), line: 0 };
        policy.agent.env.allow.extend(names.map(|name| Ruled { value: name.clone(), rule: rule(name) }));
    }
}

/// The registries and remotes of the project, as a session opens them.
fn open_sources(agent: &mut ProcessPolicy, place: &CommandContext) {
    let Ok(context) = agentsh_host::Context::find() else { return };
    let is_here = context.home == place.home && context.project == place.project;
    if !is_here || agentsh_host::facts::lists_programs(agent) {
        return;
    }
    let known = ApprovedSources::of(&context);
    let parts = [registries::contribution(&context, &[], known), remotes::contribution(&context, known)];
    parts.into_iter().flat_map(|part| part.hosts).for_each(|host| agent.network.insert(host));
}

/// A note about what the policy does not decide.
fn note(of_server: bool, answer: &Answer, question: &Question) -> Option<&'static str> {
    match question {
        Question::Read(_) | Question::Write(_) if of_server && !answer.allow => Some(FROM_COMMAND),
        Question::Exec(text) if answer.allow => {
            let name = text.rsplit('/').next().unwrap_or(text);
            TRACERS.contains(&name).then_some(TRACING)
        }
        _ => None,
    }
}

/// The subject and the question.
fn question_of(server: Option<&str>, args: &QuestionArgs) -> Result<(Option<ServerId>, Question), String> {
    let from = server.map(|id| ServerId(id.to_owned()));
    if let Some(text) = &args.tool {
        return match (agentsh_policy::tool(text), from) {
            (Some((named, _)), Some(from)) if named != from => {
                Err(format!("--server is `{from}`, but --tool names `{named}`"))
            }
            (Some((named, question)), _) => Ok((Some(named), question)),
            (None, Some(from)) => Ok((Some(from), Question::Tool(text.clone()))),
            (None, None) => Err(format!("which server's tool is `{text}`? write SERVER/TOOL")),
        };
    }
    let question = match (&args.connect, &args.read, &args.write, &args.exec, &args.env) {
        (Some(text), ..) => agentsh_policy::connect(text)?,
        (_, Some(text), ..) => Question::Read(text.clone()),
        (_, _, Some(text), ..) => Question::Write(text.clone()),
        (_, _, _, Some(text), _) => Question::Exec(text.clone()),
        (.., Some(text)) if text.is_empty() || text.contains('=') => {
            return Err(format!("'{text}' is not a variable name: write --env NAME"));
        }
        (.., Some(text)) => Question::Env(text.clone()),
        _ => return Err(
            "name what to explain: --connect, --read, --write, --exec, --env, --tool, --flow or --content"
                .to_owned(),
        ),
    };
    Ok((from, question))
}
