//! A scripted receiver on loopback, for tests.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::Client;
use super::resolve::{Answer, Lookup, ResolveError};
use super::target::Rules;

/// One answer: whole HTTP text.
#[derive(Clone)]
pub enum Step {
    Say(String),
    /// The connection stays open afterwards.
    SayAndWait(String),
    /// Never ends.
    Flood(String),
    Silence,
    HangUp,
}

pub struct Receiver {
    pub port: u16,
    /// Head and body of each request.
    pub got: Rc<RefCell<Vec<(String, String)>>>,
}

impl Receiver {
    /// Answers the first request with the first step and so on; the last step repeats.
    pub async fn start(script: Vec<Step>) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), script)
    }

    /// The same, on an address that answers name.
    pub fn on(listener: TcpListener, script: Vec<Step>) -> Self {
        let port = listener.local_addr().unwrap().port();
        let got = Rc::new(RefCell::new(Vec::new()));
        let kept = Rc::clone(&got);
        tokio::task::spawn_local(async move {
            let mut index = 0;
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let step = script[index.min(script.len() - 1)].clone();
                index += 1;
                let kept = Rc::clone(&kept);
                tokio::task::spawn_local(async move {
                    let mut bytes = Vec::new();
                    let request = loop {
                        let mut buffer = [0; 65536];
                        let read = stream.read(&mut buffer).await.unwrap_or(0);
                        bytes.extend_from_slice(&buffer[..read]);
                        let text = String::from_utf8_lossy(&bytes).into_owned();
                        if let Some((head, body)) = text.split_once("\r\n\r\n") {
                            let length = head.lines().find_map(|line| {
                                line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok()
                            });
                            if body.len() >= length.unwrap_or(0) {
                                break (head.to_owned(), body.to_owned());
                            }
                        }
                        if read == 0 {
                            return;
                        }
                    };
                    kept.borrow_mut().push(request);
                    match step {
                        Step::Say(text) => {
                            let _ = stream.write_all(text.as_bytes()).await;
                        }
                        Step::SayAndWait(text) => {
                            let _ = stream.write_all(text.as_bytes()).await;
                            tokio::time::sleep(Duration::from_secs(3600)).await;
                        }
                        Step::Flood(text) => while stream.write_all(text.as_bytes()).await.is_ok() {},
                        Step::Silence => tokio::time::sleep(Duration::from_secs(3600)).await,
                        Step::HangUp => {}
                    }
                });
            }
        });
        Self { port, got }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

pub fn answer(status: &str, body: &str) -> Step {
    Step::Say(format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
}

/// Knows `localhost` alone.
pub fn client() -> Client {
    Client::new(lookup(), Rules::user_configured())
}

pub(crate) fn lookup() -> Arc<Lookup> {
    Arc::new(|name| {
        Box::pin(async move {
            let addresses = match name.as_str() {
                "localhost" => vec!["127.0.0.1".parse().unwrap()],
                "far.example" => vec!["192.0.2.1".parse().unwrap()],
                _ => return Err(ResolveError::NotFound),
            };
            Ok(Answer { addresses, chain: Vec::new() })
        })
    })
}
