//! The command line: one file per verb. Data goes to standard output, everything else to standard error.

mod advisories;
mod approvals;
mod approve;
mod call;
mod client_config;
mod demo;
mod doctor;
pub mod events;
mod examples;
mod flags;
mod fleet;
pub mod gateway;
mod help;
mod inventory;
mod login;
mod man;
pub mod mcp;
mod mcp_query;
mod pins;
mod policy;
mod profile;
pub mod proxy;
mod receipt;
pub mod registry;
pub mod report;
mod review;
pub mod run;
pub mod scan;
pub mod server;
pub mod sessions;
mod setup;
mod shim;
mod shown_notices;
pub mod ui;
pub mod undo;
pub mod vet_url;
mod why;

use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand};
use clap::error::{ContextKind, ContextValue};
use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::session::run_error::{RunError, exit_code_of};
use agentsh_sandbox::{init, zygote};
use agentsh_terminal::output::{Context, Failure, finish};
use agentsh_terminal::{exit, style};
use agentsh_trials::demo::{AGENT_VERB, SERVER_VERB, SESSION_VERB};

#[derive(Debug, Parser)]
#[command(
    name = "agentsh",
    version = env!("AGENTSH_VERSION"),
    about = "Run AI agents and MCP servers that you do not trust",
    styles = style::HELP
)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)] // the arguments of the one that is used, not of sixty
enum Verb {
    /// Run an agent and its MCP servers, each in a sandbox of its own
    Run(run::RunArgs),
    /// Run one MCP server; list servers, tools, calls and pins
    Mcp(mcp::McpArgs),
    /// Make `claude`, `codex` and so on always start in a sandbox
    Enable(shim::EnableArgs),
    /// Start an agent without agentsh again
    Disable(shim::DisableArgs),
    /// List the agents that always start in the sandbox
    Status,
    /// Print or install client configuration that routes a server through agentsh
    ClientConfig(client_config::ClientConfigArgs),
    /// Store servers under a name, with their secrets
    Profile(profile::ProfileArgs),
    /// Log in to a remote MCP server; agents use the token without seeing it
    Login(login::LoginArgs),
    /// Revoke and delete a login
    Logout(login::LogoutArgs),
    /// Serve several MCP servers as one over stdio
    Proxy(proxy::ProxyArgs),
    /// Serve MCP servers over HTTP, for clients on other machines
    Gateway(gateway::GatewayArgs),
    /// Download security advisories and list those that concern your servers
    Advisories(advisories::AdvisoriesArgs),
    /// List and answer the questions of running sessions
    Approvals(approvals::ApprovalsArgs),
    /// Show sessions and answer their questions in the browser
    Ui(ui::UiArgs),
    /// Check, show, explain and test policies
    Policy(policy::PolicyArgs),
    /// Show what a session ran, and what was refused by which rule
    Report(report::ReportArgs),
    /// The same as `agentsh report list`
    #[command(hide = true)]
    Sessions(sessions::SessionsArgs),
    /// Prove to others what a session did: a signed statement about its commits
    Receipt(receipt::ReceiptArgs),
    /// Show, apply or discard the changes of a run with `--review`
    Review(review::ReviewArgs),
    /// Restore a file to its state before a session
    Undo(undo::UndoArgs),
    /// List recorded events, and verify the record
    Events(events::EventsArgs),
    /// Scan tool definitions, results or arguments for injected instructions and secrets
    Scan(scan::ScanArgs),
    /// Collect the records of many hosts on one server, and query them
    Fleet(fleet::FleetArgs),
    /// Hash, compare and approve the tools of MCP servers; serve a registry of them
    Registry(registry::RegistryArgs),
    /// Test every layer of protection on this machine
    Doctor(doctor::DoctorArgs),
    /// Install the AppArmor profile that agentsh needs, and test it
    Setup(setup::SetupArgs),
    /// Check whether agentsh itself would connect to a URL
    VetUrl(vet_url::VetUrlArgs),
    /// Run a hostile server and a scripted agent under full protection: no key, no network
    Demo(demo::DemoArgs),
    /// Inside a sandbox: call one tool of an MCP server and print its result
    Call(call::CallArgs),
    /// Inside a sandbox: tell whether a path, host or command is allowed, by which rule, and how to change it
    Why {
        /// A path, a host (`example.com`, `example.com:8443`, a URL) or the name of a command
        #[arg(value_name = "PATH|HOST|COMMAND")]
        word: String,
    },
    /// Print a completion script for a shell
    Completions {
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write the manual pages of all commands
    Man(man::ManArgs),
    /// Internal: starts an enabled agent
    #[command(hide = true)]
    Shim {
        name: String,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<std::ffi::OsString>,
    },
    /// Internal: the agent's end of an MCP connection
    #[command(hide = true)]
    Bridge { id: String },
}

/// The command line with the arguments of every verb.
fn full_command() -> Command {
    let mut command = Arguments::command();
    command.build();
    command
}

/// Reads the command line and runs the verb.
#[must_use]
pub fn main() -> ExitCode {
    // Without it, the ends of sandboxes are reported as failures: nothing worse.
    let _ = init::take_signals();
    // Before anything is copied that the process must not have.
    if let Some(code) = starts_a_sandbox().then(zygote::fork_ahead).flatten() {
        return code.into();
    }
    // The process that sandboxes are born from comes first: it must not spend time on a command line.
    let mut words = std::env::args_os().skip(1);
    match words.next().as_deref().and_then(std::ffi::OsStr::to_str) {
        Some(zygote::VERB) => return zygote::main().into(),
        Some(agentsh_approvals::guarded_terminal::VERB) => {
            return agentsh_approvals::guarded_terminal::main().into();
        }
        Some(setup::PROBE_VERB) => return setup::run_inside().into(),
        Some(doctor::PROBE_VERB) => return doctor::run_inside().into(),
        Some(SESSION_VERB) => return demo::session().into(),
        Some(SERVER_VERB) => return demo::server().into(),
        Some(AGENT_VERB) => return demo::agent().into(),
        _ => {}
    }
    let matches = match Arguments::command().try_get_matches_from(command_line()) {
        Err(error) if matches!(error.kind(), DisplayHelp | DisplayHelpOnMissingArgumentOrSubcommand) => {
            help::on_one_screen(examples::add(full_command())).try_get_matches_from(command_line())
        }
        matches => matches,
    };
    let arguments = match matches.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => arguments,
        Err(error) => {
            if !error.use_stderr() {
                // The reader may have closed it: ignore that.
                let _ = error.print();
                return exit::OK.into();
            }
            // Nor is a closed standard error.
            let _ = write!(style::stderr(), "{}", error.render().ansi());
            if let Some(program) = unknown_program(&error) {
                let _ = writeln!(style::stderr(), "To run a program in a sandbox: agentsh run -- {program}");
            }
            return misused().into();
        }
    };
    let was_interrupted = std::cell::Cell::new(false);
    let code = match arguments.verb {
        Verb::Bridge { id } => bridge(&id),
        Verb::Why { word } => why::run(&word, &mut anstream::stdout(), &mut style::stderr()),
        Verb::Completions { shell } => completions(shell),
        Verb::Man(args) => {
            man::run(&args, Arguments::command(), &mut anstream::stdout(), &mut style::stderr())
        }
        Verb::Setup(args) => run_and_print(|out, _| setup::run(&args, out)),
        Verb::Call(args) => call::run(&args, &mut anstream::stdout(), &mut style::stderr()),
        Verb::Approvals(args) => {
            run_on_one_thread(async |c, out, err| approvals::run(args, c, out, err).await)
        }
        Verb::Advisories(args) => {
            on_one_thread(advisories::run(args, &mut anstream::stdout(), &mut style::stderr()))
        }
        Verb::Ui(args) => on_one_thread(ui::run(args, &mut anstream::stdout(), &mut style::stderr())),
        Verb::Policy(args) => on_one_thread(policy_verb(&args)),
        Verb::Run(args) => on_one_thread(run::run(args, &was_interrupted)),
        Verb::Mcp(args) => on_one_thread(mcp::run(args)),
        Verb::Enable(args) => run_and_print(|out, _| shim::enable(&args, &mut style::prose(out))),
        Verb::Disable(args) => run_and_print(|out, _| shim::disable(&args, &mut style::prose(out))),
        Verb::Status => run_and_print(|out, _| shim::status(&mut style::prose(out))),
        Verb::Shim { name, args } => shim::run(&name, &args).unwrap_or_else(|error| fail(&error)),
        Verb::ClientConfig(args) => run_and_print(|out, _| client_config::answer(&args, out)),
        Verb::Profile(args) => run_and_print(|out, err| profile::answer(&args, out, err)),
        Verb::Login(args) => on_one_thread(login::login(args, &mut anstream::stdout(), &mut style::stderr())),
        Verb::Logout(args) => on_one_thread(login::logout(args)),
        Verb::Proxy(args) => on_one_thread(proxy::run(args)),
        Verb::Gateway(args) => on_one_thread(gateway::run(args)),
        Verb::Report(args) => run_on_one_thread(async |c, out, err| report::run(args, c, out, err).await),
        Verb::Sessions(args) => {
            run_on_one_thread(async |c, out, err| sessions::list(&args, c, out, err).await)
        }
        Verb::Receipt(args) => {
            run_on_one_thread(async |c, out, err| receipt::answer(&args, c, out, err).await)
        }
        Verb::Review(args) => review::run(&args, &mut anstream::stdout(), &mut style::stderr()),
        Verb::Undo(args) => undo::run(&args),
        Verb::Events(args) => run_on_one_thread(async |c, out, err| events::run(args, c, out, err).await),
        Verb::Scan(args) => on_one_thread(async {
            let done = scan::run(args, &mut anstream::stdout(), &mut style::stderr()).await;
            finish(done, &mut style::stderr())
        }),
        Verb::Registry(args) => on_one_thread(async {
            finish(registry::run(args, &mut anstream::stdout()).await, &mut style::stderr())
        }),
        Verb::Fleet(args) => run_on_one_thread(async |c, out, err| fleet::run(args, c, out, err).await),
        Verb::Doctor(args) => on_one_thread(doctor::run(args)),
        Verb::VetUrl(args) => {
            on_one_thread(vet_url::run(args, &mut anstream::stdout(), &mut style::stderr()))
        }
        Verb::Demo(args) => on_one_thread(demo::run(args)),
    };
    if was_interrupted.get() {
        init::end_by_interrupt();
    }
    code.into()
}

