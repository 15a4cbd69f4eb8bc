//! `agentsh receipt`: signs a statement about a session. `agentsh receipt verify`: verifies one.

mod facts;
mod repository;
mod verify;

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use jiff::Timestamp;

use agentsh_authoring::minisign::SecretKey;
use agentsh_base::small_file;
use agentsh_host::review::{self, Kind, Mark};
use agentsh_receipt::keys::MINISIGN;
use agentsh_receipt::statement::{Binding, Statement, Unattributed};
use agentsh_receipt::{Accepted, Authorities, CERTIFICATE, KeyError, Signer, SigningKey, sign, signers};
use agentsh_store::{Reader, StoreError, escape};
use agentsh_terminal::output::{Context, Failure, OK};
use repository::Repository;

/// Size limit of a file with a key or with allowed signers.
const MAX_KEYS_BYTES: u64 = 1 << 20;
/// Commits that a receipt names without being about them.
const MAX_UNATTRIBUTED: usize = 100;
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
    #[command(flatten)]
    wanted: ReceiptContents,
    /// Also write it into the notes (refs/notes/agentsh) of its commits
    #[arg(long, requires = "output")]
    note: bool,
    /// A new file for the receipt, instead of standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// What a receipt is to be about.
#[derive(Clone, Debug, Default, Args)]
pub struct ReceiptContents {
    /// A commit with the session's work; by default all commits that the session made, or else the files that
    /// `agentsh review --apply` applied
    #[arg(long, value_name = "REV")]
    commit: Option<String>,
    /// Also list addresses that were refused, digests of arguments that a person was asked about, paths that were refused
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = ["addresses", "arguments", "files"])]
    include: Vec<String>,
    #[command(flatten)]
    key: Key,
}

#[derive(Clone, Debug, Default, Args)]
pub(in crate::cli) struct Key {
    /// Signing key: an OpenSSH Ed25519 key without a passphrase, a minisign key, or a PEM file with a key and its certificates; by
    /// default a key of this user and host, created at first use
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
}

/// Who may have signed.
#[derive(Clone, Debug, Default, Args)]
pub(in crate::cli) struct Accept {
    /// Accepted signers: an allowed-signers file, a public key (OpenSSH or minisign) or the PEM certificates of an authority; by
    /// default the key of this user and host
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// E-mail address, URI or DNS name that the signer's certificate must have
    #[arg(long, value_name = "NAME", requires = "key", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    identity: Option<String>,
    /// OpenID issuer that the signer's certificate must name, as sigstore certificates do
    #[arg(long, value_name = "URL", requires = "identity")]
    issuer: Option<String>,
}

/// A receipt as written, and its content.
pub struct Receipt {
    pub statement: Statement,
    pub text: String,
    /// Fingerprint of the key that signed it.
    pub fingerprint: String,
}

#[derive(Clone, Debug, Subcommand)]
enum Verb {
    /// Verify a receipt: its signature, its commit in this repository, its record if it is here (exit 1: not valid)
    Verify {
        /// A receipt, or a commit (its whole id, or HEAD) with a receipt in its note (refs/notes/agentsh)
        #[arg(value_name = "FILE|COMMIT")]
        file: PathBuf,
        /// The commit that the receipt must cover; by default HEAD, if there is a repository
        #[arg(long, value_name = "REV")]
        commit: Option<String>,
        #[command(flatten)]
        accept: Accept,
        /// Requirements file with layers, hosts, tools_denied, pins, approvals, commits
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
    },
    /// Print the public key for receipts of this user and host, as a line of an allowed-signers file
    Key(Key),
}

/// Gives the exit status.
pub async fn answer(
    args: &ReceiptArgs,
    context: &Context,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    match &args.verb {
        Some(Verb::Verify { file, commit, accept, policy }) => {
            verify::verify(context, file, commit.as_deref(), (accept, policy.as_deref()), out).await
        }
        Some(Verb::Key(Key { key })) => {
            let key = signing_key(&context.state_dir, key.as_deref())?;
            let no_line = "a key with a certificate is accepted by its authority: verify --key AUTHORITY --identity NAME";
            writeln!(out, "{}", key.public().ok_or_else(|| Failure::Usage(no_line.to_owned()))?.line())?;
            Ok(OK)
        }
        None => {
            let receipt = of_session(&context.state_dir, &args.session, &args.wanted).await?;
            let here = Repository::at(Path::new("."))?;
            if args.note {
                if receipt.statement.commits().next().is_none() {
                    return Err(Failure::No(
                        "--note needs commits, and this receipt is about files only".to_owned(),
                    ));
                }
                // Not into another repository.
                receipt.statement.commits().try_for_each(|commit| here.commit(commit).map(drop))?;
            }
            put(&receipt.text, args.output.as_deref(), "receipt", out, err)?;
            if let Some(file) = args.output.as_deref().filter(|_| args.note) {
                receipt.statement.commits().try_for_each(|commit| here.add_note(commit, file))?;
            }
            Ok(OK)
        }
    }
}

