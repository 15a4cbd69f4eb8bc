//! One run of a program from start to end.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(40);

#[derive(Debug)]
pub struct Outcome {
    /// Exit code; 128 and the signal's number when killed by one.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    pub fn of(command: &mut Command) -> Self {
        Self::with_input(command, b"")
    }

    pub fn with_input(command: &mut Command, input: &[u8]) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_owned();
        // A program that reads nothing breaks the pipe, which is not a matter.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let (stdout, stderr) = (collect(child.stdout.take()), collect(child.stderr.take()));
        let code = wait(&mut child);
        writer.join().unwrap();
        Self { code, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
    }

    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self}");
        self
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit code {}\nstdout:\n{}\nstderr:\n{}", self.code, self.stdout, self.stderr)
    }
}

/// Waits for the end; a program that hangs is killed and fails the test.
pub fn wait(child: &mut Child) -> i32 {
    wait_or_say(child, String::new)
}

/// The same, with more to say about a program that hangs.
pub fn wait_or_say(child: &mut Child, more: impl Fn() -> String) -> i32 {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        }
        if start.elapsed() > super::patience(LIMIT) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the program did not end within {LIMIT:?}{}", more());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn collect(stream: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
