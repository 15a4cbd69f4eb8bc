//! What is allowed. `raw` reads a file and keeps its spans; `resolve` turns it into the immutable [`Policy`].

pub mod builtin_paths;
mod model;

pub use model::*;
