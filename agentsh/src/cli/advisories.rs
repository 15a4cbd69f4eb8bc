//! `agentsh advisories update|list|show`: fetches advisories, and lists those about the user's servers.

mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::{Value, json};

use agentsh_advisories::archive::is_zip;
use agentsh_advisories::read::{Document, MAX_DOCUMENT, SIGNATURES, Tally, documents, for_each_document};
use agentsh_advisories::{Advisory, Database, DatabaseError, Package, deny};
use agentsh_authoring::CommandContext;
use agentsh_base::types::ServerId;
use agentsh_host::known_advisories::{self, Places, ServerPackages};
use agentsh_host::packages;
use agentsh_policy::AdvisoryPolicy;
use agentsh_store::escape;
use agentsh_store::pins::PinStore;
use agentsh_terminal::exit::{FAILED, NO, OK};

#[derive(Debug, Args)]
pub struct AdvisoriesArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Read advisories from files and URLs: OSV records (also an `all.zip`), KEV lists, signed deny lists, status pages
    Update {
        /// A file, directory or URL, instead of those in the policy
        #[arg(long, value_name = "FILE|URL")]
        source: Vec<String>,
    },
    /// List advisories about your servers, and the sources read (exit 1: there is a warning)
    List {
        /// Read this source into the local database first
        #[arg(long, value_name = "FILE|URL")]
        source: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a record as it was read
    Show {
        /// The id of the record, such as GHSA-…, CVE-… or MAL-…
        id: String,
        /// Read this source into the local database first
        #[arg(long, value_name = "FILE|URL")]
        source: Vec<String>,
    },
}

/// Runs the command; the exit code is 0, 1 for "there is an advisory" or "no such record", 125 when there is no answer.
pub async fn run(args: AdvisoriesArgs, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let done = match args.verb {
        Verb::Update { source } => update(source, out).await,
        Verb::List { source, json } => list(source, json, out).await,
        Verb::Show { id, source } => show(&id, source, out).await,
    };
    done.unwrap_or_else(|why| {
        let _ = writeln!(err, "error: {why}");
        FAILED
    })
}

/// The directories, and the policy about advisories.
struct AdvisoryContext {
    places: Places,
    policy: AdvisoryPolicy,
    home: PathBuf,
}

fn advisory_context() -> Result<AdvisoryContext, String> {
    let place = CommandContext::from_environment()
        .map_err(|error| format!("cannot find the current directory: {error}"))?;
    let policy = place.in_force().map_err(|error| error.render().trim_start_matches("error: ").to_owned())?;
    Ok(AdvisoryContext { places: places(&place), policy: policy.mcp.advisories, home: place.home })
}

/// After these sources were read.
async fn here_with(sources: &[String]) -> Result<AdvisoryContext, String> {
    let here = advisory_context()?;
    for source in sources {
        take(&here, source)
            .await
            .map_err(|why| format!("{}: {}", escape::line(source), escape::line(&why)))?;
    }
    Ok(here)
}

