//! The interface of the store for other crates: record an event, and learn whether recording failed.

use std::future::Future;

use super::Event;

/// The journal of one session.
pub trait Recorder {
    /// Queues an event; it reaches the disk soon, in order.
    fn record(&self, event: Event);

    /// Returns when the event, and every event before it, is on disk. A refusal is committed before the refused side
    /// hears of it.
    ///
    /// # Errors
    /// The store's own message when the event could not be written.
    fn commit(&self, event: Event) -> impl Future<Output = Result<(), String>>;

    /// Returns once the record has kept up: to be awaited before each message of a peer that can send without end.
    fn wait_for_room(&self) -> impl Future<Output = ()>;

    /// Why nothing can be recorded any more. While this is `Some`, nothing that needs a record may continue.
    fn broken(&self) -> Option<String>;
}

impl<R: Recorder> Recorder for std::rc::Rc<R> {
    fn record(&self, event: Event) {
        (**self).record(event);
    }

    fn commit(&self, event: Event) -> impl Future<Output = Result<(), String>> {
        (**self).commit(event)
    }

    fn wait_for_room(&self) -> impl Future<Output = ()> {
        (**self).wait_for_room()
    }

    fn broken(&self) -> Option<String> {
        (**self).broken()
    }
}

impl Recorder for super::Journal {
    fn record(&self, event: Event) {
        Self::record(self, event);
    }

    async fn commit(&self, event: Event) -> Result<(), String> {
        Self::commit(self, event).await.map_err(|error| error.to_string())
    }

    async fn wait_for_room(&self) {
        Self::wait_for_room(self).await;
    }

    fn broken(&self) -> Option<String> {
        Self::broken(self)
    }
}
