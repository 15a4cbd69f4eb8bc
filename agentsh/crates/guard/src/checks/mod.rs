//! The checks that need nothing but the policy.

mod cross_server;
mod lists;
mod rates;
mod rules;

pub use cross_server::{CrossServer, looks};
pub use lists::Lists;
pub use rates::Rates;
pub use rules::Rules;
