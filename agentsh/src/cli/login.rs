//! `agentsh login` and `agentsh logout`: OAuth logins to servers behind a URL.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::{ended, fail, profile};
use crate::session::login;
use agentsh_broker::logins::Store;
use agentsh_broker::logins::flow::Request;
use agentsh_store::escape;
use agentsh_terminal::output::{self, Context, Failure, OK, finish};

#[derive(Debug, Args)]
pub struct LoginArgs {
    /// Name of a server in your configuration or of a profile; or a server's URL
    #[arg(required_unless_present = "list")]
    server: Option<String>,
    /// List the stored logins, without their secrets
    #[arg(long, conflicts_with = "server")]
    list: bool,
    /// Print JSON
    #[arg(long, requires = "list")]
    json: bool,
    /// A scope to request in addition to those that the server wants. May be repeated
    #[arg(long, value_name = "NAME", requires = "server")]
    scope: Vec<String>,
    /// Client id, if you registered agentsh at the authorization server; by default it registers itself
    #[arg(long, value_name = "ID", requires = "server")]
    client_id: Option<String>,
    /// Environment variable with the secret of --client-id
    #[arg(long, value_name = "VARIABLE", requires = "client_id")]
    client_secret_env: Option<String>,
    /// Local port for the browser's redirect; by default any free port
    #[arg(long, requires = "server")]
    port: Option<u16>,
    /// Do not start a browser; print the address
    #[arg(long, requires = "server")]
    no_browser: bool,
    /// Timeout in seconds
    #[arg(long, value_name = "SECONDS", default_value = "300")]
    wait: u64,
    /// A policy file, or the name of a built-in policy
    #[arg(long, value_name = "FILE|NAME")]
    policy: Option<String>,
}

#[derive(Debug, Args)]
pub struct LogoutArgs {
    /// Name as in `agentsh login --list`, or URL
    server: String,
    /// A policy file, or the name of a built-in policy
    #[arg(long, value_name = "FILE|NAME")]
    policy: Option<String>,
}

pub async fn login(args: LoginArgs, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let Some(server) = args.server else { return finish(list(args.json, out), err) };
    let profiles = match profile::load() {
        Ok(profiles) => profiles.into_iter().filter_map(|(name, profile)| Some((name, profile.url?))),
        Err(error) => return fail(&error.to_string()),
    };
    let mut profiles: BTreeMap<String, String> = profiles.collect();
    let url = profiles.remove(&server);
    let request = Request {
        server,
        url,
        profiles: profiles.into_keys().collect(),
        policy: args.policy,
        scopes: args.scope,
        client_id: args.client_id,
        client_secret: args.client_secret_env,
        port: args.port,
        browser: !args.no_browser,
        limit: Duration::from_secs(args.wait),
    };
    ended(login::login(request, out).await.map(|()| OK))
}

pub async fn logout(args: LogoutArgs) -> u8 {
    ended(login::logout(&args.server, args.policy).await.map(|()| OK))
}

fn list(as_json: bool, out: &mut dyn Write) -> Result<u8, Failure> {
    let context = Context::of_process()?;
    let (mut rows, mut all, mut broken) = (Vec::new(), Vec::new(), Vec::new());
    for login in Store::new(&context.state_dir).all() {
        let grant = match login {
            Ok(grant) => grant,
            Err(why) => {
                broken.push(why);
                continue;
            }
        };
        let until =
            grant.expires_at.and_then(|end| jiff::Timestamp::from_second(i64::try_from(end).ok()?).ok());
        let until = until.map(|until| until.to_string());
        let renewed = grant.refresh_token.is_some();
        all.push(json!({
            "name": grant.name, "url": grant.url, "issuer": grant.issuer, "scopes": grant.scopes,
            "expires_at": until.clone().map_or(Value::Null, Value::from), "is_renewed": renewed,
        }));
        let end = match (renewed, until) {
            (true, _) => "renewed automatically".to_owned(),
            (false, Some(until)) => format!("until {until}"),
            (false, None) => "expiry unknown".to_owned(),
        };
        rows.push(vec![grant.name, grant.url, grant.issuer, grant.scopes.join(" "), end]);
    }
    if as_json {
        output::json(out, &all)?;
    } else if output::table(out, &context, &["SERVER", "URL", "LOGGED IN AT", "RIGHTS", "END"], rows)? == 0 {
        writeln!(out, "no logins; to log in: `agentsh login SERVER`")?;
    }
    match broken.first() {
        None => Ok(OK),
        Some(why) => Err(Failure::Failed(escape::line(why).into_owned())),
    }
}
