//! A terminal whose other end is this test.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};

use super::outcome;

const LIMIT: Duration = Duration::from_secs(20);

pub struct Pty {
    pub child: Child,
    master: File,
    screen: Arc<Mutex<Vec<u8>>>,
    reader: std::thread::JoinHandle<()>,
    seen: usize,
}

nix::ioctl_write_ptr_bad!(set_size, libc::TIOCSWINSZ, Winsize);

impl Pty {
    /// Starts the command with the terminal as its standard streams and its controlling terminal.
    pub fn start(command: Command) -> Self {
        Self::sized(command, 80)
    }

    #[allow(unsafe_code, reason = "a controlling terminal is taken between fork and exec")]
    pub fn sized(mut command: Command, columns: u16) -> Self {
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        for end in [&pty.master, &pty.slave] {
            // Or the children of other tests hold the terminal open.
            rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC).unwrap();
        }
        let slave = |pty: &OwnedFd| pty.try_clone().unwrap();
        command.stdin(slave(&pty.slave)).stdout(slave(&pty.slave)).stderr(slave(&pty.slave));
        // An ordinary user must be able to open it by name, as after a login.
        if let Some(name) = terminal_name(&pty.slave) {
            let _ = std::fs::set_permissions(name, std::os::unix::fs::PermissionsExt::from_mode(0o666));
        }
        // SAFETY: signal, setsid and ioctl neither allocate nor lock; descriptor 0 is the terminal.
        unsafe {
            command.pre_exec(|| {
                // As after a login, also when the tests run in the background of a script, where it is ignored.
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        drop(pty.slave);
        let master = File::from(pty.master);
        let screen = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, kept) = (master.try_clone().unwrap(), Arc::clone(&screen));
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read) = reader.read(&mut buffer) {
                if read == 0 {
                    break;
                }
                kept.lock().unwrap().extend_from_slice(&buffer[..read]);
            }
        });
        Self { child, master, screen, reader, seen: 0 }
    }

    pub fn write(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    #[allow(unsafe_code, reason = "no safe wrapper sets the size of a terminal")]
    pub fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the descriptor is a terminal and the structure is valid.
        unsafe { set_size(self.master.as_raw_fd(), &raw const size) }.unwrap();
    }

    /// Waits until the text appears after what was seen before.
    #[track_caller]
    pub fn expect(&mut self, text: &str) {
        let start = Instant::now();
        loop {
            let screen = self.text();
            if let Some(at) = screen.get(self.seen..).and_then(|rest| rest.find(text)) {
                self.seen += at + text.len();
                return;
            }
            assert!(start.elapsed() < super::patience(LIMIT), "no `{text}` on the terminal: {screen}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    /// All that was shown, once nobody has the terminal open any more.
    pub fn whole(&mut self) -> (i32, String) {
        let code = self.wait();
        assert!(super::eventually(|| self.reader.is_finished()), "somebody keeps the terminal open");
        (code, self.text())
    }

    pub fn wait(&mut self) -> i32 {
        let screen = Arc::clone(&self.screen);
        outcome::wait_or_say(&mut self.child, || {
            format!("; on the terminal: {}", String::from_utf8_lossy(&screen.lock().unwrap()))
        })
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn terminal_name(slave: &OwnedFd) -> Option<std::path::PathBuf> {
    nix::unistd::ttyname(slave).ok()
}

/// The text without colour sequences.
pub fn without_colour(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| plain + part.split_once('m').map_or(part, |(_, rest)| rest))
}