/// Whether the verb starts a sandbox: `run`, the name of an agent in its place, `mcp run`.
fn starts_a_sandbox() -> bool {
    match init::argument(1) {
        Some("mcp") => init::argument(2) == Some("run"),
        word => word.is_some_and(|word| word == "run" || help::is_agent(word)),
    }
}

/// The typed words. The name of an agent in place of a command means `run` with it.
fn command_line() -> impl Iterator<Item = std::ffi::OsString> {
    let mut words: Vec<_> = std::env::args_os().collect();
    if words.get(1).and_then(|word| word.to_str()).is_some_and(help::is_agent) {
        words.splice(1..1, ["run".into(), "--".into()]);
    }
    words.into_iter()
}

/// A word in place of a command that is none: it may be a program. As a shell reads it.
fn unknown_program(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let is_first = std::env::args().nth(1).is_some_and(|first| first == *word);
    agentsh_base::remedy::typed(word).filter(|_| is_first).map(std::borrow::Cow::into_owned)
}

/// The exit status of a command line that cannot be read: what the verb gives for other questions that it cannot
/// answer. Not 2 where that would look like the exit status of the program to run.
fn misused() -> u8 {
    let words: Vec<String> = std::env::args().skip(1).take(2).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["mcp", "run"] => exit::FAILED,
        ["enable" | "disable" | "status" | "client-config" | "profile" | "login" | "logout", ..] => {
            exit::USAGE
        }
        [
            "advisories" | "mcp" | "approvals" | "receipt" | "report" | "review" | "sessions" | "events"
            | "scan" | "registry" | "fleet" | "call",
            ..,
        ] => exit::USAGE,
        _ => exit::FAILED,
    }
}

