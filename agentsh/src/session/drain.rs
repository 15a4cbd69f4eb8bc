//! Reads a descriptor until it is empty, in batches, so that other tasks run in between.

use std::os::fd::AsRawFd;

use tokio::io::unix::AsyncFd;

/// Limit per turn, because a program can send endless messages.
const MAX_AT_ONCE: usize = 64;

/// The result of reading one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// There may be more.
    More,
    /// Empty for now.
    Empty,
    /// The end.
    Over,
}

/// Calls `next` at most [`MAX_AT_ONCE`] times, until it is not [`Next::More`].
pub async fn drain(mut next: impl AsyncFnMut() -> Next) -> Next {
    for _ in 0..MAX_AT_ONCE {
        match next().await {
            Next::More => {}
            ended => return ended,
        }
    }
    Next::More
}

/// Drains `watched` whenever it is readable, until the end.
pub async fn serve<T: AsRawFd>(watched: &AsyncFd<T>, mut next: impl AsyncFnMut() -> Next) {
    while let Ok(mut ready) = watched.readable().await {
        let is_closed = ready.ready().is_read_closed();
        match drain(&mut next).await {
            Next::More => tokio::task::yield_now().await,
            Next::Empty if !is_closed => ready.clear_ready(),
            Next::Empty | Next::Over => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn drain_stops_at_endless_messages() {
        let mut read = 0;
        let ended = drain(async || {
            read += 1;
            Next::More
        });
        assert_eq!(ended.await, Next::More);
        assert_eq!(read, MAX_AT_ONCE);
        assert_eq!(drain(async || Next::Empty).await, Next::Empty);
    }
}
