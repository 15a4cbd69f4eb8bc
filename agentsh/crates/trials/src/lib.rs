//! Attacks that `doctor` and `demo` try inside a sandbox, and how the results are judged.

pub mod attempt;
pub mod demo;
pub mod doctor;
mod scratch;
