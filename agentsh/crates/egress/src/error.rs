//! Why a request failed. Messages contain no path and no header, because these may hold a key.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::resolve::ResolveError;
use super::target::TargetError;

#[derive(Clone, Debug, thiserror::Error)]
pub enum HttpError {
    #[error("no answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    #[error("the server sent nothing for {} ms in the middle of its answer", .0.as_millis())]
    Idle(Duration),
    #[error("cannot connect to {host}: {why}")]
    Refused { host: String, why: TargetError },
    #[error("the name '{name}': {why}")]
    Name { name: String, why: ResolveError },
    #[error("cannot connect to {host}: {source}")]
    Connect { host: String, source: Arc<io::Error> },
    #[error("cannot load certificate authorities: {0}")]
    Roots(String),
    #[error("the certificate of {host} is not accepted: {source}")]
    Tls { host: String, source: Arc<io::Error> },
    #[error("the proxy {proxy} does not connect to {host}: {why}")]
    Proxy { proxy: String, host: String, why: String },
    #[error("the answer has more than {0} bytes")]
    TooLarge(usize),
    #[error("the answer is broken: {0}")]
    Broken(String),
    #[error("the answer is compressed, and {0}")]
    Encoding(String),
}

impl HttpError {
    #[must_use]
    pub fn refused(host: &str, why: TargetError) -> Self {
        match why {
            TargetError::Unresolved { name, why } => Self::Name { name, why },
            why @ TargetError::Redirects => Self::Broken(why.to_string()),
            why => Self::Refused { host: host.to_owned(), why },
        }
    }

    /// Whether asking again later can have another end.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Roots(_))
    }

    /// The cause of an error of the HTTP library: ours, if the connection was not made.
    pub(crate) fn of(error: &(dyn Error + 'static)) -> Self {
        let mut below: Option<&(dyn Error + 'static)> = Some(error);
        let mut words = Vec::new();
        while let Some(error) = below {
            if let Some(own) = error.downcast_ref::<Self>() {
                return own.clone();
            }
            words.push(error.to_string());
            below = error.source();
        }
        Self::Broken(words.join(": "))
    }
}