/// Everything that waits runs on one thread: connections share state without locks.
pub fn on_one_thread(verb: impl Future<Output = u8>) -> u8 {
    agentsh_base::memory::one_heap();
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let code = tokio::task::LocalSet::new().block_on(&runtime, verb);
            // A thread that still reads a terminal must not keep the process alive.
            runtime.shutdown_background();
            code
        }
        Err(error) => fail(&format!("cannot start the runtime: {error}")),
    }
}

/// What a verb prints, and its exit status.
fn run_and_print(verb: impl FnOnce(&mut dyn Write, &mut dyn Write) -> Result<u8, Failure>) -> u8 {
    let mut err = style::stderr();
    let done = verb(&mut anstream::stdout(), &mut err);
    finish(done, &mut err)
}

/// The same of a verb that reads the record, or answers at the width of the terminal.
async fn run_with_context(
    verb: impl AsyncFnOnce(&Context, &mut dyn Write, &mut dyn Write) -> Result<u8, Failure>,
) -> u8 {
    let mut err = style::stderr();
    let done = match Context::of_process() {
        Ok(context) => verb(&context, &mut anstream::stdout(), &mut err).await,
        Err(failure) => Err(failure),
    };
    finish(done, &mut err)
}

fn run_on_one_thread(
    verb: impl AsyncFnOnce(&Context, &mut dyn Write, &mut dyn Write) -> Result<u8, Failure>,
) -> u8 {
    on_one_thread(run_with_context(verb))
}

fn completions(shell: clap_complete::Shell) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "agentsh", &mut script);
    match anstream::stdout().write_all(&script) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            fail(&format!("cannot write: {error}"))
        }
        _ => exit::OK,
    }
}

fn bridge(id: &str) -> u8 {
    match agentsh_mcp::bridge::run(id) {
        Ok(()) => 0,
        Err(error) => fail(&error.to_string()),
    }
}

async fn policy_verb(args: &policy::PolicyArgs) -> u8 {
    match agentsh_authoring::CommandContext::from_environment() {
        Ok(place) => policy::run(args, &place, &mut anstream::stdout(), &mut style::stderr()).await,
        Err(error) => fail(&format!("cannot find the current directory: {error}")),
    }
}

/// The exit code of a session; says why there was none.
fn ended(session: Result<u8, RunError>) -> u8 {
    session.unwrap_or_else(|error| {
        fail(&error.to_string());
        exit_code_of(&error)
    })
}

/// Says what failed; the exit code is agentsh's own.
fn fail(message: &str) -> u8 {
    // The reader may have closed it: ignore that.
    let _ = writeln!(style::stderr(), "{} {message}", style::paint(style::BAD, "error:"));
    exit::FAILED
}
