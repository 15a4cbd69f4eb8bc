//! Why a login does not go on. Every message fits after "cannot log in to SERVER: "; none holds a secret.

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
    #[error("{what} at {place} is not to be believed: {why}")]
    InvalidMetadata { what: &'static str, place: String, why: InvalidMetadata },
    #[error("it does not say where one logs in; a token of your own goes into its headers")]
    NoLogin,
    #[error("its authorization server {0} says nothing about itself where the specification has it")]
    NoMetadata(String),
    #[error(
        "its authorization server {0} registers no clients; register one there with the redirect address \
         http://127.0.0.1/callback, and name it: --client-id ID"
    )]
    NoRegistration(String),
    #[error("the authorization server does not register agentsh: {0}")]
    NotRegistered(String),
    #[error("cannot listen for the answer of the browser on 127.0.0.1: {0}")]
    Listen(std::io::Error),
    #[error("nobody answered in the browser within {0} s")]
    TimedOut(u64),
    #[error("the authorization server said no: {0}")]
    Denied(String),
    #[error("the answer in the browser is not from {expected}; its code was not used")]
    WrongIssuer { expected: String },
    #[error("the authorization server gives no token: {0}")]
    NoToken(String),
    #[error("the system gives no random numbers: {0}")]
    NoRandom(std::io::Error),
}

impl LoginError {
    /// The authorization server itself took the grant back: asking again later has no other end.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::NoToken(_) | Self::InvalidMetadata { .. } | Self::Refused { .. })
    }
}
