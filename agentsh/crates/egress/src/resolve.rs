//! Resolves allowed names outside the sandbox.
//!
//! The addresses of a name are checked at every connection, so a later change of the name has no effect: no address
//! is trusted because of an earlier check.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use hickory_proto::op::Query;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use hickory_resolver::config::{LookupIpStrategy, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::system_conf::parse_resolv_conf;
use hickory_resolver::{Hosts, TokioResolver};
use ipnet::IpNet;
use tokio::time::timeout;

use super::special_use;

/// Longest wait for an answer, all servers and attempts together.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of addresses of one name that are used.
const MAX_ADDRESSES: usize = 32;
/// Answers kept, each for its time to live.
const CACHE_SIZE: u64 = 1024;
/// Without a configuration the C library asks this machine.
const NO_CONFIGURATION: &[u8] = b"nameserver 127.0.0.1\n";

/// The host's own way to resolve: its `/etc/hosts`, then the servers of its `/etc/resolv.conf`. Both are read again
/// when they change. Search domains are not used: the name is the whole name.
pub struct Resolver {
    hosts_file: PathBuf,
    servers_file: PathBuf,
    hosts: Mutex<Option<(Stamp, Hosts)>>,
    servers: Mutex<Option<(Stamp, TokioResolver)>>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error("the name does not exist, or has no address")]
    NotFound,
    #[error("the name resolves to {address}, which is not public ({why})")]
    NotPublic { address: IpAddr, why: &'static str },
    #[error("cannot be resolved: {0}")]
    Failed(String),
}

/// The addresses of a name, not yet checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub addresses: Vec<IpAddr>,
    /// The names between, in lower case, without the one that was asked for.
    pub chain: Vec<String>,
}

/// A function that resolves names.
pub type Lookup = dyn Fn(String) -> LookupFuture + Send + Sync;
pub type LookupFuture = Pin<Box<dyn Future<Output = Result<Answer, ResolveError>> + Send>>;

/// The metadata of a file when it was read; None if there was none.
type Stamp = Option<(SystemTime, u64)>;

impl Resolver {
    /// # Errors
    /// When the configuration of the host is there and cannot be read.
    pub fn system() -> Result<Self, ResolveError> {
        let resolver = Self::of_files(Path::new("/etc/hosts"), Path::new("/etc/resolv.conf"));
        resolver.asked_servers()?;
        Ok(resolver)
    }

    fn of_files(hosts_file: &Path, servers_file: &Path) -> Self {
        Self {
            hosts_file: hosts_file.to_owned(),
            servers_file: servers_file.to_owned(),
            hosts: Mutex::default(),
            servers: Mutex::default(),
        }
    }

    /// The host's resolver.
    ///
    /// # Errors
    /// Like [`Resolver::system`].
    pub fn system_lookup() -> Result<Arc<Lookup>, ResolveError> {
        let resolver = Arc::new(Self::system()?);
        Ok(Arc::new(move |name| {
            let resolver = Arc::clone(&resolver);
            Box::pin(async move { resolver.lookup(&name).await })
        }))
    }

    /// The addresses of a name in the order in which they are to be tried: the two families in turn, IPv6 first.
    /// Only addresses that are public or in `permitted` are among them.
    ///
    /// # Errors
    /// Like [`ResolveError`] says; `NotPublic` when no permitted address is left.
    pub async fn resolve(&self, name: &str, permitted: &[IpNet]) -> Result<Vec<IpAddr>, ResolveError> {
        permitted_addresses(self.lookup(name).await?.addresses, permitted)
    }

    /// Everything that a name leads to, allowed or not, the two families in turn, IPv6 first.
    ///
    /// # Errors
    /// Like [`ResolveError`] says, but never `NotPublic`.
    pub async fn lookup(&self, name: &str) -> Result<Answer, ResolveError> {
        let failed = |why: &dyn std::fmt::Display| ResolveError::Failed(why.to_string());
        let mut full = Name::from_ascii(name).map_err(|error| failed(&error))?;
        full.set_fqdn(true);
        let mut answer = match self.addresses_in_hosts_file(&full)? {
            found if found.is_empty() => self.query(full).await?,
            found => Answer { addresses: found, chain: Vec::new() },
        };
        answer.addresses.truncate(MAX_ADDRESSES);
        let (v6, v4) = answer.addresses.iter().partition(|address| address.to_canonical().is_ipv6());
        answer.addresses = alternating(v6, v4);
        Ok(answer)
    }

