//! `agentsh review`: what a run with `--review` changed.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::fail;
use crate::session::{committed, git_head};
use agentsh_host::Context;
use agentsh_host::review::changes::{Change, State, Trees};
use agentsh_host::review::{self, Applied, Mark, Review, Selection, ShownPaths, diff};
use agentsh_store::escape;
use agentsh_terminal::{exit, style};

#[derive(Debug, Args)]
pub struct ReviewArgs {
    /// A session id or its beginning; by default the newest session with a layer for this project
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// Apply to the project; with paths (from here) only these
    #[arg(long, num_args = 0.., value_name = "PATH", conflicts_with_all = ["discard", "undo", "list"])]
    apply: Option<Vec<PathBuf>>,
    /// With --apply: also files that run automatically outside, without naming them
    #[arg(long, requires = "apply")]
    guarded: bool,
    /// Undo the last --apply (or the last --undo); with paths only these
    #[arg(long, num_args = 0.., value_name = "PATH", conflicts_with_all = ["discard", "list"])]
    undo: Option<Vec<PathBuf>>,
    /// Discard the layer
    #[arg(long, conflicts_with = "list")]
    discard: bool,
    /// Keep the layer even if everything in it was applied
    #[arg(long, conflicts_with_all = ["discard", "list"])]
    keep: bool,
    /// List the sessions with a layer
    #[arg(long)]
    list: bool,
    /// Only names and counts, without the differences
    #[arg(long)]
    stat: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &ReviewArgs, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    match answer(args, out, err) {
        Ok(code) => code,
        Err(Failure::Said(error)) => fail(&escape::line(&error)),
        Err(Failure::Nothing(error)) => {
            fail(&escape::line(&error));
            exit::NO
        }
        // The reader may have closed it: ignore that.
        Err(Failure::Output) => exit::OK,
    }
}

enum Failure {
    Said(String),
    /// The answer is no: there is nothing like this.
    Nothing(String),
    Output,
}

