//! `agentsh approvals`: questions of running sessions, and the answers.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::fleet::FleetApprovals;
use super::ui::rows::SessionOwner;
use agentsh_approvals::{Item, SocketReply, SocketRequest};
use agentsh_authoring::CommandContext;
use agentsh_store::words::ApprovalScope;
use agentsh_store::{Reader, escape};
use agentsh_terminal::output::{Context, Failure, OK, json, table};

#[derive(Clone, Debug, Args)]
pub struct ApprovalsArgs {
    /// Questions of all hosts of a fleet server; answering needs the role approver
    #[arg(long, value_name = "URL", global = true)]
    fleet: Option<String>,
    /// Without one: list
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Clone, Debug, Subcommand)]
enum Verb {
    /// List pending questions
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one question in full: arguments as they were sent, the rule that asks, time left
    Show {
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Approve a question, once or for longer
    Approve {
        id: String,
        /// For this call only; the default
        #[arg(long, group = "scope")]
        once: bool,
        /// Also for the same call with the same arguments, for the rest of the session
        #[arg(long, group = "scope")]
        session: bool,
        /// In every session: adds the narrowest policy rule, and shows it
        #[arg(long, group = "scope")]
        always: bool,
        /// With --always: for any arguments, or for any data from one server to the other
        #[arg(long, requires = "always")]
        any_arguments: bool,
    },
    /// Deny a question; the same call is refused for the rest of the session
    Deny { id: String },
}

/// Exit status 0: done; 1: there is no such question; 125: a session does not answer.
pub async fn run(
    args: ApprovalsArgs,
    context: &Context,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    let verb = args.verb.unwrap_or(Verb::List { json: false });
    match args.fleet {
        None => answer(verb, context, out, err).await,
        Some(url) => at_fleet(&url, verb, context, out, err).await,
    }
}

async fn answer(
    verb: Verb,
    context: &Context,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    let waiting = waiting(&context.state_dir, err).await?;
    match verb {
        Verb::List { json: true } => {
            let items: Vec<&Item> = waiting.iter().map(|(_, item)| item).collect();
            json(out, &items)?;
        }
        Verb::List { json: false } if waiting.is_empty() => {
            writeln!(err, "no pending approvals")?;
        }
        Verb::List { json: false } => list(&waiting, &owners(context).await?, context, out)?,
        Verb::Show { id, json: as_json } => {
            let (_, item) = find(&waiting, &id)?;
            if as_json {
                json(out, item)?;
            } else {
                let owner = owners(context).await?.remove(&item.session);
                show(item, owner.as_deref(), context, out)?;
            }
        }
        Verb::Approve { id, session, always, any_arguments, once: _ } => {
            let (path, item) = find(&waiting, &id)?;
            let scope = match (session || item.is_withheld(), always) {
                (_, true) => ApprovalScope::Always,
                (true, _) => ApprovalScope::Session,
                _ => ApprovalScope::Once,
            };
            // The permanent approval comes first: an answer without it would look permanent.
            let line = always.then(|| lasting(item, any_arguments)).transpose()?;
            decide(path, item, true, scope).await?;
            let until = if item.is_withheld() && !always { ", for the session" } else { "" };
            writeln!(out, "approved: {}{until}", question_subject(item))?;
            if let Some(line) = line {
                writeln!(out, "{line}")?;
            }
        }
        Verb::Deny { id } => {
            let (path, item) = find(&waiting, &id)?;
            decide(path, item, false, ApprovalScope::Session).await?;
            writeln!(out, "denied: {}", question_subject(item))?;
        }
    }
    Ok(OK)
}

/// The same of all hosts of a fleet.
async fn at_fleet(
    url: &str,
    verb: Verb,
    context: &Context,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    let fleet = FleetApprovals::at(url, context)?;
    let waiting = fleet.waiting().await?;
    match verb {
        Verb::List { json: true } => json(out, &waiting)?,
        Verb::List { json: false } if waiting.is_empty() => {
            writeln!(err, "no pending approvals")?;
        }
        Verb::List { json: false } => {
            let now = context.now.as_second();
            let rows = waiting.iter().map(|one| {
                let left = one.waiting.expires_at.saturating_sub(now).max(0);
                let short = one.waiting.id.get(..8).unwrap_or_default().to_owned();
                let item = &one.item;
                vec![
                    short,
                    one.waiting.host_name.clone(),
                    call(item),
                    item.why.clone(),
                    format!("{left} s"),
                    item.rule.clone(),
                ]
            });
            table(out, context, &["id", "host", "call", "why", "left", "rule"], rows.collect())?;
        }
        Verb::Show { id, json: as_json } => {
            let one = FleetApprovals::find(&waiting, &id)?;
            if as_json {
                json(out, one)?;
            } else {
                writeln!(out, "{:<10} {}", "host", escape::line(&one.waiting.host_name))?;
                show(&one.item, None, context, out)?;
            }
        }
        Verb::Approve { always: true, .. } => {
            let why = "--always changes the policy of a host, so it works on the host only; a fleet can answer once or for the session";
            return Err(Failure::Usage(why.to_owned()));
        }
        Verb::Approve { id, session, .. } => {
            let one = FleetApprovals::find(&waiting, &id)?;
            fleet.answer(one, true, if session { "session" } else { "once" }).await?;
            writeln!(
                out,
                "approved: {} on {}",
                question_subject(&one.item),
                escape::line(&one.waiting.host_name)
            )?;
        }
        Verb::Deny { id } => {
            let one = FleetApprovals::find(&waiting, &id)?;
            fleet.answer(one, false, "session").await?;
            writeln!(
                out,
                "denied: {} on {}",
                question_subject(&one.item),
                escape::line(&one.waiting.host_name)
            )?;
        }
    }
    Ok(OK)
}

/// What a question is about, in a list.
fn call(item: &Item) -> String {
    match item.host.as_ref().or(item.path.as_ref()) {
        Some(_) => item.name.clone(),
        None => format!("{}/{}", item.server, item.name),
    }
}

fn question_subject(item: &Item) -> String {
    let name = escape::line(&item.name);
    match (&item.host, &item.path) {
        (Some(_), _) => format!("connections to '{name}'"),
        (_, Some(_)) => format!("the change of '{name}'"),
        _ => format!("'{name}' of server '{}'", escape::line(&item.server)),
    }
}

/// Every question of every session, with the session's socket.
async fn waiting(state: &Path, err: &mut dyn Write) -> Result<Vec<(PathBuf, Item)>, Failure> {
    let mut found = Vec::new();
    for path in agentsh_approvals::sockets(state) {
        match agentsh_approvals::ask(&path, &SocketRequest::List).await {
            None => {}
            Some(Ok(SocketReply::Waiting(items))) => {
                found.extend(items.into_iter().map(|item| (path.clone(), item)));
            }
            Some(Ok(SocketReply::Refused(why))) => return Err(Failure::Failed(why)),
            Some(Ok(SocketReply::Answered(_))) => {}
            // Another session may be fine.
            Some(Err(error)) => writeln!(err, "cannot ask a session ({}): {error}", path.display())?,
        }
    }
    Ok(found)
}

fn find<'w>(waiting: &'w [(PathBuf, Item)], id: &str) -> Result<(&'w Path, &'w Item), Failure> {
    let found = waiting.iter().find(|(_, item)| item.id == id);
    found.map(|(path, item)| (path.as_path(), item)).ok_or_else(|| {
        Failure::No(format!(
            "no pending question '{}'; `agentsh approvals list` shows them",
            escape::line(id)
        ))
    })
}

