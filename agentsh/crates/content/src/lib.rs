//! Checks of message contents: copies of data and markers ([`content`]), injected instructions and secrets
//! ([`content_scan`]), and definitions that differ from their pins ([`interface_pins`]). Each is a check of the guard
//! with its own state; none knows the session.

pub mod content;
pub mod content_scan;
pub mod interface_pins;
