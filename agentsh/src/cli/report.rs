//! `agentsh report`: what one session did.

use std::io::Write;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::fleet::Fleet;
use super::sessions::{self, SessionsArgs};
use super::ui;
use agentsh_authoring::CommandContext;
use agentsh_base::types::SessionId;
use agentsh_store::verify::SessionState;
use agentsh_store::{Reader, StoreError, Summary, running};
use agentsh_terminal::output::{Context, Failure, OK, json};
use agentsh_terminal::style;

#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// A session id, the beginning of one, or `latest`; `list` lists them [default: the newest of this project, else
    /// `latest`]
    pub session: Option<String>,
    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Query a fleet server, for a session of any of its hosts
    #[arg(long, value_name = "URL")]
    pub fleet: Option<String>,
    /// Print JSON: the same as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// With `list`: maximum number of sessions, newest first
    #[arg(long, value_name = "N", default_value_t = sessions::LIMIT)]
    pub limit: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
    /// One self-contained page
    Html,
}

/// What `--format json` and `agentsh run --report-json` write.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    #[serde(flatten)]
    pub summary: Summary,
    pub chain: Chain,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Chain {
    pub state: SessionState,
    /// In the whole journal.
    pub problems: u64,
}

/// Prints the report; gives the exit status.
pub async fn run(
    args: ReportArgs,
    context: &Context,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    if args.fleet.is_some() {
        return of_fleet(&args, context, out, err).await;
    }
    if args.session.as_deref() == Some("list") {
        let json = args.json || args.format == Format::Json;
        return sessions::list(&SessionsArgs { limit: args.limit, json }, context, out, err).await;
    }
    report(&args, context, out).await
}

async fn report(args: &ReportArgs, context: &Context, out: &mut dyn Write) -> Result<u8, Failure> {
    let mut reader = Reader::open(&context.state_dir).await?.ok_or(StoreError::NoSession)?;
    let session = match &args.session {
        Some(which) => reader.session(which).await?,
        None => newest_here(&mut reader).await?,
    };
    let summary = reader.summary(session).await?;
    let checked = reader.verify().await?;
    let id = session.to_string();
    let found = checked.sessions.iter().find(|check| check.session == id);
    let state = found.map_or(SessionState::Broken, |check| check.state);
    let report = Report { summary, chain: Chain { state, problems: checked.problem_count } };
    print(args, &mut reader, &report, context, out).await
}

async fn newest_here(reader: &mut Reader) -> Result<SessionId, StoreError> {
    if let Ok(directory) = std::env::current_dir()
        && let Some(session) = reader.newest_session_in(&directory).await?
    {
        return Ok(session);
    }
    reader.session("latest").await
}

/// A session of another host, out of what the server has of it.
async fn of_fleet(
    args: &ReportArgs,
    context: &Context,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    let url = args.fleet.as_deref().unwrap_or_default();
    let mut copied =
        Fleet::at(url, None, context)?.copy_session(args.session.as_deref().unwrap_or("latest")).await?;
    writeln!(err, "host {}", agentsh_store::escape::line(&copied.host))?;
    if copied.forgotten > 0 {
        writeln!(err, "the server has forgotten its first {} events", copied.forgotten)?;
    }
    let summary = copied.reader.summary(copied.id).await?;
    let chain = Chain { state: copied.state, problems: copied.problems };
    print(args, &mut copied.reader, &Report { summary, chain }, context, out).await
}

async fn print(
    args: &ReportArgs,
    reader: &mut Reader,
    report: &Report,
    context: &Context,
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    match args.format {
        Format::Json => json(out, report)?,
        Format::Text if args.json => json(out, report)?,
        Format::Text => {
            // Lines for a pipe stay whole, so that `grep` finds them.
            let width = context.width.map_or(usize::MAX, usize::from);
            let text = report.summary.render_text(width) + "chain\n  " + &report.chain.describe() + "\n";
            let text = if context.width.is_some() { style::report(&text) } else { text };
            write!(out, "{text}")?;
        }
        Format::Html => {
            let page = page(reader, report, context).await?;
            out.write_all(page.as_bytes())?;
        }
    }
    Ok(OK)
}

/// The page of the session as one file.
async fn page(reader: &mut Reader, report: &Report, context: &Context) -> Result<String, Failure> {
    let place = CommandContext::from_environment();
    let place =
        place.map_err(|error| Failure::Failed(format!("cannot find the current directory: {error}")))?;
    let id = report.summary.session;
    let is_running = running::is_running(&context.state_dir, id);
    let chain = ("Chain of the record".to_owned(), vec![report.chain.describe()]);
    Ok(ui::session::standalone_page(reader, id, is_running, &place, vec![chain]).await?)
}

impl Chain {
    fn describe(&self) -> String {
        let own = match self.state {
            SessionState::Ended => "intact",
            SessionState::OpenOrKilled => "valid so far, not ended",
            SessionState::Broken => "broken",
        };
        match self.problems {
            0 => own.to_owned(),
            problems => format!("{own}; {problems} problems in the journal: agentsh events verify"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use agentsh_store::testing::{START, one_session, tamper};
    use agentsh_terminal::output::finish;
    use std::path::Path;

    async fn ask(state_dir: &Path, session: &str, format: Format) -> (u8, String) {
        let context = Context { state_dir: state_dir.to_owned(), now: START.parse().unwrap(), width: None };
        let args = ReportArgs {
            session: Some(session.to_owned()),
            format,
            fleet: None,
            json: false,
            limit: sessions::LIMIT,
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let result = report(&args, &context, &mut out).await;
        let status = finish(result, &mut err);
        out.extend(err);
        (status, agentsh_terminal::output::without_colour(out))
    }

    #[tokio::test]
    async fn report_of_a_session_as_text_and_json() {
        let dir = one_session().await;
        let (status, text) = ask(dir.path(), "latest", Format::Text).await;
        assert_eq!(status, OK);
        insta::assert_snapshot!("report", text);
        let (_, text) = ask(dir.path(), "01980000", Format::Json).await;
        insta::assert_json_snapshot!(
            "report_json",
            serde_json::from_str::<serde_json::Value>(&text).unwrap()
        );
        tamper(dir.path(), "DELETE FROM events WHERE id = 11").await;
        let (status, text) = ask(dir.path(), "latest", Format::Text).await;
        assert_eq!(status, OK);
        assert!(text.contains("chain\n  broken; 2 problems"), "{text}");
    }

    #[tokio::test]
    async fn report_of_an_unknown_session_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(
            ask(dir.path(), "latest", Format::Text).await,
            (1, "error: no session is recorded\n".to_owned())
        );
        let dir = one_session().await;
        assert_eq!(ask(dir.path(), "beef", Format::Text).await.0, 2);
    }
}
