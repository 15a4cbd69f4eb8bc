//! Attacks that are really tried from inside a sandbox, and how the results are judged.

pub mod attempt;
pub mod demo;
pub mod doctor;
mod scratch;
