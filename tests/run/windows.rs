//! Linux on Windows (WSL), as far as a machine without Windows can imitate it: only its kernel's name says so.

use std::process::Command;

use serde_json::Value;

use crate::support::{Mode, Outcome, Place, is_root, skip};

const WSL_1: &str = "4.4.0-22621-Microsoft";
const WSL_2: &str = "6.6.87.2-microsoft-standard-WSL2";

/// A command line of agentsh where the kernel calls itself like this. A second, untouched `/proc` lets the kernel mount
/// others; without one there are no sandboxes, as on WSL 1.
fn below_windows(place: &Place, release: &str, arguments: &[&str]) -> Outcome {
    let file = place.path("osrelease");
    std::fs::write(&file, format!("{release}\n")).unwrap();
    place.make_directory(&place.path("proc"));
    let second = if release == WSL_1 { "" } else { "mount -t proc proc \"$2\";" };
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec"]);
    command.arg(format!(
        "mount --bind \"$1\" /proc/sys/kernel/osrelease; {second} shift 2
        exec setpriv --reuid 1000 --regid 1000 --clear-groups \"$@\""
    ));
    command.arg("sh").arg(&file).arg(place.path("proc")).arg(place.program("agentsh")).args(arguments);
    for (name, value) in place.command("sh").get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    Outcome::of(command.current_dir(&place.project))
}

fn place() -> Option<Place> {
    if !is_root() || !Mode::all().contains(&Mode::User) {
        skip("root gives the kernel another name, for an ordinary user");
        return None;
    }
    Some(Place::new(Mode::User))
}

#[test]
fn doctor_and_run_recognise_wsl_1() {
    let Some(place) = place() else { return };
    for arguments in [&["doctor"][..], &["run", "--quiet", "--", "true"]] {
        let outcome = below_windows(&place, WSL_1, arguments);
        let told = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(outcome.code != 0 && told.contains("wsl --set-version"), "{arguments:?} {outcome}");
    }
}

#[test]
fn doctor_reports_differences_on_wsl_2() {
    let Some(place) = place() else { return };
    let outcome = below_windows(&place, WSL_2, &["doctor", "--json"]);
    let layers: Vec<Value> = serde_json::from_str(&outcome.stdout).unwrap();
    let find = |name: &str| layers.iter().find(|layer| layer["layer"] == name);
    let wsl = find("wsl").unwrap_or_else(|| panic!("{outcome}"));
    assert_eq!(wsl["state"], "found", "{wsl}");
    assert!(wsl["got"].as_str().unwrap().contains("WSL 2"), "{wsl}");
    // It is a machine like any other.
    assert_eq!(find("mount-tree").unwrap()["state"], "enforced", "{outcome}");
    let elsewhere = Outcome::of(&mut place.agentsh(&["doctor", "--json"]));
    assert!(!elsewhere.stdout.contains("WSL"), "{elsewhere}");
}

/// On PATH there lie those of Windows as well.
#[test]
fn a_program_of_windows_is_refused_before_it_starts() {
    let Some(place) = place() else { return };
    place.script("tool.exe", "MZ\u{0}\u{0}");
    let outcome = below_windows(&place, WSL_2, &["run", "--", "./tool.exe"]).expect_code(125);
    assert!(outcome.stderr.contains("tool.exe, a program of Windows, cannot be pinned"), "{outcome}");
    let outcome = below_windows(&place, "6.18.44", &["run", "--", "./tool.exe"]);
    assert!(!outcome.stderr.contains("of Windows"), "elsewhere it is as good as any: {outcome}");
    // The twin is a program of Linux.
    below_windows(&place, WSL_2, &["run", "--quiet", "--", "true"]).expect_code(0);
}
