//! One `POST` to an address of the user, and one bounded answer.

use std::time::Duration;

use hyper::Method;
use hyper::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue};
use tokio::time::timeout;
use url::Url;

use super::client::{Client, full_body};
use super::error::HttpError;
use super::target::Target;

pub struct Post {
    /// `https:`, or `http:` for an address on this machine.
    pub url: Url,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: Vec<u8>,
    /// From the first packet to the last byte of the answer.
    pub within: Duration,
    /// Longest body of an answer, in bytes.
    pub max_answer: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Client {
    /// Sends one request and reads the whole answer, whatever its status is.
    ///
    /// # Errors
    /// Like [`HttpError`] says.
    pub async fn post(&self, post: Post) -> Result<Answer, HttpError> {
        let within = post.within;
        timeout(within, self.exchange(post)).await.unwrap_or(Err(HttpError::TimedOut(within)))
    }

    async fn exchange(&self, post: Post) -> Result<Answer, HttpError> {
        let host = post.url.host_str().unwrap_or_default().to_owned();
        let target = Target::of(post.url, self.rules()).map_err(|why| HttpError::refused(&host, why))?;
        let mut headers: HeaderMap = post.headers.into_iter().collect();
        // Requests are rare, and one that a server's silent end of an idle connection swallows is lost.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        let answer = self.send(Method::POST, &target, headers, full_body(post.body)).await?;
        let status = answer.status.as_u16();
        Ok(Answer { status, body: answer.read_body(post.max_answer).await? })
    }
}
