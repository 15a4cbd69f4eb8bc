//! The journal: one enum of events in a hash-chained, append-only SQLite database; and the pins.
//!
//! Writers go through [`Journal`] (events) and [`PinStore`] (pins); everything that reads opens a [`Reader`].

use agentsh_base::types;
pub use agentsh_base::{escape, shown_time};

mod chain;
mod database;
mod digests;
pub mod error;
pub mod event;
mod interface_pins;
pub mod journal;
pub mod paths;
mod pin_rows;
pub mod pins;
pub mod query;
pub mod raw;
pub mod reader;
pub mod record;
pub mod recorder;
pub mod redact;
pub mod running;
mod sql;
pub mod summary;
mod summary_lines;
mod summary_short;
mod summary_text;
pub mod taint;
pub mod tap;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod text_limits;
pub mod verify;
pub mod words;
mod writer;

pub use error::StoreError;
pub use event::{Event, FileGrant, PolicyLayer, SecretFound};
pub use interface_pins::{InterfacePin, MAX_DEFINITION, WhichInterface};
pub use journal::Journal;
pub use paths::{exists, state_dir};
pub use pins::{Candidate, Pin, PinState, PinStore, TrustedBy};
pub use query::{
    Availability, Call, EventFilter, Page, SEVERITIES, Server, SessionTally, Tool, ToolTally, severities_from,
};
pub use reader::Reader;
pub use record::Record;
pub use recorder::Recorder;
pub use summary::Summary;
pub use taint::TaintStore;
pub use tap::{CommittedEvent, Subscription, TapMessage};
pub use verify::Verification;
pub use words::Offered;
