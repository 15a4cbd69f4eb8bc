//! The agent's ssh agent, used by a program that speaks its protocol itself: weak signatures, endless names, requests
//! other than signing, and endless refusals. Stopped by: the session reads every request, judges it, and counts what
//! it refuses.

use std::path::Path;
use std::process::Command;

use crate::support::{Mode, Outcome, Place, skip};

/// What a program says and hears: `ask` gives the kind of the answer (14 a signature, 12 a list, 5 no), `sign` asks for a
/// signature over a file with a namespace.
const CLIENT: &str = r#"
import os, socket, struct
def string(text): return struct.pack('>I', len(text)) + text
def open_one():
    one = socket.socket(socket.AF_UNIX); one.connect(os.environ['SSH_AUTH_SOCK']); return one
stream = open_one()
def ask(message, whole=False):
    stream.sendall(string(message))
    head = b''
    while len(head) < 4: head += stream.recv(4 - len(head))
    length, body = struct.unpack('>I', head)[0], b''
    while len(body) < length: body += stream.recv(length - len(body))
    return body if whole else body[0]
listed = ask(b'\x0b', True)
keys, at = [], 5
for _ in range(struct.unpack('>I', listed[1:5])[0]):
    for last in (False, True):
        length = struct.unpack('>I', listed[at:at + 4])[0]
        if not last: keys.append(listed[at + 4:at + 4 + length])
        at += 4 + length
key = keys[0]
def sign(namespace, flags, key=key):
    data = b'SSHSIG' + string(namespace) + string(b'') + string(b'sha512') + string(b'd' * 64)
    return ask(b'\x0d' + string(key) + string(data) + struct.pack('>I', flags))
"#;

fn place(mode: Mode, kind: &str) -> Option<Place> {
    let found = |program: &str| Path::new("/usr/bin").join(program).exists();
    if let Some(missing) =
        ["ssh-keygen", "ssh-agent", "ssh-add", "python3"].into_iter().find(|one| !found(one))
    {
        skip(&format!("{missing} is not installed"));
        return None;
    }
    let place = Place::new(mode);
    place.make_directory(&place.home.join(".ssh"));
    let key = place.home.join(".ssh/id");
    let made =
        Command::new("ssh-keygen").args(["-q", "-t", kind, "-N", "", "-C", "ada", "-f"]).arg(&key).status();
    assert!(made.unwrap().success());
    place.own(&key);
    place.own(&key.with_extension("pub"));
    place.user_policy("agent:\n  ssh: {keys: [~/.ssh/id], sign: [git]}\n");
    Some(place)
}

/// The lines that the client prints.
fn said(place: &Place, script: &str) -> (Vec<String>, Outcome) {
    let file = place.write("client.py", format!("{CLIENT}{script}"));
    let file = file.display().to_string();
    let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "/usr/bin/python3", &file])).expect_code(0);
    (outcome.stdout.lines().map(str::to_owned).collect(), outcome)
}

#[test]
fn a_key_of_rsa_never_signs_with_sha_1() {
    for mode in Mode::all() {
        let Some(place) = place(mode, "rsa") else { return };
        // The twin: what OpenSSH asks for.
        let (said, outcome) =
            said(&place, "print(sign(b'git', 0), sign(b'git', 1), sign(b'git', 2), sign(b'git', 4))");
        assert_eq!(said, ["5 5 14 14"], "{mode:?} {outcome}");
        let refused = place.events("ssh_key_refused");
        assert_eq!(refused.len(), 2, "{refused:?}");
        assert!(refused.iter().all(|event| event["reason"] == "weak-signature"), "{refused:?}");
        assert_eq!(place.events("ssh_key_used").len(), 2);
    }
}

#[test]
fn ssh_agent_signs_and_lists_and_refuses_other_requests() {
    for mode in Mode::all() {
        let Some(place) = place(mode, "ed25519") else { return };
        // Add, remove, remove all, lock, unlock, add from a card, remove from a card.
        let script = "print(len(keys), [ask(bytes([kind]) + string(key)) for kind in (17, 18, 19, 22, 23, 20, 21)])\n\
                      print(sign(b'git', 0, b'another'), sign(b'file', 0), sign(b'n' * 257, 0), sign(b'git', 0))\n\
                      print(ask(b'\\x0b'))";
        let (said, outcome) = said(&place, script);
        assert_eq!(said, ["1 [5, 5, 5, 5, 5, 5, 5]", "5 5 5 14", "12"], "{mode:?} {outcome}");
        let reasons: Vec<String> = place
            .events("ssh_key_refused")
            .iter()
            .map(|event| event["reason"].as_str().unwrap().to_owned())
            .collect();
        for (reason, count) in [
            ("request-not-allowed", 7),
            ("key-not-allowed", 1),
            ("namespace-not-allowed", 1),
            ("malformed-request", 1),
        ] {
            assert_eq!(reasons.iter().filter(|one| *one == reason).count(), count, "{reason}: {reasons:?}");
        }
    }
}

/// Neither the record nor the terminal can be filled, the agent serves on, and what names no key of the policy takes no room of
/// what does.
#[test]
fn endless_ssh_refusals_are_counted_and_not_recorded_each() {
    for mode in Mode::all() {
        let Some(place) = place(mode, "ed25519") else { return };
        let script = "for _ in range(600): assert sign(b'git', 0, b'another') == 5\n\
                      for _ in range(300): assert sign(b'file', 0) == 5\n\
                      more = [open_one() for _ in range(100)]\nfor one in more: one.close()\n\
                      print(sign(b'git', 0))\nstream = open_one()\nprint(sign(b'git', 0))";
        let (said, outcome) = said(&place, script);
        assert_eq!(said, ["14", "14"], "{mode:?} {outcome}");
        let refused =
            place.listed(&["mcp", "events", "--type", "ssh_key_refused", "--json", "--limit", "2000"]);
        let of = |reason: &str| refused.iter().filter(|event| event["reason"] == reason).count();
        assert_eq!((of("key-not-allowed"), of("namespace-not-allowed")), (256, 256), "{}", refused.len());
        let counted = refused.iter().filter(|event| event["reason"] == "further-refusals");
        let mut counted: Vec<_> = counted.map(|event| event["detail"].as_str().unwrap()).collect();
        counted.sort_unstable();
        assert_eq!(
            counted,
            [
                "344 further refusals of requests that name no key of the policy",
                "44 further refusals of keys that the policy names"
            ]
        );
        let told = |what: &str| outcome.stderr.lines().filter(|line| line.contains(what)).count();
        assert_eq!((told("is not used"), told("refuses a request")), (5, 5), "{outcome}");
        assert_eq!(place.events("ssh_key_used").len(), 2);
    }
}
