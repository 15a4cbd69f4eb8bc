//! `agentsh gateway`: MCP servers over HTTP for clients on other machines, and the clients' keys.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use jiff::{Span, Timestamp};
use serde_json::json;

use crate::session::gateway;
use agentsh_gateway::config::Config;
use agentsh_gateway::keys::{KEYS, Key, Keys};
use agentsh_host::accepted_files;

use super::ended;
use super::run::Network;
use agentsh_terminal::output::{self, Failure, NO, OK, finish};
use agentsh_terminal::style;

#[derive(Debug, Args)]
pub struct GatewayArgs {
    /// Configuration file: endpoints and addresses
    #[arg(long, value_name = "FILE", global = true, default_value = "gateway.yaml")]
    config: PathBuf,
    /// How network rules are enforced
    #[arg(long, value_enum, default_value = "auto")]
    network: Network,
    /// Start even if a layer of protection is not available here
    #[arg(long)]
    allow_degraded: bool,
    #[command(subcommand)]
    verb: Option<GatewayVerb>,
}

#[derive(Debug, Subcommand)]
enum GatewayVerb {
    /// Create, list and revoke client keys
    Keys {
        #[command(subcommand)]
        verb: KeysVerb,
    },
}

#[derive(Debug, Subcommand)]
enum KeysVerb {
    /// Create a key and print it; it cannot be shown again
    Create {
        /// Name of the key in records and lists
        name: String,
        /// Limit the key to this endpoint; may be repeated
        #[arg(long, value_name = "ID")]
        endpoint: Vec<String>,
        /// Lifetime of the key in days
        #[arg(long, value_name = "N")]
        days: Option<u32>,
        /// Limit the key to clients in this network, such as 10.0.0.0/8; may be repeated
        #[arg(long, value_name = "NETWORK")]
        allow_from: Vec<ipnet::IpNet>,
    },
    /// List the keys, without their secrets
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a key. A running gateway applies it at SIGHUP
    Revoke { name: String },
}

pub async fn run(args: GatewayArgs) -> u8 {
    if let Some(GatewayVerb::Keys { verb }) = args.verb {
        return keys(&args.config, verb, &mut anstream::stdout(), &mut style::stderr());
    }
    let request = gateway::Request {
        config: args.config,
        backend: args.network.into(),
        allow_degraded: args.allow_degraded,
    };
    ended(gateway::run(request).await)
}

fn keys(config: &std::path::Path, verb: KeysVerb, out: &mut impl Write, errors: &mut impl Write) -> u8 {
    finish(change(config, verb, out), errors)
}

fn change(config: &std::path::Path, verb: KeysVerb, out: &mut impl Write) -> Result<u8, Failure> {
    let context = output::Context::of_process()?;
    accepted_files::judge_by(&context.state_dir);
    let config = Config::load(config).map_err(|error| Failure::Usage(error.to_string()))?;
    let file = config.keys_file();
    let wrong = |error: std::io::Error| Failure::Usage(format!("{}: {error}", file.display()));
    let mut keys = Keys::load(&file).map_err(wrong)?;
    let now = Timestamp::now();
    let save = |keys: &Keys| {
        let saved = keys.save(&file);
        saved
            .and_then(|bytes| accepted_files::remember(&context.state_dir, &file, KEYS, &bytes))
            .map_err(wrong)
    };
    match verb {
        KeysVerb::Create { name, endpoint, days, allow_from } => {
            for id in &endpoint {
                if !config.endpoints.iter().any(|known| known.id == *id) {
                    return Err(Failure::Usage(format!("there is no endpoint '{id}' in the configuration")));
                }
            }
            let expires = days.map(|days| now.checked_add(Span::new().hours(i64::from(days) * 24)));
            let expires = expires.transpose().map_err(|error| Failure::Usage(error.to_string()))?;
            let key = Key { name, endpoints: endpoint, created: now, expires, revoked: None, allow_from };
            let text = keys.create(key, now).map_err(wrong)?;
            save(&keys)?;
            writeln!(out, "{text}")?;
            Ok(OK)
        }
        KeysVerb::List { json: true } => {
            let list: Vec<_> = keys
                .keys
                .values()
                .map(|key| json!({"name": key.name, "endpoints": key.endpoints, "created": key.created, "expires": key.expires, "revoked": key.revoked, "allow_from": key.allow_from}))
                .collect();
            output::json(out, &json!(list))?;
            Ok(OK)
        }
        KeysVerb::List { json: false } => {
            if keys.keys.is_empty() {
                writeln!(out, "no keys yet: create one with `agentsh gateway keys create NAME`")?;
            }
            for key in keys.keys.values() {
                let state = match key.state(now) {
                    Ok(()) => "open".to_owned(),
                    Err(why) => why.to_string().trim_start_matches("the key ").to_owned(),
                };
                let opens = if key.endpoints.is_empty() {
                    "all endpoints".to_owned()
                } else {
                    key.endpoints.join(", ")
                };
                let nets: Vec<String> = key.allow_from.iter().map(ToString::to_string).collect();
                let from = if nets.is_empty() { String::new() } else { format!(" from {}", nets.join(", ")) };
                writeln!(out, "{}: {opens}{from}; {state}", key.name)?;
            }
            Ok(OK)
        }
        KeysVerb::Revoke { name } => {
            if keys.revoke(&name, now) == 0 {
                writeln!(out, "no active key is named '{name}'")?;
                return Ok(NO);
            }
            save(&keys)?;
            writeln!(out, "revoked; a running gateway applies it at SIGHUP")?;
            Ok(OK)
        }
    }
}
