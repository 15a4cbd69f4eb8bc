//! `agentsh policy allow`: adds the rule for a host, path, tool or variable to a policy file.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::CommandContext;
use crate::edit;
use crate::package::ServerFacts;
use agentsh_base::types::ServerId;
use agentsh_host::named_files;
use agentsh_policy::builtin_paths::OWN_DIRECTORIES;
use agentsh_policy::mcp::AGENT;
use agentsh_policy::{Answer, HostPattern, PROJECT_FILE, Policy, PolicyError, Question, Search, domain};
use agentsh_store::escape;
use agentsh_terminal::output::{Failure, OK};
use agentsh_terminal::style;

/// Pieces that one question may need: that a server is started, and that its tool is called.
const MAX_PIECES: usize = 4;
/// Mode of a policy file that is made.
const MODE: u32 = 0o600;
/// Replaces the `*` of a host when the policy is asked about it.
const ANY_LABEL: &str = "any";

#[derive(Debug, Args)]
pub struct AllowArgs {
    /// A host (`example.com`, `example.com:8443`, `*.example.com`, `localhost:5432`), a path that begins with `/`, `~` or
    /// `.`, or a tool as SERVER/TOOL
    #[arg(value_name = "HOST|PATH|SERVER/TOOL", required_unless_present_any = ["tool", "env"])]
    words: Vec<String>,
    /// The arguments are paths, and may be written too
    #[arg(long)]
    write: bool,
    /// The argument is a tool, even if it looks like a host or path
    #[arg(long, value_name = "SERVER/TOOL")]
    tool: Vec<String>,
    /// An environment variable
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,
    /// For this MCP server instead of for the agent
    #[arg(long, value_name = "ID")]
    server: Option<String>,
    /// The file to change; by default your own: ~/.config/agentsh/policy.yaml
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Show what would change, and write nothing
    #[arg(long, alias = "dry-run")]
    print: bool,
}

/// One host, path, variable or tool to allow.
struct AllowItem {
    /// In words.
    what: String,
    from: Option<ServerId>,
    question: Question,
    /// The text that is added for a pattern, which is checked with an example.
    piece: Option<String>,
}

/// Exit status 0: it is allowed now; 1: it stays denied, and nothing is written.
pub async fn allow(
    args: &AllowArgs,
    place: &CommandContext,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    let wants = parse_items(args, place).map_err(Failure::Failed)?;
    let file = File::of(args.file.as_deref(), place)?;
    let before = edit::read(&file.path)?;
    let mut after = before.clone();
    let mut lines = Vec::new();
    for want in &wants {
        let (text, answer) = file.add_item(after.clone(), want, place).await?;
        let line = last_new_line(&after, &text).to_owned();
        after = text;
        lines.push((want, answer, line));
    }
    if after == before {
        let out = &mut style::prose(out);
        for (want, answer, _) in lines {
            writeln!(out, "{} already: {}, by {}", want.what, escape::line(&answer.text), answer.rule)?;
        }
        return Ok(OK);
    }
    edit::show(out, &file.path, &before, &after)?;
    for (want, ..) in &lines {
        if let Some(beware) = agentsh_policy::beware(&want.question, &place.context()) {
            writeln!(err, "beware: {beware}")?;
        }
    }
    for (want, ..) in &lines {
        if let Question::Write(path) = &want.question
            && let Err(rustix::io::Errno::ACCESS | rustix::io::Errno::ROFS) =
                rustix::fs::access(path.as_str(), rustix::fs::Access::WRITE_OK)
        {
            writeln!(err, "you may not write {} yourself, so the agent cannot either", escape::line(path))?;
        }
    }
    if args.print {
        writeln!(err, "nothing was written")?;
        return Ok(OK);
    }
    edit::replace(&file.path, &before, &after, MODE)?;
    let out = &mut style::prose(out);
    for (want, answer, line) in lines {
        // What was added after it may have moved it.
        let place = after.lines().zip(1..).find(|(other, _)| !line.is_empty() && *other == line);
        let number = place.map_or(answer.rule.line.max(1), |(_, number)| number);
        writeln!(out, "{}: {}:{number}", want.what, file.path.display())?;
    }
    writeln!(err, "this applies to sessions that start from now on")?;
    Ok(OK)
}