fn places(place: &CommandContext) -> Places {
    let data = place.env.get("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let data = data.unwrap_or_else(|| place.home.join(".local/share")).join("agentsh");
    Places { data, state: place.state.clone() }
}

async fn update(sources: Vec<String>, out: &mut dyn Write) -> Result<u8, String> {
    let here = advisory_context()?;
    let named = !sources.is_empty();
    let of_policy = here.policy.sources.iter().map(|source| source.value.clone());
    let feeds = here.policy.status.iter().map(|feed| feed.value.source.clone());
    let sources: Vec<String> = if named { sources } else { of_policy.chain(feeds).collect() };
    if sources.is_empty() {
        return Err("there is nothing to read: give `--source FILE|URL`, or write \
                    `sandbox: {mcp: {advisories: {sources: [FILE|URL]}}}`"
            .to_owned());
    }
    let mut failed = 0;
    for source in &sources {
        match take(&here, source).await {
            Ok(line) => writeln!(out, "{line}").map_err(|error| error.to_string())?,
            Err(why) => {
                failed += 1;
                let line = format!("{}: {}", escape::line(source), escape::line(&why));
                writeln!(out, "not read: {line}").map_err(|error| error.to_string())?;
            }
        }
    }
    match failed {
        0 => Ok(OK),
        some => {
            Err(format!("cannot read {some} of {} sources; their earlier records are kept", sources.len()))
        }
    }
}

/// Reads one source into the database.
async fn take(here: &AdvisoryContext, source: &str) -> Result<String, String> {
    let now = Timestamp::now();
    let mut database = Database::create(&here.places.data).map_err(|error| error.to_string())?;
    let (mut count, mut unread, mut why) = (0, 0, None);
    for name in sources::names_of(here, source)? {
        let file = sources::open_source(here, &name).await?;
        match take_file(here, &mut database, (source, &name), &file, now).await {
            Ok(tally) => {
                count += tally.read;
                unread += tally.unread;
                why = why.or(tally.why);
            }
            // One file of a directory is not a reason to leave the others.
            Err(error) if name != source => {
                unread += 1;
                why.get_or_insert_with(|| format!("{name}: {error}"));
            }
            Err(error) => return Err(error),
        }
    }
    let lost = match (unread, why) {
        (0, _) => String::new(),
        (lost, why) => format!(", {lost} not read ({})", escape::line(&why.unwrap_or_default())),
    };
    Ok(format!("{}: {count} read{lost}", escape::line(source)))
}

/// Reads one file of a source, all of it or nothing. What is large goes by record after record; a signed list is small, and
/// signed as a whole, also inside an archive.
async fn take_file(
    here: &AdvisoryContext,
    database: &mut Database,
    (source, name): (&str, &str),
    file: &File,
    now: Timestamp,
) -> Result<Tally, String> {
    let text = |error: DatabaseError| error.to_string();
    let keys: Vec<String> = here.policy.signers.iter().map(|key| key.value.clone()).collect();
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    if length > MAX_DOCUMENT {
        let mut taking = database.begin(source, now).map_err(text)?;
        let tally = for_each_document(file, |document| {
            taking.add(&document, &deny::signed_by(&document, &[], &keys)).map_err(text)
        })?;
        taking.finish().map_err(text)?;
        return Ok(tally);
    }
    // A pipe has no length.
    let bytes = sources::read_rest(file, MAX_DOCUMENT)?;
    let read = documents(&bytes)?;
    let unsigned = read.all.iter().find_map(|document| match document {
        Document::Deny(list, None) => Some(&list.name),
        _ => None,
    });
    let signatures = match unsigned {
        Some(list) => sources::signatures_of(here, name).await.map_err(|why| {
            if !is_zip(&bytes) {
                return why;
            }
            format!(
                "deny list '{list}' has no signatures in FILE{SIGNATURES} next to it in the archive, and {why}"
            )
        })?,
        None => String::new(),
    };
    let whole = deny::signers(&bytes, &signatures, &keys);
    let signed_by = |document: &Document| deny::signed_by(document, &whole, &keys);
    database.take(source, &read.all, signed_by, now).map_err(text)?;
    Ok(Tally { read: read.all.len() as u64, unread: read.unread, why: read.why })
}

type ByServer = BTreeMap<(String, String), Vec<Advisory>>;

/// The packages of every server at its last start; of servers without a recorded start, those of the pin.
async fn inventory(places: &Places) -> Result<BTreeMap<(String, String), BTreeSet<Package>>, String> {
    let known = Database::open(&places.data).map_err(|error| error.to_string())?;
    let mut inventory = match &known {
        None => BTreeMap::new(),
        Some(database) => database.inventory().map_err(|error| error.to_string())?,
    };
    if agentsh_store::Reader::open(&places.state).await.map_err(|error| error.to_string())?.is_some() {
        for pin in PinStore::new(&places.state).list().await.map_err(|error| error.to_string())? {
            let key = (pin.state.server_id.0, pin.state.scope);
            inventory.entry(key).or_default().extend(packages::of_identity(&pin.state.identity));
        }
    }
    Ok(inventory)
}

/// The advisories about one server, whichever project configures it.
pub(super) async fn of_server(
    place: &CommandContext,
    policy: &AdvisoryPolicy,
    id: &str,
) -> Result<Vec<Advisory>, String> {
    let places = places(place);
    let all = inventory(&places).await?;
    let packages = all.into_iter().filter(|((server, _), _)| server == id).flat_map(|(_, packages)| packages);
    let server = ServerId(id.to_owned());
    let asked = ServerPackages { server, scope: String::new(), packages: packages.collect(), host: None };
    known_advisories::find_advisories(&places, policy, asked).await
}

async fn list(sources: Vec<String>, as_json: bool, out: &mut dyn Write) -> Result<u8, String> {
    let here = here_with(&sources).await?;
    let known = Database::open(&here.places.data).map_err(|error| error.to_string())?;
    let kept = match &known {
        None => Vec::new(),
        Some(database) => database.sources().map_err(|error| error.to_string())?,
    };
    let mut found = ByServer::new();
    for ((server, scope), packages) in inventory(&here.places).await? {
        let asked =
            ServerPackages { server: ServerId(server.clone()), scope: scope.clone(), packages, host: None };
        let about = known_advisories::find_advisories(&here.places, &here.policy, asked).await?;
        found.insert((server, scope), about);
    }
    let started = known.as_ref().map(Database::inventory).transpose().map_err(|error| error.to_string())?;
    let started = started.unwrap_or_default();
    let unknown = found.keys().filter(|server| !started.contains_key(*server)).cloned().collect();
    let is_warned = found.values().any(|list| !list.is_empty());
    let printed = match as_json {
        true => {
            let sources: Vec<Value> = kept
                .iter()
                .map(|one| json!({"source": one.source, "kinds": one.kinds, "records": one.records, "at": one.at}))
                .collect();
            writeln!(out, "{}", json!({"servers": as_values(&found), "sources": sources}))
        }
        false => print(&found, &unknown, &kept, out),
    };
    printed.map_err(|error| error.to_string())?;
    Ok(if is_warned { NO } else { OK })
}

fn as_values(found: &ByServer) -> Vec<Value> {
    let servers = found.iter().map(|((server, scope), list)| {
        let list: Vec<Value> = list.iter().map(value_of).collect();
        json!({"server_id": server, "project": (!scope.is_empty()).then_some(scope), "advisories": list})
    });
    servers.collect()
}

fn value_of(one: &Advisory) -> Value {
    json!({
        "kind": one.kind.as_str(), "id": one.id, "aliases": one.aliases, "subject": one.subject,
        "severity": one.severity.as_str(), "summary": one.summary, "fixed": one.fixed,
    })
}

fn print(
    found: &ByServer,
    unknown: &BTreeSet<(String, String)>,
    kept: &[agentsh_advisories::StoredSource],
    out: &mut dyn Write,
) -> std::io::Result<()> {
    for ((server, scope), list) in found {
        let of = if scope.is_empty() { String::new() } else { format!(" (of {})", escape::line(scope)) };
        let count = match list.len() {
            0 if unknown.contains(&(server.clone(), scope.clone())) => {
                "start it once, then its dependencies are compared too".to_owned()
            }
            0 => "no advisory".to_owned(),
            1 => "1 advisory".to_owned(),
            many => format!("{many} advisories"),
        };
        writeln!(out, "{}{of}: {count}", escape::line(server))?;
        for one in list {
            writeln!(out, "  {}", line(one))?;
        }
    }
    if found.is_empty() {
        writeln!(out, "no server has been started yet")?;
    }
    for one in kept {
        writeln!(
            out,
            "read {}: {} records ({}) from {}",
            one.at,
            one.records,
            one.kinds,
            escape::line(&one.source)
        )?;
    }
    if kept.is_empty() {
        writeln!(out, "nothing was read yet: `agentsh advisories update --source FILE|URL`")?;
    }
    Ok(())
}

/// One advisory, for people.
pub(super) fn line(one: &Advisory) -> String {
    let fixed = one.fixed.as_ref().map(|fixed| format!("; fixed in {}", escape::line(fixed)));
    format!(
        "{}: {} {} ({}): {}{}",
        one.severity.as_str(),
        escape::line(&one.id),
        escape::line(&one.subject),
        one.kind.as_str(),
        escape::line(&one.summary),
        fixed.unwrap_or_default()
    )
}

async fn show(id: &str, sources: Vec<String>, out: &mut dyn Write) -> Result<u8, String> {
    let here = here_with(&sources).await?;
    let known = Database::open(&here.places.data).map_err(|error| error.to_string())?;
    let record = match known {
        Some(database) => database.record(id).map_err(|error| error.to_string())?,
        None => None,
    };
    let Some(record) = record else {
        writeln!(out, "no record has the id {}", escape::line(id)).map_err(|error| error.to_string())?;
        return Ok(NO);
    };
    let value: Value = serde_json::from_str(&record).map_err(|error| error.to_string())?;
    // serde_json escapes no characters but control characters below U+0020: the rest is escaped line by line.
    for line in format!("{value:#}").lines() {
        writeln!(out, "{}", escape::line(line)).map_err(|error| error.to_string())?;
    }
    Ok(OK)
}
