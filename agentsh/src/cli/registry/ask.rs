//! `agentsh registry register|verify|approvals|revoke|log`: the client of a registry.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use super::{Format, interface_summary};
use agentsh_egress::HttpError;
use agentsh_fleet::key_files::{self, LoginFile};
use agentsh_host::outgoing;
use agentsh_policy::FLEET_REGISTRY;
use agentsh_registrar::{Approval, Client, ClientError, Entry, Verdict};
use agentsh_registry::{Interface, difference};
use agentsh_store::escape;
use agentsh_terminal::output::{self, Context, Failure, NO, OK};

/// Registry and token.
#[derive(Clone, Debug, Args)]
pub struct RegistryTarget {
    /// The registry: https, or http on this machine, or `fleet`: that of the server of `agentsh fleet login`; otherwise KIJI_SAFEGUARD_REGISTRY, or http://127.0.0.1:8000
    #[arg(long, value_name = "URL", global = true)]
    pub registry: Option<String>,
    /// A file with the token of an operator
    #[arg(long, value_name = "FILE", global = true)]
    pub token: Option<PathBuf>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Approvals {
    /// List pending requests
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what would change
    Show { id: i64 },
    /// Accept the new interface; it replaces the old one
    Approve {
        id: i64,
        /// The reason, for the log
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Reject the new interface for good
    Reject {
        id: i64,
        /// The reason, for the log
        #[arg(long, default_value = "")]
        reason: String,
    },
}

impl RegistryTarget {
    fn client(&self) -> Result<Client, Failure> {
        let token = self.token.as_ref().map(|path| {
            let text = fs::read_to_string(path);
            let text =
                text.map_err(|error| Failure::Usage(format!("cannot read '{}': {error}", path.display())))?;
            // The last word of the first line: a file that holds the token alone, or a line of the operators' file.
            let token =
                text.lines().next().and_then(|line| line.split_whitespace().last()).map(str::to_owned);
            token.ok_or_else(|| Failure::Usage(format!("there is no token in '{}'", path.display())))
        });
        let named = self.registry.clone().or_else(|| std::env::var("KIJI_SAFEGUARD_REGISTRY").ok());
        let base = named.as_deref().filter(|url| !url.is_empty()).unwrap_or("http://127.0.0.1:8000");
        if base == FLEET_REGISTRY {
            let (url, credential) = RegistryTarget::of_fleet()?;
            let http = outgoing::client().map_err(Failure::Failed)?;
            return Ok(Client::new(http, &format!("{url}/registry"), Some(credential)));
        }
        Ok(Client::new(outgoing::client().map_err(Failure::Failed)?, base, token.transpose()?))
    }
}

impl RegistryTarget {
    /// Address and credential of the fleet login.
    fn of_fleet() -> Result<(String, String), Failure> {
        let context = Context::of_process()?;
        let known: Option<LoginFile> = key_files::read(&key_files::login_file(&context.state_dir))
            .map_err(|error| Failure::Usage(error.to_string()))?;
        let known = known.ok_or_else(|| {
            let why = "not logged in to a fleet: `agentsh fleet login --url URL --token TOKEN`";
            Failure::Usage(why.to_owned())
        })?;
        Ok((known.url.trim_end_matches('/').to_owned(), known.credential))
    }
}

/// Exit status 0: registered; 1: refused.
pub(super) async fn register(
    at: &RegistryTarget,
    interface: &Interface,
    format: Format,
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    at.client()?.register(interface).await.map_err(failure)?;
    let (name, hash) = (escape::line(&interface.name), interface.hash());
    match format {
        Format::Kiji => writeln!(out, "registered '{name}' with hash {hash}")?,
        Format::Text => writeln!(out, "registered kiji1:{hash}  {}", interface_summary(interface))?,
        Format::Json => {
            output::json(out, &json!({ "name": interface.name, "kiji1": hash, "registered": true }))?
        }
    }
    Ok(OK)
}

/// The registered components under the name of an interface, as canonical texts.
pub(super) async fn registered_components(
    at: &RegistryTarget,
    interface: &Interface,
) -> Result<Vec<String>, Failure> {
    match at.client()?.verify(interface).await.map_err(failure)? {
        Verdict::Same => Ok(interface.components.iter().map(|one| one.canonical.clone()).collect()),
        Verdict::Changed { components, .. } => Ok(components),
        Verdict::Unknown { .. } => {
            Err(Failure::No(format!("server '{}' is not registered", escape::line(&interface.name))))
        }
    }
}

/// Exit status 0: in force under its name; 1: changed or unknown.
pub(super) async fn verify(
    at: &RegistryTarget,
    interface: &Interface,
    format: Format,
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    let verdict = at.client()?.verify(interface).await.map_err(failure)?;
    let (name, hash) = (escape::line(&interface.name), interface.hash());
    let (word, reason, diff) = match &verdict {
        Verdict::Same => ("same", "interface hash matches registered record".to_owned(), String::new()),
        Verdict::Changed { recorded, components } => {
            let live: Vec<String> = interface.components.iter().map(|one| one.canonical.clone()).collect();
            let reason = format!(
                "interface changed: '{name}' is registered with hash {recorded}, but the live interface hashes to {hash}"
            );
            ("changed", reason, difference(components, &live))
        }
        Verdict::Unknown { others } => {
            let mut others: Vec<_> = others.iter().map(|other| escape::line(other)).collect();
            others.sort();
            let also = if others.is_empty() {
                String::new()
            } else {
                format!(" (the same interface is registered under: {})", others.join(", "))
            };
            ("unknown", format!("server '{name}' is not registered{also}"), String::new())
        }
    };
    let same = verdict == Verdict::Same;
    match format {
        Format::Kiji => writeln!(out, "{}\t{name}\t{reason}", if same { "OK" } else { "FAILED" })?,
        Format::Text => writeln!(out, "{word}: {reason}")?,
        Format::Json => {
            let answer = json!({ "name": interface.name, "kiji1": hash, "verdict": word, "diff": diff });
            output::json(out, &answer)?;
        }
    }
    if format != Format::Json {
        for line in diff.lines() {
            writeln!(out, "{}", escape::line(line))?;
        }
    }
    Ok(if same { OK } else { NO })
}

pub(super) async fn approvals(
    at: &RegistryTarget,
    verb: Option<Approvals>,
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    let client = at.client()?;
    match verb.unwrap_or(Approvals::List { json: false }) {
        Approvals::List { json } => {
            let waiting = client.approvals().await.map_err(failure)?;
            list(&waiting, json, out)
        }
        Approvals::Show { id } => {
            let approval = client.approval(id).await.map_err(failure)?;
            writeln!(
                out,
                "{} '{}' kiji1:{} {}",
                approval.id,
                escape::line(&approval.name),
                approval.hash,
                approval.status
            )?;
            for line in approval.diff.lines() {
                writeln!(out, "{}", escape::line(line))?;
            }
            Ok(OK)
        }
        Approvals::Approve { id, reason } => {
            report_decision(&client.decide(id, true, &reason).await.map_err(failure)?, "approved", out)
        }
        Approvals::Reject { id, reason } => {
            report_decision(&client.decide(id, false, &reason).await.map_err(failure)?, "rejected", out)
        }
    }
}

fn list(waiting: &[Approval], as_json: bool, out: &mut dyn Write) -> Result<u8, Failure> {
    if as_json {
        let rows: Vec<_> = waiting
            .iter()
            .map(|one| json!({ "id": one.id, "name": one.name, "kiji1": one.hash, "created_at": one.created_at }))
            .collect();
        output::json(out, &rows)?;
        return Ok(OK);
    }
    let context = Context::of_process()?;
    let row = |one: &Approval| {
        vec![
            one.id.to_string(),
            one.name.clone(),
            context.hash(Some(&format!("sha256:{}", one.hash))),
            context.time(&one.created_at),
        ]
    };
    let rows = waiting.iter().map(row).collect();
    if output::table(out, &context, &["id", "server", "new interface", "requested"], rows)? == 0 {
        writeln!(out, "no pending approvals")?;
    }
    Ok(OK)
}

/// Another answer may have been first: the one in force is shown, with exit status 1 if it is a different one.
fn report_decision(approval: &Approval, wanted: &str, out: &mut dyn Write) -> Result<u8, Failure> {
    writeln!(
        out,
        "{} '{}' is {}",
        approval.id,
        escape::line(&approval.name),
        escape::line(&approval.status)
    )?;
    Ok(if approval.status == wanted { OK } else { NO })
}

pub(super) async fn revoke(
    at: &RegistryTarget,
    name: &str,
    hash: &str,
    reason: &str,
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    let hash = hash.trim_start_matches("kiji1:");
    if hash.len() != 64 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Failure::Usage("a hash has 64 hex digits".into()));
    }
    at.client()?.revoke(name, hash, reason).await.map_err(failure)?;
    writeln!(out, "revoked '{}' kiji1:{hash}", escape::line(name))?;
    Ok(OK)
}

