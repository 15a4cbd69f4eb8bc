//! `agentsh receipt verify`: the signature, the commit or files, the record and the requirements.

use std::io::Write;
use std::path::Path;

use super::repository::{Commit, NOTES, Repository};
use super::{Accept, MAX_KEYS_BYTES, accepted, facts, text_of};
use crate::session::git_head::is_id;
use agentsh_fleet::client::{Client, ClientError};
use agentsh_fleet::wire::Head;
use agentsh_host::outgoing;
use agentsh_receipt::statement::{Predicate, Statement};
use agentsh_receipt::{MAX_BYTES, Requirements, open};
use agentsh_store::{Reader, StoreError, escape};
use agentsh_terminal::output::{Context, Failure, NO, OK};

/// Gives the exit status.
pub(super) async fn verify(
    context: &Context,
    file: &Path,
    rev: Option<&str>,
    (accept, policy): (&Accept, Option<&Path>),
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    let here = Repository::at(Path::new("."))?;
    let name = file.to_string_lossy();
    // Anybody who may push can give a branch or tag the name of a file.
    let (text, named) = if is_id(&name) || name.starts_with("HEAD") && !file.exists() {
        let named = here.commit(&name).map_err(|why| Failure::Usage(why.to_string()))?;
        (note_of(&here, &named.id)?, Some(named.id))
    } else {
        (text_of(file, MAX_BYTES as u64)?, None)
    };
    let rev = rev.or(named.as_deref());
    let accepted = accepted(&context.state_dir, accept)?;
    let required = match policy {
        Some(file) => Requirements::read(&text_of(file, MAX_KEYS_BYTES)?)
            .map_err(|why| Failure::Usage(format!("{}: {why}", file.display())))?,
        None => Requirements::default(),
    };
    let (statement, signer) = match open(&text, &accepted, context.now) {
        Ok(opened) => opened,
        Err(why) => return refuse(&[why.to_string()], out),
    };
    let predicate = &statement.predicate;
    let mut refused = Vec::new();
    let is_about_files = statement.commits().next().is_none();
    let commit = match here.commit(rev.unwrap_or("HEAD")) {
        _ if is_about_files && rev.is_none() => {
            let (said, place) = (statement.files(), here.top_directory().display().to_string());
            refused
                .extend(said.filter_map(|(name, said)| mismatch(name, said, here.hash_here(name), &place)));
            format!("{} files in {place} are as they were applied", statement.files().count())
        }
        Ok(Commit { id, .. }) if is_about_files => {
            let there = |name: &str| here.hash_in(&id, name);
            refused
                .extend(statement.files().filter_map(|(name, said)| mismatch(name, said, there(name), &id)));
            let changed = here
                .changed_by(&id)
                .ok_or_else(|| Failure::Failed(format!("git does not say what commit {id} changes")))?;
            let is_covered = |name: &String| statement.files().any(|(said, _)| said == name);
            refused.extend(changed.iter().find(|name| !is_covered(name)).map(|name| {
                format!("commit {id} also changes '{name}', which is not one of the files of the receipt")
            }));
            format!("{} files in commit {id} are as they were applied", statement.files().count())
        }
        Ok(commit) => {
            refused.extend(statement.check_commit(&commit.id, &commit.tree).err());
            let older = predicate.unattributed.as_ref().map_or(0, |older| older.count);
            let older = match older {
                0 => String::new(),
                count => format!("; not covered, since dated before the session: {count} more"),
            };
            format!("commit {} is one of its {}{older}", commit.id, statement.commits().count())
        }
        Err(_) if rev.is_none() && !here.is_one() => {
            "its commits were not checked: no repository here".to_owned()
        }
        Err(why) => {
            refused.push(why.to_string());
            String::new()
        }
    };
    let record = match compare_with_commit(context, &statement).await {
        Ok(Some(said)) => said,
        Ok(None) => "its record is not here".to_owned(),
        Err(Failure::No(why)) => {
            refused.push(why);
            String::new()
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
    refused.extend(required.unmet_requirements(predicate));
    if !refused.is_empty() {
        return refuse(&refused, out);
    }
    let session = &predicate.session;
    let lines = [
        format!("good: signed by {} ({})", signer.who, signer.fingerprint),
        format!("session {}, {} of '{}', ended {}", session.id, session.verb, session.agent, session.ended),
        commit,
        record,
    ];
    for line in lines.into_iter().chain(kept) {
        writeln!(out, "{}", escape::line(&line))?;
    }
    Ok(OK)
}

/// A sentence, where a file is not what was applied.
fn mismatch(name: &str, said: Option<&str>, found: Option<String>, place: &str) -> Option<String> {
    match (said, &found) {
        (said, found) if said == found.as_deref() => None,
        (Some(_), None) => Some(format!("file '{name}' was applied, and is not in {place}")),
        (None, _) => Some(format!("file '{name}' was removed, and is in {place}")),
        (Some(_), Some(_)) => Some(format!("file '{name}' in {place} is not what was applied")),
    }
}

fn note_of(here: &Repository, commit: &str) -> Result<String, Failure> {
    let text = here.note(commit).filter(|text| text.len() <= MAX_BYTES);
    text.ok_or_else(|| {
        Failure::Usage(format!(
            "commit {commit} has no receipt of at most {} MiB in {NOTES} here; the notes are fetched by: git fetch origin {NOTES}:{NOTES}; \
             a receipt is noted by: git notes --ref=agentsh add -F FILE {commit}",
            MAX_BYTES >> 20
        ))
    })
}

fn refuse(why: &[String], out: &mut dyn Write) -> Result<u8, Failure> {
    for why in why {
        writeln!(out, "refused: {}", escape::line(why))?;
    }
    Ok(NO)
}

/// Whether the fleet server of this host has the same head; None if the host is not enrolled.
///
/// # Errors
/// Why it was not.
async fn kept_by_fleet(context: &Context, statement: &Statement) -> Result<Option<String>, String> {
    let Some(host) = agentsh_fleet::key_files::enrolled_host(&context.state_dir) else { return Ok(None) };
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
            "the fleet server has a different record of its session: event {} ends in sha256:{hash} there, and \
             the receipt says {}",
            record.events, record.head
        )),
        Err(ClientError::Status { status: 404, .. }) => {
            Ok(Some("the fleet server does not have its record".to_owned()))
        }
        Err(error) => Ok(Some(format!("the fleet server was not asked: {error}"))),
    }
}

