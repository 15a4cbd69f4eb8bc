//! `agentsh policy check|show|explain|allow|test`: what is written, what is in force, and why.

mod bundle;

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use agentsh_authoring::explain::{QuestionArgs, ServerArgs};
use agentsh_authoring::{
    CommandContext, PolicySelection, allow, check, content, explain, flow, generate, init, profiles,
    reference, show,
};
use agentsh_terminal::output::{Failure, OK, finish};
use agentsh_terminal::style::prose;

#[derive(Debug, Args)]
pub struct PolicyArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Check policies and profiles and run their tests; by default those in force here
    Check {
        /// A file, or the name of a built-in policy or of a server's profile
        #[arg(value_name = "FILE|NAME")]
        names: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the policy in force here, and where each part comes from
    Show {
        /// The name of a built-in policy or of a server's profile
        #[arg(value_name = "NAME", conflicts_with_all = ["policy", "profile", "profiles"])]
        name: Option<String>,
        #[command(flatten)]
        which: PolicySelection,
        /// List the profiles of servers: name, package, hosts
        #[arg(long, conflicts_with_all = ["policy", "profile"])]
        profiles: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Tell whether something is allowed, by which rule, and how to change it (exit 0: allowed, 1: denied)
    #[command(override_usage = "agentsh policy explain [OPTIONS] --connect <HOST:PORT>\n       \
                                agentsh policy explain [OPTIONS] --read|--write|--exec <PATH>\n       \
                                agentsh policy explain [OPTIONS] --env <NAME>|--tool <SERVER/TOOL>\n       \
                                agentsh policy explain [OPTIONS] --flow <FROM> <TO>\n       \
                                agentsh policy explain [OPTIONS] --content <FILE> [--subject <SUBJECT>]")]
    Explain {
        #[command(flatten)]
        which: PolicySelection,
        #[command(flatten)]
        of: ServerArgs,
        #[command(flatten)]
        question: QuestionArgs,
        #[command(flatten)]
        text: content::ContentArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Allow hosts, paths, tools or variables: adds a rule to your policy and shows it (exit 1: still denied)
    Allow(allow::AllowArgs),
    /// Write a commented policy to start from; never overwrites a file
    Init {
        /// By default your own: ~/.config/agentsh/policy.yaml
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Print the policy that a session needed: servers, tools with the hashes of their definitions, hosts
    Generate {
        /// A session id, the beginning of one, or `latest`
        #[arg(value_name = "SESSION", default_value = "latest")]
        session: String,
        /// A new file for the policy
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Sign, check, fetch and try the policy of an organisation
    Bundle(bundle::BundleArgs),
    /// Print the reference of every key as Markdown
    Reference,
    /// Print a JSON schema of policies, for editors
    Schema,
    /// Run the `tests:` of a policy or profile and print every answer
    Test {
        /// A file, or the name of a built-in policy or of a server's profile
        #[arg(value_name = "FILE|NAME")]
        name: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command; data goes to `out`, everything else to `err`. Returns the exit code: 0, 1 for "no", 125 when
/// there is no answer.
pub async fn run(args: &PolicyArgs, place: &CommandContext, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let mut folded;
    let out: &mut dyn Write = match &args.verb {
        Verb::Check { json: false, .. }
        | Verb::Explain { json: false, .. }
        | Verb::Test { json: false, .. } => {
            folded = prose(out);
            &mut folded
        }
        _ => out,
    };
    let done = match &args.verb {
        Verb::Check { names, json } => check::check(names, *json, place, out, err),
        Verb::Show { profiles: true, json, .. } => profiles::list(&place.config_home, *json, out),
        Verb::Show { name, which, json, .. } => {
            show::show(name.as_deref(), which, *json, place, out, err).await
        }
        Verb::Explain { which, question: QuestionArgs { content: Some(file), .. }, text, json, .. } => {
            content::explain(which, file, text, *json, place, out, err)
        }
        Verb::Explain { which, question, json, .. } if !question.flow.is_empty() => {
            flow::explain(which, &question.flow, *json, place, out, err).await
        }
        Verb::Explain { which, of, question, json, .. } => {
            explain::explain(which, of, question, *json, place, out, err).await
        }
        Verb::Allow(args) => allow::allow(args, place, out, err).await,
        Verb::Init { file } => init::init(file.as_deref(), place, out, err),
        Verb::Generate { session, output } => generate::generate(session, output.as_deref(), out).await,
        Verb::Bundle(args) => bundle::run(args, place, out).await,
        Verb::Reference => write!(out, "{}", reference::markdown()).map(|()| OK).map_err(Failure::from),
        Verb::Schema => writeln!(out, "{:#}", reference::schema()).map(|()| OK).map_err(Failure::from),
        Verb::Test { name, json } => check::test(name.as_deref(), *json, place, out, err),
    };
    finish(done, err)
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod policy_tests;