    /// The addresses in the hosts file. As in the C library, a name that is there is not looked up elsewhere.
    fn addresses_in_hosts_file(&self, name: &Name) -> Result<Vec<IpAddr>, ResolveError> {
        let now = stamp(&self.hosts_file);
        let mut slot = self.hosts.lock().map_err(|_| broken())?;
        if slot.as_ref().is_none_or(|(then, _)| *then != now) {
            let mut hosts = Hosts::default();
            if now.is_some() {
                let text =
                    std::fs::read(&self.hosts_file).map_err(|error| cannot_read(&self.hosts_file, &error))?;
                hosts
                    .read_hosts_conf(text.as_slice())
                    .map_err(|error| cannot_read(&self.hosts_file, &error))?;
            }
            *slot = Some((now, hosts));
        }
        let Some((_, hosts)) = slot.as_ref() else { return Ok(Vec::new()) };
        let of = |rtype| {
            let lookup = hosts.lookup_static_host(&Query::query(name.clone(), rtype));
            lookup
                .map(|lookup| hickory_resolver::lookup_ip::LookupIp::from(lookup).iter().collect::<Vec<_>>())
        };
        Ok([RecordType::AAAA, RecordType::A].into_iter().filter_map(of).flatten().collect())
    }

    async fn query(&self, name: Name) -> Result<Answer, ResolveError> {
        let servers = self.asked_servers()?;
        match timeout(LOOKUP_TIMEOUT, servers.lookup_ip(name)).await {
            Ok(Ok(found)) => {
                Ok(Answer { addresses: found.iter().collect(), chain: chain(found.as_lookup().answers()) })
            }
            Ok(Err(error)) if error.is_no_records_found() => Err(ResolveError::NotFound),
            Ok(Err(error)) => Err(ResolveError::Failed(error.to_string())),
            Err(_) => Err(ResolveError::Failed(format!("no answer within {} s", LOOKUP_TIMEOUT.as_secs()))),
        }
    }

    fn asked_servers(&self) -> Result<TokioResolver, ResolveError> {
        let now = stamp(&self.servers_file);
        let mut slot = self.servers.lock().map_err(|_| broken())?;
        if let Some((then, servers)) = slot.as_ref()
            && *then == now
        {
            return Ok(servers.clone());
        }
        let text = match now {
            Some(_) => {
                std::fs::read(&self.servers_file).map_err(|error| cannot_read(&self.servers_file, &error))?
            }
            None => NO_CONFIGURATION.to_vec(),
        };
        let (config, options) =
            parse_resolv_conf(&text).map_err(|error| cannot_read(&self.servers_file, &error))?;
        let servers = built(config, options)?;
        *slot = Some((now, servers.clone()));
        Ok(servers)
    }
}

fn built(config: ResolverConfig, options: ResolverOpts) -> Result<TokioResolver, ResolveError> {
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    let mut options = options;
    options.use_hosts_file = ResolveHosts::Never;
    options.ip_strategy = LookupIpStrategy::Ipv6AndIpv4;
    options.cache_size = CACHE_SIZE;
    options.try_tcp_on_error = true;
    *builder.options_mut() = options;
    builder.build().map_err(|error| ResolveError::Failed(error.to_string()))
}

/// Leaves out what may not be connected to, and lets the families take turns.
fn permitted_addresses(found: Vec<IpAddr>, permitted: &[IpNet]) -> Result<Vec<IpAddr>, ResolveError> {
    let mut refused = None;
    let (mut v6, mut v4) = (Vec::new(), Vec::new());
    for address in found.into_iter().take(MAX_ADDRESSES) {
        // A block of the policy is about IPv4 also where a server answers in IPv6 clothes.
        let plain = address.to_canonical();
        match special_use::special(address) {
            Some(why) if !permitted.iter().any(|block| block.contains(&plain)) => {
                refused = refused.or(Some(ResolveError::NotPublic { address, why }));
            }
            _ => {
                let family = if plain.is_ipv6() { &mut v6 } else { &mut v4 };
                if !family.contains(&plain) {
                    family.push(plain);
                }
            }
        }
    }
    let ordered = alternating(v6, v4);
    if ordered.is_empty() { Err(refused.unwrap_or(ResolveError::NotFound)) } else { Ok(ordered) }
}

fn alternating(v6: Vec<IpAddr>, v4: Vec<IpAddr>) -> Vec<IpAddr> {
    let mut ordered = Vec::new();
    let (mut v6, mut v4) = (v6.into_iter(), v4.into_iter());
    loop {
        let turn = (v6.next(), v4.next());
        ordered.extend(turn.0.into_iter().chain(turn.1));
        if turn == (None, None) {
            return ordered;
        }
    }
}

/// The aliases among the records, each once: both families are asked and tell the same.
fn chain(records: &[Record]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for record in records {
        let RData::CNAME(alias) = &record.data else { continue };
        let name = alias.0.to_ascii().to_ascii_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name);
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

fn stamp(file: &Path) -> Stamp {
    let data = std::fs::metadata(file).ok()?;
    Some((data.modified().ok()?, data.len()))
}

fn cannot_read(file: &Path, error: &dyn std::fmt::Display) -> ResolveError {
    ResolveError::Failed(format!("cannot read '{}': {error}", file.display()))
}

fn broken() -> ResolveError {
    ResolveError::Failed("an earlier lookup failed".to_owned())
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
