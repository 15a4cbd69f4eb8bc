//! Type into the terminal from which agentsh was started: its shell would run it. Or leave it dead.
//! Stopped by: the system call filter, whatever is in the high half of the request.

use crate::support::{Mode, Place, Pty};

#[test]
fn terminal_input_cannot_be_injected() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mut command = place.agentsh(&["run", "--quiet", "--"]);
        command.arg(place.program("probe"));
        command.args([
            "tiocsti",
            "tioclinux",
            "tiocsti-high-bits",
            "line-discipline 27",
            "exclusive-terminal",
            "window-size",
            "append /dev/tty",
        ]);
        let mut terminal = Pty::start(command);
        for _ in 0..4 {
            terminal.expect("REFUSED EPERM");
        }
        terminal.expect("REFUSED EPERM");
        terminal.expect("DONE");
        terminal.expect("written by the probe");
        terminal.expect("DONE");
        assert_eq!(terminal.wait(), 0);
        assert!(!terminal.text().contains("xxx"));
    }
}
