//! What is told to others while a session runs.

pub mod alerts;
pub mod entry;
pub mod file;
pub mod otlp;
mod queue;
pub mod subscriber;
pub mod syslog;
pub mod webhook;