/// The last of the lines that were added to a file at one place: the entry, below the sections that it needs.
fn last_new_line<'t>(before: &str, after: &'t str) -> &'t str {
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let same =
        before.iter().rev().zip(after.iter().rev()).take_while(|(before, after)| before == after).count();
    after[..after.len() - same].last().copied().unwrap_or_default()
}

/// The file that is changed.
struct File {
    path: PathBuf,
    /// The file is not read by default: it has to be named with `--policy`.
    is_named: bool,
}

impl File {
    fn of(named: Option<&Path>, place: &CommandContext) -> Result<Self, Failure> {
        let own = place.config_home.join("agentsh");
        let user = own.join("policy.yaml");
        let Some(named) = named else { return Ok(Self { path: user, is_named: false }) };
        let path = std::path::absolute(named)
            .map_err(|error| Failure::Failed(format!("cannot tell where {} is: {error}", named.display())))?;
        let others = [
            user,
            own.join(agentsh_policy::APPROVED_FILE),
            place.project.join(PROJECT_FILE),
            place.system.clone(),
        ];
        Ok(Self { is_named: !others.contains(&path), path })
    }

    /// The policy in force with this text in the file; empty: without the file.
    fn policy(&self, text: &str, place: &CommandContext) -> Result<Policy, PolicyError> {
        let explicit = Some(self.path.display().to_string()).filter(|_| self.is_named && !text.is_empty());
        let proposed = Some((self.path.clone(), text.to_owned())).filter(|_| !text.is_empty());
        agentsh_policy::load(&Search { proposed, ..place.search(explicit, "default") })
    }

    /// The text with what is needed, and the answer that the policy then gives.
    async fn add_item(
        &self,
        mut text: String,
        want: &AllowItem,
        place: &CommandContext,
    ) -> Result<(String, Answer), Failure> {
        let unusable = |error: PolicyError| {
            let text = error.render();
            Failure::Failed(text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned())
        };
        let mut policy = self.policy(&text, place).map_err(unusable)?;
        for _ in 0..MAX_PIECES {
            let answer = ask(&policy, want, place).await?;
            let is_named = match (&want.from, &want.question) {
                // No rule forbids them, but what the provider does for one may need its name.
                (Some(server), Question::Tool(tool)) if server.0 == AGENT => {
                    policy.mcp.own_tool_allowed(tool).is_some()
                }
                _ => true,
            };
            if answer.allow && is_named {
                return Ok((text, answer));
            }
            let Some(piece) = want.piece.as_ref().or(answer.change.as_ref()) else {
                return Err(self.stays_closed(want, &answer, &policy));
            };
            check(want, piece, place)?;
            let more = agentsh_policy::edit::merge(&self.path.display().to_string(), &text, piece)
                .map_err(unusable)?;
            if more == text {
                return Err(self.stays_closed(want, &answer, &policy));
            }
            // Other layers may prevent it: an organisation locks a section, or a test expects something else.
            policy = self.policy(&more, place).map_err(|error| {
                let why = error.render();
                let mut lines = why.strip_prefix("error: ").unwrap_or(&why).lines();
                let (first, help) = (lines.next().unwrap_or_default(), lines.last().unwrap_or_default());
                let help = help.trim_start().strip_prefix("= help: ").map(|help| format!("; {help}"));
                Failure::No(format!("nothing was written: {first}{}", help.unwrap_or_default()))
            })?;
            text = more;
        }
        Err(Failure::No(format!("nothing was written: {} even with the new rule", want.what)))
    }

