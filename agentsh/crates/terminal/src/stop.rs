//! Waits for the signal that ends a serving verb.

use std::future::Future;

use tokio::signal::unix::{SignalKind, signal};

use crate::output::Failure;

/// Ends with SIGINT or SIGTERM, which from this call on no longer end the process by themselves.
///
/// # Errors
/// When the process cannot wait for signals.
pub fn stop_signal() -> Result<impl Future<Output = ()> + Send + 'static, Failure> {
    let listen =
        |kind| signal(kind).map_err(|error| Failure::Failed(format!("cannot wait for signals: {error}")));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
