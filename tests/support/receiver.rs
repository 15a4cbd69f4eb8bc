//! An HTTP server on the loopback with chosen answers; it keeps the requests.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use rustls::{ServerConfig, ServerConnection, StreamOwned};

pub enum Answer {
    Say(u16, String),
    HangUp,
    /// Until the other side has enough of it.
    Nothing,
}

pub struct Receiver {
    pub port: u16,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Receiver {
    /// `answer` gets the whole request, and how many came before it.
    pub fn start(answer: impl Fn(&str, usize) -> Answer + Send + Sync + 'static) -> Self {
        Self::listen(None, answer)
    }

    /// The same over TLS.
    pub fn secure(
        config: ServerConfig,
        answer: impl Fn(&str, usize) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::listen(Some(Arc::new(config)), answer)
    }

    fn listen(
        config: Option<Arc<ServerConfig>>,
        answer: impl Fn(&str, usize) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (kept, answer) = (Arc::clone(&heard), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (kept, answer, config) = (Arc::clone(&kept), Arc::clone(&answer), config.clone());
                std::thread::spawn(move || match config {
                    None => converse(stream, &kept, &*answer),
                    Some(config) => {
                        let tls = ServerConnection::new(config).unwrap();
                        converse(StreamOwned::new(tls, stream), &kept, &*answer);
                    }
                });
            }
        });
        Self { port, heard }
    }

    /// Head and body of every request.
    pub fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

fn converse(
    mut stream: impl Read + Write,
    kept: &Mutex<Vec<String>>,
    answer: &dyn Fn(&str, usize) -> Answer,
) {
    let Some(request) = read(&mut stream) else { return };
    let before = {
        let mut kept = kept.lock().unwrap();
        kept.push(request.clone());
        kept.len() - 1
    };
    match answer(&request, before) {
        Answer::Say(status, body) => {
            let _ = write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            let _ = stream.flush();
        }
        Answer::HangUp => {}
        Answer::Nothing => drop(stream.read(&mut [0; 16])),
    }
}

fn read(stream: &mut impl Read) -> Option<String> {
    let mut text = Vec::new();
    let mut buffer = [0; 65536];
    loop {
        let shown = String::from_utf8_lossy(&text).into_owned();
        if let Some((head, body)) = shown.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
            if body.len() >= length.parse().ok()? {
                return Some(shown);
            }
        }
        match stream.read(&mut buffer) {
            Ok(read) if read > 0 => text.extend_from_slice(&buffer[..read]),
            _ => return None,
        }
    }
}
