//! Export of a session's events while it runs.

pub mod alerts;
pub mod entry;
pub mod file;
pub mod otlp;
mod queue;
pub mod subscriber;
pub mod syslog;
pub mod webhook;
