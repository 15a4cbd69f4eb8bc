//! Checks that need only the policy.

mod argument_length;
mod cross_server;
mod lists;
mod rates;
mod rules;

pub use argument_length::ArgumentLength;
pub use cross_server::{CrossServer, likeness, name_skeleton};
pub use lists::{Lists, ServerList};
pub use rates::Rates;
pub use rules::Rules;
