//! What is allowed. `raw` reads a file and keeps its spans; `resolve` turns it into the immutable [`Policy`].

mod model;

pub use model::*;
