//! `agentsh policy check|show|explain|allow|test`: what is written, what is in force, and why.

mod allow;
pub(in crate::cli) mod bundle;
mod content;
mod explain;
mod flow;
pub mod generate;
mod init;
mod lint;
mod listing;
mod package;
mod profiles;
mod reference;
mod tools;
pub(in crate::cli) mod tried;

pub(in crate::cli) use explain::Explained;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use agentsh_base::types::RuleRef;
use agentsh_host::toolchains::Toolchains;
use agentsh_policy::{
    Answer, Diagnostic, Named, PathContext, Policy, PolicyError, PolicyTest, Ruled, Search, ServerProfile,
    find, find_named, profile, tests,
};
use agentsh_store::escape;
use agentsh_terminal::exit::{FAILED, NO};

#[derive(Debug, Args)]
pub struct PolicyArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Check policies and profiles and run their tests; by default those in force here
    Check {
        /// A file, or the name of a built-in policy or of a server's profile
        #[arg(value_name = "FILE|NAME")]
        names: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the policy in force here, and where each part comes from
    Show {
        /// The name of a built-in policy or of a server's profile
        #[arg(value_name = "NAME", conflicts_with_all = ["policy", "profile", "profiles"])]
        name: Option<String>,
        #[command(flatten)]
        which: Which,
        /// List the profiles of servers: name, package, hosts
        #[arg(long, conflicts_with_all = ["policy", "profile"])]
        profiles: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Tell whether something is allowed, by which rule, and how to change it (exit 0: allowed, 1: denied)
    #[command(override_usage = "agentsh policy explain [OPTIONS] --connect <HOST:PORT>\n       \
                                agentsh policy explain [OPTIONS] --read|--write|--exec <PATH>\n       \
                                agentsh policy explain [OPTIONS] --env <NAME>|--tool <SERVER/TOOL>\n       \
                                agentsh policy explain [OPTIONS] --flow <FROM> <TO>\n       \
                                agentsh policy explain [OPTIONS] --content <FILE> [--subject <SUBJECT>]")]
    Explain {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        of: OfServer,
        #[command(flatten)]
        question: QuestionArgs,
        #[command(flatten)]
        text: content::ContentArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Allow hosts, paths, tools or variables: adds a rule to your policy and shows it (exit 1: still denied)
    Allow(allow::AllowArgs),
    /// Write a commented policy to start from; never overwrites a file
    Init {
        /// By default your own: ~/.config/agentsh/policy.yaml
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Print the policy that a session needed: servers, tools with the hashes of their definitions, hosts
    Generate {
        /// A session id, the beginning of one, or `latest`
        #[arg(value_name = "SESSION", default_value = "latest")]
        session: String,
        /// A new file for the policy
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Sign, check, fetch and try the policy of an organisation
    Bundle(bundle::BundleArgs),
    /// Print the reference of every key as Markdown
    Reference,
    /// Print a JSON schema of policies, for editors
    Schema,
    /// Run the `tests:` of a policy or profile and print every answer
    Test {
        /// A file, or the name of a built-in policy or of a server's profile
        #[arg(value_name = "FILE|NAME")]
        name: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(super) struct Which {
    /// A policy file, or the name of a built-in policy
    #[arg(long, value_name = "FILE|NAME")]
    policy: Option<String>,
    /// The agent whose built-in policy is used if there is no other
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = agentsh_policy::AGENTS)]
    agent: String,
    /// The profile of a server's package; `explain` finds that of a pinned or configured server by itself
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
}

impl Which {
    /// What is in force here, whatever agent is started.
    pub(super) fn in_force() -> Self {
        Self { policy: None, agent: "default".to_owned(), profile: None }
    }
}

#[derive(Debug, Args)]
struct OfServer {
    /// Ask for this MCP server instead of the agent
    #[arg(long, value_name = "ID")]
    server: Option<String>,
    /// Arguments of the tool call
    #[arg(long, value_name = "JSON", requires = "tool")]
    arguments: Option<String>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct QuestionArgs {
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
    flow: Vec<String>,
    /// Say what each check finds in a text; `-` is standard input
    #[arg(long, value_name = "FILE")]
    content: Option<PathBuf>,
}

/// Where the command runs.
#[derive(Clone, Debug)]
pub struct Surroundings {
    pub project: PathBuf,
    /// Where it was typed: paths of a question count from here.
    pub directory: PathBuf,
    pub home: PathBuf,
    /// What holds for every user of this machine.
    pub system: PathBuf,
    /// `$XDG_CONFIG_HOME`, by default `~/.config`.
    pub config_home: PathBuf,
    /// Where the pins are: `$XDG_STATE_HOME/agentsh`, by default `~/.local/state/agentsh`.
    pub state: PathBuf,
    /// Tells where toolchains lie.
    pub env: BTreeMap<String, String>,
}

impl Surroundings {
    /// From the environment of this process.
    ///
    /// # Errors
    /// When the working directory is gone.
    pub fn here() -> io::Result<Self> {
        let home = std::env::home_dir().unwrap_or_else(|| PathBuf::from("/nonexistent"));
        // The specification of XDG asks to ignore a path that is not absolute.
        let base = |name: &str, default: &str| {
            let configured = std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
            configured.unwrap_or_else(|| home.join(default))
        };
        let config_home = base("XDG_CONFIG_HOME", ".config");
        let state = base("XDG_STATE_HOME", ".local/state").join("agentsh");
        let (directory, system) = (std::env::current_dir()?, agentsh_policy::SYSTEM_FILE.into());
        let project = agentsh_host::context::project_of(&directory, &home);
        let variables = std::env::vars_os();
        let mut env = variables
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        agentsh_host::context::without_shims(&mut env);
        Ok(Self { project, directory, home, system, config_home, state, env })
    }

    /// What is in force here, whatever agent is started.
    ///
    /// # Errors
    /// A policy that cannot be read.
    pub(super) fn in_force(&self) -> Result<Policy, PolicyError> {
        let Which { policy, agent, .. } = Which::in_force();
        agentsh_policy::load(&self.search(policy, &agent))
    }

    fn search(&self, explicit: Option<String>, agent: &str) -> Search {
        Search {
            explicit,
            project: self.project.clone(),
            config_home: self.config_home.clone(),
            system: self.system.clone(),
            state: self.state.clone(),
            agent: agent.to_owned(),
            ..Search::default()
        }
    }

    pub fn context(&self) -> PathContext {
        PathContext { home: self.home.clone(), project: self.project.clone() }
    }
}

/// Runs the command; data goes to `out`, everything else to `err`. Returns the exit code: 0, 1 for "no", 125 when
/// there is no answer.
pub async fn run(args: &PolicyArgs, place: &Surroundings, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let mut folded;
    let out: &mut dyn Write = match &args.verb {
        Verb::Check { json: false, .. }
        | Verb::Explain { json: false, .. }
        | Verb::Test { json: false, .. } => {
            folded = agentsh_terminal::style::prose(out);
            &mut folded
        }
        _ => out,
    };
    let done = match &args.verb {
        Verb::Check { names, json } => check(names, *json, place, out, err),
        Verb::Show { profiles: true, json, .. } => profiles::list(&place.config_home, *json, out, err),
        Verb::Show { name, which, json, .. } => show(name.as_deref(), which, *json, place, out, err).await,
        Verb::Explain { which, question: QuestionArgs { content: Some(file), .. }, text, json, .. } => {
            content::explain(which, file, text, *json, place, out, err)
        }
        Verb::Explain { which, question, json, .. } if !question.flow.is_empty() => {
            flow::explain(which, &question.flow, *json, place, out, err).await
        }
        Verb::Explain { which, of, question, json, .. } => {
            explain::explain(which, of, question, *json, place, out, err).await
        }
        Verb::Allow(args) => {
            let done = allow::allow(args, place, out, err).await;
            return agentsh_terminal::output::finish(done, err);
        }
        Verb::Init { file } => init::init(file.as_deref(), place, out, err),
        Verb::Generate { session, output } => {
            let generated = generate::generate(session, output.as_deref(), out).await;
            return agentsh_terminal::output::finish(generated, err);
        }
        Verb::Bundle(args) => {
            let done = bundle::run(args, place, out).await;
            return agentsh_terminal::output::finish(done, err);
        }
        Verb::Reference => write!(out, "{}", reference::markdown()).map(|()| 0),
        Verb::Schema => writeln!(out, "{:#}", reference::schema()).map(|()| 0),
        Verb::Test { name, json } => test(name.as_deref(), *json, place, out, err),
    };
    match done {
        Ok(code) => code,
        // A reader that went away has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(error) => {
            let _ = writeln!(err, "error: cannot write the answer: {error}");
            FAILED
        }
    }
}

fn check(
    names: &[String],
    json: bool,
    place: &Surroundings,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let found: Vec<(&str, Result<Named, PolicyError>)> = if names.is_empty() {
        let in_force = find(&place.search(None, "default")).map(|loaded| Named::Policy(Box::new(loaded)));
        vec![("the policy in force", in_force)]
    } else {
        names.iter().map(|name| (name.as_str(), find_named(name, &place.config_home))).collect()
    };
    let mut code = 0;
    let mut reports = Vec::new();
    for (name, found) in found {
        match found.and_then(|found| tested(found, place)) {
            Ok(Checked { source, what, warnings }) => {
                for warning in &warnings {
                    writeln!(err, "warning: {}: {}", warning.rule, warning.value)?;
                }
                let warnings: Vec<Value> =
                    warnings.iter().map(|w| json!({"text": w.value, "rule": w.rule})).collect();
                reports.push(json!({"file": source, "ok": true, "warnings": warnings}));
                if !json {
                    writeln!(out, "{source}: ok, {what}")?;
                }
            }
            Err(error) => {
                code = NO;
                let mistakes: Vec<Value> = error.diagnostics().iter().map(diagnostic_json).collect();
                let report =
                    json!({"file": name, "ok": false, "error": error.to_string(), "mistakes": mistakes});
                reports.push(report);
                write!(err, "{}", error.render())?;
            }
        }
    }
    if json {
        writeln!(out, "{}", Value::Array(reports))?;
    }
    Ok(code)
}

/// What holds, with everything its tests expect.
struct Checked {
    source: String,
    what: String,
    warnings: Vec<Ruled<String>>,
}

fn tested(found: Named, place: &Surroundings) -> Result<Checked, PolicyError> {
    Ok(match found {
        Named::Policy(loaded) => {
            let source = loaded.file.clone();
            let what = count(loaded.answers(&place.project).len(), "test");
            let policy = loaded.tested(&place.project)?;
            let absent = |rule: &RuleRef| Ruled {
                value: format!("{}: not in force", agentsh_policy::NO_ENGINE),
                rule: rule.clone(),
            };
            let mut warnings = lint::lint(&policy, &place.context(), place.env.get("PATH"));
            warnings.extend(policy.warnings);
            warnings.extend(policy.mcp.not_enforced.iter().map(absent));
            Checked { source, what, warnings }
        }
        Named::Profile(profile) => {
            let profile = profile.tested()?;
            let what = format!("a profile with {}", count(profile.tests.len(), "test"));
            Checked { source: profile.file, what, warnings: Vec::new() }
        }
    })
}

async fn show(
    name: Option<&str>,
    which: &Which,
    json: bool,
    place: &Surroundings,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let is_in_force = name.is_none() && which.profile.is_none();
    let named = match (name, &which.profile) {
        (Some(name), _) => Some(find_named(name, &place.config_home)),
        (None, Some(name)) => {
            Some(profile::named(name, &place.config_home).map(|found| Named::Profile(Box::new(found))))
        }
        (None, None) => None,
    };
    let policy = match named {
        None => agentsh_policy::load(&place.search(which.policy.clone(), &which.agent)),
        Some(Ok(Named::Profile(profile))) => return profiles::print(&profile, json, out),
        Some(Ok(Named::Policy(loaded))) => loaded.tested(&place.project),
        Some(Err(error)) => Err(error),
    };
    let policy = match policy {
        Ok(policy) => policy,
        Err(error) => return failed(&error, err),
    };
    let lines = policy.lines();
    let tools = if is_in_force { tools::find(&policy, place) } else { Toolchains::default() };
    let labels = if is_in_force { flow::labels(&policy, place).await } else { Ok(Vec::new()) };
    let labels = match labels {
        Ok(labels) => labels,
        Err(why) => {
            writeln!(err, "error: {why}")?;
            return Ok(FAILED);
        }
    };
    if json {
        let parts: Vec<Value> = lines
            .iter()
            .map(|line| {
                let layer = layer_of(&policy, &line.rule);
                json!({"key": line.key, "value": line.value, "rule": line.rule, "layer": layer})
            })
            .collect();
        let warnings: Vec<Value> =
            policy.warnings.iter().map(|w| json!({"text": w.value, "rule": w.rule})).collect();
        let whole = json!({
            "source": policy.source, "parts": parts, "warnings": warnings, "toolchains": tools::json(&tools),
            "labels": labels.iter().map(|l| json!({"key": l.key, "value": l.value, "by": l.by})).collect::<Vec<_>>(),
        });
        writeln!(out, "{whole}")?;
        return Ok(0);
    }
    let width = lines.iter().map(|line| line.key.len() + line.value.len() + 2).filter(|w| *w < 60).max();
    let columns = agentsh_terminal::output::terminal_width().map(usize::from);
    let mut listing =
        listing::Listing { out, columns, aligned: width.unwrap_or_default(), home: &place.home };
    listing.head(&policy.source)?;
    if let Some(found) = &policy.organisation {
        listing.head(&bundle::standing(found))?;
    }
    for line in &lines {
        // Whose word it is says more than the file where somebody else's counts too.
        let layer = match &policy.organisation {
            Some(_) => format!("{}: ", layer_of(&policy, &line.rule)),
            None => String::new(),
        };
        let rule = listing.rule(&line.rule, &line.key);
        listing.line(&format!("{}: {}", line.key, line.value), &format!("{layer}{rule}"))?;
    }
    for flow::Label { key, value, by } in &labels {
        listing.line(&format!("{}: {value}", escape::line(key)), &escape::line(by))?;
    }
    tools::print(&tools, &mut listing)?;
    for warning in &policy.warnings {
        writeln!(err, "warning: {}: {}", warning.rule, warning.value)?;
    }
    Ok(0)
}

/// What the layer is called that a rule comes from.
fn layer_of(policy: &Policy, rule: &RuleRef) -> &'static str {
    policy.layers.get(&rule.file).map_or("default", |layer| layer.word)
}

fn test(
    name: Option<&str>,
    json: bool,
    place: &Surroundings,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let found = match name {
        Some(name) => find_named(name, &place.config_home),
        None => find(&place.search(None, "default")).map(|loaded| Named::Policy(Box::new(loaded))),
    };
    let found = match found {
        Ok(Named::Policy(found)) => found,
        Ok(Named::Profile(profile)) => {
            let answers = profile.answers(&ServerProfile::test_context());
            return print_tests(&profile.file, &answers, json, out);
        }
        Err(error) => {
            write!(err, "{}", error.render())?;
            return Ok(NO);
        }
    };
    let answers = found.answers(&place.project);
    print_tests(&found.file, &answers, json, out)
}

fn print_tests(
    file: &str,
    answers: &[(PolicyTest, Answer)],
    json: bool,
    out: &mut dyn Write,
) -> io::Result<u8> {
    let mut failed = 0;
    let mut reports = Vec::new();
    for (test, answer) in answers {
        let ok = answer.allow == test.expect_allow;
        failed += usize::from(!ok);
        if json {
            reports.push(test_json(test, answer, ok));
        } else {
            let word = if ok { "ok    " } else { "FAILED" };
            let got = if answer.allow { "allow" } else { "deny" };
            let what = tests::describe(test);
            writeln!(
                out,
                "{word} line {}: {what} -> {got}: {} [{}]",
                test.rule.line, answer.text, answer.rule
            )?;
        }
    }
    if json {
        writeln!(out, "{}", Value::Array(reports))?;
    } else {
        writeln!(out, "{file}: {}, {failed} failed", count(answers.len(), "test"))?;
    }
    Ok(if failed == 0 { 0 } else { NO })
}

fn failed(error: &PolicyError, err: &mut dyn Write) -> io::Result<u8> {
    write!(err, "{}", error.render())?;
    Ok(FAILED)
}

fn diagnostic_json(diagnostic: &Diagnostic) -> Value {
    json!({
        "file": diagnostic.file, "line": diagnostic.line, "column": diagnostic.column,
        "message": diagnostic.message, "help": diagnostic.help,
    })
}

fn test_json(test: &PolicyTest, answer: &Answer, ok: bool) -> Value {
    json!({
        "ok": ok, "line": test.rule.line, "test": tests::describe(test), "expect_allow": test.expect_allow,
        "allow": answer.allow, "rule": answer.rule, "text": answer.text,
    })
}

fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod policy_tests;
