//! What happened, on disk: one enum of events in a hash-chained, append-only SQLite journal, and the pins.

pub mod event;

pub use event::Event;
