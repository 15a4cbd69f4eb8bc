//! Markers: added to results, removed from calls.

mod marker_removal;
mod marks;

pub use marker_removal::{unmarked, unmarked_params};
pub use marks::{mark_of, markable};
