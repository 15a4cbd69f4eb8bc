//! The eBPF programs are removed from outside, and the session dies: nothing gets out.

#![allow(unsafe_code, reason = "bpf(2) has no safe wrapper for links of somebody else")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;

use aya_obj::generated::{bpf_attr, bpf_cmd, bpf_link_info};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::heard;
use crate::support::{Mode, Peer, Place, eventually, processes, skip};

const POLICY: &str =
    "sandbox: {mcp: {servers: [{id: fixture, network: {allow: [allowed.test, 93.184.216.77]}}]}}\n";
/// Works as long as the programs hold.
const ALLOWED: [&str; 2] = ["http allowed.test:80 allowed.test", "http 93.184.216.77:80 93.184.216.77"];
/// Works never.
const DENIED: [&str; 9] = [
    "http 93.184.216.35:80 other.test",
    "tls 93.184.216.34:443 allowed.test",
    "http [2606:2800:220:1::35]:80 other.test",
    "http [::ffff:93.184.216.35]:80 other.test",
    "fast-open 93.184.216.35:7",
    "udp 9.9.9.9:53",
    "udp 93.184.216.35:443",
    "http 127.0.0.1:80 localhost",
    "socket 2 3 1",
];

/// A server in a session that the kernel polices, and the control group of all the session's sandboxes.
struct Policed {
    place: Place,
    peer: Peer,
    supervisor: i32,
    group: PathBuf,
    /// That group and those below it: programs are attached to both.
    groups: BTreeSet<u64>,
}

impl Policed {
    fn start() -> Option<Self> {
        if !Mode::Invoker.is_root() {
            skip("eBPF: the tests are not run by root");
            return None;
        }
        let place = Place::new(Mode::Invoker).online().policed_by("ebpf");
        place.policy(POLICY);
        let peer = Peer::ready(&place, &[]);
        let (supervisor, group) = processes::below(peer.child.id())
            .into_iter()
            .find_map(|pid| Some((pid, group_of(pid)?)))
            .expect("no control group of the session");
        let found =
            Command::new("find").arg(&group).args(["-type", "d", "-printf", "%i\\n"]).output().unwrap();
        let groups = String::from_utf8_lossy(&found.stdout).lines().map(|id| id.parse().unwrap()).collect();
        Some(Self { place, peer, supervisor, group, groups })
    }

    fn attempt(&mut self, line: &str) -> String {
        let answer = self.peer.call("try", json!({"line": line}));
        answer["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
    }

    #[track_caller]
    fn denies(&mut self, lines: &[&str], when: &str) {
        for line in lines {
            let answer = self.attempt(line);
            assert!(
                answer.starts_with("REFUSED") || answer.starts_with("KILLED"),
                "{when}: {line}: {answer}"
            );
        }
    }
}

fn group_of(pid: i32) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 ")).unwrap().split(' ').nth(4).unwrap();
    let found = Command::new("find").args([mount, "-name", &format!("agentsh-{pid}-net")]).output().unwrap();
    String::from_utf8_lossy(&found.stdout).lines().next().map(PathBuf::from)
}

#[test]
fn sandbox_reaches_nothing_without_its_ebpf_programs() {
    let Some(mut policed) = Policed::start() else { return };
    for line in ALLOWED {
        assert_eq!(policed.attempt(line), "DONE", "{line}");
    }
    policed.denies(&DENIED, "policed");
    let before = heard(&policed.place);
    let links = links(&policed.groups);
    assert!(links.len() >= 9, "{} links", links.len());
    // One after the other: the remaining programs must not depend on the removed ones.
    for (count, (id, link)) in links.iter().enumerate() {
        bpf(bpf_cmd::BPF_LINK_DETACH, |attributes| {
            attributes.link_detach.link_fd = link.as_raw_fd().cast_unsigned();
        })
        .unwrap_or_else(|error| panic!("link {id}: {error}"));
        policed.denies(&DENIED, &format!("{} links gone", count + 1));
    }
    for line in ALLOWED {
        assert_eq!(policed.attempt(line), "REFUSED ENETUNREACH", "{line}");
    }
    // Names are still answered inside, and lead nowhere.
    assert_eq!(policed.attempt("resolve allowed.test"), "DONE");
    assert_eq!(heard(&policed.place), before, "something left the machine");
    policed.peer.finish();
}

