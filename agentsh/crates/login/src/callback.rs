//! The browser's answer: one request to an address of this machine (RFC 8252), and its checks.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use url::form_urlencoded;

use super::error::LoginError;
use super::metadata::same_issuer;
use super::registration::display_text;

/// Longest request, in bytes: a code may be long.
const MAX_REQUEST: usize = 32 << 10;
/// How long a connection may take to send its request.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections that are served at once.
const MAX_OPEN: usize = 16;
const PATH: &str = "/callback";

/// Listens for one answer.
pub struct Callback {
    listener: TcpListener,
    port: u16,
}

/// The expected answer.
#[derive(Clone, Debug)]
pub struct ExpectedCallback {
    /// An unguessable value.
    pub state: String,
    pub issuer: String,
    /// The authorization server says that it always names itself.
    pub names_itself: bool,
}

impl Callback {
    /// Listens on 127.0.0.1, at a free port unless one is named.
    ///
    /// # Errors
    /// When that port is taken.
    pub async fn listen(port: Option<u16>) -> Result<Self, LoginError> {
        let listener =
            TcpListener::bind(("127.0.0.1", port.unwrap_or(0))).await.map_err(LoginError::Listen)?;
        let port = listener.local_addr().map_err(LoginError::Listen)?.port();
        Ok(Self { listener, port })
    }

    /// Where the browser is sent.
    #[must_use]
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}{PATH}", self.port)
    }

    /// The code of the answer. Answers that belong to another login, or to none, are dropped, and reported by `note`.
    ///
    /// # Errors
    /// When the authorization server refused, when another server answered in its place, or when no answer came in time.
    pub async fn code(
        &self,
        expected: &ExpectedCallback,
        limit: Duration,
        note: &dyn Fn(&str),
    ) -> Result<String, LoginError> {
        timeout(limit, self.accept_code(expected, note))
            .await
            .unwrap_or(Err(LoginError::TimedOut(limit.as_secs())))
    }

    async fn accept_code(
        &self,
        expected: &ExpectedCallback,
        note: &dyn Fn(&str),
    ) -> Result<String, LoginError> {
        // Browsers open connections in advance: no request waits for an idle one.
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if open.len() < MAX_OPEN => match accepted {
                    Ok((stream, _)) => drop(open.spawn(timeout(READ_TIMEOUT, request(stream)))),
                    // Out of descriptors: later there may be one.
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                },
                Some(asked) = open.join_next() => {
                    if let Ok(Ok(Some((stream, query)))) = asked
                        && let Some(answer) = answer(stream, query, expected, note).await
                    {
                        return answer;
                    }
                }
            }
        }
    }
}

/// None for a request that says nothing about this login.
async fn answer(
    mut stream: TcpStream,
    query: Option<String>,
    expected: &ExpectedCallback,
    note: &dyn Fn(&str),
) -> Option<Result<String, LoginError>> {
    let Some(query) = query else {
        reply(&mut stream, "404 Not Found", "Not found.").await;
        return None;
    };
    let judged = judge(&query, expected);
    match &judged {
        None => {
            note("ignored an answer in the browser that does not belong to this login");
            reply(
                &mut stream,
                "400 Bad Request",
                "This answer does not belong to the login that agentsh started.",
            )
            .await;
        }
        Some(Ok(_)) => reply(&mut stream, "200 OK", "Logged in. You can close this page.").await,
        Some(Err(_)) => {
            reply(&mut stream, "400 Bad Request", "The login failed. The terminal shows the reason.").await;
        }
    }
    judged
}

/// The connection and the query of a request to the right path. None: no request.
async fn request(mut stream: TcpStream) -> Option<(TcpStream, Option<String>)> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).await.ok().filter(|count| *count > 0)?;
        head.extend_from_slice(piece.get(..count)?);
        if head.len() > MAX_REQUEST {
            return None;
        }
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = std::str::from_utf8(line).ok()?;
    let target = line.strip_prefix("GET ").and_then(|rest| rest.split(' ').next());
    let query = target.and_then(|target| Some(target.strip_prefix(PATH)?.strip_prefix('?')?.to_owned()));
    Some((stream, query))
}

