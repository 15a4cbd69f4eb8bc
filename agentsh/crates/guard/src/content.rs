//! What the arguments of a call would carry out, and what results brought in.

mod marker_removal;
mod marks;
mod places;
mod views;

pub use marker_removal::{unmarked, unmarked_params};
pub use marks::{mark_of, markable};
pub use places::{Forbidden, forbidden};
pub use views::Views;
