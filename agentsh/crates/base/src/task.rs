//! Tasks of the thread that starts them.

use std::pin::Pin;

use tokio::task::JoinHandle;

/// Starts a task in the [`LocalSet`](tokio::task::LocalSet) of this thread. In a box: tokio's part is compiled for each kind of result, not for
/// each task.
///
/// # Panics
/// Outside of a `LocalSet`.
pub fn spawn_local<T: 'static>(task: impl Future<Output = T> + 'static) -> JoinHandle<T> {
    let task: Pin<Box<dyn Future<Output = T>>> = Box::pin(task);
    tokio::task::spawn_local(task)
}