/// The code in the query of an answer. None: the request is about something else. The issuer is checked first.
#[must_use]
pub fn judge(query: &str, expected: &ExpectedCallback) -> Option<Result<String, LoginError>> {
    let value = |name: &str| {
        let mut found = form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == name);
        let first = found.next().map(|(_, value)| value.into_owned());
        // Twice is as good as not at all.
        first.filter(|_| found.next().is_none())
    };
    if value("state").as_ref() != Some(&expected.state) {
        return None;
    }
    let is_other = match value("iss") {
        Some(issuer) => !same_issuer(&issuer, &expected.issuer),
        None => expected.names_itself || query.contains("iss="),
    };
    if is_other {
        return Some(Err(LoginError::WrongIssuer { expected: expected.issuer.clone() }));
    }
    if let Some(error) = value("error") {
        let more = value("error_description").map(|more| format!(" ({more})")).unwrap_or_default();
        return Some(Err(LoginError::Denied(display_text(&format!("{error}{more}")))));
    }
    let code = value("code").filter(|code| !code.is_empty());
    Some(code.ok_or_else(|| LoginError::Denied("its answer has no authorization code".to_owned())))
}

/// A browser that went away has its answer anyway.
async fn reply(stream: &mut TcpStream, status: &str, text: &str) {
    let page = format!("<!doctype html><meta charset=utf-8><title>agentsh</title><p>{text}</p>\n");
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         Referrer-Policy: no-referrer\r\nContent-Security-Policy: default-src 'none'\r\nConnection: close\r\n\r\n",
        page.len()
    );
    let said = async {
        let _ = stream.write_all(format!("{head}{page}").as_bytes()).await;
        let _ = stream.shutdown().await;
    };
    let _ = timeout(READ_TIMEOUT, said).await;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn expected(names_itself: bool) -> ExpectedCallback {
        ExpectedCallback { state: "s t".to_owned(), issuer: "https://a.example/x".to_owned(), names_itself }
    }

    fn judged(query: &str, names_itself: bool) -> Option<Result<String, String>> {
        Some(judge(query, &expected(names_itself))?.map_err(|error| error.to_string()))
    }

    #[test]
    fn login_callback_with_matching_state_and_issuer_is_accepted() {
        assert_eq!(judged("code=a%2Bb&state=s+t", false), Some(Ok("a+b".to_owned())));
        for iss in ["https%3A%2F%2Fa.example%2Fx", "https%3A%2F%2Fa.example%2Fx%2F"] {
            let query = format!("code=c&state=s%20t&iss={iss}");
            assert_eq!(judged(&query, true), Some(Ok("c".to_owned())), "{iss}");
        }
    }

    #[test]
    fn login_callback_with_another_state_is_ignored() {
        for query in
            ["", "code=c", "code=c&state=", "code=c&state=s", "code=c&state=s+t&state=s+t", "state=x&code=c"]
        {
            assert_eq!(judged(query, false), None, "{query}");
        }
    }

    #[test]
    fn login_callback_from_another_issuer_is_not_shown() {
        for (query, names_itself) in [
            ("state=s+t&code=c&iss=https%3A%2F%2Fevil.example", false),
            ("state=s+t&code=c&iss=https%3A%2F%2Fa.example%2Fx%2F%2F", false),
            ("state=s+t&error=evil&iss=x", false),
            ("state=s+t&code=c&iss=https%3A%2F%2Fa.example%2Fx&iss=y", false),
            ("state=s+t&code=c", true),
        ] {
            let error = judged(query, names_itself).unwrap().unwrap_err();
            assert!(error.contains("not from https://a.example/x") && !error.contains("evil"), "{error}");
        }
    }

    #[test]
    fn login_refusal_is_shown_without_control_characters() {
        let error = judged("state=s+t&error=access_denied&error_description=no%1b%5b31m", false)
            .unwrap()
            .unwrap_err();
        assert!(error.contains("access_denied (no\\u{1b}[31m)"), "{error}");
        assert!(judged("state=s+t", false).unwrap().is_err());
        assert!(judged("state=s+t&code=", false).unwrap().is_err());
    }
}
