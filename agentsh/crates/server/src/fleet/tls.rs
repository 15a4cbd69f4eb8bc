//! The server's own TLS.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long a greeting may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Greetings at once.
const MAX_HANDSHAKES: usize = 256;

/// # Errors
/// Which of the two files cannot be used, and why.
pub(crate) fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, String> {
    let read = |what: &str, file: &Path, error: &dyn std::fmt::Display| {
        format!("cannot use the {what} '{}': {error}", file.display())
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate)
        .map_err(|error| read("certificate", certificate, &error))?
        .collect();
    let chain = chain.map_err(|error| read("certificate", certificate, &error))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| read("key", key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| read("certificate", certificate, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Connections after their TLS handshake. A slow handshake delays no other.
pub(crate) struct TlsListener {
    address: SocketAddr,
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

impl TlsListener {
    pub fn start(listener: TcpListener, address: SocketAddr, acceptor: TlsAcceptor) -> Self {
        let (send, ready) = mpsc::channel(MAX_HANDSHAKES);
        tokio::spawn(async move {
            let places = Arc::new(Semaphore::new(MAX_HANDSHAKES));
            loop {
                let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
                let Ok((stream, peer)) = listener.accept().await else {
                    // No descriptor is left, for example: it may come back.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let (acceptor, send) = (acceptor.clone(), send.clone());
                tokio::spawn(async move {
                    let greeted = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await;
                    drop(place);
                    if let Ok(Ok(stream)) = greeted {
                        // The server has ended.
                        let _sent = send.send((stream, peer)).await;
                    }
                });
            }
        });
        Self { address, ready }
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(connection) => connection,
            // The task above ends with the runtime.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(self.address)
    }
}
