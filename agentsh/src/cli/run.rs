//! `agentsh run`.

use std::cell::Cell;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::session::Session;
use crate::session::command_line::CommandLine;
use crate::session::network;
use crate::session::run::{Outcome, Request, run as run_session};
use crate::session::run_error::{RunError, exit_code_of};
use agentsh_agents::Kind;
use agentsh_host::Backend;
use agentsh_host::publish::PublishedPort;
use agentsh_sandbox::Tier;
use agentsh_store::Reader;

use super::flags::FlagArgs;
use super::{fail, shown_notices};
use agentsh_authoring::generate;
use agentsh_terminal::style;
use agentsh_trials::doctor::host::explain_spawn;

#[derive(Debug, Args)]
pub struct RunArgs {
    /// A policy file, or the name of a built-in policy
    #[arg(long, value_name = "FILE|NAME")]
    policy: Option<String>,
    #[command(flatten)]
    flags: FlagArgs,
    /// How network rules are enforced
    #[arg(long, value_enum, default_value = "auto")]
    network: Network,
    /// Print at the end the commands that allow what was refused; this run itself allows nothing more
    #[arg(long)]
    network_learn: bool,
    /// Reach hosts that no rule names, and write the policy that the run needed into a new file: files, hosts, ports of this
    /// machine, servers and tools. Files that no rule names stay refused and are listed in it; what a rule refuses is listed as a comment
    #[arg(long, value_name = "FILE", conflicts_with = "network_learn")]
    learn: Option<PathBuf>,
    /// Report files that programs look for but that are not visible inside, and refused writes. Slows down every file access
    #[arg(long)]
    tell_files: bool,
    /// Make a port of the sandbox reachable at 127.0.0.1:HOSTPORT of this machine; by default the same port; 0 is any free port
    #[arg(long, value_name = "PORT[:HOSTPORT]")]
    publish: Vec<PublishedPort>,
    /// Trust what is new in this project, now and in later runs: git remotes, Go modules, and repositories on this machine
    /// that its git uses
    #[arg(long)]
    agree: bool,
    /// Write changes of the project to a separate layer; `agentsh review` shows and applies them
    #[arg(long)]
    review: bool,
    /// Kind of sandbox; weaker kinds than namespaces are used only if chosen here
    #[arg(long, value_enum, default_value = "namespaces")]
    tier: TierName,
    /// Start even if a layer of protection is not available here
    #[arg(long)]
    allow_degraded: bool,
    /// Write the report of the run as JSON to this new file
    #[arg(long, value_name = "FILE")]
    report_json: Option<PathBuf>,
    /// Write a receipt of the run to this new file
    #[arg(long, value_name = "FILE")]
    receipt: Option<PathBuf>,
    /// Print no summary at the end
    #[arg(long)]
    quiet: bool,
    /// The agent and its arguments; `--` in front of them is needed only if the agent's name starts with a dash
    #[arg(trailing_var_arg = true, required = true, value_name = "AGENT")]
    agent: Vec<OsString>,
}

/// Programs say that a file is missing or read-only, and do not know why.
const WHERE_TO_ASK: &str = "agentsh: for a file that a program calls missing, read-only or busy: `agentsh policy explain --read FILE` \
     or `--write FILE`; `agentsh run --tell-files` prints each refused file";

/// Whether the sandbox refused something to a program, and a run that reports each file would say more.
fn has_refused_inside(session: &Session) -> bool {
    let summary = session.record.journal.summary();
    let refused = summary.refused_files.values().chain(summary.refused_calls.values()).count();
    !session.facts.tells_files && refused + summary.kept_files.values().len() > 0
}

