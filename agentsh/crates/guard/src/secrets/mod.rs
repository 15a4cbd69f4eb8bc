//! What values in a text are worth protecting, by their form alone.

pub mod checks;
mod columns;
mod countries;
pub mod entities;
mod names;
mod national;
mod numbers;
mod tokens;
mod vendors;

pub use entities::{Entity, Kind, find, find_sought};