async fn decide(path: &Path, item: &Item, approve: bool, scope: ApprovalScope) -> Result<(), Failure> {
    let asking = SocketRequest::Answer { id: item.id.clone(), approve, scope };
    match agentsh_approvals::ask(path, &asking).await {
        Some(Ok(SocketReply::Answered(true))) => Ok(()),
        Some(Ok(SocketReply::Refused(why))) => Err(Failure::Failed(why)),
        Some(Err(error)) => Err(Failure::Failed(format!("cannot ask the session: {error}"))),
        Some(Ok(_)) | None => Err(Failure::No(format!("'{}' is no longer pending", item.id))),
    }
}

/// The agent and the project of each session, by its id.
async fn owners(context: &Context) -> Result<BTreeMap<String, String>, Failure> {
    let Some(mut reader) = Reader::open(&context.state_dir).await? else { return Ok(BTreeMap::new()) };
    let home = CommandContext::from_environment().map(|place| place.context().home);
    let home = home.unwrap_or_default();
    let known = SessionOwner::newest_sessions(&mut reader).await?;
    Ok(known.into_iter().map(|(id, owner)| (id.to_string(), owner.display_text(&home))).collect())
}

fn list(
    waiting: &[(PathBuf, Item)],
    owners: &BTreeMap<String, String>,
    context: &Context,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let now = context.now.as_second();
    let rows = waiting.iter().map(|(_, item)| {
        let left = i64::try_from(item.expires_at).unwrap_or(i64::MAX).saturating_sub(now).max(0);
        let owner = owners.get(&item.session).cloned().unwrap_or_default();
        vec![item.id.clone(), owner, call(item), item.why.clone(), format!("{left} s"), item.rule.clone()]
    });
    table(out, context, &["id", "agent", "call", "why", "left", "rule"], rows.collect())?;
    Ok(())
}

fn show(item: &Item, owner: Option<&str>, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let left =
        i64::try_from(item.expires_at).unwrap_or(i64::MAX).saturating_sub(context.now.as_second()).max(0);
    let what = match &item.path {
        Some(_) => "file",
        None if item.host.is_some() => "host",
        None if item.is_withheld() => "offers",
        None => "call",
    };
    let is_call = item.host.is_none() && item.path.is_none();
    for (name, value) in [
        ("id", item.id.as_str()),
        ("session", &item.session),
        ("client", item.client.as_deref().or(owner).unwrap_or("the agent")),
        ("server", &item.server),
        (what, &item.name),
        ("carries", item.from.as_deref().unwrap_or("nothing of another server")),
        ("why", &item.why),
        ("rule", &item.rule),
        ("interface", item.interface.as_deref().unwrap_or("never listed")),
        ("arguments", &item.arguments_hash),
    ] {
        // A question about a host or file has no server and no tool, and about a host no arguments.
        let is_about_it = match name {
            "server" | "carries" | "interface" => is_call,
            "arguments" => item.host.is_none(),
            _ => true,
        };
        if !is_about_it {
            continue;
        }
        writeln!(out, "{name:<10} {}", escape::line(value))?;
    }
    for line in item.arguments.lines() {
        writeln!(out, "           {}", escape::line(line))?;
    }
    writeln!(out, "{:<10} {left} s", "left")?;
    Ok(())
}

/// Writes down what lasts.
fn lasting(item: &Item, any_arguments: bool) -> Result<String, Failure> {
    let place = agentsh_authoring::CommandContext::from_environment();
    let place = place.map_err(|error| Failure::Failed(format!("cannot save it: {error}")))?;
    agentsh_approvals::remember(&place.config_home, item, any_arguments).map_err(Failure::Failed)
}
