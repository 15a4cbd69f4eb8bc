//! Plain values that all crates of agentsh share.

pub mod ascii;
pub mod busy_poll;
pub mod escape;
pub mod json;
pub mod listing;
pub mod memory;
pub mod missing;
pub mod paragraph;
pub mod proc_file;
pub mod radix;
pub mod random;
pub mod real_paths;
pub mod remedy;
mod shown_time;
pub mod site;
pub mod small_file;
pub mod task;
pub mod types;
pub mod url_path;
pub mod users_files;
mod words;
pub mod wsl;

pub use shown_time::shown_time;
pub use words::{counted, without_margin, words_of_name};

/// Millionths of a dollar as dollars.
#[must_use]
pub fn dollars(micros: u64) -> String {
    let all = format!("{:06}", micros % 1_000_000);
    let (cents, rest) = all.split_at(2);
    format!("${}.{cents}{}", micros / 1_000_000, rest.trim_end_matches('0'))
}

/// Two lower-case hex digits for each byte.
#[must_use]
pub fn hex<'b>(bytes: impl IntoIterator<Item = &'b u8>) -> String {
    use std::fmt::Write as _;
    bytes.into_iter().fold(String::new(), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}
