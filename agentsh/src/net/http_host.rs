//! Follows the requests of one plain HTTP/1 connection and holds every head back until its Host is judged. Pure.

use crate::policy::{RequestRule, Ruled};

/// Longest head of a request, in bytes.
pub const MAX_HEAD: usize = 64 * 1024;

/// What to do now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Bytes that may be forwarded, counted from the first one that was fed and not yet released.
    pub forward: usize,
    /// The requests whose heads are among them.
    pub requests: Vec<Request>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// As sent, without scheme and host; at most 256 characters.
    pub path: String,
}

/// Why the connection has to be closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Kebab-case, stable.
    pub code: &'static str,
}

/// State of one connection.
#[derive(Debug)]
pub struct Reader {}

impl Reader {
    /// `name` is what the program asked for, in its one spelling; `port` where it connected to.
    #[must_use]
    pub fn new(name: &str, port: u16) -> Self {
        let _ = (name, port);
        Self {}
    }

    /// Only requests that one of the rules means; none means every request.
    #[must_use]
    pub fn with_rules(self, rules: Vec<Ruled<RequestRule>>) -> Self {
        let _ = rules;
        self
    }

    /// Takes the next bytes of the client.
    ///
    /// # Errors
    /// Nothing that was not released before may be forwarded any more, and the connection must be closed.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Verdict, Refusal> {
        let _ = bytes;
        Err(Refusal { code: "http-not-read" })
    }

    /// Whether the bytes of the server's answer are wanted: after a request to become a web socket, nothing of the
    /// client is released until the server has agreed.
    #[must_use]
    pub fn awaits_answer(&self) -> bool {
        false
    }

    /// Takes the next bytes of the server, while [`Self::awaits_answer`]. Call `feed(&[])` afterwards: what was held
    /// back may be free now.
    ///
    /// # Errors
    /// As [`Self::feed`].
    pub fn answer(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let _ = bytes;
        Ok(())
    }

    /// Bytes that may be forwarded without being fed: the rest of a body, or everything (`u64::MAX`) behind a web
    /// socket. They have to be reported with [`Self::skip`].
    #[must_use]
    pub fn free(&self) -> u64 {
        0
    }

    /// Reports bytes of [`Self::free`] that were forwarded without being fed.
    pub fn skip(&mut self, bytes: u64) {
        let _ = bytes;
    }
}