impl From<review::ReviewError> for Failure {
    fn from(error: review::ReviewError) -> Self {
        match error {
            review::ReviewError::Nothing(why) => Self::Nothing(why),
            other => Self::Said(other.to_string()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(_: io::Error) -> Self {
        Self::Output
    }
}

fn answer(args: &ReviewArgs, out: &mut dyn Write, err: &mut dyn Write) -> Result<u8, Failure> {
    let (mut context, _) = Context::find_for_server().map_err(|error| Failure::Said(error.to_string()))?;
    if args.list {
        return list(&context, args.json, out, err);
    }
    let review = review::find(&context.state, args.session.as_deref(), &context.directory)?;
    if args.discard {
        review.discard()?;
        writeln!(err, "discarded the layer of session {}", review.session)?;
        return Ok(exit::OK);
    }
    let mut left = review.finish_interrupted()?;
    for (path, why) in left.drain(..) {
        writeln!(err, "{}: {}", display_path(&path), escape::line(&why))?;
    }
    if let Some(paths) = &args.undo {
        let done = review.undo(&relative(&review, paths)?)?;
        return report_applied(&review, &done, "undone", args.json, out, err);
    }
    if let Some(paths) = &args.apply {
        let paths = as_listed(&review, &context, paths)?;
        let selection = Selection { paths, guarded: args.guarded };
        context.project.clone_from(&review.project);
        let start = git_head::head(&review.project);
        // Times of files are those of the last tick of the kernel's clock.
        let since = Timestamp::now() - SignedDuration::from_millis(100);
        let since = (since.as_second().unsigned_abs(), since.subsec_nanosecond().into());
        let done = review.apply(&context, selection)?;
        if let Some(repository) = git_head::Repository::of(&review.project) {
            for (_, detail) in committed::found(&context, &repository, start.as_deref(), since) {
                writeln!(err, "{detail}")?;
            }
        }
        let code = report_applied(&review, &done, "applied", args.json, out, err)?;
        if done.is_complete && !args.keep && !review.is_running() {
            review.discard()?;
            writeln!(
                err,
                "everything was applied to the project; to undo: `agentsh review {} --undo`",
                review.session
            )?;
        }
        return Ok(code);
    }
    let (changes, trees) = review.changes(&context)?;
    if args.json {
        let changes: Vec<Value> = changes.iter().map(|change| change_json(&trees, change)).collect();
        let interrupted = review.interrupted().map(|(done, total)| json!({"done": done, "total": total}));
        let all = json!({
            "session": review.session, "project": review.project.to_string_lossy(),
            "running": review.is_running(), "interrupted": interrupted, "changes": changes,
        });
        writeln!(out, "{}", escape::json(&format!("{all:#}")))?;
    } else {
        let shown = show(&review, &changes, &trees, args.stat, out)?;
        // Names and counts say nothing of what is in a file.
        if !args.stat && out.flush().is_ok() {
            review.keep_shown(shown)?;
        }
    }
    if args.keep {
        writeln!(err, "the layer is kept; `agentsh review {}` shows it again", review.session)?;
    }
    let has_conflict = changes.iter().any(|change| matches!(change.state, State::Conflict(_)));
    Ok(if has_conflict { exit::NO } else { exit::OK })
}

fn list(context: &Context, as_json: bool, out: &mut dyn Write, err: &mut dyn Write) -> Result<u8, Failure> {
    let waiting = review::waiting(&context.state);
    if as_json {
        let rows: Vec<Value> = waiting
            .iter()
            .map(|review| {
                json!({
                    "session": review.session, "project": review.project.to_string_lossy(),
                    "running": review.is_running(), "agent": review.command,
                })
            })
            .collect();
        writeln!(out, "{}", escape::json(&format!("{:#}", Value::from(rows))))?;
        return Ok(exit::OK);
    }
    if waiting.is_empty() {
        writeln!(err, "no session has a layer")?;
    }
    for review in waiting {
        let running = if review.is_running() { "running" } else { "waits" };
        let command = escape::line(&review.command.join(" ")).into_owned();
        writeln!(out, "{}  {running}  {}  {command}", review.session, display_path(&review.project))?;
    }
    Ok(exit::OK)
}

/// Paths count from the current directory, as everywhere; below the top of the project also as the list shows them.
fn as_listed(review: &Review, context: &Context, paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    if context.directory == review.project || paths.iter().all(|path| path.is_absolute()) {
        return relative(review, paths);
    }
    let (changes, _) = review.changes(context)?;
    let is_listed = |path: &Path| changes.iter().any(|change| change.path.starts_with(path));
    let one = |path: &PathBuf| match relative(review, std::slice::from_ref(path)) {
        Ok(found) if found.iter().any(|found| is_listed(found)) => Ok(found),
        _ if path.is_relative() && is_listed(path) => Ok(vec![path.clone()]),
        other => other,
    };
    Ok(paths.iter().map(one).collect::<Result<Vec<_>, _>>()?.concat())
}

/// From the current directory to the project.
fn relative(review: &Review, paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let one = |path: &PathBuf| {
        let absolute = agentsh_host::undo::absolute(path);
        match absolute.strip_prefix(&review.project) {
            // The project itself is everything.
            Ok(below) => Ok(below.to_owned()),
            Err(_) => Err(Failure::Said(format!(
                "{} is not in the project of this session, {}",
                display_path(&absolute),
                display_path(&review.project)
            ))),
        }
    };
    let paths: Vec<PathBuf> = paths.iter().map(one).collect::<Result<_, _>>()?;
    Ok(if paths.iter().any(|path| path.as_os_str().is_empty()) { Vec::new() } else { paths })
}

fn show(
    review: &Review,
    changes: &[Change],
    trees: &Trees,
    stat: bool,
    out: &mut dyn Write,
) -> Result<ShownPaths, Failure> {
    let mut marks = ShownPaths::new();
    let running = if review.is_running() { ", still running" } else { "" };
    writeln!(
        out,
        "session {}{running}: {} changed in {}",
        review.session,
        changes.len(),
        display_path(&review.project)
    )?;
    if let Some((done, total)) = review.interrupted() {
        writeln!(
            out,
            "an apply was interrupted after {done} of {total}; to continue: `agentsh review {} --apply`",
            review.session
        )?;
    }
    let (guarded, others): (Vec<&Change>, Vec<&Change>) =
        changes.iter().partition(|change| change.guarded.is_some());
    let (inner, others): (Vec<&Change>, Vec<&Change>) =
        others.into_iter().partition(|change| is_inner(change));
    if !guarded.is_empty() {
        let title = "these run automatically outside; they are applied only when named, or with --guarded:";
        writeln!(out, "{}", style::paint(style::BAD, title))?;
    }
    for change in guarded.iter().chain(&others) {
        marks.insert(change.path.clone(), row(out, change, trees, stat)?);
    }
    if !inner.is_empty() {
        let refs = inner.iter().filter(|change| change.path.iter().any(|part| part == "refs"));
        let refs: Vec<String> = refs.map(|change| display_path(&change.path)).collect();
        let names = if refs.is_empty() { String::new() } else { format!(": {}", refs.join(", ")) };
        writeln!(out, "{} files of git itself{names}", inner.len())?;
        for change in &inner {
            marks.insert(change.path.clone(), diff::of(trees, change).mark);
        }
        let broken = inner.iter().filter(|change| change.state != State::Clean);
        for change in broken {
            row(out, change, trees, true)?;
        }
    }
    Ok(marks)
}

/// Whether it is an internal file of a repository: commits, index, branches.
fn is_inner(change: &Change) -> bool {
    change.path.iter().any(|part| part == ".git")
}

/// Prints one change. Returns the new state that it shows.
fn row(out: &mut dyn Write, change: &Change, trees: &Trees, stat: bool) -> Result<Option<Mark>, Failure> {
    let difference = diff::of(trees, change);
    let letter = match change.kind_word() {
        "added" => "A",
        "removed" => "D",
        _ => "M",
    };
    let counts = match (difference.added, difference.removed) {
        (0, 0) => String::new(),
        (added, removed) => format!(" +{added} -{removed}"),
    };
    let mut line = format!("{letter} {}{counts}", display_path(&change.path));
    if let Some(why) = &change.guarded {
        line.push_str(&format!(" (guarded: {why})"));
    }
    if change.merged.is_some() {
        line.push_str(" (merged with changes made outside)");
    }
    match &change.state {
        State::Clean => {}
        State::Conflict(why) => line.push_str(&format!(" (conflict: {why})")),
        State::Refused(why) => line.push_str(&format!(" ({why})")),
    }
    let style =
        if change.guarded.is_some() || change.state != State::Clean { style::BAD } else { style::HEADING };
    writeln!(out, "{}", style::paint(style, &line))?;
    if !stat {
        for line in &difference.lines {
            writeln!(out, "{line}")?;
        }
    }
    Ok(difference.mark)
}

fn change_json(trees: &Trees, change: &Change) -> Value {
    let difference = diff::of(trees, change);
    let (conflict, refused) = match &change.state {
        State::Clean => (None, None),
        State::Conflict(why) => (Some(*why), None),
        State::Refused(why) => (None, Some(*why)),
    };
    let kind = change.now.as_ref().or(change.was.as_ref()).map(|stamp| stamp.kind);
    json!({
        "path": change.path.to_string_lossy(), "change": change.kind_word(), "kind": kind,
        "guarded": change.guarded, "conflict": conflict, "refused": refused,
        "added": difference.added, "removed": difference.removed,
    })
}

fn report_applied(
    review: &Review,
    done: &Applied,
    what: &str,
    as_json: bool,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    let failed = !done.conflicts.is_empty() || !done.unknown.is_empty();
    let code = if failed { exit::NO } else { exit::OK };
    if as_json {
        let names = |paths: &[PathBuf]| {
            paths.iter().map(|path| path.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        let pairs = |pairs: &[(PathBuf, String)]| {
            pairs
                .iter()
                .map(|(path, why)| json!({"path": path.to_string_lossy(), "why": why}))
                .collect::<Vec<_>>()
        };
        let all = json!({
            "session": review.session, what: names(&done.applied), "conflicts": pairs(&done.conflicts),
            "guarded": pairs(&done.guarded), "refused": pairs(&done.refused), "unknown": names(&done.unknown),
        });
        writeln!(out, "{}", escape::json(&format!("{all:#}")))?;
        return Ok(code);
    }
    writeln!(out, "{what}: {}", done.applied.len())?;
    let mut rows = |title: &str, pairs: &[(PathBuf, String)]| -> io::Result<()> {
        for (path, why) in pairs {
            writeln!(out, "{title}: {}: {}", display_path(path), escape::line(why))?;
        }
        Ok(())
    };
    rows("conflict", &done.conflicts)?;
    rows("guarded", &done.guarded)?;
    rows("not applied", &done.refused)?;
    for path in &done.unknown {
        writeln!(out, "nothing to apply: {}", display_path(path))?;
    }
    if !done.conflicts.is_empty() && what == "applied" {
        let upper = display_path(&review.layer_directory());
        writeln!(err, "files changed outside are not overwritten; the session's versions are in {upper}")?;
    }
    if done.conflicts.iter().any(|(path, _)| path.ends_with(".git/index")) {
        writeln!(
            err,
            "any `git status` outside writes .git/index: `git reset` makes it fit the commit again"
        )?;
    }
    if !done.guarded.is_empty() {
        writeln!(
            err,
            "guarded files run automatically outside: name them (`agentsh review {} --apply PATH`), or add --guarded",
            review.session
        )?;
    }
    Ok(code)
}

fn display_path(path: &Path) -> String {
    escape::line(&path.to_string_lossy()).into_owned()
}
