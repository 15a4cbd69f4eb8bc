//! What is told to others while a session runs.

pub mod alerts;
pub mod webhook;
