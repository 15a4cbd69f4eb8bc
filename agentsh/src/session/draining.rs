//! One loop over a descriptor that somebody else fills: what is there is read, and others get their turn.

use std::os::fd::AsRawFd;

use tokio::io::unix::AsyncFd;

/// Messages that are read before others get their turn: a program can make them without end.
const MAX_AT_ONCE: usize = 64;

/// What reading one message found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// There may be more.
    More,
    /// Nothing is left for now.
    Empty,
    /// Nothing will come any more.
    Over,
}

/// Calls `next` at most [`MAX_AT_ONCE`] times, until it says something else than [`Next::More`].
pub async fn drain(mut next: impl AsyncFnMut() -> Next) -> Next {
    for _ in 0..MAX_AT_ONCE {
        match next().await {
            Next::More => {}
            ended => return ended,
        }
    }
    Next::More
}

/// Drains whenever `watched` can be read, until nothing will come any more.
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
    async fn endless_messages_are_left_for_later() {
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
