//! `agentsh policy bundle`: the signed policy of an organisation: signing, fetching, verifying.

use std::io::{Read as _, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::CommandContext;
use crate::minisign::SecretKey;
use agentsh_host::outgoing;
use agentsh_policy::organisation::paths;
use agentsh_policy::{Bundle, InForce, Organisation, bundle};
use agentsh_store::{escape, shown_time};
use agentsh_terminal::output::{Failure, OK};

pub fn keygen(file: &Path, out: &mut dyn Write) -> Result<u8, Failure> {
    let secret = SecretKey::make().map_err(|why| Failure::Failed(format!("cannot create a key: {why}")))?;
    let public = secret.public();
    let mut beside = file.as_os_str().to_owned();
    beside.push(".pub");
    create(file, 0o600, secret.text().as_bytes())?;
    let text = format!("untrusted comment: minisign public key\n{public}\n");
    create(Path::new(&beside), 0o644, text.as_bytes())?;
    writeln!(out, "{public}")?;
    Ok(OK)
}

/// Never overwrites a file.
fn create(file: &Path, mode: u32, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::Failed(format!("cannot write {}: {error}", escape::line(&file.display().to_string())))
    };
    let mut made =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(file).map_err(failed)?;
    made.write_all(bytes).map_err(failed)
}

fn text_of(file: &Path) -> Result<String, Failure> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::Failed(format!("cannot read {}: {why}", escape::line(&file.display().to_string())))
    };
    let mut text = String::new();
    let opened = std::fs::File::open(file).map_err(|error| failed(&error))?;
    let limit = bundle::MAX_BYTES as u64 + 1;
    opened.take(limit).read_to_string(&mut text).map_err(|error| failed(&error))?;
    Ok(text)
}

pub fn expiry(text: &str) -> Result<Timestamp, Failure> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let days = text.strip_suffix('d').and_then(|days| days.parse::<i64>().ok()).filter(|days| *days > 0);
    let after = days.and_then(|days| {
        Timestamp::now().checked_add(SignedDuration::from_hours(days.checked_mul(24)?)).ok()
    });
    after.ok_or_else(|| {
        Failure::Usage(format!("--expires {}: write `90d`, or 2027-01-31T00:00:00Z", escape::line(text)))
    })
}

pub fn sign(
    policy: &Path,
    manifest: &Value,
    key: &Path,
    output: &Path,
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    let failed = |why: &dyn std::fmt::Display| Failure::Failed(format!("cannot sign it: {why}"));
    let body = bundle::body(&manifest.to_string(), &text_of(policy)?).map_err(|error| failed(&error))?;
    let secret = SecretKey::read(&text_of(key)?).map_err(|error| failed(&error))?;
    let comment = format!(
        "agentsh bundle {} version {}",
        manifest["name"].as_str().unwrap_or_default(),
        manifest["version"]
    );
    let text = secret.sign(body.as_bytes(), &comment) + &body;
    // The signed text is the one that hosts will read.
    let read = Bundle::read(&output.display().to_string(), &text, &[secret.public()]);
    let read = read.map_err(|error| failed(&error))?;
    create(output, 0o644, text.as_bytes())?;
    writeln!(out, "{}: {}", escape::line(&output.display().to_string()), bundle_summary(&read))?;
    Ok(OK)
}

pub fn organisation(place: &CommandContext) -> Result<Option<Organisation>, Failure> {
    Organisation::find(&place.system, &place.config_home, &place.state)
        .map_err(|error| Failure::Failed(error.to_string()))
}

/// A public key as it is, or the last line of a minisign public key file.
fn public_key(word: &str) -> Result<String, Failure> {
    if !Path::new(word).is_file() {
        return Ok(word.to_owned());
    }
    let text = text_of(Path::new(word))?;
    Ok(text.trim_end().lines().next_back().unwrap_or_default().trim().to_owned())
}

pub fn open(file: &Path, keys: &[String], place: &CommandContext) -> Result<Bundle, Failure> {
    let keys = match (keys, organisation(place)?) {
        ([], None) => {
            return Err(Failure::Usage("the signer is not known: give --public-key with a key, or with the .pub file of `agentsh policy bundle keygen`".to_owned()));
        }
        ([], Some(organisation)) => organisation.keys,
        (given, _) => given.iter().map(|key| public_key(key)).collect::<Result<_, _>>()?,
    };
    let shown = file.display().to_string();
    Bundle::read(&shown, &text_of(file)?, &keys).map_err(|error| {
        Failure::No(format!("{}: {}", escape::line(&shown), escape::line(&error.to_string())))
    })
}

/// Whether hosts would take it.
pub fn verify(
    file: &Path,
    keys: &[String],
    place: &CommandContext,
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    let bundle = open(file, keys, place)?;
    writeln!(out, "{}: good; {}", escape::line(&file.display().to_string()), bundle_summary(&bundle))?;
    if bundle.expires <= Timestamp::now() {
        return Err(Failure::No("it expired: hosts refuse it".to_owned()));
    }
    Ok(OK)
}

fn bundle_summary(bundle: &Bundle) -> String {
    let locked = match bundle.locks.is_empty() {
        true => "nothing locked".to_owned(),
        false => format!("locked: {}", paths(&bundle.locks)),
    };
    format!(
        "'{}' version {}, until {}, {locked}, signed by {}",
        bundle.name,
        bundle.version,
        shown_time(&bundle.expires.to_string()),
        bundle.signer
    )
}

