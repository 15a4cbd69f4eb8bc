//! The host's side of the tests: planted files, listeners, and which of them were reached.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use super::judge::Host;
use super::probe::{NAMESPACES, ProbeFacts};
use crate::attempt;
use crate::scratch::{self, Scratch};

const HOOK: &str = "#!/bin/sh\n";
pub const PINNED: &str = "the bytes that were checked\n";
/// The host's side of the attempts. Dropping it removes every trace.
pub struct Stage {
    pub facts: ProbeFacts,
    directory: Scratch,
    loopback: TcpListener,
    local: UnixListener,
    queue: Option<libc::c_long>,
}

impl Stage {
    /// # Errors
    /// When there is no place for temporary files, or no listener can be opened.
    pub fn set() -> io::Result<Self> {
        let directory = scratch::make("doctor")?;
        let place = directory.path();
        scratch::write_file(place, "home/.ssh/id_doctor", "no key\n")?;
        scratch::write_file(place, "project/.git/hooks/pre-commit", HOOK)?;
        scratch::write_file(place, "project/.git/config", "")?;
        scratch::write_file(place, "closed/there", "x")?;
        let outside = scratch::write_file(place, "outside", "nobody granted this\n")?;
        let pinned = scratch::write_file(place, "pinned", PINNED)?;
        let loopback = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        loopback.set_nonblocking(true)?;
        let unique = uuid::Uuid::now_v7().simple().to_string();
        let abstract_name = format!("agentsh-doctor-{unique}");
        let local = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&abstract_name)?)?;
        local.set_nonblocking(true)?;
        // Any key will do; a number that is in use already makes the attempt inside no less true.
        let key = i32::from_str_radix(&unique[24..31], 16).unwrap_or(1).max(1);
        let queue = attempt::message_queue(key, true).ok();
        let facts = ProbeFacts {
            pid: std::process::id().cast_signed(),
            port: loopback.local_addr()?.port(),
            abstract_name,
            queue: key,
            home: place.join("home"),
            project: place.join("project"),
            outside,
            pinned,
        };
        Ok(Self { facts, directory, loopback, local, queue })
    }

    /// Writes a file into the directory of the attempts.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write_file(&self, name: &str, content: &str) -> io::Result<PathBuf> {
        scratch::write_file(self.directory(), name, content)
    }

    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The observations from outside after the attempts.
    #[must_use]
    pub fn observe(&self) -> Host {
        let link = |name: &&str| {
            let link = std::fs::read_link(Path::new("/proc/self/ns").join(name)).unwrap_or_default();
            ((*name).to_owned(), link.display().to_string())
        };
        let mut reached = 0;
        while self.loopback.accept().is_ok() || self.local.accept().is_ok() {
            reached += 1;
        }
        let hook = std::fs::read_to_string(self.facts.project.join(".git/hooks/pre-commit"));
        Host {
            namespaces: NAMESPACES.iter().map(link).collect::<BTreeMap<_, _>>(),
            uid: rustix::process::geteuid().as_raw(),
            made_by: std::fs::metadata(self.facts.project.join("owned")).ok().map(|found| found.uid()),
            reached,
            hook_unchanged: hook.is_ok_and(|text| text == HOOK),
            pinned_text: PINNED.to_owned(),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(queue) = self.queue {
            // The queue is ours; a failure has no consequences.
            let _ = attempt::remove_message_queue(queue);
        }
    }
}
