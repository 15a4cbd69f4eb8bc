//! `agentsh profile`: servers stored under a name, with their secrets in a file that only the user can read; and
//! signed profiles of packages.

use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::{Args, Subcommand};
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation};
use rmcp::service::ClientInitializeError;
use rmcp::{ErrorData, ServiceError, serve_client};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::unix::pipe;

use super::client_config::{from_anywhere, homes, own_path};
use super::receipt;
use agentsh_authoring::edit;
use agentsh_policy::PolicyError;
use agentsh_policy::profile::{self, ServerProfile};
use agentsh_receipt::{open_profile, sign_profile};
use agentsh_store::escape;
use agentsh_terminal::output::{self, Context, Failure, OK};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

#[derive(Debug, Args)]
pub struct ProfileArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Store a server under a name; secrets are read from standard input, one per line
    Add(AddArgs),
    /// List the profiles
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one profile, with the names but not the values of its secrets
    Show { name: String },
    /// Forget one profile
    Remove { name: String },
    /// Start the server in its sandbox and list its tools
    Test { name: String },
    /// Sign the rights of a package's servers for others; `agentsh policy show --profiles` lists them
    Export {
        name: String,
        #[command(flatten)]
        key: receipt::Key,
        /// A new file, instead of standard output
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Import the signed rights of a package's servers, as a profile named like the file (exit 1: refused)
    Import {
        file: PathBuf,
        #[command(flatten)]
        accept: receipt::Accept,
    },
}

#[derive(Debug, Args)]
struct AddArgs {
    name: String,
    /// URL of a remote server
    #[arg(long, conflicts_with = "command", required_unless_present = "command")]
    url: Option<String>,
    /// A header that is not a secret
    #[arg(long, value_name = "NAME: VALUE", requires = "url")]
    header: Vec<String>,
    /// A header whose value is the next line of standard input
    #[arg(long, value_name = "NAME", requires = "url")]
    secret_header: Vec<String>,
    /// A variable for the command, whose value is the next line of standard input
    #[arg(long, value_name = "NAME", conflicts_with = "url")]
    secret_env: Vec<String>,
    /// The server's command and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

/// How long a server may take to answer; its packages may have to be fetched first.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

pub fn find(name: &str) -> Result<Option<Profile>, Failure> {
    Ok(load()?.remove(name))
}

pub fn answer(args: &ProfileArgs, out: &mut dyn Write, err: &mut dyn Write) -> Result<u8, Failure> {
    match &args.verb {
        Verb::Add(args) => add(args, out, err),
        Verb::List { json } => list(*json, out),
        Verb::Show { name } => {
            output::json(out, &profile_json(&known_profile(name)?))?;
            Ok(OK)
        }
        Verb::Remove { name } => {
            let mut all = load()?;
            all.remove(name).ok_or_else(|| unknown(name))?;
            store(&all)?;
            writeln!(out, "profile {} is forgotten", escape::line(name))?;
            Ok(OK)
        }
        Verb::Test { name } => {
            known_profile(name)?;
            test(name, out)
        }
        Verb::Export { name, key, output } => {
            let config = homes()?.1;
            let found = profile::named(name, &config).map_err(|error| Failure::Usage(error_text(&error)))?;
            let key = receipt::signing_key(&Context::of_process()?.state_dir, key.key.as_deref())?;
            let text = sign_profile(found.text(), &key).map_err(Failure::Failed)?;
            receipt::put(&text, output.as_deref(), "profile", out, err)?;
            writeln!(err, "{}", profile_summary(&found, &key.fingerprint()))?;
            Ok(OK)
        }
        Verb::Import { file, accept } => import(file, accept, out),
    }
}

fn import(file: &Path, accept: &receipt::Accept, out: &mut dyn Write) -> Result<u8, Failure> {
    let context = Context::of_process()?;
    let text = receipt::text_of(file, agentsh_receipt::MAX_BYTES as u64)?;
    let accepted = receipt::accepted(&context.state_dir, accept)?;
    let refused = |why: String| Failure::No(format!("the profile is refused: {why}"));
    let (text, signer) =
        open_profile(&text, &accepted, context.now).map_err(|why| refused(why.to_string()))?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let name = name.split('.').next().filter(|name| is_name(name));
    let name =
        name.ok_or_else(|| Failure::Usage("the file's name is not a valid profile name".to_owned()))?;
    let place = homes()?.1.join(format!("agentsh/servers/{name}.yaml"));
    let shown = place.display().to_string();
    let read = profile::parse(&shown, &text).and_then(|read| read.map(ServerProfile::tested).transpose());
    let read = read.map_err(|error| refused(error_text(&error)))?;
    let read = read.ok_or_else(|| refused("it has no `package:`".to_owned()))?;
    let before = edit::read(&place)?;
    if !before.is_empty() && before != text {
        return Err(Failure::No(format!("{shown} exists with other content; remove it first")));
    }
    let failed = |error: std::io::Error| Failure::Failed(format!("cannot write {shown}: {error}"));
    place.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(failed)?;
    agentsh_host::copies::write_anew(&place, text.as_bytes(), 0o644).map_err(failed)?;
    writeln!(out, "{shown}: {}", profile_summary(&read, &signer.who))?;
    Ok(OK)
}

fn profile_summary(profile: &ServerProfile, signer: &str) -> String {
    let packages: Vec<String> = profile.packages.iter().map(|package| package.value.to_string()).collect();
    let text = format!("profile of {}, {}, signed by {signer}", packages.join(", "), profile.digest());
    escape::line(&text).into_owned()
}

fn error_text(error: &PolicyError) -> String {
    error.render().trim_end().trim_start_matches("error: ").to_owned()
}

fn is_name(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain)
}

