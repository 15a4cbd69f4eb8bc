//! The black-box suite: starts the real binary as a user does, without network, and with no other programs than a
//! POSIX shell and those that are built with it.
//!
//! `cargo test` builds the fixtures; to run this target alone, `cargo build --examples` first.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test starts programs, may stop at the first surprise, and says what it skips"
)]

mod day;
mod escapes;
mod fetch;
mod fleet;
mod gateway;
mod inside;
mod kill;
mod login;
mod network;
mod pins;
mod policy;
mod proxy;
mod registry;
mod run;
mod scan;
mod support;
mod wire;
