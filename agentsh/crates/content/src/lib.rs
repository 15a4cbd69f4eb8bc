//! Checks of message contents, each a check of the guard with its own state: copies of data and markers ([`content`]),
//! injected instructions and secrets ([`content_scan`]), definitions that differ from their pins ([`interface_pins`]).

pub mod content;
pub mod content_scan;
pub mod interface_pins;
mod recorded;

pub use recorded::recorded_arguments;
