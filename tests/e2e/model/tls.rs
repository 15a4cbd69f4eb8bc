//! A scripted model behind TLS, at the name under which agents know the real one. In the namespace in which the suite runs
//! as root, these names lead to this machine.

use std::io::{BufRead, BufReader, Read, Result, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::{Answer, Model, Request};
use crate::place::installed;

/// One at a time: they have the same port.
static TURN: Mutex<()> = Mutex::new(());
const PORT: u16 = 443;
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Speaks until it is dropped.
pub struct Behind {
    /// The certificate of its authority, as PEM.
    pub authority: String,
    addresses: Vec<SocketAddr>,
    over: Arc<AtomicBool>,
    _turn: MutexGuard<'static, ()>,
}

/// Why no model can be there.
pub fn unavailable() -> Option<&'static str> {
    match place("api.anthropic.com").zip(place("api.openai.com")) {
        Some(_) => None,
        None => {
            Some("the models' names do not lead to this machine: root's `cargo xtask test e2e` sees to that")
        }
    }
}

fn place(host: &str) -> Option<SocketAddr> {
    (host, PORT)
        .to_socket_addrs()
        .ok()?
        .find(|address| matches!(address.ip(), IpAddr::V4(ip) if ip.is_loopback()))
}

impl Behind {
    /// Puts the model behind TLS at these names.
    pub fn new(model: &Model, hosts: &[&str]) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let (config, authority) = identity(hosts);
        let over = Arc::new(AtomicBool::new(false));
        let mut addresses = Vec::new();
        for host in hosts {
            let address = place(host).expect("checked by `unavailable`");
            // The one before may still be closing.
            let mut attempts = std::iter::repeat_with(|| TcpListener::bind(address)).take(100);
            let listener =
                attempts.find_map(|bound| bound.map_err(|_| sleep(RETRY_DELAY)).ok()).expect("a free port");
            addresses.push(address);
            let (config, over, answer) = (Arc::clone(&config), Arc::clone(&over), Arc::clone(&model.answer));
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    let (config, answer) = (Arc::clone(&config), Arc::clone(&answer));
                    // A client that trusts another authority hangs up.
                    std::thread::spawn(move || speak(stream, &config, |request| answer(request)));
                }
            });
        }
        Self { authority, addresses, over, _turn: turn }
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for address in &self.addresses {
            let _ = TcpStream::connect(address);
        }
    }
}

/// The same with HTTP/2 too, in a process of Node's.
pub struct Front {
    pub authority: String,
    child: Child,
    heard: BufReader<ChildStdout>,
    _turn: MutexGuard<'static, ()>,
}

impl Front {
    pub fn new(model: &Model, host: &str) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let (leaf, key, authority) = certified(&[host]);
        let identity = installed("work").join(format!("{host}.pem"));
        std::fs::write(&identity, format!("{}{}", leaf.pem(), key.serialize_pem())).expect("a new file");
        let script = installed("npm/front.mjs");
        std::fs::write(&script, include_str!("../front.mjs")).expect("the installation is ours");
        let address = place(host).expect("checked by `unavailable`");
        let mut command = Command::new("node");
        command.arg(script).arg(address.ip().to_string()).arg(identity).arg(model.address.to_string());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("node is installed");
        let mut heard = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        heard.read_line(&mut line).expect("it says that it is ready");
        assert_eq!(line, "ready\n");
        Self { authority, child, heard, _turn: turn }
    }

    /// Ends it; the answer is one line for each request.
    pub fn heard(mut self) -> Vec<String> {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
        self.heard.by_ref().lines().map_while(|line| line.ok()).collect()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn certified(hosts: &[&str]) -> (rcgen::Certificate, rcgen::KeyPair, String) {
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
    };
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, "authority of a test");
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut leaf = CertificateParams::new(names).unwrap();
    leaf.use_authority_key_identifier_extension = true;
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    (leaf, key, issuer.pem())
}

fn identity(hosts: &[&str]) -> (Arc<ServerConfig>, String) {
    let (leaf, key, authority) = certified(hosts);
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .unwrap();
    (Arc::new(config), authority)
}

/// One request and its answer.
fn speak(
    mut stream: TcpStream,
    config: &Arc<ServerConfig>,
    answer: impl FnOnce(&Request) -> Answer,
) -> Result<()> {
    let mut connection = ServerConnection::new(Arc::clone(config)).map_err(std::io::Error::other)?;
    connection.complete_io(&mut stream)?;
    let mut program = StreamOwned::new(connection, stream);
    super::http::serve(&mut program, answer)?;
    program.conn.send_close_notify();
    program.flush()?;
    program.sock.shutdown(Shutdown::Write)?;
    // Until the other side has it.
    program.sock.read(&mut [0; 64]).map(|_| ())
}
