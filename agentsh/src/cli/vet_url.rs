//! `agentsh vet-url`: whether agentsh itself would connect to a URL, and why not. Uses the functions of its own
//! connections.

use std::io::{BufRead, Read, Write};
use std::net::IpAddr;
use std::sync::Arc;

use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};

use agentsh_egress::resolve::{Answer, Lookup, ResolveError, Resolver};
use agentsh_egress::target::{Rules, Target, TargetError};

use agentsh_terminal::exit;

/// Longest line of `--json`, in bytes.
const MAX_LINE: u64 = 1 << 20;

#[derive(Debug, Args)]
pub struct VetUrlArgs {
    /// Read one JSON object per line from FILE (`-`: standard input): `id`, `url`, optionally `redirect` (where the
    /// server redirects to) and `dns`, `cname`, `dns_seq` (answers in place of a resolver's). Prints `id`, `verdict`
    /// and `reason`
    #[arg(long, value_name = "FILE", conflicts_with = "url")]
    json: Option<String>,
    /// The URL to judge
    #[arg(required_unless_present = "json")]
    url: Option<String>,
    /// Judge as if the user had named a server on this machine
    #[arg(long)]
    allow_loopback: bool,
}

#[derive(Debug, Deserialize)]
struct Line {
    #[serde(default)]
    id: Value,
    url: String,
    #[serde(flatten)]
    given: ResolverAnswers,
    redirect: Option<Redirect>,
}

/// A resolver's answer to use; the same for every name of the line.
#[derive(Clone, Debug, Default, Deserialize)]
struct ResolverAnswers {
    dns: Option<Records>,
    #[serde(default)]
    cname: Vec<String>,
    /// Answers for successive connections, in order.
    dns_seq: Option<Vec<Records>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Records {
    Addresses(Vec<String>),
    Failure(String),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Redirect {
    One(String),
    Several(Vec<String>),
}

pub async fn run(args: VetUrlArgs, out: &mut impl Write, err: &mut impl Write) -> u8 {
    let rules = Rules { loopback: args.allow_loopback, ..Rules::default() };
    let done = match (args.json, args.url) {
        (Some(file), _) => lines(&file, &rules, out).await.map(|()| 0),
        (None, url) => vet_one(&url.unwrap_or_default(), &rules, out).await,
    };
    done.unwrap_or_else(|error| {
        // The reader may have closed it: ignore that.
        let _ = writeln!(err, "error: {error}");
        exit::FAILED
    })
}

async fn vet_one(url: &str, rules: &Rules, out: &mut impl Write) -> std::io::Result<u8> {
    match judge(url, &[], &ResolverAnswers::default(), rules).await {
        Ok(addresses) => {
            let shown: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            writeln!(out, "allow: it leads to {}", shown.join(", "))?;
            Ok(0)
        }
        Err(refused) => {
            writeln!(out, "block: {refused}")?;
            Ok(exit::NO)
        }
    }
}

async fn lines(file: &str, rules: &Rules, out: &mut impl Write) -> std::io::Result<()> {
    let mut input: Box<dyn BufRead> = match file {
        "-" => Box::new(std::io::stdin().lock()),
        path => Box::new(std::io::BufReader::new(std::fs::File::open(path)?)),
    };
    loop {
        let mut text = Vec::new();
        if input.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut text)? == 0 {
            return out.flush();
        }
        if text.len() as u64 > MAX_LINE {
            return Err(std::io::Error::other(format!("a line has more than {MAX_LINE} bytes")));
        }
        if text.trim_ascii().is_empty() {
            continue;
        }
        let (id, judged) = match serde_json::from_slice::<Line>(&text) {
            Ok(line) => {
                let hops = match line.redirect {
                    None => Vec::new(),
                    Some(Redirect::One(location)) => vec![location],
                    Some(Redirect::Several(locations)) => locations,
                };
                let judged = judge(&line.url, &hops, &line.given, rules).await;
                (line.id, judged.map_err(|refused| refused.to_string()))
            }
            Err(error) => (Value::Null, Err(format!("the line cannot be read: {error}"))),
        };
        let (verdict, reason) = match judged {
            Ok(_) => ("allow", "public, and reached only by https".to_owned()),
            Err(reason) => ("block", reason),
        };
        writeln!(out, "{}", json!({"id": id, "verdict": verdict, "reason": reason}))?;
    }
}

/// A URL is allowed when each connection is that asking for it leads to.
async fn judge(
    url: &str,
    hops: &[String],
    given: &ResolverAnswers,
    rules: &Rules,
) -> Result<Vec<IpAddr>, TargetError> {
    let mut target = Target::parse(url, rules)?;
    let mut addresses = connections(&target, given, rules).await?;
    for (before, location) in hops.iter().enumerate() {
        target = target.redirected(location, before, rules)?;
        addresses = connections(&target, given, rules).await?;
    }
    Ok(addresses)
}

async fn connections(
    target: &Target,
    given: &ResolverAnswers,
    rules: &Rules,
) -> Result<Vec<IpAddr>, TargetError> {
    let answers: Vec<&Records> = given.dns.iter().chain(given.dns_seq.iter().flatten()).collect();
    if answers.is_empty() && target.literal_address().is_none() {
        let lookup = Resolver::system_lookup()
            .map_err(|why| TargetError::Unresolved { name: target.name().to_owned(), why })?;
        return target.resolve(rules, &*lookup).await;
    }
    let mut addresses = target.literal_address().into_iter().collect();
    for records in answers {
        addresses = target.resolve(rules, &*answering(records, &given.cname)).await?;
    }
    Ok(addresses)
}

fn answering(records: &Records, chain: &[String]) -> Arc<Lookup> {
    let failed = |why: &str| Err(ResolveError::Failed(why.to_owned()));
    let answer = match records {
        Records::Failure(why) => failed(why),
        Records::Addresses(texts) => {
            match texts.iter().map(|text| text.parse()).collect::<Result<Vec<IpAddr>, _>>() {
                Ok(addresses) => Ok(Answer {
                    addresses,
                    chain: chain.iter().map(|name| without_final_dot(name)).collect(),
                }),
                Err(error) => failed(&error.to_string()),
            }
        }
    };
    Arc::new(move |_| Box::pin(std::future::ready(answer.clone())))
}

/// A name as a resolver's answer gives it.
fn without_final_dot(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    name.strip_suffix('.').unwrap_or(&name).to_owned()
}
