//! Looks for a secret in everything that sandboxed processes hold, while they run: arguments, environment, memory, and the files
//! that they see.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const PAGE: u64 = 4096;
/// Pages that are looked at together.
const BLOCK: u64 = 1024;

/// What was seen so far.
#[derive(Debug, Default)]
pub struct Seen {
    /// The places where the secret was found, with the program.
    pub secret: BTreeSet<String>,
    /// Programs whose memory held the known text: so much of it was really read.
    pub known: BTreeSet<String>,
    pub bytes: u64,
}

/// Looks again and again, until it is asked for what it saw.
pub struct Watch {
    stop: Arc<AtomicBool>,
    /// Set once the known text was seen in the memory of the agent.
    pub has_looked: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

impl Watch {
    /// `known`: what the memory of the agent must have, or nothing was looked at. `agent`: a part of its program's name.
    pub fn start(secret: &str, known: &str, agent: &'static str, home: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let has_looked = Arc::new(AtomicBool::new(false));
        let (stopped, looked, home) = (Arc::clone(&stop), Arc::clone(&has_looked), home.to_owned());
        let texts = [secret.to_owned(), known.to_owned()];
        let thread = std::thread::spawn(move || {
            let mut seen = Seen::default();
            while !stopped.load(Ordering::Relaxed) {
                let pids = sandboxed(&home);
                for pid in &pids {
                    look(*pid, &texts, &mut seen);
                }
                // They see the same files: there is one sandbox.
                if let Some(pid) = pids.last() {
                    files(*pid, &texts[0], &home, &mut seen);
                }
                if seen.known.iter().any(|program| program.contains(agent)) {
                    looked.store(true, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            seen
        });
        Self { stop, has_looked, thread }
    }

    pub fn finish(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the watch ends by itself")
    }
}

/// Processes of other process namespaces than this one, that see this home and have a root of their own.
fn sandboxed(home: &Path) -> Vec<u32> {
    let own = std::fs::read_link("/proc/self/ns/pid").expect("our own namespace");
    let root = std::fs::metadata("/").expect("our own root");
    let all = std::fs::read_dir("/proc").expect("the processes").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_inside = |pid: &u32| {
        let place = format!("/proc/{pid}");
        std::fs::read_link(format!("{place}/ns/pid")).is_ok_and(|other| other != own)
            // Until it has one of its own, it is agentsh that makes the sandbox.
            && std::fs::metadata(format!("{place}/root/"))
                .is_ok_and(|other| (other.dev(), other.ino()) != (root.dev(), root.ino()))
            && Path::new(&format!("{place}/root{}", home.display())).exists()
    };
    pids.filter(is_inside).collect()
}

fn look(pid: u32, texts: &[String; 2], seen: &mut Seen) {
    let [secret, known] = texts;
    let place = format!("/proc/{pid}");
    let Ok(program) = std::fs::read_to_string(format!("{place}/comm")) else { return };
    let program = program.trim();
    for part in ["cmdline", "environ"] {
        let held = std::fs::read(format!("{place}/{part}")).unwrap_or_default();
        if String::from_utf8_lossy(&held).contains(secret.as_str()) {
            seen.secret.insert(format!("{part} of {program}"));
        }
    }
    for found in memory(pid, texts, &mut seen.bytes) {
        if found == *secret {
            seen.secret.insert(format!("memory of {program}"));
        }
        if found == *known {
            seen.known.insert(program.to_owned());
        }
    }
}

fn files(pid: u32, secret: &str, home: &Path, seen: &mut Seen) {
    let place = format!("/proc/{pid}/root");
    let home = home.display().to_string();
    for directory in [home.as_str(), "/tmp", "/run", "/dev/shm"] {
        let mut command = Command::new("timeout");
        command.args(["5", "grep", "-rlsF", "-D", "skip", "-e", secret]).arg(format!("{place}{directory}"));
        let found = command.stdin(Stdio::null()).stderr(Stdio::null()).output().expect("grep");
        for file in String::from_utf8_lossy(&found.stdout).lines() {
            seen.secret.insert(format!("file {file}"));
        }
    }
}

/// Which of these texts are in the memory of a process.
fn memory(pid: u32, texts: &[String; 2], bytes: &mut u64) -> Vec<String> {
    let mut search = Command::new("sh");
    search.args(["-c", "LC_ALL=C grep -aoF -e \"$1\" -e \"$2\" | sort -u", "sh"]).args(texts);
    let search = search.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut search = search.expect("grep starts");
    let mut into = search.stdin.take().expect("a pipe");
    pages(pid, |held| {
        *bytes += held.len() as u64;
        // It takes everything.
        let _ = into.write_all(held);
    });
    drop(into);
    let found = search.wait_with_output().expect("grep ends").stdout;
    String::from_utf8_lossy(&found).lines().map(str::to_owned).collect()
}

/// Every page that is there, a block at a time.
fn pages(pid: u32, mut take: impl FnMut(&[u8])) {
    let place = format!("/proc/{pid}");
    let (Ok(maps), Ok(memory), Ok(pages)) = (
        std::fs::read_to_string(format!("{place}/maps")),
        File::open(format!("{place}/mem")),
        File::open(format!("{place}/pagemap")),
    ) else {
        return;
    };
    let mut buffer = vec![0; usize::try_from(PAGE * BLOCK).expect("it is small")];
    let mut there = vec![0; usize::try_from(8 * BLOCK).expect("it is small")];
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (Some(range), Some(rights)) = (words.next(), words.next()) else { continue };
        // A region that is not writable came from a file.
        if !rights.starts_with("rw") {
            continue;
        }
        let Some((start, end)) = range.split_once('-') else { continue };
        let (Ok(mut at), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16)) else {
            continue;
        };
        while at < end {
            let count = BLOCK.min((end - at) / PAGE);
            let entries = &mut there[..usize::try_from(8 * count).expect("it is small")];
            if pages.read_exact_at(entries, at / PAGE * 8).is_err() {
                break;
            }
            // Bit 63: in memory; bit 62: swapped out.
            if entries.chunks(8).any(|entry| entry[7] & 0xc0 != 0) {
                let bytes = &mut buffer[..usize::try_from(PAGE * count).expect("it is small")];
                if let Ok(read) = memory.read_at(bytes, at) {
                    take(&bytes[..read]);
                }
            }
            at += count * PAGE;
        }
    }
}
