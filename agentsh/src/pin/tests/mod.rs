//! Small trees in temporary directories: no network, no real package manager.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may stop at the first surprise")]

mod smoke;