/// The findings about the session's record, if it is here; an error if it is another record.
async fn compare_with_commit(context: &Context, statement: &Statement) -> Result<Option<String>, Failure> {
    let predicate = &statement.predicate;
    let Some(mut reader) = Reader::open(&context.state_dir).await? else { return Ok(None) };
    let session = match reader.session(&predicate.session.id).await {
        Err(StoreError::UnknownSession(_) | StoreError::AmbiguousSession(_) | StoreError::NoSession) => {
            return Ok(None);
        }
        found => found?,
    };
    // The session was found by a prefix of its id.
    if session.to_string() != predicate.session.id {
        return Ok(None);
    }
    let mut here = facts::of(&mut reader, session).await?.predicate;
    if here.record != predicate.record {
        let (here, said) = (&here.record, &predicate.record);
        return Err(Failure::No(format!(
            "the record of its session was rewritten: it has {} events and ends in {} here, and the receipt says {} and {}",
            here.events, here.head, said.events, said.head
        )));
    }
    (here.issued, here.binding) = (predicate.issued, predicate.binding);
    // Applied files and repository data are not part of the chain, and the included details depend on options.
    here.removed.clone_from(&predicate.removed);
    here.unattributed.clone_from(&predicate.unattributed);
    here.included.retain(|one| predicate.included.iter().any(|asked| asked.what == one.what));
    match here == *predicate {
        true => Ok(Some("its record is here and matches".to_owned())),
        false if here.agentsh == predicate.agentsh => {
            Err(Failure::No("the record of its session differs".to_owned()))
        }
        // An earlier version may have worded it differently.
        false => Ok(Some(format!(
            "its record is here and has the same events; what version {} wrote of it was not compared",
            predicate.agentsh
        ))),
    }
}
