//! The few generated files of `/etc`: one user, one group, loopback names.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

use super::plan::Identity;

/// `passwd(5)`: root for programs that look it up, the sandbox's user, nobody.
#[must_use]
pub fn passwd(identity: Identity, user: &str, home: &Path) -> Vec<u8> {
    let Identity { host_uid, host_gid, .. } = identity;
    // A name from the environment may hold what would start a new field or line.
    let user: String =
        user.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')).collect();
    let user = if user.is_empty() || user == "root" { "agent" } else { &user };
    let home = home.display();
    format!(
        "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n{user}:x:{host_uid}:{host_gid}::{home}:/bin/sh\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    )
    .into_bytes()
}

#[must_use]
pub fn group(identity: Identity) -> Vec<u8> {
    format!("root:x:0:\nagent:x:{}:\nnogroup:x:65534:\n", identity.host_gid).into_bytes()
}

/// `hosts(5)`: localhost and the names that the session answers itself.
#[must_use]
pub fn hosts(names: &BTreeMap<String, IpAddr>) -> Vec<u8> {
    let mut text = String::from("127.0.0.1 localhost agentsh\n::1 localhost ip6-localhost\n");
    for (name, address) in names {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{address} {name}");
    }
    text.into_bytes()
}
