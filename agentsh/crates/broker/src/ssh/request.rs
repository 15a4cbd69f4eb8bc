//! What a key shall sign, and whether the policy allows it: pure.

use std::collections::BTreeMap;

use agentsh_base::types::RuleRef;
use agentsh_policy::{Ruled, SshAccess, SshHost};

use super::session_bind::BoundSession;
use super::wire::Bytes;

/// A key that may be used, and for what.
#[derive(Clone, Debug)]
pub struct Key {
    /// The key as on the wire.
    pub public: Vec<u8>,
    pub comment: String,
    /// `SHA256:`...
    pub fingerprint: String,
    /// The host keys of its servers: where each of them is, and by which entry.
    pub hosts: BTreeMap<Vec<u8>, Ruled<SshHost>>,
    /// All entries that name the key, in order. Never empty.
    pub entries: Vec<Ruled<SshAccess>>,
}

impl Key {
    /// A further entry names the same key. What two of them allow, the first one does.
    pub fn adds(&mut self, other: Self) {
        for (public, host) in other.hosts {
            self.hosts.entry(public).or_insert(host);
        }
        self.entries.extend(other.entries);
    }

    /// Whether it signs for a namespace, and by which entry.
    pub fn signs(&self, namespace: &str) -> Option<&RuleRef> {
        let names = |entry: &&Ruled<SshAccess>| entry.value.sign.iter().any(|name| name == namespace);
        self.entries.iter().find(names).map(|entry| &entry.rule)
    }

    /// The entry that comes nearest to allowing something: the first that allows anything of this kind.
    fn nearest_entry(&self, is_of_kind: impl Fn(&SshAccess) -> bool) -> RuleRef {
        let nearest = self.entries.iter().find(|entry| is_of_kind(&entry.value));
        let rule = nearest.or(self.entries.first()).map(|entry| entry.rule.clone());
        rule.unwrap_or_else(|| RuleRef::default_rule("ssh"))
    }
}

/// Longest namespace and longest name of a user, in bytes: both are recorded, and a program inside makes them up.
const MAX_NAME: usize = 256;
/// Flags of a sign request: SHA-256 or SHA-512. Without one of them an RSA key signs with SHA-1.
const RSA_WITH_SHA2: u32 = 2 | 4;

/// The purpose of a signature.
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
    /// The policy line that would allow it.
    pub change: Option<String>,
    pub rule: RuleRef,
}

impl Refusal {
    /// A refusal that concerns no key of the policy.
    #[must_use]
    pub fn of_agent(reason: &'static str, detail: String) -> Self {
        Self { reason, detail, change: None, rule: RuleRef::default_rule("ssh") }
    }
}

/// The purpose of these bytes, if the key may sign them with these `flags` on a connection bound in this way, and the entry
/// that allows it.
///
/// # Errors
/// Why not.
pub fn judge(
    key: &Key,
    data: &[u8],
    flags: u32,
    bound: Option<&BoundSession>,
) -> Result<Ruled<Purpose>, Refusal> {
    let refuse = |reason, detail: &str| {
        let rule = key.nearest_entry(|entry| !entry.hosts.is_empty());
        Err(Refusal { reason, detail: detail.to_owned(), change: None, rule })
    };
    if Bytes(&key.public).text().is_some_and(|kind| kind.starts_with("ssh-rsa")) && flags & RSA_WITH_SHA2 == 0
    {
        return refuse(
            "weak-signature",
            "the request is for a SHA-1 signature, which can be forged; OpenSSH 7.2 and later use SHA-2",
        );
    }
    if let Some(rest) = data.strip_prefix(b"SSHSIG") {
        let rule = key.nearest_entry(|entry| !entry.sign.is_empty());
        let Some(namespace) = namespace(rest) else {
            let detail = "cannot parse the data to sign".to_owned();
            return Err(Refusal { reason: "malformed-request", detail, change: None, rule });
        };
        if let Some(rule) = key.signs(&namespace) {
            return Ok(Ruled { value: Purpose::Signature { namespace }, rule: rule.clone() });
        }
        return Err(Refusal {
            reason: "namespace-not-allowed",
            detail: format!("signing for the namespace '{namespace}' is not allowed"),
            change: Some(format!("sign: [{namespace}]")),
            rule,
        });
    }
    let Some(login) = login(data) else {
        return refuse("malformed-request", "the data to sign is neither a login nor a file");
    };
    if login.key != key.public {
        return refuse("malformed-request", "the login is for another key");
    }
    let Some(bound) = bound else {
        let detail = "the program does not say which server it talks to (OpenSSH 8.9 and later do)";
        return refuse("server-not-proven", detail);
    };
    let is_same_host = login.host_key.is_none_or(|host| host == bound.host_key);
    if login.session != bound.session || !is_same_host {
        return refuse("server-not-proven", "the login is for another session than the announced one");
    }
    match key.hosts.get(&bound.host_key) {
        Some(Ruled { value: host, rule }) => {
            let value = Purpose::Login { host: host.clone(), user: login.user.to_owned() };
            Ok(Ruled { value, rule: rule.clone() })
        }
        None => refuse("host-not-allowed", "the policy does not allow the server's host key"),
    }
}

