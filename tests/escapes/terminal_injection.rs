//! Type into the terminal from which agentsh was started: its shell would run it.
//! Stopped by: the system call filter, whatever stands in the high half of the request.

use crate::support::{Mode, Place, Pty};

#[test]
fn nothing_is_typed() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mut command = place.agentsh(&["run", "--quiet", "--"]);
        command.arg(place.program("probe"));
        command.args(["tiocsti", "tioclinux", "tiocsti-high-bits", "window-size", "append /dev/tty"]);
        let mut terminal = Pty::start(command);
        terminal.expect("REFUSED EPERM");
        terminal.expect("REFUSED EPERM");
        terminal.expect("REFUSED EPERM");
        terminal.expect("DONE");
        terminal.expect("written by the probe");
        terminal.expect("DONE");
        assert_eq!(terminal.wait(), 0);
        assert!(!terminal.text().contains("xxx"));
    }
}
