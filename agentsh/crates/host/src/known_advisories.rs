//! The advisories about one server, and its recent failures from the journal. Used by the session, `agentsh advisories
//! list` and the page.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};

use agentsh_advisories::{Advisory, Database, Package, TrustedSigners};
use agentsh_base::types::ServerId;
use agentsh_policy::{AdvisoryKind, AdvisoryPolicy, OnAdvisory, Severity};
use agentsh_store::Reader;

use crate::Context;

/// Failures count that are not older.
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Minimum number of calls for a meaningful rate.
const MIN_CALLS: u64 = 10;

/// A server, and what it is made of.
#[derive(Clone, Debug)]
pub struct ServerPackages {
    pub server: ServerId,
    /// The project that configures it; empty for the user's own.
    pub scope: String,
    pub packages: BTreeSet<Package>,
    /// The host of a remote server.
    pub host: Option<String>,
}

/// The user's data and state directories.
#[derive(Clone, Debug)]
pub struct Places {
    pub data: PathBuf,
    pub state: PathBuf,
}

/// All advisories that apply by this policy, the worst first. The server's packages are recorded if advisories were
/// ever fetched.
///
/// # Errors
/// When the known advisories cannot be read.
pub async fn cached_advisories(
    context: &Context,
    policy: &AdvisoryPolicy,
    asked: ServerPackages,
) -> Result<Vec<Advisory>, String> {
    let places = Places { data: context.data.clone(), state: context.state.clone() };
    let server = asked.server.clone();
    let mut found = {
        let (policy, data) = (policy.clone(), places.data.clone());
        let work = tokio::task::spawn_blocking(move || fetched(&data, &policy, &asked, true));
        work.await.map_err(|error| error.to_string())??
    };
    found.extend(own_failures(&places.state, policy, &server).await?);
    Ok(filter_by_policy(policy, found))
}

/// Like [`cached_advisories`], without a cache.
///
/// # Errors
/// Like [`cached_advisories`].
pub async fn find_advisories(
    places: &Places,
    policy: &AdvisoryPolicy,
    asked: ServerPackages,
) -> Result<Vec<Advisory>, String> {
    let server = asked.server.clone();
    let mut found = fetched(&places.data, policy, &asked, false)?;
    found.extend(own_failures(&places.state, policy, &server).await?);
    Ok(filter_by_policy(policy, found))
}

fn fetched(
    data: &Path,
    policy: &AdvisoryPolicy,
    asked: &ServerPackages,
    remember: bool,
) -> Result<Vec<Advisory>, String> {
    let text = |error: agentsh_advisories::DatabaseError| error.to_string();
    let Some(mut database) = Database::open(data).map_err(text)? else { return Ok(Vec::new()) };
    let now = Timestamp::now();
    let believed = TrustedSigners {
        signers: policy.signers.iter().map(|key| key.value.clone()).collect(),
        quorum: policy.quorum(),
    };
    let mut found = database.of_packages(&asked.packages, &believed, now).map_err(text)?;
    if let Some(host) = &asked.host {
        found.extend(database.of_host(host, &believed, now).map_err(text)?);
    }
    for feed in &policy.status {
        if feed.value.servers.contains(&asked.server.0) {
            found.extend(database.of_status(&feed.value.source, now).map_err(text)?);
        }
    }
    if remember && !asked.packages.is_empty() {
        database.remember(&asked.server.0, &asked.scope, &asked.packages).map_err(text)?;
    }
    Ok(found)
}

/// How often the server failed within the last day.
async fn own_failures(
    state: &Path,
    policy: &AdvisoryPolicy,
    server: &ServerId,
) -> Result<Option<Advisory>, String> {
    if policy.on(AdvisoryKind::Availability).value == OnAdvisory::Off {
        return Ok(None);
    }
    let text = |error: agentsh_store::StoreError| error.to_string();
    let Some(mut reader) = Reader::open(state).await.map_err(text)? else { return Ok(None) };
    let since = Timestamp::now().checked_sub(DAY).map_err(|error| error.to_string())?;
    let sums = reader.availability(&server.0, since).await.map_err(text)?;
    let is_too_much = sums.failed.saturating_mul(1000) > sums.calls.saturating_mul(policy.max_error_rate());
    if sums.calls < MIN_CALLS || !is_too_much {
        return Ok(None);
    }
    Ok(Some(Advisory {
        kind: AdvisoryKind::Availability,
        id: "own:error-rate".to_owned(),
        aliases: Vec::new(),
        subject: server.0.clone(),
        severity: Severity::Medium,
        summary: format!("{} of {} calls of the last day failed", sums.failed, sums.calls),
        fixed: None,
    }))
}

fn filter_by_policy(policy: &AdvisoryPolicy, found: Vec<Advisory>) -> Vec<Advisory> {
    let counts = |one: &Advisory| {
        policy.on(one.kind).value != OnAdvisory::Off
            && !policy.ignores(&one.id)
            && !one.aliases.iter().any(|alias| policy.ignores(alias))
    };
    let mut found: Vec<Advisory> = found.into_iter().filter(counts).collect();
    found.sort_by_key(|one| std::cmp::Reverse(one.severity));
    found
}
