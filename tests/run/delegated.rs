//! A control group that belongs to an ordinary user, with only agentsh in it, as systemd does for a service with
//! `Delegate=`: limits of memory and processor are held by groups below it.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{Mode, Outcome, Place, eventually, is_root, skip};

const USER: u32 = 1000;
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

/// One directory in each hierarchy that limits are taken from. Everything is undone when it is dropped.
struct Handed {
    directories: Vec<PathBuf>,
    /// Controllers that the root of version 2 did not delegate before.
    enabled: Option<(PathBuf, Vec<&'static str>)>,
}

impl Handed {
    fn new() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mounted = |kind: &str, option: &str| {
            mounts.lines().find_map(|line| {
                let (left, right) = line.split_once(" - ")?;
                let mut right = right.split(' ');
                let is_it = right.next() == Some(kind)
                    && (option.is_empty() || right.nth(1)?.split(',').any(|o| o == option));
                is_it.then(|| PathBuf::from(left.split(' ').nth(4).unwrap()))
            })
        };
        let name = format!("suite-{}", std::process::id());
        let unified =
            mounted("cgroup2", "").filter(|mount| lists(&mount.join("cgroup.controllers"), "memory"));
        let mut handed = Self { directories: Vec::new(), enabled: None };
        if let Some(mount) = unified {
            let control = mount.join("cgroup.subtree_control");
            let missing: Vec<&str> = CONTROLLERS.into_iter().filter(|name| !lists(&control, name)).collect();
            for controller in &missing {
                fs::write(&control, format!("+{controller}")).ok()?;
            }
            handed.enabled = Some((control, missing));
            handed.directories.push(mount.join(name));
        } else {
            for controller in ["memory", "cpu"] {
                handed.directories.push(mounted("cgroup", controller)?.join(&name));
            }
        }
        for directory in &handed.directories {
            fs::create_dir(directory).ok()?;
            chown(directory, Some(USER), Some(USER)).unwrap();
            for file in ["cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "tasks"] {
                let file = directory.join(file);
                if file.exists() {
                    chown(file, Some(USER), Some(USER)).unwrap();
                }
            }
        }
        Some(handed)
    }

    /// agentsh as that user, alone in the group.
    fn agentsh(&self, place: &Place, words: &[&str]) -> Command {
        let join: String = self
            .directories
            .iter()
            .map(|directory| format!("echo $$ > {}/cgroup.procs && ", directory.display()))
            .collect();
        let mut command = place.command("sh");
        let id = USER.to_string();
        command.uid(0).gid(0);
        command.args(["-c", &format!("{join} exec \"$@\""), "sh"]);
        command.args(["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups", "--"]);
        command.arg(place.program("agentsh")).args(words);
        command
    }

    fn is_as_it_was(&self) -> bool {
        self.directories.iter().all(|directory| {
            below(directory).is_empty()
                && !lists(&directory.join("cgroup.subtree_control"), "memory")
                && fs::read_to_string(directory.join("cgroup.procs")).unwrap().is_empty()
        })
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        for directory in &self.directories {
            for inner in below(directory) {
                for innermost in below(&inner) {
                    let _ = fs::remove_dir(innermost);
                }
                let _ = fs::remove_dir(inner);
            }
            let _ = fs::remove_dir(directory);
        }
        if let Some((control, missing)) = &self.enabled {
            for controller in missing {
                let _ = fs::write(control, format!("-{controller}"));
            }
        }
    }
}

fn lists(file: &Path, word: &str) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.split_whitespace().any(|found| found == word))
}

fn below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// How a run held the memory of its agent.
fn memory_limit(place: &Place) -> Value {
    let events = place.events("enforcement");
    events.into_iter().rfind(|event| event["layer"] == "memory limit").expect("it is on record")
}

#[test]
fn delegated_cgroup_contains_the_users_sandboxes() {
    if !is_root() || !Mode::all().contains(&Mode::User) {
        return skip("handing a control group to a user takes root");
    }
    let Some(handed) = Handed::new() else { return skip("no control group can be made here") };
    let place = Place::new(Mode::User);
    place.user_policy("version: 1\nagent: {limits: {memory: 150MiB}}\n");
    let eats = ["run", "--quiet", "--", "tail", "/dev/zero"];

    // Without the group: a watchdog.
    Outcome::of(&mut place.agentsh(&eats));
    assert_eq!(memory_limit(&place)["state"], "degraded");

    let outcome = Outcome::of(&mut handed.agentsh(&place, &eats));
    assert!(outcome.code == 137 || outcome.code == 1, "{outcome}");
    let held = memory_limit(&place);
    assert_eq!(held["state"], "enforced", "{held}");
    assert!(held["got"].as_str().unwrap().ends_with("by cgroup"), "{held}");
    assert!(eventually(|| handed.is_as_it_was()), "{:?}", handed.directories);

    // Memory within the limit can be used.
    Outcome::of(&mut handed.agentsh(&place, &["run", "--quiet", "--", "true"])).expect_code(0);

    let outcome = Outcome::of(&mut handed.agentsh(&place, &["doctor", "--json"]));
    let layers: Vec<Value> = serde_json::from_str(&outcome.stdout).unwrap();
    for name in ["memory-limit", "cpu-limit"] {
        let layer = layers.iter().find(|layer| layer["layer"] == name).unwrap();
        assert_eq!(layer["state"], "enforced", "{layer}");
    }
    assert!(eventually(|| handed.is_as_it_was()), "{:?}", handed.directories);
}
