//! `agentsh policy bundle`: the signed policy of an organisation: signing, fetching, verifying.

mod attempt;

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::json;

use agentsh_authoring::{CommandContext, bundle};
use agentsh_policy::bundle::FORMAT;
use agentsh_terminal::output::Failure;

#[derive(Debug, Args)]
pub(super) struct BundleArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Create a key pair without a password, in the format of minisign (minisign's keys work too)
    Keygen {
        /// File for the secret key; the public key goes next to it, as the same name with `.pub`
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Sign a policy
    #[command(
        override_usage = "agentsh policy bundle sign [OPTIONS] --name <NAME> --version <VERSION>\n           \
                                --expires <DURATION|TIME> --key <FILE> --output <FILE> <FILE>"
    )]
    Sign {
        /// The policy
        #[arg(value_name = "FILE")]
        policy: PathBuf,
        /// Name of the organisation
        #[arg(long)]
        name: String,
        /// Version number; hosts refuse a lower one
        #[arg(long)]
        version: u32,
        /// Such as `90d`, or a time such as 2027-01-31T00:00:00Z
        #[arg(long, value_name = "DURATION|TIME")]
        expires: String,
        /// Lock a section, such as `agent.network`: the layers above may only narrow it
        #[arg(long, value_name = "SECTION")]
        lock: Vec<String>,
        /// Unlock a section that the previous version locked
        #[arg(long, value_name = "SECTION")]
        widen: Vec<String>,
        /// The secret key
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// A new file for the bundle
        #[arg(long, short, value_name = "FILE")]
        output: PathBuf,
    },
    /// Verify a bundle without installing it (exit 1: not valid)
    Verify {
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        keys: Keys,
    },
    /// Fetch and install the bundle of the organisation in organisation.yaml (exit 1: refused, the current one stays)
    Pull,
    /// Show which organisation's policy is in force here
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show which recent calls and connections a bundle would have refused (exit 1: at least one)
    Try(attempt::Attempt),
}

#[derive(Debug, Args)]
struct Keys {
    /// A public key or its file, instead of those in organisation.yaml
    #[arg(long = "public-key", value_name = "KEY|FILE")]
    public_key: Vec<String>,
}

pub(super) async fn run(
    args: &BundleArgs,
    place: &CommandContext,
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    match &args.verb {
        Verb::Keygen { file } => bundle::keygen(file, out),
        Verb::Sign { policy, name, version, expires, lock, widen, key, output } => {
            let manifest = json!({
                "format": FORMAT, "name": name, "version": version, "issued": Timestamp::now().to_string(),
                "expires": bundle::expiry(expires)?.to_string(), "locked": lock, "widens": widen,
            });
            bundle::sign(policy, &manifest, key, output, out)
        }
        Verb::Verify { file, keys } => bundle::verify(file, &keys.public_key, place, out),
        Verb::Pull => bundle::pull(place, out).await,
        Verb::Status { json } => bundle::status(*json, place, out),
        Verb::Try(args) => attempt::attempt(args, place, out).await,
    }
}
