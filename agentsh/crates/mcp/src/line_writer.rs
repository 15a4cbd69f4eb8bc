//! Writes whole lines for several tasks. A dropped task's line is still completed, or the peer would read it together
//! with the next one.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, OwnedMutexGuard};

/// Ends the peer's input when it is closed, or dropped while idle.
pub struct LineWriter<W> {
    sink: Arc<Mutex<Option<W>>>,
}

/// The right to write next. If dropped unused, nothing was written.
pub struct WriteTurn<W>(OwnedMutexGuard<Option<W>>);

impl<W: AsyncWrite + Unpin + 'static> LineWriter<W> {
    pub fn new(sink: W) -> Self {
        Self { sink: Arc::new(Mutex::new(Some(sink))) }
    }

    /// Waits for other writers.
    pub async fn wait_for_turn(&self) -> WriteTurn<W> {
        WriteTurn(Arc::clone(&self.sink).lock_owned().await)
    }

    /// Writes complete lines. Call inside a `LocalSet`.
    ///
    /// # Errors
    /// When the peer does not read any more.
    pub async fn write(&self, lines: Vec<u8>) -> io::Result<()> {
        self.wait_for_turn().await.write(lines).await
    }

    /// Closes after the current line.
    pub async fn close(&self) {
        drop(self.sink.lock().await.take());
    }
}

impl<W: AsyncWrite + Unpin + 'static> WriteTurn<W> {
    /// Writes everything, even if this is dropped. Call inside a `LocalSet`.
    ///
    /// # Errors
    /// When the peer does not read any more.
    pub async fn write(mut self, lines: Vec<u8>) -> io::Result<()> {
        let written = agentsh_base::task::spawn_local(async move {
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
                let lines = Rc::new(LineWriter::new(near));
                let short = Duration::from_millis(20);
                assert!(timeout(short, lines.write(b"first line\n".to_vec())).await.is_err());
                // Dropped before its turn, so that nothing of it is written.
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
