//! Why a message has no answer, as text for the client.

use hyper::StatusCode;

use crate::egress::HttpError;
use crate::json::{self, JsonError, JsonErrorKind};
use crate::mcp::jsonrpc::Id;

#[derive(Debug)]
pub(crate) enum Failure {
    Http(HttpError),
    /// With the beginning of what the server says about it.
    Status(StatusCode, String),
    /// It requires a login, and why there is none.
    Login(String),
    /// Its answer contains the user's credential.
    Echo,
    /// The server does not know the session any more: the next one begins with a new handshake.
    SessionLost,
    Kind(String),
    /// Compressed in a way that was not requested and that agentsh cannot read.
    Packed(String),
    Unreadable(JsonError),
    TooLong(usize),
    NoAnswer,
    TooMany,
    /// The proxy is gone.
    Closed,
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Self {
        Self::Http(error)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Http(error) => write!(f, "{error}"),
            Self::Status(status, said) => {
                write!(f, "it answered HTTP {status}")?;
                let requires = match *status {
                    StatusCode::UNAUTHORIZED => "it requires",
                    StatusCode::FORBIDDEN => "perhaps it requires",
                    _ => "",
                };
                if !requires.is_empty() {
                    write!(
                        f,
                        ": {requires} other credentials; --header 'Authorization: Bearer ${{NAME}}' sends the value \
                         of the variable NAME"
                    )?;
                }
                if said.is_empty() { Ok(()) } else { write!(f, "; it says: '{said}'") }
            }
            Self::Login(why) => f.write_str(why),
            Self::Echo => f.write_str(
                "its answer contains the credential that it received, so agentsh withheld the answer",
            ),
            Self::SessionLost => f.write_str("it ended the session"),
            Self::Kind(kind) => write!(f, "its answer is neither JSON nor a stream of events, but '{kind}'"),
            Self::Packed(how) => {
                write!(f, "its answer is compressed ({how}), which agentsh did not request and cannot undo")
            }
            Self::Unreadable(JsonError { kind: JsonErrorKind::InvalidJson, .. }) => {
                f.write_str("its answer is not JSON")
            }
            Self::Unreadable(error) => write!(f, "its answer was not forwarded: {error}"),
            Self::TooLong(limit) => {
                write!(f, "its message has more than {limit} bytes (sandbox.mcp.max_line_bytes)")
            }
            Self::NoAnswer => f.write_str("it ended the answer before the response"),
            Self::TooMany => f.write_str("too many requests to it have no answer yet"),
            Self::Closed => f.write_str("the connection is closed"),
        }
    }
}

impl Failure {
    /// Stable code.
    fn reason(&self) -> &'static str {
        match self {
            Self::Http(HttpError::Refused { why, .. }) => why.code(),
            Self::Http(HttpError::Name { .. }) => "target-not-resolved",
            _ => "upstream-failed",
        }
    }

    /// The answer in the server's place: `text`, and the reason as a stable code.
    pub(crate) fn reply(&self, text: &str, id: &Id) -> Vec<u8> {
        let (message, reason) = (json::escape_text(text), self.reason());
        format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32000,"message":"{message}","data":{{"reason":"{reason}"}}}}}}"#, id.spelled)
            .into_bytes()
    }
}
