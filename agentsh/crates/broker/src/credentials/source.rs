//! Sources of secrets: the user's own programs, environment and files.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use agentsh_policy::{Credential, CredentialSource};

use super::{Secret, netrc, private};
use agentsh_host::Facts;
use agentsh_host::{Context, host_programs};

/// A program that asks the user something would wait without end.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum output of a program.
const MAX_BYTES: u64 = 64 << 10;
/// Longest secret, in bytes.
const MAX_LENGTH: usize = 8 << 10;

/// # Errors
/// Why it cannot be had. The message does not hold it.
pub(super) async fn read(facts: &Facts, credential: &Credential) -> Result<Secret, String> {
    let context = &facts.context;
    let host = &credential.host;
    let found = match &credential.source {
        CredentialSource::Env(name) => {
            let value = context.env.get(name).cloned();
            Secret { user: None, secret: value.ok_or_else(|| format!("the variable {name} is not set"))? }
        }
        CredentialSource::File(path) => {
            let path = agentsh_policy::place::resolve(path, &facts.paths());
            Secret { user: None, secret: private(&path)?.trim().to_owned() }
        }
        CredentialSource::Netrc => {
            let own = context.env.get("NETRC").map(PathBuf::from).filter(|path| path.is_absolute());
            let path = own.unwrap_or_else(|| context.home.join(".netrc"));
            netrc::find(&private(&path)?, host)
                .ok_or_else(|| format!("{} does not name it", path.display()))?
        }
        CredentialSource::Gh => {
            let forge = agentsh_policy::forge_of(host);
            let said =
                output_of(context, "gh", &["auth", "token", "--hostname", forge], String::new()).await?;
            Secret { user: Some("x-access-token".to_owned()), secret: said.trim().to_owned() }
        }
        CredentialSource::GitCredential => {
            let place =
                if credential.port == 443 { host.clone() } else { format!("{host}:{}", credential.port) };
            let question = format!("protocol=https\nhost={place}\n\n");
            let said = output_of(context, "git", &["credential", "fill"], question).await?;
            let value = |key: &str| {
                let lines = said.lines().filter_map(|line| line.split_once('='));
                lines.filter(|(name, _)| *name == key).map(|(_, value)| value.to_owned()).next()
            };
            let secret = value("password").ok_or("git's credential helpers have no password for it")?;
            Secret { user: value("username"), secret }
        }
        CredentialSource::Keyring => {
            let said = output_of(context, "secret-tool", &["lookup", "server", host], String::new()).await?;
            Secret { user: None, secret: said.trim().to_owned() }
        }
    };
    checked(found)
}

/// A header value must be one word.
fn checked(found: Secret) -> Result<Secret, String> {
    let is_word = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    let user = found.user.as_deref().unwrap_or("user");
    match found.secret.len() {
        0 => Err("the secret is empty".to_owned()),
        MAX_LENGTH.. => Err("the secret is longer than 8 KiB".to_owned()),
        _ if !is_word(&found.secret) || !is_word(user) || user.contains(':') => {
            Err("the secret or its user name contains spaces or non-ASCII characters".to_owned())
        }
        _ => Ok(found),
    }
}

/// The output of a program of the user, run outside, and not in the project, where the project's configuration could
/// apply.
async fn output_of(context: &Context, name: &str, args: &[&str], input: String) -> Result<String, String> {
    let program =
        host_programs::find(context, name).ok_or_else(|| format!("there is no `{name}` in PATH"))?;
    let mut env = host_programs::environment(context);
    env.retain(|name, _| !name.starts_with("GIT_"));
    for (name, value) in [
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_ASKPASS", ""),
        ("SSH_ASKPASS", ""),
        ("GCM_INTERACTIVE", "never"),
        ("GH_PROMPT_DISABLED", "1"),
    ] {
        env.insert(name.to_owned(), value.to_owned());
    }
    let (args, home) = (args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>(), context.home.clone());
    let words = format!("{name} {}", args.first().map(String::as_str).unwrap_or_default());
    let said = tokio::task::spawn_blocking(move || run(&program, &args, &home, &env, &input)).await;
    let said = said.map_err(|error| error.to_string()).and_then(|said| said);
    said.map_err(|why| format!("`{words}`: {why}"))
}

/// The output of a user's program for an input, within [`PROGRAM_TIMEOUT`].
///
/// # Errors
/// Why there is no output.
pub fn run(
    program: &Path,
    args: &[String],
    home: &Path,
    env: &BTreeMap<String, String>,
    input: &str,
) -> Result<String, String> {
    let text = |error: std::io::Error| error.to_string();
    let mut command = host_programs::command(program, env);
    command.args(args).current_dir(home).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(text)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not want to know has ended, which shows below.
        let _ = stdin.write_all(input.as_bytes());
    }
    let stdout = child.stdout.take();
    let reading = std::thread::spawn(move || {
        let mut said = String::new();
        let read = stdout.map(|stdout| stdout.take(MAX_BYTES).read_to_string(&mut said));
        read.is_some_and(|read| read.is_ok()).then_some(said)
    });
    let since = std::time::Instant::now();
    let status = loop {
        match child.try_wait().map_err(text)? {
            Some(status) => break status,
            None if since.elapsed() > PROGRAM_TIMEOUT => {
                // It may have ended already.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no answer within {} s", PROGRAM_TIMEOUT.as_secs()));
            }
            None => std::thread::sleep(POLL_INTERVAL),
        }
    };
    if !status.success() {
        return Err(format!("it returned no secret ({status})"));
    }
    // A helper may live on with its end of the pipe.
    while !reading.is_finished() && since.elapsed() < PROGRAM_TIMEOUT {
        std::thread::sleep(POLL_INTERVAL);
    }
    match reading.is_finished() {
        true => reading.join().ok().flatten().ok_or_else(|| "its output is not text".to_owned()),
        false => Err(format!("its answer did not end within {} s", PROGRAM_TIMEOUT.as_secs())),
    }
}
