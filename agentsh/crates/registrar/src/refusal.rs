//! Refusals of requests.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::db::DbError;

/// Why a request is refused; the status codes are kiji's where it has one.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// 400: the hash is not that of the interface, and other contradictions.
    Contradiction(String),
    /// 401: this needs an operator's token.
    NoOperator,
    /// 403: this needs the role approver.
    NoApprover,
    /// 403: hosts register nothing.
    Closed,
    /// 403: from another site, or for another host.
    Foreign(&'static str),
    /// 404.
    Missing(&'static str),
    /// 409: known differently; an operator decides.
    Conflict(String),
    /// 413.
    TooLarge(String),
    /// 422: a list of mistakes, each with its place.
    Invalid(Vec<Value>),
    /// 429.
    TooMany(&'static str),
    /// 503: nothing was changed.
    Unavailable(String),
}

impl From<DbError> for Refusal {
    fn from(error: DbError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl Refusal {
    /// Status and `detail` of the answer.
    pub fn status_and_detail(self) -> (StatusCode, Value) {
        match self {
            Self::Contradiction(said) => (StatusCode::BAD_REQUEST, json!(said)),
            Self::NoOperator => {
                (StatusCode::UNAUTHORIZED, json!("an operator's token is required: Authorization: Bearer …"))
            }
            Self::NoApprover => (StatusCode::FORBIDDEN, json!("the role approver is required")),
            Self::Closed => (
                StatusCode::FORBIDDEN,
                json!(
                    "hosts cannot register interfaces here: an approver does, or `interface: {mode: approval}` requests \
                     it; with `agentsh fleet serve --registry open` hosts register new ones"
                ),
            ),
            Self::Foreign(said) => (StatusCode::FORBIDDEN, json!(said)),
            Self::Missing(said) => (StatusCode::NOT_FOUND, json!(said)),
            Self::Conflict(said) => (StatusCode::CONFLICT, json!(said)),
            Self::TooLarge(said) => (StatusCode::PAYLOAD_TOO_LARGE, json!(said)),
            Self::Invalid(mistakes) => (StatusCode::UNPROCESSABLE_ENTITY, Value::Array(mistakes)),
            Self::TooMany(said) => (StatusCode::TOO_MANY_REQUESTS, json!(said)),
            // A database error may contain its URL: it goes to the process log, not to clients.
            Self::Unavailable(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, json!("the database did not answer; nothing was changed"))
            }
        }
    }
}

#[cfg(feature = "server")]
impl axum::response::IntoResponse for Refusal {
    fn into_response(self) -> axum::response::Response {
        use hyper::header::{HeaderValue, WWW_AUTHENTICATE};
        let (status, detail) = self.status_and_detail();
        let mut response = axum::Json(json!({ "detail": detail })).into_response();
        *response.status_mut() = status;
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
