//! `agentsh fleet token|login|hosts|accept|revoke`: people and their roles.

use std::io::Write;

use clap::{Args, ValueEnum};

use super::super::server;
use super::host::{token as given, unusable};
use super::serve::DatabaseArgs;
use agentsh_egress::Client as Http;
use agentsh_fleet::key_files::{self, LoginFile};
use agentsh_fleet::wire::{AskToken, Host, IssuedToken, LoggedIn, Login, Person, RevokePeople, Revoked};
use agentsh_fleet::{Client, ClientError};
use agentsh_host::outgoing;
use agentsh_store::escape;
use agentsh_terminal::output::{self, Context, Failure, NO, OK};

/// The credential, where it is not in the file of `agentsh fleet login`.
const CREDENTIAL: &str = "AGENTSH_FLEET_CREDENTIAL";

/// Which server.
#[derive(Clone, Debug, Default, Args)]
pub struct FleetTarget {
    /// The fleet server; without it the one of `agentsh fleet login`
    #[arg(long, value_name = "URL")]
    pub fleet: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    /// A host that forwards its record
    Host,
    /// Only reads
    Viewer,
    /// Also answers questions, approves interfaces, and accepts refused hosts again
    Approver,
    /// Also creates and revokes tokens
    Admin,
}

#[derive(Debug, Args)]
pub struct TokenArgs {
    /// What the token is for
    #[arg(long, value_enum, default_value_t = Role::Host)]
    role: Role,
    /// Name of the host or person; without it a host uses its own
    #[arg(long, default_value = "")]
    name: String,
    /// Lifetime in hours
    #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=8760))]
    valid_for: u32,
    /// Id of a host to enrol again with another key
    #[arg(long, value_name = "HOST")]
    again: Option<String>,
    #[command(flatten)]
    pub database: DatabaseArgs,
    #[command(flatten)]
    pub at: FleetTarget,
}

#[derive(Debug, Args)]
pub struct LoginArgs {
    /// The fleet server: https, or http on this machine
    #[arg(long)]
    url: String,
    /// The output of `agentsh fleet token`; `-` reads it from standard input, where other users cannot see it
    #[arg(long)]
    token: String,
}

/// A client that resolves as the host does.
pub(super) fn http() -> Result<Http, Failure> {
    outgoing::client().map_err(Failure::Failed)
}

pub(super) fn failure(error: ClientError) -> Failure {
    match error {
        ClientError::Status { status: 400..=499, .. } => Failure::No(error.to_string()),
        ClientError::Address(_) | ClientError::Credential => Failure::Usage(error.to_string()),
        other => Failure::Failed(other.to_string()),
    }
}

impl FleetTarget {
    /// # Errors
    /// When no server or no credential is known.
    pub(in crate::cli) fn client(&self, context: &Context) -> Result<Client, Failure> {
        let path = key_files::login_file(&context.state_dir);
        let known: Option<LoginFile> = key_files::read(&path).map_err(unusable)?;
        let set = std::env::var(CREDENTIAL).ok().filter(|credential| !credential.is_empty());
        let plain = |url: &str| url.trim_end_matches('/').to_owned();
        let url = match (&self.fleet, &known) {
            (Some(url), _) => url.clone(),
            (None, Some(known)) => known.url.clone(),
            (None, None) => {
                let why = "no fleet server: use --fleet URL, or `agentsh fleet login`";
                return Err(Failure::Usage(why.to_owned()));
            }
        };
        // A credential is sent only to its own server.
        let credential = set
            .or_else(|| known.filter(|known| plain(&known.url) == plain(&url)).map(|known| known.credential));
        let credential = credential.ok_or_else(|| {
            Failure::Usage(format!(
                "no credential for '{}': `agentsh fleet login --url {0} --token TOKEN`, or set {CREDENTIAL}",
                escape::line(&url)
            ))
        })?;
        Ok(Client::with_credential(http()?, &url, credential))
    }
}

impl TokenArgs {
    /// The request to the server.
    #[must_use]
    pub fn request(&self) -> AskToken {
        AskToken {
            role: self.role.to_possible_value().map(|role| role.get_name().to_owned()).unwrap_or_default(),
            name: self.name.clone(),
            valid_s: self.valid_for.saturating_mul(3600),
            again: self.again.clone(),
        }
    }

    /// Prints the token, and until when it can be used.
    ///
    /// # Errors
    /// When nothing can be written.
    pub fn print(&self, got: &IssuedToken, out: &mut dyn Write, err: &mut dyn Write) -> Result<u8, Failure> {
        writeln!(out, "{}", got.token)?;
        writeln!(err, "valid once, until {}", agentsh_store::shown_time(&got.expires_at))?;
        Ok(OK)
    }
}