/// The state of the bundle in force, for people.
pub fn bundle_status(found: &InForce) -> String {
    let mut text = format!(
        "organisation '{}' version {}, until {}",
        found.name,
        found.version,
        shown_time(&found.expires.to_string())
    );
    if !found.locks.is_empty() {
        text.push_str(&format!(", locked: {}", paths(&found.locks)));
    }
    if found.is_expired {
        text.push_str("; expired, in force until a new one is fetched");
    }
    if let Some(why) = &found.refused {
        text.push_str(&format!("; a newer one was refused: {}", escape::line(why)));
    }
    text
}

/// Whether an organisation is named whose bundle comes from a URL.
pub fn is_fetched(place: &CommandContext) -> bool {
    let named = Organisation::find(&place.system, &place.config_home, &place.state).ok().flatten();
    named.is_some_and(|named| is_url(&named.source))
}

/// How the organisation's policy is here, for people, and whether that is well. None: no organisation is named.
pub fn status_line(place: &CommandContext) -> Option<(bool, String)> {
    let named = match Organisation::find(&place.system, &place.config_home, &place.state) {
        Ok(named) => named?,
        Err(error) => return Some((false, error.to_string())),
    };
    Some(match named.in_force(Timestamp::now()) {
        Ok((_, found)) => (found.refused.is_none() && !found.is_expired, bundle_status(&found)),
        Err(error) => (false, error.to_string()),
    })
}

fn is_url(source: &str) -> bool {
    source.starts_with("https://") || source.starts_with("http://")
}

/// Exit status 1 as an error: the bundle is refused, and the one in force stays.
pub async fn pull(place: &CommandContext, out: &mut dyn Write) -> Result<u8, Failure> {
    let organisation = organisation(place)?.ok_or_else(|| {
        let file = place.config_home.join("agentsh").join(agentsh_policy::organisation::FILE);
        Failure::Failed(format!(
            "no organisation is configured; write {} with `name`, `source` and `keys`",
            file.display()
        ))
    })?;
    let source = &organisation.source;
    let fetched = match is_url(source) {
        true => outgoing::get(source, bundle::MAX_BYTES)
            .await
            .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "it is not text".to_owned())),
        false => text_of(Path::new(source)).map_err(|error| error.to_string()),
    };
    let stays = match organisation.bundle() {
        Ok(Some(kept)) => format!("version {} stays in force", kept.version),
        Ok(None) => "none is in force".to_owned(),
        Err(error) => error.to_string(),
    };
    // An unreachable source says nothing about the stored bundle.
    let text = fetched.map_err(|why| {
        Failure::Failed(format!("cannot fetch {}: {}; {stays}", escape::line(source), escape::line(&why)))
    })?;
    let now = Timestamp::now();
    match organisation.accept(&text, now) {
        Ok(bundle) => {
            keep(&organisation, &bundle)?;
            writeln!(out, "in force: {}", bundle_summary(&bundle))?;
            Ok(OK)
        }
        Err(why) => {
            let why = escape::line(&why.to_string()).into_owned();
            // For the reports of sessions.
            let said =
                write_atomically(&organisation.refusal(), format!("{why} (offered at {now})\n").as_bytes());
            let unsaid =
                said.err().map(|error| format!("; this is not recorded: {error}")).unwrap_or_default();
            let from = escape::line(source);
            Err(Failure::No(format!("refused the bundle from {from}: {why}; {stays}{unsaid}")))
        }
    }
}

fn keep(organisation: &Organisation, bundle: &Bundle) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::Failed(format!("cannot write {}: {error}", organisation.kept().display()))
    };
    write_atomically(&organisation.kept(), bundle.text.as_bytes()).map_err(failed)?;
    match std::fs::remove_file(organisation.refusal()) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(error)),
        _ => Ok(()),
    }
}

/// The file is written whole or not at all, even if the machine stops.
fn write_atomically(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let directory = file.parent().ok_or(std::io::ErrorKind::InvalidInput)?;
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    let new = directory.join(format!(".new-{}", uuid::Uuid::now_v7().simple()));
    let mut made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&new)?;
    let written =
        made.write_all(bytes).and_then(|()| made.sync_all()).and_then(|()| std::fs::rename(&new, file));
    if written.is_err() {
        // The first error matters more than a failure of this removal.
        let _ = std::fs::remove_file(&new);
    }
    written
}

pub fn status(as_json: bool, place: &CommandContext, out: &mut dyn Write) -> Result<u8, Failure> {
    let Some(organisation) = organisation(place)? else {
        match as_json {
            true => writeln!(out, "{}", json!({"organisation": null}))?,
            false => writeln!(out, "no organisation is configured here")?,
        }
        return Ok(OK);
    };
    let found = organisation.in_force(Timestamp::now());
    if as_json {
        let found = found.as_ref().ok().map(|(_, found)| found);
        let value = json!({
            "organisation": organisation.name, "source": organisation.source, "file": organisation.file,
            "kept": organisation.kept(), "version": found.map(|found| found.version),
            "expires": found.map(|found| found.expires.to_string()), "expired": found.map(|found| found.is_expired),
            "locked": found.map(|found| found.locks.0.iter().map(|lock| lock.value.as_str()).collect::<Vec<_>>()),
            "refused": found.and_then(|found| found.refused.as_deref()),
        });
        writeln!(out, "{value}")?;
    }
    match found {
        Ok(_) if as_json => Ok(OK),
        Ok((bundle, found)) => {
            writeln!(out, "{}", bundle_status(&found))?;
            writeln!(out, "kept {}, signed by {}", organisation.kept().display(), bundle.signer)?;
            writeln!(
                out,
                "from {}, as {} says",
                escape::line(&organisation.source),
                organisation.file.display()
            )?;
            Ok(OK)
        }
        Err(error) => Err(Failure::No(error.to_string())),
    }
}
