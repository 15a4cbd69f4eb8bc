//! Markers: added to results, removed from calls.

mod marker_removal;
mod marks;

pub use marker_removal::{marker_rewrites, unmarked_params};
pub use marks::{mark_of, markable_texts};
