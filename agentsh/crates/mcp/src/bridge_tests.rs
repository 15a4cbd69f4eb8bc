#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter};
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::bridge_accept::{AcceptError, Accepted, Arrival, accept_descriptors, arrive, first_line};

async fn accept(stream: tokio::net::UnixStream) -> Result<Accepted, AcceptError> {
    match arrive(stream).await? {
        Arrival::Bridge(accepted) => Ok(*accepted),
        Arrival::Why { .. } => Err(AcceptError::Malformed),
    }
}

async fn accept_stdio(
    stream: &tokio::net::UnixStream,
) -> Result<(crate::bridge_accept::Header, Option<(OwnedFd, OwnedFd)>), AcceptError> {
    let (line, passed) = first_line(stream).await?;
    accept_descriptors(&line, passed)
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(5), test).await.expect("in time") })
}

/// The session's end, to be used inside the runtime.
fn session_end(stream: UnixStream) -> tokio::net::UnixStream {
    stream.set_nonblocking(true).unwrap();
    tokio::net::UnixStream::from_std(stream).unwrap()
}

/// A bridge process as a thread: gives the session's end and the outcome.
fn bridge(stdin: OwnedFd, stdout: OwnedFd) -> (UnixStream, JoinHandle<io::Result<()>>) {
    let (here, there) = UnixStream::pair().unwrap();
    let bridge = std::thread::spawn(move || match offer_stdio(&here, "fs", stdin.as_fd(), stdout.as_fd())? {
        DESCRIPTORS_TAKEN => {
            drop((stdin, stdout));
            wait_for_end(here)
        }
        _ => copy(here, File::from(stdin), File::from(stdout)),
    });
    (there, bridge)
}

fn pipes() -> ((PipeReader, PipeWriter), (PipeReader, PipeWriter)) {
    (io::pipe().unwrap(), io::pipe().unwrap())
}

async fn echo_one_line(accepted: &mut Accepted) {
    let mut line = [0; 6];
    accepted.input.read_exact(&mut line).await.unwrap();
    assert_eq!(&line, b"hello\n");
    accepted.output.write_all(b"world\n").await.unwrap();
}

#[test]
fn bridge_passes_its_pipes_and_ends_with_the_session() {
    let ((stdin, mut agent_out), (agent_in, stdout)) = pipes();
    let (there, bridge) = bridge(stdin.into(), stdout.into());
    run(async {
        let mut accepted = accept(session_end(there)).await.unwrap();
        assert!(accepted.header.offers_stdio);
        assert_eq!(accepted.header.server.0, "fs");
        agent_out.write_all(b"hello\n").unwrap();
        echo_one_line(&mut accepted).await;
        assert!(format!("{accepted:?}").contains("Taken"));
        drop(agent_out);
        assert_eq!(accepted.input.read(&mut [0; 8]).await.unwrap(), 0);
    });
    let mut line = String::new();
    let mut agent_in = BufReader::new(agent_in);
    agent_in.read_line(&mut line).unwrap();
    assert_eq!(line, "world\n");
    bridge.join().unwrap().unwrap();
    assert_eq!(agent_in.read_line(&mut line).unwrap(), 0);
}

#[test]
fn bridge_passes_its_sockets_too() {
    let (agent, end) = UnixStream::pair().unwrap();
    let (there, bridge) = bridge(end.try_clone().unwrap().into(), end.into());
    run(async {
        let mut accepted = accept(session_end(there)).await.unwrap();
        (&agent).write_all(b"hello\n").unwrap();
        echo_one_line(&mut accepted).await;
        assert!(format!("{accepted:?}").contains("Taken"));
    });
    let mut line = String::new();
    BufReader::new(&agent).read_line(&mut line).unwrap();
    assert_eq!(line, "world\n");
    bridge.join().unwrap().unwrap();
}

#[test]
fn session_notices_a_dead_bridge_while_the_pipe_is_open() {
    let ((stdin, _agent_out), (_agent_in, stdout)) = pipes();
    let (here, there) = UnixStream::pair().unwrap();
    let killed = std::thread::spawn(move || {
        assert_eq!(offer_stdio(&here, "fs", stdin.as_fd(), stdout.as_fd()).unwrap(), DESCRIPTORS_TAKEN);
    });
    run(async {
        let mut accepted = accept(session_end(there)).await.unwrap();
        assert_eq!(accepted.input.read(&mut [0; 8]).await.unwrap(), 0);
    });
    killed.join().unwrap();
}