/// Prints the log once its chain of hashes holds, then its last digest.
pub(super) async fn log(at: &RegistryTarget, as_json: bool, out: &mut dyn Write) -> Result<u8, Failure> {
    let (entries, tip) = at.client()?.log().await.map_err(failure)?;
    if as_json {
        output::json(out, &json!({ "entries": entries, "head": tip }))?;
        return Ok(OK);
    }
    let count = entries.len();
    let context = Context::of_process()?;
    let row = |entry: Entry| {
        let Entry { seq, at, actor, action, name, hash, detail, .. } = entry;
        vec![seq.to_string(), context.time(&at), actor, action, name, hash, detail]
    };
    let head = ["entry", "time", "by", "action", "server", "interface", "detail"];
    output::list(out, context.width, &head, entries.into_iter().map(row).collect())?;
    writeln!(out, "{} entries, hash chain valid, head {tip}", count)?;
    Ok(OK)
}

fn failure(error: ClientError) -> Failure {
    match error {
        ClientError::Status { .. } => Failure::No(error.to_string()),
        ClientError::Http(HttpError::Connect { .. }) => Failure::Failed(format!(
            "{error}; `agentsh registry serve` starts a registry on this machine; `--registry URL` uses another one"
        )),
        ClientError::Address(_) | ClientError::Token => Failure::Usage(error.to_string()),
        ClientError::Http(_) | ClientError::TimedOut | ClientError::Answer(_) => {
            Failure::Failed(error.to_string())
        }
    }
}
