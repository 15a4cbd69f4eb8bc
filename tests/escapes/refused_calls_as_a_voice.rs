//! Refusals are reported, so a program provokes them over and over, with names that it makes up, to fill the record,
//! to draw on the terminal, or to answer itself. Stopped by: one report for each name and purpose, few of them shown,
//! all of them escaped, and the descriptor at which refusals are answered never reaches the program.

use std::path::Path;

use crate::support::{Mode, Outcome, Place, skip};

const FLOOD: &str = "import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def refused():
    assert libc.unshare(0x10000000) == -1
    return ctypes.get_errno()
errors = set()
for number in range(1500):
    libc.prctl(15, b'\\x1b[31m%d\\nagentsh: ' % number, 0, 0, 0)
    errors.add(refused())
for number in range(1500):
    errors.add(refused())
print(errors)
held = []
for number in os.listdir('/proc/self/fd'):
    try: held.append(os.readlink('/proc/self/fd/' + number))
    except OSError: pass
print([one for one in held if 'seccomp' in one])
os.chmod('made', 0o755)
print('twin')
";

#[test]
fn refused_calls_flood_neither_terminal_nor_journal() {
    if !Path::new("/usr/bin/python3").exists() {
        return skip("python3 is not installed");
    }
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write("made", "");
        place.write("flood.py", FLOOD);
        let mut command = place.agentsh(&["run", "--", "python3", "flood.py"]);
        let outcome = Outcome::of(&mut command).expect_code(0);
        assert_eq!(outcome.stdout, "{1}\n[]\ntwin\n", "{mode:?}: {outcome}");
        let told: Vec<&str> =
            outcome.stderr.lines().filter(|line| line.contains("a namespace of its own")).collect();
        assert_eq!(told.len(), 5, "{mode:?}: {outcome}");
        assert!(told.iter().all(|line| line.contains("no policy allows it: run it outside")), "{outcome}");
        assert!(!outcome.stderr.contains('\u{1b}'), "{outcome}");
        // Nothing of a name begins a line.
        assert!(outcome.stderr.lines().all(|line| !line.starts_with("agentsh:  ")), "{outcome}");
        let events =
            place.listed(&["mcp", "events", "--type", "call_refused", "--json", "--limit", "100000"]);
        assert_eq!(events.len(), 200, "{mode:?}");
        assert!(events.iter().all(|event| event["rule"]["id"] == "system calls"), "{:?}", events[0]);
    }
}

const WITHOUT_END: &str = "import ctypes, os, signal, socket, time
libc = ctypes.CDLL(None)
children = []
for number in range(6):
    child = os.fork()
    if child == 0:
        while True: libc.unshare(0x10000000)
    children.append(child)
time.sleep(0.5)
start = time.monotonic()
try: socket.getaddrinfo('nowhere.test', 443)
except OSError: pass
took = time.monotonic() - start
for child in children: os.kill(child, signal.SIGKILL)
print('answered' if took < 4 else took)
";

/// More callers than are answered in a moment: names are resolved anyway.
#[test]
fn endless_refused_calls_do_not_block_others() {
    if !Path::new("/usr/bin/python3").exists() {
        return skip("python3 is not installed");
    }
    let place = Place::new(Mode::Invoker);
    place.write("flood.py", WITHOUT_END);
    let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "python3", "flood.py"])).expect_code(0);
    assert_eq!(outcome.stdout, "answered\n", "{outcome}");
}