fn add(args: &AddArgs, out: &mut dyn Write, err: &mut dyn Write) -> Result<u8, Failure> {
    if !is_name(&args.name) {
        return Err(Failure::Usage("a name is made of letters, digits and `-_.`".to_owned()));
    }
    let command = from_anywhere(&args.command)?;
    let mut profile = Profile { url: args.url.clone(), command, ..Profile::default() };
    for header in &args.header {
        let (name, value) = header
            .split_once(':')
            .ok_or_else(|| Failure::Usage(format!("'{}' is not `NAME: VALUE`", escape::line(header))))?;
        profile.headers.insert(name.trim().to_owned(), value.trim().to_owned());
    }
    let mut lines = std::io::stdin().lock().lines();
    let is_typed = std::io::stdin().is_terminal();
    let mut secret = |name: &str| -> Result<String, Failure> {
        if is_typed {
            write!(err, "value of {}: ", escape::line(name))?;
            err.flush()?;
        }
        let line = lines.next().transpose()?;
        let line = line.filter(|line| !line.is_empty());
        line.ok_or_else(|| {
            Failure::Usage(format!(
                "no value for {}: standard input needs one line for each secret, in the order of the options",
                escape::line(name)
            ))
        })
    };
    for name in &args.secret_header {
        profile.headers.insert(name.clone(), secret(name)?);
    }
    for name in &args.secret_env {
        profile.env.insert(name.clone(), secret(name)?);
    }
    let mut all = load()?;
    all.insert(args.name.clone(), profile);
    store(&all)?;
    writeln!(out, "profile {0}: `agentsh mcp run --profile {0}`", args.name)?;
    Ok(OK)
}

fn list(as_json: bool, out: &mut dyn Write) -> Result<u8, Failure> {
    let all = load()?;
    if as_json {
        let all: BTreeMap<&String, Value> =
            all.iter().map(|(name, profile)| (name, profile_json(profile))).collect();
        output::json(out, &all)?;
        return Ok(OK);
    }
    if all.is_empty() {
        writeln!(out, "no profiles; to make one: `agentsh profile add NAME -- CMD`")?;
    }
    let row = |(name, profile): (String, Profile)| {
        vec![name, profile.url.unwrap_or_else(|| profile.command.join(" "))]
    };
    output::list(out, output::terminal_width(), &["profile", "server"], all.into_iter().map(row).collect())?;
    Ok(OK)
}

/// Without any value that may be a secret.
fn profile_json(profile: &Profile) -> Value {
    let names = |map: &BTreeMap<String, String>| map.keys().cloned().collect::<Vec<_>>();
    json!({
        "url": profile.url,
        "command": profile.command,
        "headers": names(&profile.headers),
        "env": names(&profile.env),
    })
}