    fn stays_closed(&self, want: &AllowItem, answer: &Answer, policy: &Policy) -> Failure {
        let project = policy.layers.iter().find(|(_, layer)| layer.word == "project").map(|(file, _)| file);
        let deciding = Some(&answer.rule.file).filter(|_| answer.rule.line > 0).or(project);
        let other = deciding.filter(|file| Path::new(file) != self.path);
        let advice = match (&answer.change, other) {
            (Some(_), Some(file)) => format!("; {file} overrides it: add `--file {file}`"),
            _ if answer.rule.line > 0 => {
                format!("; remove line {} of {}", answer.rule.line, answer.rule.file)
            }
            _ => String::new(),
        };
        Failure::No(format!(
            "{} is not possible: {}, by {}{advice}; nothing was written",
            want.what, answer.text, answer.rule
        ))
    }
}

async fn ask(policy: &Policy, want: &AllowItem, place: &CommandContext) -> Result<Answer, Failure> {
    let known = match &want.from {
        Some(id) => ServerFacts::of_server(id, policy, place)
            .await
            .map_err(|error| Failure::Failed(error.to_string()))?,
        None => ServerFacts::default(),
    };
    let answer =
        policy.ask_with(want.from.as_ref(), known.profile.as_ref(), &want.question, &place.context());
    // The files that a session here would guard.
    Ok(match agentsh_host::Context::find() {
        Ok(here) => named_files::deny_named_file(&here, policy, want.from.as_ref(), &want.question, answer),
        Err(_) => answer,
    })
}

/// Paths whose grant would change nothing.
fn check(want: &AllowItem, piece: &str, place: &CommandContext) -> Result<(), Failure> {
    let (Question::Read(text) | Question::Write(text)) = &want.question else { return Ok(()) };
    let path = agentsh_policy::place::resolve(text, &place.context());
    let shown = escape::line(text);
    let own = OWN_DIRECTORIES.iter().map(|own| place.home.join(own));
    if own.chain([place.state.clone(), place.config_home.join("agentsh")]).any(|own| path.starts_with(own)) {
        return Err(Failure::No(format!(
            "{shown} belongs to agentsh: no sandbox ever sees it; nothing was written"
        )));
    }
    let is_pattern = text.contains(['*', '?']);
    // A file that runs automatically may be created inside, so it need not exist yet.
    if !is_pattern && !piece.contains("unmask: [") && path.symlink_metadata().is_err() {
        return Err(Failure::No(format!("there is no {shown}; nothing was written")));
    }
    Ok(())
}

/// The meaning of the command line.
fn parse_items(args: &AllowArgs, place: &CommandContext) -> Result<Vec<AllowItem>, String> {
    let from = args.server.as_ref().map(|id| ServerId(id.clone()));
    let mut wants = Vec::new();
    for word in &args.words {
        let is_there = || place.directory.join(word).exists();
        let shown = escape::line(word);
        wants.push(if args.write || is_path(word) {
            path(word, args.write, from.clone(), place)
        } else if is_host(word) {
            host(word, from.clone())?
        } else if is_there() {
            return Err(format!("'{shown}' is a path: write ./{shown}; a tool of that name: --tool {shown}"));
        } else if word.contains('/') {
            tool(word, from.as_ref())?
        } else {
            return Err(format!(
                "'{shown}' is not a host, path or SERVER/TOOL; a path begins with `/`, `~` or `.`"
            ));
        });
    }
    for word in &args.tool {
        wants.push(tool(word, from.as_ref())?);
    }
    for name in &args.env {
        if name.is_empty() || name.contains(['=', '*', '?']) || name.chars().any(char::is_control) {
            return Err(format!("'{}' is not a variable name", escape::line(name)));
        }
        let what = format!("{} may see {name}", subject_name(from.as_ref()));
        wants.push(AllowItem {
            what,
            from: from.clone(),
            question: Question::Env(name.clone()),
            piece: None,
        });
    }
    if args.write && args.words.is_empty() {
        return Err("--write belongs to a path".to_owned());
    }
    Ok(wants)
}

fn subject_name(from: Option<&ServerId>) -> String {
    from.map_or_else(|| "the agent".to_owned(), |id| format!("server '{}'", escape::line(&id.0)))
}