#[test]
fn files_and_devices_are_not_taken_but_copied() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("input");
    std::fs::write(&path, "hello\n").unwrap();
    let (agent_in, stdout) = io::pipe().unwrap();
    let (there, bridge) = bridge(File::open(&path).unwrap().into(), stdout.into());
    run(async {
        let mut accepted = accept(session_end(there)).await.unwrap();
        assert!(format!("{accepted:?}").contains("Bridge"));
        echo_one_line(&mut accepted).await;
        // The end of the file closes one direction only.
        assert_eq!(accepted.input.read(&mut [0; 8]).await.unwrap(), 0);
        accepted.output.write_all(b"more\n").await.unwrap();
    });
    bridge.join().unwrap().unwrap();
    let mut all = String::new();
    BufReader::new(agent_in).read_to_string(&mut all).unwrap();
    assert_eq!(all, "world\nmore\n");

    let null = || OwnedFd::from(File::options().read(true).write(true).open("/dev/null").unwrap());
    let udp = OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    let tcp = OwnedFd::from(std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let listener = OwnedFd::from(std::os::unix::net::UnixListener::bind(directory.path().join("s")).unwrap());
    for refused in [null(), udp, tcp, listener] {
        let (here, there) = UnixStream::pair().unwrap();
        let (_reader, writer) = io::pipe().unwrap();
        let offer = std::thread::spawn(move || offer_stdio(&here, "fs", refused.as_fd(), writer.as_fd()));
        run(async {
            let accepted = accept(session_end(there)).await.unwrap();
            assert!(format!("{accepted:?}").contains("Bridge"));
        });
        assert_eq!(offer.join().unwrap().unwrap(), BRIDGE_COPIES);
    }
}

#[test]
fn descriptors_that_point_the_wrong_way_are_not_taken() {
    let ((stdin, _agent_out), (_agent_in, stdout)) = pipes();
    let (here, there) = UnixStream::pair().unwrap();
    let offer = std::thread::spawn(move || offer_stdio(&here, "fs", stdout.as_fd(), stdin.as_fd()));
    run(async { accept(session_end(there)).await.unwrap() });
    assert_eq!(offer.join().unwrap().unwrap(), BRIDGE_COPIES);
}

#[test]
fn bridge_header_leaves_the_following_bytes_unread() {
    let (mut here, there) = UnixStream::pair().unwrap();
    here.write_all(&header("a\"b")).unwrap();
    here.write_all(b"hello\n").unwrap();
    run(async {
        let mut accepted = accept(session_end(there)).await.unwrap();
        assert_eq!(accepted.header.server.0, "a\"b");
        echo_one_line(&mut accepted).await;
    });
    let mut line = String::new();
    BufReader::new(here).read_line(&mut line).unwrap();
    assert_eq!(line, "world\n");
}

#[test]
fn malformed_bridge_headers_are_refused() {
    for line in [
        "\n".to_owned(),
        "{}\n".to_owned(),
        "hello\n".to_owned(),
        "{\"server\":\"\"}\n".to_owned(),
        "{\"server\":5}\n".to_owned(),
        "{\"server\":\"a\",\"server\":\"b\"}\n".to_owned(),
        "{\"server\":\"a\",\"extra\":1}\n".to_owned(),
        "{\"server\":\"a\",\"stdio\":\"maybe\"}\n".to_owned(),
        format!("{{\"server\":\"{}\"}}\n", "x".repeat(MAX_HEADER)),
    ] {
        let (mut here, there) = UnixStream::pair().unwrap();
        here.write_all(line.as_bytes()).unwrap();
        let outcome = run(async { accept_stdio(&session_end(there)).await.map(|_| ()) });
        assert!(matches!(outcome, Err(AcceptError::Malformed)), "{line} {outcome:?}");
    }
    let (here, there) = UnixStream::pair().unwrap();
    drop(here);
    let outcome = run(async { accept_stdio(&session_end(there)).await.map(|_| ()) });
    assert!(matches!(outcome, Err(AcceptError::Closed)));
}

#[test]
fn passed_descriptors_close_on_exec_and_do_not_block() {
    let ((stdin, _agent_out), (_agent_in, stdout)) = pipes();
    let (stdin_here, stdout_here) = (stdin.try_clone().unwrap(), stdout.try_clone().unwrap());
    let (here, there) = UnixStream::pair().unwrap();
    let offer = std::thread::spawn(move || offer_stdio(&here, "fs", stdin.as_fd(), stdout.as_fd()));
    run(async {
        let stream = session_end(there);
        let (_, passed) = accept_stdio(&stream).await.unwrap();
        let (passed_in, passed_out) = passed.unwrap();
        for descriptor in [&passed_in, &passed_out] {
            let flags = rustix::io::fcntl_getfd(descriptor).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        }
        stream.try_write(&[BRIDGE_COPIES]).unwrap();
    });
    offer.join().unwrap().unwrap();
    // Flags that are shared with the agent's side are unchanged.
    for descriptor in [stdin_here.as_fd(), stdout_here.as_fd()] {
        let flags = rustix::fs::fcntl_getfl(descriptor).unwrap();
        assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK));
    }
}

#[test]
fn bridge_errors_say_what_to_do() {
    let error = connect(Path::new("/nonexistent/agentsh.sock")).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/agentsh.sock") && error.contains("agentsh run"), "{error}");
    assert!(BridgeError::NoSocket.to_string().contains(SOCKET_VARIABLE));
}
