//! Generated files of `/etc`: one user, one group, name resolution.

use std::fmt::Write as _;
use std::path::Path;

use super::plan::Identity;

/// `passwd(5)`: root, the sandbox's user, the distribution's, nobody.
#[must_use]
pub fn passwd(identity: Identity, user: &str, home: &Path, shell: Option<&Path>, host: &str) -> Vec<u8> {
    let Identity { uid: own, gid, .. } = identity;
    // A name from the environment may contain a separator.
    let user: String = user.chars().filter(|&c| is_of_name(c)).collect();
    let user = if user.is_empty() || user == "root" { "agent" } else { &user };
    let home = home.display();
    let shell = shell.unwrap_or(Path::new("/bin/sh")).display();
    let mut text = format!(
        "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n{user}:x:{own}:{gid}::{home}:{shell}\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    );
    for (name, uid, rest) in of_distribution(host, user, own) {
        if let Some(gid) = rest.split(':').next().and_then(|gid| gid.parse::<u32>().ok()) {
            let _ = writeln!(text, "{name}:x:{uid}:{gid}::/nonexistent:/usr/sbin/nologin");
        }
    }
    text.into_bytes()
}

/// `group(5)`: the same. The user's has the name that it has on the host.
#[must_use]
pub fn group(identity: Identity, host: &str) -> Vec<u8> {
    let Identity { host_gid, gid, .. } = identity;
    let own =
        entries(host).find(|(name, id, _)| *id == host_gid && *name != "root").map_or("agent", |own| own.0);
    let mut text = format!("root:x:0:\n{own}:x:{gid}:\nnogroup:x:65534:\n");
    for (name, id, _) in of_distribution(host, own, gid) {
        let _ = writeln!(text, "{name}:x:{id}:");
    }
    text.into_bytes()
}

/// Names with ids below 100, which distributions give out: packages are built with them, and they say nothing of this machine.
fn of_distribution<'a>(host: &'a str, own: &str, id: u32) -> impl Iterator<Item = (&'a str, u32, &'a str)> {
    entries(host).filter(move |entry| (1..100).contains(&entry.1) && entry.0 != own && entry.1 != id)
}

/// Name, id and what follows of each line.
fn entries(host: &str) -> impl Iterator<Item = (&str, u32, &str)> {
    host.lines().filter_map(|line| {
        let mut fields = line.splitn(4, ':');
        let name = fields.next().filter(|name| !name.is_empty() && name.chars().all(is_of_name))?;
        Some((name, fields.nth(1)?.parse().ok()?, fields.next()?))
    })
}

fn is_of_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.')
}

/// `hosts(5)`: localhost and the sandbox's own name. The resolver has all other names. `host` is the machine's file: where it has
/// `localhost` for IPv4 alone, a server that listens on this name is reached at 127.0.0.1.
#[must_use]
pub fn hosts(host: &str) -> Vec<u8> {
    let mut lines = host.lines().map(|line| line.split('#').next().unwrap_or_default().split_whitespace());
    let has_ipv6 =
        lines.any(|mut words| words.next() == Some("::1") && words.any(|name| name == "localhost"));
    let localhost = if has_ipv6 { "localhost " } else { "" };
    format!(
        "127.0.0.1 localhost\n127.0.0.1 agentsh\n::1 {localhost}ip6-localhost ip6-loopback\n::1 agentsh\n"
    )
    .into_bytes()
}

/// `resolv.conf(5)`: the sandbox's resolver, and short timeouts, since answers need no network. The host name has no
/// domain, so nothing is searched; `search .` would look up every refused name twice.
#[must_use]
pub fn resolv_conf() -> Vec<u8> {
    let address = super::network::RESOLVER.ip();
    format!("nameserver {address}\noptions ndots:0 timeout:2 attempts:2\n").into_bytes()
}

/// `nsswitch.conf(5)`: the host's may name services that do not exist inside.
#[must_use]
pub fn nsswitch_conf() -> Vec<u8> {
    b"passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\n\
      services: files\nethers: files\nrpc: files\n"
        .to_vec()
}