#[test]
fn sandbox_leaves_nothing_after_its_session() {
    let Some(mut policed) = Policed::start() else { return };
    assert_eq!(policed.attempt(ALLOWED[0]), "DONE");
    assert!(!links(&policed.groups).is_empty());
    let inside = processes::below(policed.supervisor.cast_unsigned());
    assert!(inside.len() >= 2, "{inside:?}");
    // It keeps trying while the session dies.
    policed.peer.ask("tools/call", json!({"name": "try", "arguments": {"line": DENIED[0]}}));
    kill(Pid::from_raw(policed.supervisor), Signal::SIGKILL).unwrap();
    let alive = |pid: &i32| !processes::arguments(*pid).is_empty();
    assert!(eventually(|| !inside.iter().any(alive)), "still there: {inside:?}");
    assert!(eventually(|| links(&policed.groups).is_empty()), "links of a dead session");
    let heard = heard(&policed.place);
    assert!(!heard.contains("93.184.216.35"), "{heard}");
    policed.peer.child.wait().unwrap();
    // The next one sweeps.
    let outcome = policed.place.shell("exit 4").expect_code(4);
    assert!(!policed.group.exists(), "{} {outcome}", policed.group.display());
}

/// Links that are attached to these control groups, by id.
fn links(groups: &BTreeSet<u64>) -> BTreeMap<u32, OwnedFd> {
    let (mut found, mut last) = (BTreeMap::new(), 0);
    loop {
        let mut next = 0;
        let more = bpf_with(
            bpf_cmd::BPF_LINK_GET_NEXT_ID,
            |attributes| {
                attributes.__bindgen_anon_6.__bindgen_anon_1.start_id = last;
            },
            |attributes| {
                // SAFETY: the kernel wrote this member.
                next = unsafe { attributes.__bindgen_anon_6.next_id };
            },
        );
        if more.is_err() {
            return found;
        }
        last = next;
        let link = bpf(bpf_cmd::BPF_LINK_GET_FD_BY_ID, |attributes| {
            attributes.__bindgen_anon_6.__bindgen_anon_1.link_id = next;
        });
        // Gone meanwhile: it was another session's.
        let Ok(link) = link else { continue };
        // SAFETY: the command returned a new descriptor, which is ours.
        let link = unsafe { OwnedFd::from_raw_fd(link) };
        if group_of_link(&link).is_some_and(|group| groups.contains(&group)) {
            found.insert(next, link);
        }
    }
}

fn group_of_link(link: &OwnedFd) -> Option<u64> {
    /// BPF_LINK_TYPE_CGROUP
    const OF_A_CGROUP: u32 = 3;
    // SAFETY: a structure of integers.
    let mut info: bpf_link_info = unsafe { std::mem::zeroed() };
    bpf(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, |attributes| {
        attributes.info.bpf_fd = link.as_raw_fd().cast_unsigned();
        attributes.info.info = (&raw mut info).addr() as u64;
        attributes.info.info_len = u32::try_from(size_of_val(&info)).unwrap();
    })
    .ok()?;
    // SAFETY: every member is made of integers, all of which were zero before the kernel wrote.
    let group = unsafe { info.__bindgen_anon_1.cgroup.cgroup_id };
    (info.type_ == OF_A_CGROUP).then_some(group)
}

fn bpf(command: bpf_cmd, fill: impl FnOnce(&mut bpf_attr)) -> io::Result<i32> {
    bpf_with(command, fill, |_| ())
}

fn bpf_with(
    command: bpf_cmd,
    fill: impl FnOnce(&mut bpf_attr),
    read: impl FnOnce(&bpf_attr),
) -> io::Result<i32> {
    // SAFETY: a union of integers.
    let mut attributes: bpf_attr = unsafe { std::mem::zeroed() };
    fill(&mut attributes);
    // SAFETY: pointers in it come from references that live until the caller returns.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command as libc::c_long, &raw mut attributes, size_of::<bpf_attr>())
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    read(&attributes);
    Ok(i32::try_from(result).unwrap())
}
