//! What a sandboxed program must not manage to do, really tried, and how the outcome is judged.

pub mod attempt;
pub mod demo;
pub mod doctor;
mod scratch;
