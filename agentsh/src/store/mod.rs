//! What happened, on disk: one enum of events in a hash-chained, append-only SQLite journal, and the pins.

pub mod event;
pub mod record;

pub use event::Event;
pub use record::Record;