fn is_path(word: &str) -> bool {
    word.starts_with(['/', '~', '.'])
}

fn is_host(word: &str) -> bool {
    let is_block = |text: &str| !text.contains('/') || domain::parse_pattern(text).is_ok();
    word.contains("://")
        || word == "localhost"
        || word.contains(['.', ':']) && domain::split_port(word).map_or(true, |(host, _)| is_block(host))
}

fn tool(word: &str, from: Option<&ServerId>) -> Result<AllowItem, String> {
    let shown = escape::line(word);
    let (server, question) =
        agentsh_policy::tool(word).ok_or_else(|| format!("'{shown}' is not a tool: write SERVER/TOOL"))?;
    if word.chars().any(char::is_control) {
        return Err(format!("'{shown}' is not a tool: its name has a control character"));
    }
    if from.is_some_and(|from| *from != server) {
        return Err(format!("--server names a different server than '{shown}'"));
    }
    let piece = match &question {
        Question::Tool(tool) if server.0 == AGENT => Some(agentsh_policy::own_tool_entry(tool)),
        _ => None,
    };
    Ok(AllowItem { what: format!("{shown} may be called"), from: Some(server), question, piece })
}

/// Below the top of a repository a path counts from where it was typed; in the home it is written with `~`.
fn path(word: &str, write: bool, from: Option<ServerId>, place: &CommandContext) -> AllowItem {
    let typed = agentsh_policy::PathContext { home: place.home.clone(), project: place.directory.clone() };
    let whole = agentsh_policy::place::resolve(word, &typed);
    let below = |root: &Path| whole.strip_prefix(root).ok().map(|rest| rest.display().to_string());
    let text = match (below(&place.project), below(&place.home)) {
        (Some(rest), _) if rest.is_empty() => ".".to_owned(),
        (Some(rest), _) => rest,
        (None, Some(rest)) if rest.is_empty() => "~".to_owned(),
        (None, Some(rest)) => format!("~/{rest}"),
        (None, None) => whole.display().to_string(),
    };
    let may = if write { "read and write" } else { "read" };
    let what = format!("{} may {may} {}", subject_name(from.as_ref()), escape::line(&text));
    AllowItem {
        what,
        from,
        question: if write { Question::Write(text) } else { Question::Read(text) },
        piece: None,
    }
}

fn host(word: &str, from: Option<ServerId>) -> Result<AllowItem, String> {
    let shown = escape::line(word);
    let (bare, default) = match word.split_once("://") {
        Some((scheme, rest)) => {
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            (authority, if scheme == "http" { 80 } else { 443 })
        }
        None => (word, 443),
    };
    let no_host = |error: domain::HostError| format!("'{shown}' is not a host, path or SERVER/TOOL: {error}");
    let (name, port) = domain::split_port(bare).map_err(no_host)?;
    let local = domain::normalise(name).is_ok_and(|host| host.is_local());
    if local && port.is_none() {
        return Err(format!("which port of this machine? write {shown}:PORT"));
    }
    let port = port.unwrap_or(default);
    // Of an address only the host counts.
    let host = if word.contains("://") { escape::line(bare) } else { shown.clone() };
    let what = format!("{} may connect to {host}", subject_name(from.as_ref()));
    if local {
        return Ok(AllowItem { what, from, question: Question::Connect(name.to_owned(), port), piece: None });
    }
    let example = match domain::parse_pattern(name).map_err(no_host)? {
        HostPattern::Exact(name) => name,
        HostPattern::OneLabel(name) | HostPattern::AnyDepth(name) => format!("{ANY_LABEL}.{name}"),
        HostPattern::Net(address, _) => address.to_string(),
    };
    let entry = agentsh_policy::allow_entry(name, port).unwrap_or_default();
    let piece = Some(agentsh_policy::allow_line(from.as_ref(), &entry));
    Ok(AllowItem { what, from, question: Question::Connect(example, port), piece })
}
