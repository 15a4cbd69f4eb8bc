//! A model that answers as the test tells it to: a loopback HTTP server that streams the real wire formats.

pub mod anthropic;
pub mod calls;
pub mod chat;
pub mod gemini;
mod http;
pub mod openai;
pub mod tls;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

pub use http::{Answer, Request};

/// Speaks until the test process ends.
pub struct Model {
    pub address: SocketAddr,
    received: Arc<Mutex<Vec<Value>>>,
    answer: Arc<dyn Fn(&Request) -> Answer + Send + Sync>,
}

/// The tool that the model asks for, once; after that it says [`FAREWELL`].
#[derive(Clone, Debug)]
pub struct Script {
    pub server: &'static str,
    pub tool: &'static str,
    pub arguments: Value,
    /// It asks for the tool even if no tool was announced to it.
    pub insists: bool,
    /// The model speaks its last words only when this is set, or after [`MAX_HOLD`].
    pub hold: Option<Arc<AtomicBool>>,
}

/// A test that waits for something that never comes ends, and says so itself.
const MAX_HOLD: Duration = Duration::from_secs(60);

impl Script {
    fn wait(&self) {
        let since = Instant::now();
        while self.hold.as_ref().is_some_and(|hold| !hold.load(Ordering::Relaxed))
            && since.elapsed() < MAX_HOLD
        {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

pub const FAREWELL: &str = "The end.";

impl Model {
    fn start(answer: impl Fn(&Request, &Mutex<Vec<Value>>) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let received = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&received);
        let answer: Arc<dyn Fn(&Request) -> Answer + Send + Sync> =
            Arc::new(move |request| answer(request, &shared));
        let speaking = Arc::clone(&answer);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answer = Arc::clone(&speaking);
                // A client that hangs up in the middle is the client's business.
                std::thread::spawn(move || http::serve(&stream, |request| answer(request)));
            }
        });
        Self { address, received, answer }
    }

    /// Bodies of the conversation's requests so far, in order.
    pub fn conversation(&self) -> Vec<Value> {
        self.received.lock().expect("no thread panicked").clone()
    }
}
