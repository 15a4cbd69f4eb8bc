//! Refusals of requests.

use agentsh_database::DbError;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use agentsh_fleet::batch::Unreadable;
use agentsh_fleet::wire::Position;

/// When a server that has too much to do is asked again, in seconds.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("2");

/// Why a request is refused. Nothing was changed, but for what [`Refusal::Rewritten`] says.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// 400.
    Wrong(String),
    /// 401.
    Unknown(&'static str),
    /// 403: the role that it needs.
    Role(&'static str),
    /// 404.
    Missing(&'static str),
    /// 409: rows between are not here yet.
    Gap(Position),
    /// 409: the record of the host no longer fits; it is recorded here, and the host is refused.
    Rewritten(String),
    /// 409: its subject has changed meanwhile.
    Stale(&'static str),
    /// 413.
    TooLong(String),
    /// 429.
    Busy,
    /// 503.
    Unavailable(String),
}

impl From<DbError> for Refusal {
    fn from(error: DbError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl From<Unreadable> for Refusal {
    fn from(error: Unreadable) -> Self {
        match error {
            Unreadable::TooLong => Self::TooLong(error.to_string()),
            Unreadable::NotGzip | Unreadable::Line(..) => Self::Wrong(error.to_string()),
        }
    }
}

impl Refusal {
    /// The word for metrics and clients.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Wrong(_) => "wrong",
            Self::Unknown(_) => "unknown",
            Self::Role(_) => "role",
            Self::Missing(_) => "missing",
            Self::Gap(_) => "gap",
            Self::Rewritten(_) => "rewritten",
            Self::Stale(_) => "stale",
            Self::TooLong(_) => "too-long",
            Self::Busy => "busy",
            Self::Unavailable(_) => "unavailable",
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let kind = self.as_str();
        let mut position = None;
        let (status, detail) = match self {
            Self::Wrong(said) => (StatusCode::BAD_REQUEST, said),
            Self::Unknown(said) => (StatusCode::UNAUTHORIZED, said.to_owned()),
            Self::Role(said) => (StatusCode::FORBIDDEN, format!("the role {said} is required")),
            Self::Missing(said) => (StatusCode::NOT_FOUND, said.to_owned()),
            Self::Gap(here) => {
                position = Some(here);
                (StatusCode::CONFLICT, "earlier rows have not arrived yet".to_owned())
            }
            Self::Rewritten(said) => (StatusCode::CONFLICT, said),
            Self::Stale(said) => (StatusCode::CONFLICT, said.to_owned()),
            Self::TooLong(said) => (StatusCode::PAYLOAD_TOO_LARGE, said),
            Self::Busy => (StatusCode::TOO_MANY_REQUESTS, "the server is overloaded; retry later".to_owned()),
            // A database error may contain its URL: it goes to the process log, not to clients.
            Self::Unavailable(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "the database did not answer; nothing was changed".to_owned(),
            ),
        };
        let body = json!({ "detail": detail, "kind": kind, "position": position });
        let mut response = axum::Json(body).into_response();
        *response.status_mut() = status;
        let headers = response.headers_mut();
        match status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, RETRY_AFTER_S);
            }
            _ => {}
        }
        response
    }
}
