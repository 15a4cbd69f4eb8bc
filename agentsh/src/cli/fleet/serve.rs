//! `agentsh fleet serve`: its arguments. `agentsh-server` serves.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// Where to listen: an address of the loopback, unless there is TLS
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8700")]
    pub listen: SocketAddr,
    #[command(flatten)]
    pub database: Place,
    /// The server's certificate and those above it, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The key of the certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// A proxy in front of the server ends TLS
    #[arg(long)]
    pub behind_proxy: bool,
    /// Forget events this many days after they arrived; without it they stay
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub keep: Option<u32>,
    /// A directory of signed policy bundles that hosts may fetch
    #[arg(long, value_name = "DIRECTORY")]
    pub bundles: Option<PathBuf>,
    /// Also serve a registry of interfaces below /registry: what nobody has registered is registered by approvers, or by hosts too
    #[arg(long, value_enum)]
    pub registry: Option<Registers>,
    /// A request for approval of an interface that nobody answers ends after this many days
    #[arg(long, value_name = "DAYS", default_value_t = 7, requires = "registry",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub answer_within: u32,
    #[command(flatten)]
    pub oidc: OidcArgs,
}

/// Where the server keeps what it has.
#[derive(Clone, Debug, Args)]
pub struct Place {
    /// postgres://USER@HOST/NAME, or a file of SQLite; otherwise AGENTSH_FLEET_DATABASE, which shows no password to other
    /// users, or a file in agentsh's state directory
    #[arg(long, value_name = "URL|FILE")]
    pub database: Option<String>,
}

impl Place {
    /// What the user named, on the command line or in the environment.
    #[must_use]
    pub fn named(&self) -> Option<String> {
        let set = || std::env::var("AGENTSH_FLEET_DATABASE").ok().filter(|named| !named.is_empty());
        self.database.clone().or_else(set)
    }
}

#[derive(Clone, Debug, Args)]
pub struct OidcArgs {
    /// People also sign in to the pages at this OpenID provider: its issuer, as it spells itself
    #[arg(long, value_name = "URL", requires_all = ["oidc_client", "public_url"])]
    pub oidc_issuer: Option<String>,
    /// The client id of this server there. A secret is read from AGENTSH_FLEET_OIDC_SECRET
    #[arg(long, value_name = "ID", requires = "oidc_issuer")]
    pub oidc_client: Option<String>,
    /// Where browsers find the pages, such as https://fleet.example; `/sign-in/callback` below it is the redirect address
    #[arg(long, value_name = "URL", requires = "oidc_issuer")]
    pub public_url: Option<String>,
    /// The claim of the id token that gives roles; `a.b` is the member b of a
    #[arg(long, value_name = "CLAIM", default_value = "roles")]
    pub oidc_claim: String,
    /// A role for a value of this claim, such as admin=security; without any, the values viewer, approver and admin count
    #[arg(long, value_name = "ROLE=VALUE")]
    pub oidc_role: Vec<String>,
    /// The claim that names people in records; the subject where it is missing
    #[arg(long, value_name = "CLAIM", default_value = "preferred_username")]
    pub oidc_name: String,
    /// A further scope that is asked for, such as groups
    #[arg(long, value_name = "SCOPE")]
    pub oidc_scope: Vec<String>,
}

/// Who registers what nobody has registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Registers {
    /// Approvers; hosts ask for it
    Closed,
    /// Hosts too
    Open,
}
