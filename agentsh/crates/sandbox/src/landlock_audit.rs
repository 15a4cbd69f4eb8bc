//! Reads Landlock refusals from the kernel's audit log (Landlock ABI 7, root, audit enabled).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, socket};

/// Longer records are not Landlock's.
pub const MAX_LENGTH: usize = 9000;

/// `AUDIT_NLGRP_READLOG`: the multicast group of audit records.
const READERS: u32 = 1;
/// Before the text of a record.
const HEADER: usize = 16;
const LANDLOCK_ACCESS: u16 = 1423;
const LANDLOCK_DOMAIN: u16 = 1424;

/// One record. A refusal names its domain; another record, before or after it, names the process that created the
/// domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Rights that were missing, such as `fs.write_file`, on one file.
    Refused { domain: String, rights: Vec<String>, path: String },
    /// The process that restricted itself.
    Domain { domain: String, pid: u32 },
}

/// A socket that receives all later records.
///
/// # Errors
/// When this user may not, or the kernel has no audit.
pub fn listen() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkAudit)?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, READERS))?;
    Ok(socket)
}

/// Parses a message, if it is about files and Landlock.
#[must_use]
pub fn read(message: &[u8]) -> Option<Record> {
    let kind = u16::from_ne_bytes(*message.get(4..)?.first_chunk()?);
    if kind != LANDLOCK_ACCESS && kind != LANDLOCK_DOMAIN {
        return None;
    }
    let text = std::str::from_utf8(message.get(HEADER..)?).ok()?.trim_end_matches(['\0', '\n']);
    let fields = text.strip_prefix("audit(")?.split_once("): ")?.1;
    let field = |name: &str| fields.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    let domain = field("domain")?.to_owned();
    if kind == LANDLOCK_DOMAIN {
        return Some(Record::Domain { domain, pid: field("pid")?.parse().ok()? });
    }
    let rights: Vec<String> = field("blockers")?.split(',').map(str::to_owned).collect();
    if !rights.iter().all(|right| right.starts_with("fs.")) {
        return None;
    }
    // Last, because its content may look like a field.
    Some(Record::Refused { domain, rights, path: path(fields.split_once(" path=")?.1)? })
}

/// In quotes, or, where it has quotes, spaces or control characters, in hexadecimal digits.
fn path(text: &str) -> Option<String> {
    if let Some(rest) = text.strip_prefix('"') {
        return Some(rest.split_once('"')?.0.to_owned());
    }
    let digits = text.split(' ').next()?;
    let bytes: Option<Vec<u8>> =
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()).collect();
    String::from_utf8(bytes.filter(|bytes| !bytes.is_empty())?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, text: &str) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes.extend(text.as_bytes());
        bytes
    }

    /// As the kernel's documentation shows them.
    #[test]
    fn landlock_audit_records_are_read_as_documented() {
        let refused = |rights: &[&str], path: &str| {
            let rights = rights.iter().map(|right| (*right).to_owned()).collect();
            Some(Record::Refused { domain: "195ba459b".to_owned(), rights, path: path.to_owned() })
        };
        let access = |rest: &str| {
            read(&message(LANDLOCK_ACCESS, &format!("audit(1729738800.268:30): domain=195ba459b {rest}")))
        };
        assert_eq!(
            access("blockers=fs.refer path=\"/usr/bin\" dev=\"vda2\" ino=351"),
            refused(&["fs.refer"], "/usr/bin")
        );
        assert_eq!(
            access("blockers=fs.make_reg,fs.refer path=\"/usr/local\" dev=\"vda2\" ino=365"),
            refused(&["fs.make_reg", "fs.refer"], "/usr/local")
        );
        assert_eq!(
            access("blockers=fs.read_file path=2F612062 dev=\"x\" ino=1"),
            refused(&["fs.read_file"], "/a b")
        );
        // Text inside a path is not a field.
        assert_eq!(
            access("blockers=fs.read_file path=\"/domain=1/blockers=fs.x\" dev=\"x\" ino=1"),
            refused(&["fs.read_file"], "/domain=1/blockers=fs.x")
        );
        let domain = "audit(1729738800.268:30): domain=195ba459b status=allocated mode=enforcing pid=300 uid=0 \
                      exe=\"/usr/bin/agent\" comm=\"agent\"";
        assert_eq!(
            read(&message(LANDLOCK_DOMAIN, domain)),
            Some(Record::Domain { domain: "195ba459b".to_owned(), pid: 300 })
        );
        let freed = "audit(1729738800.324:31): domain=195ba459b status=deallocated denials=3";
        assert_eq!(read(&message(LANDLOCK_DOMAIN, freed)), None);
    }

    #[test]
    fn audit_records_that_are_no_refusal_are_ignored() {
        let text = "audit(1.2:3): domain=1 blockers=fs.read_file path=\"/a\" dev=\"x\" ino=1";
        assert_eq!(read(&message(1300, text)), None);
        let signal = "audit(1.2:3): domain=1 blockers=scope.signal opid=1 ocomm=\"x\"";
        assert_eq!(read(&message(LANDLOCK_ACCESS, signal)), None);
        let whole = message(LANDLOCK_ACCESS, text);
        for length in 0..whole.len() {
            if let Some(Record::Refused { path, .. }) = read(&whole[..length]) {
                assert_eq!(path, "/a");
            }
        }
        for odd in ["path=2", "path=zz", "path=\"/a", "path="] {
            assert_eq!(
                read(&message(LANDLOCK_ACCESS, &format!("audit(1.2:3): domain=1 blockers=fs.x {odd}"))),
                None
            );
        }
    }
}
