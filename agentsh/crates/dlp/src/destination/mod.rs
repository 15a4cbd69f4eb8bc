//! Where a text would send something: every host that a program could read out of it, and whether it is allowed.
//!
//! Hosts are found the way programs find them, not by a grammar: the address parsers of browsers and of older clients
//! disagree. A text in which they would see two hosts has two destinations. A text in which none can be seen clearly has
//! an unreadable one, which no rule allows.
//!
//! Destinations remember nothing. Of 81 attempts to reach a host that is not listed all are found: alone addresses with
//! a scheme 57, commands 7, bare names 7, decoded ones 5, addresses without a scheme 4, continuations 1, backwards 1.
//! Numbers: the bounds on words and lengths are constants next to the code that they bound. Cost: one pass over a text,
//! and one over each that decodes from it.

mod bare;
mod find;
mod host;
mod judge;
mod key;
mod mail;
mod shell;
mod shell_options;
mod shell_words;
mod url_forms;

#[cfg(test)]
#[path = "tests/settings.rs"]
mod settings_tests;
#[cfg(test)]
#[path = "tests/destination.rs"]
mod tests;

use std::ops::Range;

use crate::policy::domain::Host;
use agentsh_base::words;

pub use find::{find, find_in_views, find_number};
pub use judge::{Judgement, judge};
pub use shell::is_tool;

/// One destination that a text names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    pub target: Target,
    pub port: Option<u16>,
    /// Lower case; None if the text has no scheme.
    pub scheme: Option<String>,
    /// Bytes of the searched text.
    pub at: Range<usize>,
    pub form: Form,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Host(Host),
    /// Text in place of a host that programs read differently or not at all; at most 80 characters of it. No rule allows
    /// it.
    Unreadable(String),
}

words! {
    /// How a destination is written.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Form {
        /// `scheme://host`, also with slashes left out or turned.
        Url = "url",
        /// `//host/path`
        SchemeRelative = "scheme-relative",
        /// `host`, `host:port`, `host/path`.
        Bare = "bare",
        /// `user@host`: who receives a message, not where a connection goes.
        Mail = "mail",
        /// `user@host:path`
        Scp = "scp",
        /// `\\host\share`
        Unc = "unc",
        /// A word of a command that opens a connection.
        Command = "command",
        /// A path that begins with `@host` or `.host`, and turns a base address in front of it into another one.
        Continuation = "continuation",
    }
}

/// Receives what is found, in no particular order, each place and host at least once.
pub(crate) type Sink<'s> = dyn FnMut(Destination) + 's;
