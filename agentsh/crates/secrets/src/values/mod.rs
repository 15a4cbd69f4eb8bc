//! What is worth following when it leaves: secrets, what is personal, and references, each with its kind. It finds more
//! than [`crate::certain`]: a value is only looked up again, never rewritten.

mod columns;
mod countries;
mod entities;
mod ids;
mod national;
mod numbers;
mod tokens;

pub use entities::{Entity, Kind, find, find_sought};
