//! `agentsh receipt`: what a session did, for somebody else. `agentsh receipt verify`: is it that?

mod facts;
mod repository;

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use jiff::Timestamp;

use super::output::{Context, Failure, NO, OK, finish};
use agentsh_base::small_file;
use agentsh_fleet::client::{Client, ClientError};
use agentsh_fleet::wire::Head;
use agentsh_host::outgoing;
use agentsh_receipt::statement::{Binding, Predicate, Statement};
use agentsh_receipt::{MAX_BYTES, Requirements, Signer, SigningKey, open, sign, signers};
use agentsh_store::{Reader, StoreError, escape};
use repository::{NOTES, Repository};

/// Of a file with a key, or with allowed signers.
const MAX_KEYS_BYTES: u64 = 1 << 20;
/// Below the directory of state: the key that signs where no other is named.
const OWN_KEY: &str = "receipt.key";

#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ReceiptArgs {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// A session id, the beginning of one, or `latest`
    #[arg(default_value = "latest")]
    session: String,
    /// A commit with the session's work; by default all commits that the session made
    #[arg(long, value_name = "REV")]
    commit: Option<String>,
    #[command(flatten)]
    key: Key,
    /// A new file for the receipt, instead of standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
struct Key {
    /// Signing key: an OpenSSH Ed25519 key without a passphrase; by default a key of this user and host, created at first use
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

#[derive(Clone, Debug, Subcommand)]
enum Verb {
    /// Verify a receipt: its signature, its commit in this repository, its record if it is here (exit 1: not valid)
    Verify {
        /// A receipt, or the commit in whose note (refs/notes/agentsh) it stands
        #[arg(value_name = "FILE|COMMIT")]
        file: PathBuf,
        /// The commit that the receipt must cover; by default HEAD, if there is a repository
        #[arg(long, value_name = "REV")]
        commit: Option<String>,
        /// Accepted signers: an allowed-signers file or a public key; by default the key of this user and host
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
        /// Requirements file with layers, hosts, tools_denied, pins, approvals, commits
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
    },
    /// Print the public key for receipts of this user and host, as a line of an allowed-signers file
    Key(Key),
}

/// Gives the exit status.
pub async fn run(args: ReceiptArgs, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let result = match Context::of_process() {
        Ok(context) => answer(&args, &context, out, err).await,
        Err(failure) => Err(failure),
    };
    finish(result, err)
}

async fn answer(
    args: &ReceiptArgs,
    context: &Context,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    match &args.verb {
        Some(Verb::Verify { file, commit, key, policy }) => {
            verify(context, file, commit.as_deref(), (key.as_deref(), policy.as_deref()), out).await
        }
        Some(Verb::Key(Key { key })) => {
            writeln!(out, "{}", signing_key(&context.state_dir, key.as_deref())?.public().line())?;
            Ok(OK)
        }
        None => {
            let key = args.key.key.as_deref();
            let text = of_session(&context.state_dir, &args.session, args.commit.as_deref(), key).await?;
            match &args.output {
                None => out.write_all(text.as_bytes())?,
                Some(file) => {
                    let made = std::fs::File::options().write(true).create_new(true).open(file);
                    made.and_then(|mut made| made.write_all(text.as_bytes())).map_err(|error| {
                        Failure::Failed(format!("cannot write {}: {error}", file.display()))
                    })?;
                    writeln!(err, "the receipt is in {}", escape::line(&file.display().to_string()))?;
                }
            }
            Ok(OK)
        }
    }
}

/// The receipt of a session that has ended.
///
/// # Errors
/// When its record is not whole, when it has no commit, or when the key cannot be used.
pub async fn of_session(
    state: &Path,
    session: &str,
    commit: Option<&str>,
    key: Option<&Path>,
) -> Result<String, Failure> {
    let mut reader = Reader::open(state).await?.ok_or(StoreError::NoSession)?;
    let session = reader.session(session).await?;
    let facts::Facts { mut predicate, project, heads } = facts::of(&mut reader, session).await?;
    let repository = Repository::at(Path::new(&project))?;
    let (before, after) = (heads.0.as_deref(), heads.1.as_deref());
    // Where the beginning is not known, all that came before would be the session's.
    let mut made = match (before, after) {
        (Some(before), Some(after)) => repository.between(before, after)?,
        _ => Vec::new(),
    };
    // A branch that was there already, or came from elsewhere, holds what others made.
    let started = predicate.session.started.as_second();
    made.retain(|commit| commit.time >= started);
    let commits = match commit {
        None if made.is_empty() => {
            return Err(Failure::No(format!(
                "session {session} made no commit; name the commit with its work: --commit REV"
            )));
        }
        None => made,
        Some(rev) => {
            let named = repository.commit(rev)?;
            if !made.contains(&named) {
                let newer = before.map(|before| repository.between(before, &named.id)).transpose()?;
                if named.time < started || newer.is_some_and(|newer| newer.is_empty()) {
                    return Err(Failure::No(format!(
                        "commit {} was made before session {session}",
                        named.id
                    )));
                }
                predicate.binding = Binding::Signer;
            }
            vec![named]
        }
    };
    let commits: Vec<_> = commits.into_iter().map(|commit| (commit.id, commit.tree)).collect();
    predicate.issued = Timestamp::now();
    let statement = Statement::new(&commits, predicate);
    let failed = |why| Failure::Failed(format!("cannot write a receipt: {why}"));
    sign(&statement, &signing_key(state, key)?).map_err(failed)
}

/// The key in this file, or the one of this user and host, which is made where there is none.
fn signing_key(state: &Path, file: Option<&Path>) -> Result<SigningKey, Failure> {
    let own = state.join(OWN_KEY);
    let failed = |file: &Path, why: &dyn std::fmt::Display| {
        Failure::Failed(format!("cannot use the key {}: {why}", file.display()))
    };
    if file.is_none() && own.symlink_metadata().is_err() {
        let text = SigningKey::make().map_err(|error| failed(&own, &error))?;
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(state);
        let made =
            made.and_then(|()| std::fs::File::options().write(true).create_new(true).mode(0o600).open(&own));
        made.and_then(|mut made| made.write_all(text.as_bytes())).map_err(|error| failed(&own, &error))?;
    }
    let file = file.unwrap_or(&own);
    SigningKey::read(&text_of(file, MAX_KEYS_BYTES)?).map_err(|error| failed(file, &error))
}

fn text_of(file: &Path, most: u64) -> Result<String, Failure> {
    let shown = escape::line(&file.display().to_string()).into_owned();
    let read = small_file::read(file, most)
        .map_err(|error| Failure::Usage(format!("cannot read {shown}: {error}")))?;
    let text = read.and_then(|bytes| String::from_utf8(bytes).ok());
    text.ok_or_else(|| Failure::Usage(format!("{shown} is not a text of at most {most} bytes")))
}

async fn verify(
    context: &Context,
    file: &Path,
    rev: Option<&str>,
    (key, policy): (Option<&Path>, Option<&Path>),
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    let here = Repository::at(Path::new("."))?;
    let noted = match file.exists() {
        true => None,
        false => here.commit(&file.to_string_lossy()).ok(),
    };
    let (text, rev) = match noted {
        None => (text_of(file, MAX_BYTES as u64)?, rev.map(str::to_owned)),
        Some(commit) => (note_of(&here, &commit.id)?, Some(rev.map_or(commit.id, str::to_owned))),
    };
    let rev = rev.as_deref();
    let unclear = |file: &Path, why: String| Failure::Usage(format!("{}: {why}", file.display()));
    let signers = match key {
        Some(file) => {
            signers(&text_of(file, MAX_KEYS_BYTES)?).map_err(|error| unclear(file, error.to_string()))?
        }
        None if context.state_dir.join(OWN_KEY).exists() => {
            vec![Signer::of("this user and host", signing_key(&context.state_dir, None)?.public())]
        }
        None => {
            let why = "the signer is not known: give --key FILE";
            return Err(Failure::Usage(why.to_owned()));
        }
    };
    let required = match policy {
        Some(file) => {
            Requirements::read(&text_of(file, MAX_KEYS_BYTES)?).map_err(|why| unclear(file, why))?
        }
        None => Requirements::default(),
    };
    let (statement, signer) = match open(&text, &signers, context.now) {
        Ok(opened) => opened,
        Err(why) => return refuse(&[why.to_string()], out),
    };
    let predicate = &statement.predicate;
    let mut refused = Vec::new();
    let commit = match here.commit(rev.unwrap_or("HEAD")) {
        Ok(commit) => {
            refused.extend(statement.about(&commit.id, &commit.tree).err());
            format!("commit {} is one of its {}", commit.id, statement.commits().count())
        }
        Err(_) if rev.is_none() && !here.is_one() => {
            "its commits were not checked: no repository here".to_owned()
        }
        Err(why) => {
            refused.push(why.to_string());
            String::new()
        }
    };
    let record = match compared(context, &statement).await {
        Ok(true) => "its record is here and matches",
        Ok(false) => "its record is not here",
        Err(Failure::No(why)) => {
            refused.push(why);
            ""
        }
        Err(other) => return Err(other),
    };
    let kept = match kept_by_fleet(context, &statement).await {
        Ok(kept) => kept,
        Err(why) => {
            refused.push(why);
            None
        }
    };
    refused.extend(required.unmet(predicate));
    if !refused.is_empty() {
        return refuse(&refused, out);
    }
    let session = &predicate.session;
    let lines = [
        format!("good: signed by {} ({})", signer.who, signer.key.fingerprint()),
        format!("session {}, {} of '{}', ended {}", session.id, session.verb, session.agent, session.ended),
        commit,
        record.to_owned(),
    ];
    for line in lines.into_iter().chain(kept) {
        writeln!(out, "{}", escape::line(&line))?;
    }
    Ok(OK)
}

/// The receipt in the note of a commit.
fn note_of(here: &Repository, commit: &str) -> Result<String, Failure> {
    let text = here.note(commit).filter(|text| text.len() <= MAX_BYTES);
    text.ok_or_else(|| {
        Failure::Usage(format!(
            "commit {commit} has no receipt in {NOTES} here; the notes are fetched by: git fetch origin {NOTES}:{NOTES}; \
             a receipt is noted by: git notes --ref=agentsh add -F FILE {commit}"
        ))
    })
}

fn refuse(why: &[String], out: &mut dyn Write) -> Result<u8, Failure> {
    for why in why {
        writeln!(out, "refused: {}", escape::line(why))?;
    }
    Ok(NO)
}

/// Whether the fleet server that this host is enrolled at was told the same head; None: it is enrolled nowhere.
///
/// # Errors
/// Why it was not.
async fn kept_by_fleet(context: &Context, statement: &Statement) -> Result<Option<String>, String> {
    let Some(host) = agentsh_fleet::place::enrolled(&context.state_dir) else { return Ok(None) };
    let Predicate { session, record, .. } = &statement.predicate;
    let client =
        outgoing::client().and_then(|http| Client::host(http, &host).map_err(|error| error.to_string()));
    let kept = match client {
        Ok(client) => client.get::<Head>(&format!("/v1/heads/{}/{}", session.id, record.events)).await,
        Err(why) => return Ok(Some(format!("the fleet server was not asked: {why}"))),
    };
    match kept {
        Ok(Head { hash }) if record.head == format!("sha256:{hash}") => {
            Ok(Some("the fleet server keeps the same head of its record".to_owned()))
        }
        Ok(Head { hash }) => Err(format!(
            "the fleet server keeps another record of its session: event {} ends in sha256:{hash} there, and the receipt says {}",
            record.events, record.head
        )),
        Err(ClientError::Status { status: 404, .. }) => {
            Ok(Some("the fleet server does not have its record".to_owned()))
        }
        Err(error) => Ok(Some(format!("the fleet server was not asked: {error}"))),
    }
}

/// Whether the record of the session is here; an error where it is another one.
async fn compared(context: &Context, statement: &Statement) -> Result<bool, Failure> {
    let predicate = &statement.predicate;
    let Some(mut reader) = Reader::open(&context.state_dir).await? else { return Ok(false) };
    let session = match reader.session(&predicate.session.id).await {
        Err(StoreError::UnknownSession(_)) => return Ok(false),
        found => found?,
    };
    let mut here = facts::of(&mut reader, session).await?.predicate;
    if here.record != predicate.record {
        let (here, said) = (&here.record, &predicate.record);
        return Err(Failure::No(format!(
            "the record of its session was rewritten: it has {} events and ends in {} here, and the receipt says {} and {}",
            here.events, here.head, said.events, said.head
        )));
    }
    (here.issued, here.binding) = (predicate.issued, predicate.binding);
    // Another version may have put it in other words.
    if here != *predicate && here.agentsh == predicate.agentsh {
        return Err(Failure::No("the record of its session differs".to_owned()));
    }
    Ok(true)
}
