#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

mod aggregate;
mod apart;
mod hostile;
mod lifetime;
mod policy;
mod rig;
mod streams;
mod wire;