/// To a new file, or to standard output.
pub(in crate::cli) fn put(
    text: &str,
    file: Option<&Path>,
    what: &str,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<(), Failure> {
    let Some(file) = file else { return Ok(out.write_all(text.as_bytes())?) };
    let made = std::fs::File::options().write(true).create_new(true).open(file);
    made.and_then(|mut made| made.write_all(text.as_bytes()))
        .map_err(|error| Failure::Failed(format!("cannot write {}: {error}", file.display())))?;
    Ok(writeln!(err, "the {what} is in {}", escape::line(&file.display().to_string()))?)
}

/// The receipt of a session that has ended.
///
/// # Errors
/// When its record is incomplete, when it has no commit and no applied file, or when the key cannot be used.
pub async fn of_session(state: &Path, session: &str, wanted: &ReceiptContents) -> Result<Receipt, Failure> {
    let mut reader = Reader::open(state).await?.ok_or(StoreError::NoSession)?;
    let session = reader.session(session).await?;
    let facts::SessionFacts { mut predicate, project, heads, left } = facts::of(&mut reader, session).await?;
    let repository = Repository::at(Path::new(&project))?;
    let (before, after) = (heads.0.as_deref(), heads.1.as_deref());
    // If the start is unknown, all earlier commits would count as the session's.
    let mut made = match (before, after) {
        (Some(before), Some(after)) => repository.commits_between(before, after)?,
        _ => Vec::new(),
    };
    // A branch that was there already, or came from elsewhere, holds commits of others. The maker of a commit sets its date, so
    // that an older one may be the session's too.
    let started = predicate.session.started.as_second();
    let mut older: Vec<_> =
        made.extract_if(.., |commit| commit.time < started).map(|commit| commit.id).collect();
    let count = older.len() as u64;
    older.truncate(MAX_UNATTRIBUTED);
    predicate.unattributed = (count > 0).then_some(Unattributed { count, commits: older });
    // Older commits there were only visited.
    if let (Some(before), Some(after), false) = (before, after, left.is_empty()) {
        let more = repository.commits_only_in(&left, [before, after])?;
        made.extend(more.into_iter().filter(|commit| commit.time >= started));
    }
    let (mut applied, is_waiting) = applied(state, &session.to_string(), Path::new(&project))?;
    let is_about_files = wanted.commit.is_none() && made.is_empty() && applied.values().any(Option::is_some);
    let commits = match &wanted.commit {
        None if is_about_files => Vec::new(),
        None if made.is_empty() => {
            let older = predicate.unattributed.map_or(String::new(), |older| {
                format!(" that is dated after its start ({} are older)", older.count)
            });
            let what_to_do = match is_waiting {
                true => "nothing of its review is applied: `agentsh review --apply` applies it",
                false if repository.is_one() && after.is_none() => {
                    "the record does not say at which commit HEAD stood; name the commit that contains its work: --commit REV"
                }
                false if repository.is_one() => "name the commit that contains its work: --commit REV",
                false => "a receipt needs a repository, or files from `agentsh run --review`",
            };
            return Err(Failure::No(format!("session {session} made no commit{older}; {what_to_do}")));
        }
        None => made,
        Some(rev) => {
            let named = repository.commit(rev)?;
            if !made.contains(&named) {
                let newer = before.map(|before| repository.commits_between(before, &named.id)).transpose()?;
                if named.time < started || newer.is_some_and(|newer| newer.is_empty()) {
                    return Err(Failure::No(format!(
                        "commit {} was made before session {session}",
                        named.id
                    )));
                }
                // Its maker may have included only the applied changes.
                let changed = before.and_then(|before| repository.changed_files(before, &named.id));
                let is_applied = |(name, hash): &(String, Option<String>)| applied.get(name) == Some(hash);
                if !changed.is_some_and(|changed| !changed.is_empty() && changed.iter().all(is_applied)) {
                    predicate.binding = Binding::Signer;
                }
            }
            vec![named]
        }
    };
    predicate.issued = Timestamp::now();
    predicate.included.retain(|one| wanted.include.contains(&one.what));
    let statement = if is_about_files {
        let is_gone = |hash: &Option<String>| hash.is_none();
        predicate.removed = applied.extract_if(.., |_, hash| is_gone(hash)).map(|(name, _)| name).collect();
        Statement::of_files(applied.into_iter().filter_map(|(name, hash)| Some((name, hash?))), predicate)
    } else {
        let commits: Vec<_> = commits.into_iter().map(|commit| (commit.id, commit.tree)).collect();
        Statement::new(&commits, predicate)
    };
    let key = signing_key(state, wanted.key.key.as_deref())?;
    let failed = |why| Failure::Failed(format!("cannot write a receipt: {why}"));
    let text = sign(&statement, &key).map_err(failed)?;
    Ok(Receipt { statement, text, fingerprint: key.fingerprint() })
}

/// The files that a review of the session applied, without directories and git's internal files: SHA-256 by path in
/// the project; None: it was removed. And whether its layer is still there.
fn applied(
    state: &Path,
    session: &str,
    project: &Path,
) -> Result<(BTreeMap<String, Option<String>>, bool), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(error.to_string());
    let review = match review::find(state, Some(session), project) {
        Err(review::ReviewError::Nothing(_)) => return Ok((BTreeMap::new(), false)),
        found => found.map_err(|error| failed(&error))?,
    };
    let applied = review.applied().map_err(|error| failed(&error))?;
    let is_file = |mark: &Option<Mark>| mark.as_ref().is_none_or(|mark| mark.kind != Kind::Directory);
    let files =
        applied.into_iter().filter(|(path, mark)| is_file(mark) && !path.iter().any(|part| part == ".git"));
    let named = files.map(|(path, mark)| {
        let name = path.into_os_string().into_string();
        let name = name.map_err(|name| failed(&format!("the name {} is not UTF-8", name.display())))?;
        Ok((name, mark.map(|mark| mark.hash)))
    });
    Ok((named.collect::<Result<_, Failure>>()?, review.has_layer()))
}

