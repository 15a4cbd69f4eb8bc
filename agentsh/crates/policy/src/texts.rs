//! Long tables that are written with several entries in a line.

/// A list of texts.
macro_rules! texts {
    ($($text:literal)+) => { &[$($text),+] };
}
pub(crate) use texts;

/// Built-in files of a directory below `policies`: name and text of each.
macro_rules! files {
    ($directory:literal: $($name:literal)+) => {
        &[$(($name, include_str!(concat!("../policies/", $directory, $name, ".yaml")))),+]
    };
}
pub(crate) use files;
