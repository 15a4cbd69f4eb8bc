//! JSON exactly as received. All decisions about a message use this tree, and the forwarded message is written from
//! it: numbers and strings keep their spelling, members keep their order, and nothing uninspected can pass.

mod read;
mod text;
mod tree;
mod write;

pub use read::{
    JsonError, JsonErrorKind, MAX_DEPTH, MAX_FILE_VALUES, MAX_VALUES, read, read_file, read_to_depth,
};
pub use text::{folds_to, has_lone_surrogate, unescape};
pub use tree::Json;
pub use write::{escape_text, write_text};

#[cfg(test)]
mod tests;
