//! What a key is asked to sign, and whether the policy lets it: pure.

use std::collections::BTreeMap;

use crate::policy::SshHost;
use crate::types::RuleRef;

use super::bound::Bound;
use super::wire::Bytes;

/// A key that may be used, and for what.
#[derive(Clone, Debug)]
pub struct Key {
    /// As on the wire.
    pub public: Vec<u8>,
    pub comment: String,
    /// `SHA256:`...
    pub fingerprint: String,
    /// The host keys of its servers, and where each of them is.
    pub hosts: BTreeMap<Vec<u8>, SshHost>,
    /// Namespaces of signatures.
    pub sign: Vec<String>,
    pub rule: RuleRef,
}

/// What a signature is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    Login { host: SshHost, user: String },
    Signature { namespace: String },
}

/// Why nothing is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Stable code.
    pub reason: &'static str,
    pub detail: String,
    /// What would allow it.
    pub change: Option<String>,
}

/// What these bytes are, if the key may sign them on a connection that is bound so.
///
/// # Errors
/// Why not.
pub fn judge(key: &Key, data: &[u8], bound: Option<&Bound>) -> Result<Purpose, Refusal> {
    let refuse = |reason, detail: &str| Err(Refusal { reason, detail: detail.to_owned(), change: None });
    if let Some(rest) = data.strip_prefix(b"SSHSIG") {
        let Some(namespace) = namespace(rest) else {
            return refuse("malformed-request", "what is to be signed cannot be read");
        };
        if key.sign.contains(&namespace) {
            return Ok(Purpose::Signature { namespace });
        }
        return Err(Refusal {
            reason: "namespace-not-allowed",
            detail: format!("it signs nothing of the namespace '{namespace}'"),
            change: Some(format!("sign: [{namespace}]")),
        });
    }
    let Some(login) = login(data) else {
        return refuse("malformed-request", "what is to be signed is neither a login nor a file");
    };
    if login.key != key.public {
        return refuse("malformed-request", "the login names another key");
    }
    let Some(bound) = bound else {
        let detail = "the program does not say which server it speaks with (OpenSSH does, from 8.9 on)";
        return refuse("server-not-proven", detail);
    };
    let is_same_host = login.host_key.is_none_or(|host| host == bound.host_key);
    if login.session != bound.session || !is_same_host {
        return refuse("server-not-proven", "the login is for another session than the one that was shown");
    }
    match key.hosts.get(&bound.host_key) {
        Some(host) => Ok(Purpose::Login { host: host.clone(), user: login.user.to_owned() }),
        None => refuse("host-not-allowed", "the server's host key is none of those that the policy allows"),
    }
}

/// Of a signature over a file (PROTOCOL.sshsig), behind the magic word.
fn namespace(rest: &[u8]) -> Option<String> {
    let mut rest = Bytes(rest);
    let namespace = rest.text()?;
    let (_reserved, _hash, _digest) = (rest.string()?, rest.string()?, rest.string()?);
    rest.end()?;
    let is_word = !namespace.is_empty() && namespace.bytes().all(|byte| byte.is_ascii_graphic());
    is_word.then(|| namespace.to_owned())
}

struct Login<'a> {
    session: &'a [u8],
    user: &'a str,
    key: &'a [u8],
    host_key: Option<&'a [u8]>,
}

/// A login with a public key (RFC 4252, section 7), or one that names the host key too.
fn login(data: &[u8]) -> Option<Login<'_>> {
    const USERAUTH_REQUEST: u8 = 50;
    const HOSTBOUND: &str = "publickey-hostbound-v00@openssh.com";
    let mut rest = Bytes(data);
    let session = rest.string()?;
    (rest.byte()? == USERAUTH_REQUEST).then_some(())?;
    let user = rest.text()?;
    (rest.text()? == "ssh-connection").then_some(())?;
    let method = rest.text()?;
    (rest.byte()? == 1).then_some(())?;
    let _algorithm = rest.string()?;
    let key = rest.string()?;
    let host_key = match method {
        "publickey" => None,
        HOSTBOUND => Some(rest.string()?),
        _ => return None,
    };
    rest.end()?;
    Some(Login { session, user, key, host_key })
}

#[cfg(test)]
mod tests {
    use super::super::wire::put;
    use super::*;

    fn key() -> Key {
        let host = SshHost { host: "git.example".to_owned(), port: 22 };
        Key {
            public: b"key".to_vec(),
            comment: String::new(),
            fingerprint: "SHA256:x".to_owned(),
            hosts: BTreeMap::from([(b"host".to_vec(), host)]),
            sign: vec!["git".to_owned()],
            rule: RuleRef::default_rule("ssh"),
        }
    }

    fn login(session: &[u8], key: &[u8], host: Option<&[u8]>) -> Vec<u8> {
        let mut data = Vec::new();
        put(&mut data, session);
        data.push(50);
        put(&mut data, b"git");
        put(&mut data, b"ssh-connection");
        let method: &[u8] =
            if host.is_some() { b"publickey-hostbound-v00@openssh.com" } else { b"publickey" };
        put(&mut data, method);
        data.push(1);
        put(&mut data, b"ssh-ed25519");
        put(&mut data, key);
        if let Some(host) = host {
            put(&mut data, host);
        }
        data
    }

    fn file(namespace: &[u8]) -> Vec<u8> {
        let mut data = b"SSHSIG".to_vec();
        for part in [namespace, b"", b"sha512", b"digest"] {
            put(&mut data, part);
        }
        data
    }

    fn reason(data: &[u8], bound: Option<&Bound>) -> Result<Purpose, &'static str> {
        judge(&key(), data, bound).map_err(|refusal| refusal.reason)
    }

    #[test]
    fn a_login_is_for_the_server_that_was_shown() {
        let bound = Bound { host_key: b"host".to_vec(), session: b"s".to_vec() };
        for host in [None, Some(&b"host"[..])] {
            let purpose = reason(&login(b"s", b"key", host), Some(&bound));
            assert!(matches!(purpose, Ok(Purpose::Login { host, user }) if host.port == 22 && user == "git"));
        }
        let login_of = |session: &[u8], key: &[u8], host| reason(&login(session, key, host), Some(&bound));
        assert_eq!(reason(&login(b"s", b"key", None), None), Err("server-not-proven"));
        assert_eq!(login_of(b"t", b"key", None), Err("server-not-proven"));
        assert_eq!(login_of(b"s", b"key", Some(b"other")), Err("server-not-proven"));
        assert_eq!(login_of(b"s", b"yek", None), Err("malformed-request"));
        let elsewhere = Bound { host_key: b"other".to_vec(), session: b"s".to_vec() };
        assert_eq!(reason(&login(b"s", b"key", None), Some(&elsewhere)), Err("host-not-allowed"));
    }

    #[test]
    fn a_signature_is_of_its_namespace() {
        assert_eq!(reason(&file(b"git"), None), Ok(Purpose::Signature { namespace: "git".to_owned() }));
        assert_eq!(reason(&file(b"file"), None), Err("namespace-not-allowed"));
        let mut longer = file(b"git");
        longer.push(0);
        for data in [&longer[..], b"SSHSIG", b"", b"anything at all", &file(b"")] {
            assert_eq!(reason(data, None), Err("malformed-request"));
        }
    }
}