/// Made by the server, or, on its own machine, by `agentsh-server` in its database.
pub(super) async fn token(
    args: &TokenArgs,
    context: &Context,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    let is_here = args.at.fleet.is_none()
        && (args.database.named().is_some() || !key_files::login_file(&context.state_dir).exists());
    if is_here {
        return Err(server::hand_over());
    }
    let got: IssuedToken =
        args.at.client(context)?.post("/v1/tokens", &args.request()).await.map_err(failure)?;
    args.print(&got, out, err)
}

pub(super) async fn login(args: &LoginArgs, context: &Context, out: &mut dyn Write) -> Result<u8, Failure> {
    let asked = Login { token: given(&args.token)? };
    let got: LoggedIn =
        Client::anonymous(http()?, &args.url).post("/v1/login", &asked).await.map_err(failure)?;
    let file = LoginFile {
        url: args.url.clone(),
        name: got.name.clone(),
        role: got.role.clone(),
        credential: got.credential,
    };
    let path = key_files::login_file(&context.state_dir);
    key_files::write(&path, &file).map_err(unusable)?;
    writeln!(out, "{} of {}", escape::line(&got.role), escape::line(&args.url))?;
    Ok(OK)
}

/// Exit status 1 where a host is refused.
pub(super) async fn hosts(
    at: &FleetTarget,
    as_json: bool,
    context: &Context,
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    let hosts: Vec<Host> = at.client(context)?.get("/v1/hosts").await.map_err(failure)?;
    let status = if hosts.iter().any(|host| host.state == "refused") { NO } else { OK };
    if as_json {
        output::json(out, &hosts)?;
        return Ok(status);
    }
    let row = |host: &Host| {
        let open = host.incidents.iter().find(|one| one.accepted_by.is_none());
        let found = open.map(|one| {
            let session =
                if one.session.is_empty() { String::new() } else { format!("session {}: ", one.session) };
            format!("{}: {session}{}", one.kind, one.detail)
        });
        vec![
            host.name.clone(),
            host.id.clone(),
            host.state.clone(),
            context.time(&host.seen_at),
            host.events.to_string(),
            host.sessions.to_string(),
            found.unwrap_or_default(),
        ]
    };
    let rows = hosts.iter().map(row).collect();
    let head = ["host", "id", "state", "seen", "events", "sessions", "found"];
    if output::table(out, context, &head, rows)? == 0 {
        writeln!(out, "no host is enrolled")?;
    }
    Ok(status)
}

/// Names, roles and times: the credentials themselves are stored nowhere.
pub(super) async fn credentials(
    at: &FleetTarget,
    as_json: bool,
    context: &Context,
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    let people: Vec<Person> = at.client(context)?.get("/v1/people").await.map_err(failure)?;
    if as_json {
        output::json(out, &people)?;
        return Ok(OK);
    }
    let row = |one: &Person| {
        let time = |at: &Option<String>| at.as_deref().map(|at| context.time(at)).unwrap_or_default();
        let subject = one.subject.clone().unwrap_or_default();
        let (made, ends) = (context.time(&one.made_at), time(&one.expires_at));
        vec![one.name.clone(), one.role.clone(), subject, made, ends, time(&one.revoked_at)]
    };
    let head = ["name", "role", "signed in as", "made", "ends", "revoked"];
    if output::table(out, context, &head, people.iter().map(row).collect())? == 0 {
        writeln!(out, "no person has a credential")?;
    }
    Ok(OK)
}

/// Exit status 1 where no person has a credential or a token of this name.
pub(super) async fn revoke(
    at: &FleetTarget,
    context: &Context,
    name: &str,
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    let asked = RevokePeople { name: name.to_owned() };
    let done: Revoked = at.client(context)?.post("/v1/credentials/revoke", &asked).await.map_err(failure)?;
    writeln!(
        out,
        "revoked {} credentials of '{}' and all unused tokens with that name",
        done.revoked,
        escape::line(name)
    )?;
    Ok(OK)
}

/// `accept` or `revoke`.
pub(super) async fn change(
    at: &FleetTarget,
    context: &Context,
    host: &str,
    verb: &str,
) -> Result<(), Failure> {
    if !host.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(Failure::Usage(
            "the id of a host has letters and digits; `agentsh fleet hosts` shows it".to_owned(),
        ));
    }
    let path = format!("/v1/hosts/{host}/{verb}");
    let _state: serde_json::Value =
        at.client(context)?.post(&path, &serde_json::json!({})).await.map_err(failure)?;
    Ok(())
}
