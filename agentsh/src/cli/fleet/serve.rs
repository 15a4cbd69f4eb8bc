//! `agentsh fleet serve`: its arguments. `agentsh-server` does the work.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// Address to listen on; without TLS a loopback address
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8700")]
    pub listen: SocketAddr,
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// The server's certificate chain, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The private key of the certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// A proxy in front of the server terminates TLS
    #[arg(long)]
    pub behind_proxy: bool,
    /// Delete events this many days after they arrived; without it they are kept
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub keep: Option<u32>,
    /// Directory with signed policy bundles for the hosts
    #[arg(long, value_name = "DIRECTORY")]
    pub bundles: Option<PathBuf>,
    /// Also serve a registry of interfaces at /registry; says who may register new interfaces: approvers only, or hosts too
    #[arg(long, value_enum)]
    pub registry: Option<Registers>,
    /// Days until an unanswered request for approval of an interface expires
    #[arg(long, value_name = "DAYS", default_value_t = 7, requires = "registry",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub answer_within: u32,
    #[command(flatten)]
    pub oidc: OidcArgs,
}

/// Database of the server.
#[derive(Clone, Debug, Args)]
pub struct DatabaseArgs {
    /// postgres://USER@HOST/NAME, or an SQLite file; default: AGENTSH_FLEET_DATABASE (other users cannot see its password), or a file in agentsh's state directory
    #[arg(long, value_name = "URL|FILE")]
    pub database: Option<String>,
}

impl DatabaseArgs {
    /// The value that the user gave, on the command line or in the environment.
    #[must_use]
    pub fn named(&self) -> Option<String> {
        let set = || std::env::var("AGENTSH_FLEET_DATABASE").ok().filter(|named| !named.is_empty());
        self.database.clone().or_else(set)
    }
}

#[derive(Clone, Debug, Args)]
pub struct OidcArgs {
    /// Issuer URL of an OpenID provider at which people sign in to the pages
    #[arg(long, value_name = "URL", requires_all = ["oidc_client", "public_url"])]
    pub oidc_issuer: Option<String>,
    /// The client id of this server there. A secret is read from AGENTSH_FLEET_OIDC_SECRET
    #[arg(long, value_name = "ID", requires = "oidc_issuer")]
    pub oidc_client: Option<String>,
    /// Public URL of the pages, such as https://fleet.example; `/sign-in/callback` below it is the redirect address
    #[arg(long, value_name = "URL", requires = "oidc_issuer")]
    pub public_url: Option<String>,
    /// The claim of the id token that gives roles; `a.b` is the member b of a
    #[arg(long, value_name = "CLAIM", default_value = "roles")]
    pub oidc_claim: String,
    /// Map a role to a value of this claim, such as admin=security; by default the values viewer, approver and admin
    #[arg(long, value_name = "ROLE=VALUE")]
    pub oidc_role: Vec<String>,
    /// The claim with the person's name for records; by default the subject
    #[arg(long, value_name = "CLAIM", default_value = "preferred_username")]
    pub oidc_name: String,
    /// An additional scope to request, such as groups
    #[arg(long, value_name = "SCOPE")]
    pub oidc_scope: Vec<String>,
}

/// Who may register new interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Registers {
    /// Approvers only; hosts request approval
    Closed,
    /// Hosts too
    Open,
}