/// The namespace of a file signature (PROTOCOL.sshsig), after the magic word.
fn namespace(rest: &[u8]) -> Option<String> {
    let mut rest = Bytes(rest);
    let namespace = rest.text()?;
    let (_reserved, _hash, _digest) = (rest.string()?, rest.string()?, rest.string()?);
    rest.end()?;
    let is_word = (1..=MAX_NAME).contains(&namespace.len());
    (is_word && namespace.bytes().all(|byte| byte.is_ascii_graphic())).then(|| namespace.to_owned())
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
    let user = rest.text().filter(|user| user.len() <= MAX_NAME)?;
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

    fn rule(line: u64) -> RuleRef {
        RuleRef { id: "ssh".to_owned(), file: "p.yaml".to_owned(), line }
    }

    fn named_by(line: u64, hosts: &[(&[u8], &str)], sign: &[&str]) -> Key {
        let known = hosts.iter().map(|(key, host)| (*key, SshHost { host: (*host).to_owned(), port: 22 }));
        let value = SshAccess {
            keys: vec!["/k".to_owned()],
            hosts: known.clone().map(|(_, host)| host).collect(),
            sign: sign.iter().map(|name| (*name).to_owned()).collect(),
        };
        Key {
            public: b"key".to_vec(),
            comment: String::new(),
            fingerprint: "SHA256:x".to_owned(),
            hosts: known.map(|(key, value)| (key.to_vec(), Ruled { value, rule: rule(line) })).collect(),
            entries: vec![Ruled { value, rule: rule(line) }],
        }
    }

    fn key() -> Key {
        named_by(1, &[(b"host", "git.example")], &["git"])
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

    fn reason(data: &[u8], bound: Option<&BoundSession>) -> Result<Purpose, &'static str> {
        judge(&key(), data, 0, bound).map(|purpose| purpose.value).map_err(|refusal| refusal.reason)
    }

    #[test]
    fn ssh_login_is_signed_only_for_the_bound_host() {
        let bound = BoundSession { host_key: b"host".to_vec(), session: b"s".to_vec() };
        for host in [None, Some(&b"host"[..])] {
            let purpose = reason(&login(b"s", b"key", host), Some(&bound));
            assert!(matches!(purpose, Ok(Purpose::Login { host, user }) if host.port == 22 && user == "git"));
        }
        let login_of = |session: &[u8], key: &[u8], host| reason(&login(session, key, host), Some(&bound));
        assert_eq!(reason(&login(b"s", b"key", None), None), Err("server-not-proven"));
        assert_eq!(login_of(b"t", b"key", None), Err("server-not-proven"));
        assert_eq!(login_of(b"s", b"key", Some(b"other")), Err("server-not-proven"));
        assert_eq!(login_of(b"s", b"yek", None), Err("malformed-request"));
        let elsewhere = BoundSession { host_key: b"other".to_vec(), session: b"s".to_vec() };
        assert_eq!(reason(&login(b"s", b"key", None), Some(&elsewhere)), Err("host-not-allowed"));
    }

    #[test]
    fn ssh_signature_is_made_only_for_allowed_namespaces() {
        assert_eq!(reason(&file(b"git"), None), Ok(Purpose::Signature { namespace: "git".to_owned() }));
        assert_eq!(reason(&file(b"file"), None), Err("namespace-not-allowed"));
        let mut longer = file(b"git");
        longer.push(0);
        for data in [&longer[..], b"SSHSIG", b"", b"anything at all", &file(b"")] {
            assert_eq!(reason(data, None), Err("malformed-request"));
        }
    }

    #[test]
    fn ssh_names_are_limited_in_length() {
        let bound = BoundSession { host_key: b"host".to_vec(), session: b"s".to_vec() };
        let (longest, longer) = ("n".repeat(MAX_NAME), "n".repeat(MAX_NAME + 1));
        assert_eq!(reason(&file(longest.as_bytes()), None), Err("namespace-not-allowed"));
        assert_eq!(reason(&file(longer.as_bytes()), None), Err("malformed-request"));
        let user = |name: &str| {
            let mut data = Vec::new();
            put(&mut data, b"s");
            data.push(50);
            for part in [name.as_bytes(), b"ssh-connection", b"publickey"] {
                put(&mut data, part);
            }
            data.push(1);
            put(&mut data, b"ssh-ed25519");
            put(&mut data, b"key");
            data
        };
        assert!(reason(&user(&longest), Some(&bound)).is_ok());
        assert_eq!(reason(&user(&longer), Some(&bound)), Err("malformed-request"));
    }

    #[test]
    fn no_key_of_rsa_signs_with_sha_1() {
        let mut key = key();
        key.public.clear();
        put(&mut key.public, b"ssh-rsa");
        let asked = |flags: u32| judge(&key, &file(b"git"), flags, None).map_err(|refusal| refusal.reason);
        for flags in [0, 1, 8] {
            assert_eq!(asked(flags).map(drop), Err("weak-signature"), "{flags}");
        }
        for flags in [2, 4] {
            assert!(asked(flags).is_ok(), "{flags}");
        }
    }

    #[test]
    fn ssh_key_entries_are_judged_separately() {
        let mut key = named_by(3, &[(b"host", "a.example"), (b"both", "a.example")], &[]);
        key.adds(named_by(4, &[(b"other", "b.example"), (b"both", "b.example")], &["git"]));
        key.adds(named_by(5, &[], &["git", "file"]));
        let line = |data: &[u8], host: &[u8]| {
            let bound = BoundSession { host_key: host.to_vec(), session: b"s".to_vec() };
            let judged = judge(&key, data, 0, Some(&bound));
            (judged.is_ok(), judged.map_or_else(|refusal| refusal.rule, |purpose| purpose.rule).line)
        };
        let login = login(b"s", b"key", None);
        assert_eq!(line(&login, b"host"), (true, 3));
        assert_eq!(line(&login, b"other"), (true, 4));
        assert_eq!(line(&login, b"both"), (true, 3));
        assert_eq!(line(&login, b"third"), (false, 3));
        assert_eq!(line(&file(b"git"), b""), (true, 4));
        assert_eq!(line(&file(b"file"), b""), (true, 5));
        assert_eq!(line(&file(b"mail"), b""), (false, 4));
    }
}
