//! Lines for a peer that several tasks speak to. Whoever writes may be dropped in the middle of a line (its client hung up,
//! its request was cancelled): the rest of the line is written all the same, or the peer would read half of one together
//! with the next.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, OwnedMutexGuard};

/// Ends the output of the peer when it is closed, or dropped while nothing is written.
pub struct WholeLines<W> {
    sink: Arc<Mutex<Option<W>>>,
}

/// The right to write next. Dropped before that, nothing was written.
pub struct WriteTurn<W>(OwnedMutexGuard<Option<W>>);

impl<W: AsyncWrite + Unpin + 'static> WholeLines<W> {
    pub fn new(sink: W) -> Self {
        Self { sink: Arc::new(Mutex::new(Some(sink))) }
    }

    /// Waits until nobody else writes.
    pub async fn turn(&self) -> WriteTurn<W> {
        WriteTurn(Arc::clone(&self.sink).lock_owned().await)
    }

    /// Writes lines that have their ends. Must be called inside a `LocalSet`.
    ///
    /// # Errors
    /// When nobody reads any more.
    pub async fn write(&self, lines: Vec<u8>) -> io::Result<()> {
        self.turn().await.write(lines).await
    }

    /// No more lines; one that is being written is finished first.
    pub async fn close(&self) {
        drop(self.sink.lock().await.take());
    }
}

impl<W: AsyncWrite + Unpin + 'static> WriteTurn<W> {
    /// Writes all of it, also when this is dropped meanwhile. Must be called inside a `LocalSet`.
    ///
    /// # Errors
    /// When nobody reads any more.
    pub async fn write(mut self, lines: Vec<u8>) -> io::Result<()> {
        let written = tokio::task::spawn_local(async move {
            match self.0.as_mut() {
                Some(sink) => sink.write_all(&lines).await,
                None => Err(io::ErrorKind::BrokenPipe.into()),
            }
        });
        written.await.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use std::rc::Rc;
    use std::time::Duration;

    use tokio::io::AsyncReadExt;
    use tokio::task::LocalSet;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_line_whose_writer_is_dropped_is_whole() {
        LocalSet::new()
            .run_until(async {
                let (near, mut far) = tokio::io::duplex(4);
                let lines = Rc::new(WholeLines::new(near));
                let short = Duration::from_millis(20);
                assert!(timeout(short, lines.write(b"first line\n".to_vec())).await.is_err());
                // Dropped before its turn: nothing of it.
                assert!(timeout(short, lines.write(b"never\n".to_vec())).await.is_err());
                let (own, mut read) = (Rc::clone(&lines), String::new());
                let rest = async move {
                    own.write(b"second\n".to_vec()).await.unwrap();
                    own.close().await;
                    assert!(own.write(b"third\n".to_vec()).await.is_err());
                };
                tokio::join!(rest, async { far.read_to_string(&mut read).await.unwrap() });
                assert_eq!(read, "first line\nsecond\n");
            })
            .await;
    }
}
