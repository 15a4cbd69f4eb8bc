//! The package hosts of a new cargo, which has no index yet: its built-in index address, and that index's
//! configuration, are read at the start if the project uses cargo.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Method;
use hyper::header::HeaderMap;
use memchr::memmem;

use agentsh_egress::Client;
use agentsh_egress::client::{Limits, full_body};
use agentsh_egress::resolve::Resolver;
use agentsh_egress::target::Rules;

use super::host_programs;
use agentsh_host::registries::{self, RegistryAddress};
use agentsh_host::{Facts, Record};

/// Prefix of a sparse index's URL.
const SPARSE_INDEX_PREFIX: &[u8] = b"sparse+https://";
/// Larger than any cargo.
const MAX_BYTES: u64 = 256 << 20;
/// Limit of a host with port.
const MAX_LENGTH: usize = 260;
/// The start waits for the answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit of the index's configuration.
const MAX_ANSWER: usize = 64 << 10;

/// The built-in index of the installed cargo, and its package host. Empty if cargo has a registry.
pub async fn of_new_cargo(facts: &Facts, record: &Record) -> Vec<RegistryAddress> {
    if !registries::cargo_is_new(&facts.context) {
        return Vec::new();
    }
    let known = cargos(facts).into_iter().find_map(|program| Some((built_in(&program)?, program)));
    let Some((host, program)) = known else { return Vec::new() };
    let index = format!("https://{host}/");
    let mut found = vec![RegistryAddress { url: index.clone(), said_by: program.display().to_string() }];
    match packages(facts, record, &index).await {
        Ok(url) => found.push(RegistryAddress { url, said_by: format!("{index}config.json") }),
        Err(why) => record.note(&format!("the package host of {host} is not known: {why}")),
    }
    found
}

/// The cargo of PATH, and those that a toolchain manager would start.
fn cargos(facts: &Facts) -> Vec<PathBuf> {
    let context = &facts.context;
    let managed = context.env.get("RUSTUP_HOME").map_or_else(|| context.home.join(".rustup"), PathBuf::from);
    let managed =
        registries::directories(&managed.join("toolchains")).into_iter().map(|one| one.join("bin/cargo"));
    host_programs::find(context, "cargo").into_iter().chain(managed).collect()
}

/// The host of the index URL in a program.
fn built_in(program: &Path) -> Option<String> {
    let found = std::fs::metadata(program).ok()?;
    if !found.is_file() || found.len() > MAX_BYTES {
        return None;
    }
    let bytes = std::fs::read(program).ok()?;
    memmem::find_iter(&bytes, SPARSE_INDEX_PREFIX)
        .find_map(|at| host(bytes.get(at + SPARSE_INDEX_PREFIX.len()..)?))
}

/// A host with a dot, up to the next slash: strings are adjacent in a program.
fn host(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().take(MAX_LENGTH).position(|byte| *byte == b'/')?;
    let host = std::str::from_utf8(bytes.get(..end)?).ok()?;
    let is_host = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-:".contains(&byte);
    (host.contains('.') && host.bytes().all(is_host)).then(|| host.to_owned())
}

async fn packages(facts: &Facts, record: &Record, index: &str) -> Result<String, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let lookup = Resolver::system_lookup().map_err(|error| text(&error))?;
    let proxy = agentsh_host::outgoing::proxy(facts, record, &facts.policy.agent.network)?;
    let limits = Limits {
        connect: REQUEST_TIMEOUT,
        first_byte: Some(REQUEST_TIMEOUT),
        idle: Some(REQUEST_TIMEOUT),
        max_body: Some(MAX_ANSWER),
    };
    // As for every registry of the user's tools, which may be private.
    let rules = Rules { anywhere: true, ..Rules::default() };
    let client = Client::new(lookup, rules).with_limits(limits).with_proxy(proxy);
    let target = client.target(&format!("{index}config.json")).map_err(|error| text(&error))?;
    let answer = client
        .send(Method::GET, &target, HeaderMap::new(), full_body(""))
        .await
        .map_err(|error| text(&error))?;
    if !answer.status.is_success() {
        return Err(format!("it answers {}", answer.status));
    }
    let body = answer.read_body(MAX_ANSWER).await.map_err(|error| text(&error))?;
    let config: serde_json::Value = serde_json::from_slice(&body).map_err(|error| text(&error))?;
    let packages = config.get("dl").and_then(serde_json::Value::as_str);
    packages.map(str::to_owned).ok_or_else(|| "its configuration names no package host".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_in_a_cargo_binary_are_recognised() {
        assert_eq!(host(b"index.example/more").as_deref(), Some("index.example"));
        assert_eq!(host(b"index.example:8443/").as_deref(), Some("index.example:8443"));
        for other in [&b"iints_inheritance:/"[..], b"", b"a.example", b"A.example/", b"a b.c/"] {
            assert_eq!(host(other), None);
        }
    }
}
