//! `agentsh fleet enrol|forward`: this host.

use std::io::Write;
use std::path::Path;

use clap::Args;

use super::bundle;
use super::people::{failure, http};
use agentsh_fleet::Client;
use agentsh_fleet::forward::{ForwardError, ForwardUntil, forward as send};
use agentsh_fleet::key_files::{self, HostFile, KeyFileError};
use agentsh_fleet::keys::HostKey;
use agentsh_fleet::wire::{Enrol, Enrolled};
use agentsh_terminal::output::{Context, Failure, OK};
use agentsh_terminal::stop;

#[derive(Debug, Args)]
pub struct EnrolArgs {
    /// The fleet server: https, or http on this machine
    #[arg(long)]
    url: String,
    /// The output of `agentsh fleet token`; `-` reads it from standard input, where other users cannot see it
    #[arg(long)]
    token: String,
    /// Display name of this host; by default host name and user name
    #[arg(long)]
    name: Option<String>,
}

#[derive(Debug, Args)]
pub struct ForwardArgs {
    /// Exit when all events recorded so far are sent
    #[arg(long)]
    once: bool,
    /// Exit after a minute without new events
    #[arg(long, conflicts_with = "once")]
    until_idle: bool,
    /// Compare the whole record with what was sent (this also happens every six hours)
    #[arg(long)]
    check: bool,
}

pub(super) fn unusable(error: KeyFileError) -> Failure {
    Failure::Failed(error.to_string())
}

/// The token, which may come from standard input.
pub(super) fn token(written: &str) -> Result<String, Failure> {
    if written != "-" {
        return Ok(written.to_owned());
    }
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .map_err(|error| Failure::Usage(format!("cannot read the token: {error}")))?;
    Ok(line.trim().to_owned())
}

/// The key is kept before the server is asked: when the answer is lost, the same question gives it again.
pub(super) async fn enrol(args: &EnrolArgs, context: &Context, out: &mut dyn Write) -> Result<u8, Failure> {
    let path = key_files::host_file(&context.state_dir);
    let token = token(&args.token)?;
    let pending = path.with_extension("asked");
    let known: Option<HostFile> = match key_files::read(&pending).map_err(unusable)? {
        Some(asked) => Some(asked),
        None => key_files::read(&path).map_err(unusable)?,
    };
    let name = args.name.clone().unwrap_or_else(own_name);
    let mut file = match known {
        // Enrolment was requested before, but not answered.
        Some(known) if known.host.is_empty() && known.url == args.url => HostFile { name, ..known },
        _ => HostFile {
            url: args.url.clone(),
            host: String::new(),
            name,
            key: HostKey::make().map_err(|error| Failure::Failed(format!("no random numbers: {error}")))?,
        },
    };
    // A valid enrolment is kept until there is a new one.
    let keep_at = if path.exists() { &pending } else { &path };
    key_files::write(keep_at, &file).map_err(unusable)?;
    let key = HostKey::read(&file.key).ok_or_else(|| Failure::Failed("cannot use the key".to_owned()))?;
    let asked = Enrol {
        token,
        name: file.name.clone(),
        key: key.public(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let enrolled = Client::anonymous(http()?, &args.url).post("/v1/enrol", &asked).await;
    let Enrolled { host } = match enrolled {
        Ok(enrolled) => enrolled,
        Err(error) => {
            if error.is_final() {
                // Refused: nothing is left behind.
                let _may_be_none = std::fs::remove_file(keep_at);
            }
            return Err(failure(error));
        }
    };
    file.host = host;
    key_files::write(&path, &file).map_err(unusable)?;
    let _may_be_none = std::fs::remove_file(&pending);
    let _may_be_none = std::fs::remove_file(key_files::compared_file(&context.state_dir));
    writeln!(out, "this host is {} ('{}')", file.host, agentsh_store::escape::line(&file.name))?;
    Ok(OK)
}

/// Exit status 0: everything is sent, or without `--once` another process sends it; 1: the server refuses this host.
pub(super) async fn forward(
    args: &ForwardArgs,
    context: &Context,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    let file = enrolled_host(&context.state_dir)?;
    let until = match (args.once, args.until_idle) {
        (true, _) => ForwardUntil::Sent,
        (_, true) => ForwardUntil::Idle,
        _ => ForwardUntil::Stopped,
    };
    // A session started it, and it outlives that and its terminal.
    let is_alone = until == ForwardUntil::Idle && rustix::process::setsid().is_ok();
    go_last(is_alone);
    // The lock only spares the server what would be sent twice: it ignores rows that it has. `--once` must know that
    // everything is sent, so it sends what is missing beside another process.
    let lock = key_files::lock(&context.state_dir).map_err(unusable)?;
    if lock.is_none() && !args.once {
        writeln!(err, "another process forwards already")?;
        return Ok(OK);
    }
    let client = Client::host(http()?, &file).map_err(failure)?;
    let stop = stop::stop_signal()?;
    if until == ForwardUntil::Sent
        && let Some(failure) = bundle::fetch(context).await
    {
        writeln!(err, "policy: {failure}")?;
    }
    let say = |why: &str| {
        // Without standard error there is no way to report it.
        let _ = writeln!(err, "waiting: {}", agentsh_store::escape::line(why));
    };
    let sent = tokio::select! {
        sent = send(&client, &context.state_dir, until, args.check, say) => sent,
        () = stop => return Ok(OK),
        () = bundle::keep_fetching(context) => return Ok(OK),
    };
    match sent {
        Ok(done) => {
            let compared =
                done.compared.map_or_else(String::new, |number| format!(", {number} sessions compared"));
            writeln!(out, "{} events in {} batches{compared}", done.rows, done.batches)?;
            Ok(OK)
        }
        Err(ForwardError::Client(error)) => Err(failure(error)),
        Err(error) => Err(Failure::Failed(error.to_string())),
    }
}

/// Sessions go first: next to a session that could use a whole processor, this process gets less than 2 % of it (a weight of 15 to
/// 1024), while the usual niceness of 10 would get a tenth. `is_alone`: in a session of its own, which the kernel weighs as a whole
/// where it groups processes by sessions, regardless of their niceness.
fn go_last(is_alone: bool) {
    if is_alone {
        let _not_grouped = std::fs::write("/proc/self/autogroup", "19");
    }
    let _as_it_is = rustix::process::nice(19);
}

/// # Errors
/// When this host is not enrolled.
pub(super) fn enrolled_host(state_dir: &Path) -> Result<HostFile, Failure> {
    let file: Option<HostFile> = key_files::read(&key_files::host_file(state_dir)).map_err(unusable)?;
    file.filter(|file| !file.host.is_empty()).ok_or_else(|| {
        Failure::No("this host is not enrolled: `agentsh fleet enrol --url URL --token TOKEN`".to_owned())
    })
}

fn own_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    match std::env::var("USER") {
        Ok(user) if !user.is_empty() => format!("{host}/{user}"),
        _ => host,
    }
}