/// Entries of each list of the policy that are suggested at the end.
const MAX_SUGGESTED: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Network {
    /// The strongest that is available here
    Auto,
    /// eBPF in the kernel; records the process of each connection; needs privileges
    Ebpf,
    /// A proxy in agentsh; needs no privileges
    Userns,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TierName {
    /// All layers: an empty root, namespaces, and a network without a route
    Namespaces,
    /// For containers without namespaces: Landlock, seccomp, and connections made by agentsh
    Container,
}

impl From<TierName> for Tier {
    fn from(name: TierName) -> Self {
        match name {
            TierName::Namespaces => Self::Namespaces,
            TierName::Container => Self::Container,
        }
    }
}

impl From<Network> for Backend {
    fn from(network: Network) -> Self {
        match network {
            Network::Auto => Self::Auto,
            Network::Ebpf => Self::Ebpf,
            Network::Userns => Self::Userns,
        }
    }
}

/// Descriptors that the command line names are looked up at once, before anything is opened. `was_interrupted` is set if SIGINT
/// ended the agent.
pub fn run(mut args: RunArgs, was_interrupted: &Cell<bool>) -> impl Future<Output = u8> {
    let given = CommandLine::take(std::mem::take(&mut args.agent));
    run_given(args, given, was_interrupted)
}

async fn run_given(args: RunArgs, given: CommandLine, was_interrupted: &Cell<bool>) -> u8 {
    // Before anything else is told about the session. Without PATH, the default one is searched.
    let program = given.words.first().map_or("", String::as_str);
    let is_name = !program.is_empty() && !program.contains('/') && std::env::var_os("PATH").is_some();
    if is_name && !super::why::is_in_path(program) {
        fail(&format!("{program}: no such command in PATH"));
        return MISSING_PROGRAM;
    }
    let open =
        |file: &Option<PathBuf>, what| file.as_deref().map(|file| Target::open(file, what)).transpose();
    let (target, receipt) = match (open(&args.report_json, "report"), open(&args.receipt, "receipt")) {
        (Ok(target), Ok(receipt)) => (target, receipt),
        (Err(why), _) | (_, Err(why)) => return fail(&why),
    };
    // Checked before the run, so that a mistake does not cost the run.
    if let Some(file) = args.learn.as_deref().filter(|file| file.symlink_metadata().is_ok()) {
        return fail(&format!("--learn: '{}' is there already; name a new file", file.display()));
    }
    let request = Request {
        policy: args.policy,
        flags: args.flags.layer(),
        allow_degraded: args.allow_degraded,
        tier: args.tier.into(),
        backend: args.network.into(),
        publish: args.publish,
        agree: args.agree,
        learns: args.learn.is_some(),
        tells_files: args.tell_files,
        summarised: !args.quiet,
        review: args.review,
        agent: given,
        verb: "run",
    };
    // A known agent got instructions how to ask.
    let is_untold = Kind::of(request.agent.words.first().map_or("", String::as_str)).is_unknown();
    match run_session(request).await {
        Ok(outcome) => {
            report(&outcome, (args.quiet, args.network_learn), target).await;
            if !args.quiet && is_untold && outcome.exit_code != 0 && has_refused_inside(&outcome.session) {
                let _ = writeln!(style::stderr(), "{WHERE_TO_ASK}");
            }
            if let Some(target) = receipt {
                write_receipt(&outcome.session, target).await;
            }
            if args.network_learn {
                outcome.session.record.note(&network::allow_commands(&outcome.session));
                outcome.session.record.release_notes();
            }
            if let Some(file) = &args.learn {
                write_learned(&outcome.session, file).await;
            }
            was_interrupted.set(outcome.session.live.agent.was_interrupted.get());
            outcome.exit_code
        }
        Err(error) => {
            target.into_iter().chain(receipt).for_each(Target::discard);
            fail(&error_with_advice(&error));
            exit_code_of(&error)
        }
    }
}

/// As shells do.
const MISSING_PROGRAM: u8 = 127;

/// Shown if there were more lookups than a session remembers.
const INCOMPLETE: &str = "too many files were missing or refused: the list of files is incomplete";

/// Writes what a run needed to a file. If that fails, the record still has it.
async fn write_learned(session: &Session, file: &Path) {
    let id = session.facts.id.to_string();
    let text =
        generate::of_session(&session.facts.context.state, &id).await.map_err(|error| error.to_string());
    let is_cut = session.live.refusals.looked_for.borrow().is_cut || session.live.refusals.files.is_full();
    if is_cut {
        session.record.note(&format!("--learn: {INCOMPLETE}"));
    }
    let text = text.map(|text| if is_cut { format!("# {INCOMPLETE}\n{text}") } else { text });
    let said = match text.and_then(|text| generate::write_new(file, &text)) {
        Ok(()) => format!(
            "wrote the policy that the run needed to {}; read it before you use it: agentsh run --policy {0}",
            file.display()
        ),
        Err(why) => format!("--learn: {why}; `agentsh policy generate {id}` prints the policy"),
    };
    session.record.note(&said);
    session.record.release_notes();
}

/// A failure does not change the program's exit status.
async fn write_receipt(session: &Session, target: Target) {
    let id = session.facts.id.to_string();
    match super::receipt::of_session(
        &session.facts.context.state,
        &id,
        &super::receipt::ReceiptContents::default(),
    )
    .await
    {
        Ok(written) => target.write_or_warn(&written.text),
        Err(why) => {
            target.discard();
            fail(&why.to_string());
        }
    }
}

/// With what `doctor` would say about a step that the kernel refused.
fn error_with_advice(error: &RunError) -> String {
    match error {
        RunError::Spawn(spawn) => match explain_spawn(spawn) {
            Some(why) => format!("{error}; {why}"),
            None => error.to_string(),
        },
        _ => error.to_string(),
    }
}

/// The file for a report or a receipt. agentsh opens it before the agent runs: it reports a wrong path at
/// once, and does not follow what the agent puts in its place afterwards.
struct Target {
    what: &'static str,
    path: PathBuf,
    file: File,
    is_new: bool,
}

impl Target {
    fn open(path: &Path, what: &'static str) -> Result<Self, String> {
        if path == Path::new("-") {
            return Err(format!("the {what} needs a file: standard output belongs to the agent"));
        }
        let is_new = path.symlink_metadata().is_err();
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file =
            opened.map_err(|error| format!("cannot write the {what} to {}: {error}", path.display()))?;
        Ok(Self { what, path: path.to_owned(), file, is_new })
    }

    /// There is nothing to write.
    fn discard(self) {
        if self.is_new {
            // An empty file that stays is no harm.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    fn write_or_warn(self, text: &str) {
        let to = format!("{} to {}", self.what, self.path.display());
        if let Err(error) = self.write(text) {
            fail(&format!("cannot write the {to}: {error}"));
        }
    }

    fn write(mut self, text: &str) -> std::io::Result<()> {
        let meta = self.file.metadata()?;
        if meta.is_file() {
            let same =
                self.path.metadata().is_ok_and(|now| (now.dev(), now.ino()) == (meta.dev(), meta.ino()));
            if !same {
                return Err(std::io::Error::other("it was removed or replaced while the agent ran"));
            }
            self.file.set_len(0)?;
        }
        self.file.write_all(text.as_bytes())
    }
}

/// The short summary on standard error, and the whole report as JSON where it was asked for.
async fn report(outcome: &Outcome, (quiet, is_learning): (bool, bool), target: Option<Target>) {
    let session = &outcome.session;
    if !quiet {
        let summary = session.record.journal.summary();
        let told = shown_notices::of_machine(&session.facts.context.state, &summary);
        let commands = if is_learning { Vec::new() } else { session.wanted_lines(MAX_SUGGESTED) };
        let _ = write!(style::stderr(), "{}", style::summary(&summary.render_short(&told, &commands)));
    }
    let Some(target) = target else { return };
    let text = async {
        let reader = Reader::open(&session.facts.context.state).await.map_err(|error| error.to_string())?;
        let mut reader = reader.ok_or_else(|| "nothing was recorded".to_owned())?;
        let summary = reader.summary(session.facts.id).await.map_err(|error| error.to_string())?;
        serde_json::to_string_pretty(&summary).map_err(|error| error.to_string())
    };
    match text.await {
        Ok(text) => target.write_or_warn(&(text + "\n")),
        Err(error) => drop(fail(&format!("cannot write the report to {}: {error}", target.path.display()))),
    }
}
