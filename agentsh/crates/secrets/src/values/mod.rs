//! Values to track when they leave: secrets, personal data and references, with their kinds. Finds more than
//! [`crate::certain`], because a value is only looked up and never rewritten.

mod columns;
mod entities;
mod ids;
mod national;
mod national_checks;
mod numbers;
mod tokens;

pub use entities::{Entity, Kind, find, find_sought};
