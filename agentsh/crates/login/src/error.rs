//! Why a login failed. Every message fits after "cannot log in to SERVER: "; none contains a secret.

use crate::egress::HttpError;

use super::metadata::InvalidMetadata;

#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    #[error("{what}: {source}")]
    Http { what: &'static str, source: HttpError },
    #[error("{0}")]
    NoClient(String),
    #[error("{what} is refused: {why}")]
    Refused { what: &'static str, why: String },
    #[error("{what} at {place} is not valid: {why}")]
    InvalidMetadata { what: &'static str, place: String, why: InvalidMetadata },
    #[error("it names no authorization server; if you have a token, put it into its `headers`")]
    NoLogin,
    #[error("its authorization server {0} has no metadata at the well-known URLs")]
    NoMetadata(String),
    #[error(
        "its authorization server {0} does not register clients dynamically; register one there with the redirect URI \
         http://127.0.0.1/callback, and pass it: --client-id ID"
    )]
    NoRegistration(String),
    #[error("the authorization server refused to register agentsh: {0}")]
    NotRegistered(String),
    #[error("cannot listen on 127.0.0.1 for the browser's answer: {0}")]
    Listen(std::io::Error),
    #[error("nobody answered in the browser within {0} s")]
    TimedOut(u64),
    #[error("the authorization server refused the login: {0}")]
    Denied(String),
    #[error("the answer in the browser is not from {expected}; it was ignored")]
    WrongIssuer { expected: String },
    #[error("the authorization server did not issue a token: {0}")]
    NoToken(String),
    #[error("the system's random number generator failed: {0}")]
    NoRandom(std::io::Error),
}

impl LoginError {
    /// The authorization server itself took the grant back: asking again later has no other end.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::NoToken(_) | Self::InvalidMetadata { .. } | Self::Refused { .. })
    }
}
