//! Generated files of `/etc`: one user, one group, name resolution.

use std::path::Path;

use super::plan::Identity;

/// `passwd(5)`: root, the sandbox's user, nobody.
#[must_use]
pub fn passwd(identity: Identity, user: &str, home: &Path, shell: Option<&Path>) -> Vec<u8> {
    let Identity { host_uid, host_gid, .. } = identity;
    // A name from the environment may contain a separator.
    let user: String =
        user.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')).collect();
    let user = if user.is_empty() || user == "root" { "agent" } else { &user };
    let home = home.display();
    let shell = shell.unwrap_or(Path::new("/bin/sh")).display();
    format!(
        "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n{user}:x:{host_uid}:{host_gid}::{home}:{shell}\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    )
    .into_bytes()
}

#[must_use]
pub fn group(identity: Identity) -> Vec<u8> {
    format!("root:x:0:\nagent:x:{}:\nnogroup:x:65534:\n", identity.host_gid).into_bytes()
}

/// `hosts(5)`: localhost. The resolver has all other names.
#[must_use]
pub fn hosts() -> Vec<u8> {
    b"127.0.0.1 localhost agentsh\n::1 localhost ip6-localhost ip6-loopback\n".to_vec()
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
