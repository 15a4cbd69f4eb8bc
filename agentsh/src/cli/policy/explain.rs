//! `agentsh policy explain`: one question, its answer, and whose it is.

use std::io::{self, Write};

use serde_json::json;

use super::package::Known;
use super::{QuestionArgs, Surroundings, Which, failed};
use crate::cli::exit::{FAILED, NO};
use crate::policy::{self, Answer, Question};
use crate::store::escape;
use crate::types::ServerId;

/// What no policy says, and what is therefore not in the answer.
const FROM_COMMAND: &str = "paths that stand on the server's command line are opened when it starts, for writing too, and \
    so is what its profile takes from its arguments and variables; this answer is about the policy alone";

/// Exit code 0: allowed; 1: denied; 125: not a question.
pub(super) async fn explain(
    which: &Which,
    server: Option<&str>,
    args: &QuestionArgs,
    json: bool,
    place: &Surroundings,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let (from, question) = match asked(server, args) {
        Ok(asked) => asked,
        Err(why) => {
            writeln!(err, "error: {why}")?;
            return Ok(FAILED);
        }
    };
    let policy = match policy::load(&place.search(which.policy.clone(), &which.agent)) {
        Ok(policy) => policy,
        Err(error) => return failed(&error, err),
    };
    let known = match (&which.profile, &from) {
        (Some(_), None) => {
            writeln!(err, "error: a profile belongs to a server: add `--server ID`")?;
            return Ok(FAILED);
        }
        (Some(name), Some(_)) => Known::named(name, place),
        (None, Some(id)) => Known::of_server(id, &policy, place).await,
        (None, None) => Ok(Known::default()),
    };
    let known = match known {
        Ok(known) => known,
        Err(error) => {
            writeln!(err, "error: {error}")?;
            return Ok(FAILED);
        }
    };
    if let Some(id) = from
        .as_ref()
        .filter(|id| server.is_some() && !known.is_known && !policy.mcp.servers.contains_key(*id))
    {
        writeln!(
            err,
            "note: no server '{}' is pinned here or in the policy: this is the answer for any server like that",
            escape::line(&id.0)
        )?;
    }
    let profile = known.profile.as_ref();
    let answer = policy.ask_with(from.as_ref(), profile, &question, &place.context());
    let note =
        (from.is_some() && !answer.allow && matches!(question, Question::Read(_) | Question::Write(_)))
            .then_some(FROM_COMMAND);
    let reason = profile.and_then(|profile| profile.reason(&answer.rule));
    if json {
        let mut whole = json!({
            "allow": answer.allow, "rule": answer.rule, "text": answer.text, "change": answer.change,
            "policy": policy.source,
        });
        let more = [
            ("reason", reason),
            ("profile", profile.map(|profile| profile.file.as_str())),
            ("package", known.package.as_deref()),
            ("note", note),
        ];
        for (key, value) in more {
            if let (Some(value), Some(fields)) = (value, whole.as_object_mut()) {
                fields.insert(key.to_owned(), value.into());
            }
        }
        writeln!(out, "{whole}")?;
    } else {
        print_answer(&answer, out)?;
        if let Some(reason) = reason {
            writeln!(out, "  why: {reason}")?;
        }
        if let Some(how) = known.how() {
            writeln!(out, "  {how}")?;
        }
        if let Some(note) = note {
            writeln!(out, "  note: {note}")?;
        }
    }
    Ok(if answer.allow { 0 } else { NO })
}

/// Who asks, and what.
fn asked(server: Option<&str>, args: &QuestionArgs) -> Result<(Option<ServerId>, Question), String> {
    let from = server.map(|id| ServerId(id.to_owned()));
    if let Some(text) = &args.tool {
        return match (policy::tool(text), from) {
            (Some((named, _)), Some(from)) if named != from => {
                Err(format!("--server says `{from}`, but --tool says `{named}`"))
            }
            (Some((named, question)), _) => Ok((Some(named), question)),
            (None, Some(from)) => Ok((Some(from), Question::Tool(text.clone()))),
            (None, None) => Err(format!("which server's tool is `{text}`? write SERVER/TOOL")),
        };
    }
    let question = match (&args.connect, &args.read, &args.write, &args.exec, &args.env) {
        (Some(text), ..) => policy::connect(text)?,
        (_, Some(text), ..) => Question::Read(text.clone()),
        (_, _, Some(text), ..) => Question::Write(text.clone()),
        (_, _, _, Some(text), _) => Question::Exec(text.clone()),
        (.., Some(text)) if text.is_empty() || text.contains('=') => {
            return Err(format!("'{text}' is no name of a variable: write --env NAME"));
        }
        (.., Some(text)) => Question::Env(text.clone()),
        _ => return Err("ask for something: --connect, --read, --write, --exec, --env or --tool".to_owned()),
    };
    Ok((from, question))
}

fn print_answer(answer: &Answer, out: &mut dyn Write) -> io::Result<()> {
    let word = if answer.allow { "allowed" } else { "denied" };
    writeln!(out, "{word}: {}", answer.text)?;
    writeln!(out, "  rule: {}", answer.rule)?;
    let verb = if answer.allow { "to deny it" } else { "to allow it" };
    if let Some(change) = &answer.change {
        writeln!(out, "  {verb}, add: {change}")?;
    } else if answer.rule.file.starts_with("built-in:") {
        writeln!(out, "  {verb}, use a policy of your own without line {}", answer.rule.line)?;
    } else if answer.rule.line > 0 {
        writeln!(out, "  {verb}, take out line {} of {}", answer.rule.line, answer.rule.file)?;
    }
    Ok(())
}
