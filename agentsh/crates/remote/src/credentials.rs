//! Credentials for a server that can change: another module holds them, and they are requested again when the server
//! rejects them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;

use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, StatusCode};

use crate::egress::client::Response;
use crate::egress::secret_search::SecretSearch;
use crate::json;

use super::driver::Link;
use super::failure::Failure;

pub type CredentialFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

pub trait Credentials {
    /// The `Authorization` of the next request; None if there is none.
    fn current(&self) -> CredentialFuture<'_, Result<Option<HeaderValue>, String>>;

    /// The server answered 401 or 403, with these values of `WWW-Authenticate`, to a request with `used`. Another value to
    /// try, None if the answer is about something else, or why there is none. After `is_last` no other value is tried.
    fn handle_refusal(
        &self,
        status: StatusCode,
        challenges: Vec<String>,
        used: Option<HeaderValue>,
        is_last: bool,
    ) -> CredentialFuture<'_, Result<Option<HeaderValue>, String>>;
}

/// A shorter value is in answers by chance.
const MIN_LENGTH: usize = 8;
/// The number of sent values that are searched for, the newest first.
const MAX_KEPT: usize = 8;

/// Values that must not come back: the words of headers with a secret.
#[derive(Default)]
pub(crate) struct Secrets {
    sent: RefCell<VecDeque<String>>,
    search: RefCell<SecretSearch>,
}

impl Secrets {
    /// The secrets in headers that the user wrote.
    pub fn of(headers: &HeaderMap) -> Self {
        const NAMES: [&str; 6] = ["token", "key", "secret", "auth", "session", "cookie"];
        let secrets = Self::default();
        let is_secret = |name: &str| NAMES.iter().any(|part| name.contains(part));
        headers.iter().filter(|(name, _)| is_secret(name.as_str())).for_each(|(_, value)| secrets.add(value));
        secrets
    }

    fn add(&self, value: &HeaderValue) {
        let text = String::from_utf8_lossy(value.as_bytes());
        // Behind the name of a scheme, or alone; of cookies each.
        let cookies = text.split("; ").filter_map(|cookie| cookie.split_once('=')).map(|(_, value)| value);
        let words = text.rsplit(' ').take(1).chain(cookies);
        let mut sent = self.sent.borrow_mut();
        for word in words.filter(|word| word.len() >= MIN_LENGTH) {
            if !sent.iter().any(|known| known == word) {
                sent.push_back(word.to_owned());
            }
        }
        while sent.len() > MAX_KEPT {
            sent.pop_front();
        }
        self.search.replace(SecretSearch::of_secrets(sent.iter().map(String::as_str)));
    }

    /// Whether a text has a secret, as it is or in a usual encoding. In JSON each letter may be an escape.
    pub fn contains_secret(&self, text: &[u8]) -> bool {
        let search = self.search.borrow();
        let unescaped = || std::str::from_utf8(text).map(json::unescape).unwrap_or_default();
        !search.is_idle() && (search.is_in(text) || search.is_in(unescaped().as_bytes()))
    }
}

impl Link {
    /// Sends a request with the credentials of the moment; once more where they were not taken and there are others.
    pub async fn send(&self, method: Method, headers: HeaderMap, body: Vec<u8>) -> Result<Response, Failure> {
        let Some(credentials) = &self.settings.credentials else {
            let answer = self.settings.client.follow(self.request(method, headers, body)).await?;
            return Ok(self.store_cookies(answer));
        };
        let mut used = credentials.current().await.map_err(Failure::Login)?;
        let mut is_last = false;
        loop {
            let answer = self.send_with(&method, &headers, &body, used.clone()).await?;
            if !matches!(answer.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
                return Ok(answer);
            }
            let values = answer.headers.get_all(WWW_AUTHENTICATE).iter();
            let challenges = values.filter_map(|value| value.to_str().ok()).map(str::to_owned).collect();
            let other = credentials.handle_refusal(answer.status, challenges, used, is_last).await;
            used = match other.map_err(Failure::Login)? {
                Some(other) if !is_last => Some(other),
                _ => return Ok(answer),
            };
            is_last = true;
        }
    }

    async fn send_with(
        &self,
        method: &Method,
        headers: &HeaderMap,
        body: &[u8],
        value: Option<HeaderValue>,
    ) -> Result<Response, Failure> {
        let mut request = self.request(method.clone(), headers.clone(), body.to_vec());
        value.iter().for_each(|value| self.secrets.add(value));
        request.credentials.extend(value.map(|value| (AUTHORIZATION, value)));
        Ok(self.store_cookies(self.settings.client.follow(request).await?))
    }

    fn store_cookies(&self, answer: Response) -> Response {
        if answer.from_origin {
            self.cookies.borrow_mut().learn(&answer.headers);
        }
        // Compressed although agentsh did not request that; both SDKs accept it.
        answer.decompressed()
    }
}
