//! The checks that need nothing but the policy.

mod lists;
mod rates;

pub use lists::Lists;
pub use rates::Rates;