/// The key in this file, or the one of this user and host, which is made where there is none.
pub(in crate::cli) fn signing_key(state: &Path, file: Option<&Path>) -> Result<SigningKey, Failure> {
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
    let text = text_of(file, MAX_KEYS_BYTES)?;
    if text.starts_with(MINISIGN) {
        let secret = SecretKey::read(&text).map_err(|error| failed(file, &error))?;
        return SigningKey::of_pair(secret.key_pair()).ok_or_else(|| failed(file, &KeyError::Minisign));
    }
    SigningKey::read(&text).map_err(|error| failed(file, &error))
}

/// The accepted signers: those of a file, or this user and host.
pub(in crate::cli) fn accepted(state: &Path, accept: &Accept) -> Result<Accepted, Failure> {
    let Some(file) = &accept.key else {
        let own = state.join(OWN_KEY).exists().then(|| signing_key(state, None)).transpose()?;
        let own = own.and_then(|key| key.public()).map(|key| Signer::of("this user and host", key));
        return own
            .map(|own| Accepted::Keys(vec![own]))
            .ok_or_else(|| Failure::Usage("the signer is not known: give --key FILE".to_owned()));
    };
    let text = text_of(file, MAX_KEYS_BYTES)?;
    let read = match (text.contains(CERTIFICATE), &accept.identity) {
        (true, Some(name)) => {
            Authorities::read(&text, name, accept.issuer.as_deref()).map(Accepted::Authorities)
        }
        (true, None) => {
            let why = "certificates need --identity NAME: the name that the signer's must have";
            return Err(Failure::Usage(format!("{}: {why}", file.display())));
        }
        (false, Some(_)) => Err(KeyError::Certificate),
        (false, None) => signers(&text).map(Accepted::Keys),
    };
    read.map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))
}

pub(in crate::cli) fn text_of(file: &Path, most: u64) -> Result<String, Failure> {
    let shown = escape::line(&file.display().to_string()).into_owned();
    let read = small_file::read(file, most)
        .map_err(|error| Failure::Usage(format!("cannot read {shown}: {error}")))?;
    let text = read.and_then(|bytes| String::from_utf8(bytes).ok());
    text.ok_or_else(|| Failure::Usage(format!("{shown} is not a text of at most {most} bytes")))
}