/// Speaks to the server as a client would that was given this profile.
fn test(name: &str, out: &mut dyn Write) -> Result<u8, Failure> {
    let failed = |error: std::io::Error| Failure::Failed(format!("cannot start agentsh: {error}"));
    #[expect(clippy::disallowed_methods, reason = "agentsh itself, as a client starts it")]
    let mut command = Command::new(own_path()?);
    let mut child = command
        .args(["mcp", "run", "--profile", name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let asked = ask_server(name, input.map(OwnedFd::from), output.map(OwnedFd::from));
    if asked.is_err() {
        let _ = child.kill();
    }
    let _ = child.wait();
    let (server, tools) = asked?;
    let name_of = server.as_deref().unwrap_or("the server");
    let tools = match tools {
        1 => "1 tool".to_owned(),
        several => format!("{several} tools"),
    };
    writeln!(out, "profile {name}: {} answers, with {tools}", escape::line(name_of))?;
    Ok(OK)
}

/// The server's name for itself, and how many tools its first page lists. Its input is closed afterwards.
fn ask_server(
    name: &str,
    input: Option<OwnedFd>,
    output: Option<OwnedFd>,
) -> Result<(Option<String>, usize), Failure> {
    let failed = |error: std::io::Error| Failure::Failed(format!("cannot connect to agentsh: {error}"));
    let said = |error: ErrorData| Failure::No(format!("profile {name}: {}", escape::line(&error.message)));
    let silent = || Failure::No(format!("profile {name}: the server did not answer"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let asking = async {
        let (Some(input), Some(output)) = (input, output) else { return Err(silent()) };
        let input = pipe::Sender::from_owned_fd(input).map_err(failed)?;
        let output = pipe::Receiver::from_owned_fd(output).map_err(failed)?;
        let own = Implementation::new("agentsh", env!("CARGO_PKG_VERSION"));
        let own = ClientConfig::new(ClientCapabilities::default(), own);
        let client = serve_client(own, (output, input)).await.map_err(|error| match error {
            ClientInitializeError::JsonRpcError(error) => said(error),
            _ => silent(),
        })?;
        let tools = client.list_tools(None).await.map_err(|error| match error {
            ServiceError::McpError(error) => said(error),
            ServiceError::UnexpectedResponse => {
                Failure::No(format!("profile {name}: its tool list is not valid"))
            }
            _ => silent(),
        })?;
        let server = client.peer_info().and_then(|peer| Some(peer.server_info.as_ref()?.name.clone()));
        // No further request is sent.
        let _ = client.cancel().await;
        Ok((server, tools.tools.len()))
    };
    let asking = async { tokio::time::timeout(ANSWER_TIMEOUT, asking).await };
    tokio::task::LocalSet::new().block_on(&runtime, asking).unwrap_or_else(|_| Err(silent()))
}

fn known_profile(name: &str) -> Result<Profile, Failure> {
    find(name)?.ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Failure {
    Failure::Usage(format!("there is no profile '{}'; `agentsh profile list` names them", escape::line(name)))
}

fn path() -> Result<PathBuf, Failure> {
    Ok(homes()?.1.join("agentsh/profiles.json"))
}

/// All of them.
pub fn load() -> Result<BTreeMap<String, Profile>, Failure> {
    let path = path()?;
    let text = edit::read(&path)?;
    if text.trim().is_empty() {
        return Ok(BTreeMap::new());
    }
    let all = serde_json::from_str(&text).map_err(|error| {
        Failure::Failed(format!("{}:{}: not a list of profiles; correct it", path.display(), error.line()))
    })?;
    Ok(all)
}

/// No copy of what was: it would keep a secret that was taken back.
fn store(all: &BTreeMap<String, Profile>) -> Result<(), Failure> {
    use std::os::unix::fs::DirBuilderExt;
    let path = path()?;
    let failed = |error: std::io::Error| Failure::Failed(format!("cannot write {}: {error}", path.display()));
    if let Some(directory) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    }
    let text = serde_json::to_vec_pretty(all).map_err(std::io::Error::from)?;
    agentsh_host::copies::write_anew(&path, &text, 0o600).map_err(failed)
}
