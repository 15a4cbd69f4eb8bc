//! TLS that ends at the gateway, by certificate files.

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::*;

/// Writes a certificate for `localhost` where the configuration names it.
fn certificate(place: &Place) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    place.write("server.pem", made.cert.pem());
    place.write("server.key", made.signing_key.serialize_pem());
    made.cert.der().clone()
}

/// What is said to a client that trusts this certificate alone; None where it does not shake hands.
fn ask(gateway: &Gateway, trusted: &CertificateDer<'static>) -> Option<String> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TcpStream::connect(&gateway.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut stream = StreamOwned::new(ClientConnection::new(config, name).unwrap(), stream);
    let request = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).ok()?;
    let mut said = String::new();
    stream.read_to_string(&mut said).ok()?;
    Some(said)
}

#[test]
fn gateway_terminates_tls_and_reloads_its_certificate() {
    let place = Place::new(Mode::Invoker);
    let first = certificate(&place);
    let more = format!("{OPEN}tls: {{certificate: server.pem, key: server.key}}\n");
    let gateway = Gateway::start(&place, &file(&place, &more));
    assert!(ask(&gateway, &first).unwrap().ends_with("ready\n"));
    // Clients that are offered HTTP/2 name the host apart from the headers.
    let mut curl = place.command("curl");
    curl.args([
        "-sSk",
        "--http2",
        "-w",
        " %{http_version} %{http_code}",
        "-H",
        "Content-Type: application/json",
    ]);
    curl.args(["-H", "Accept: application/json, text/event-stream", "-d", &initialize().to_string()]);
    curl.arg(format!("https://{}/mcp/fs", gateway.address.replace("127.0.0.1", "localhost")));
    let said = Outcome::of(&mut curl).expect_code(0).stdout;
    assert!(said.ends_with(" 2 200") && said.contains("serverInfo"), "{said}");
    // Plain text is not a handshake, and gets no answer.
    let mut plain = TcpStream::connect(&gateway.address).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    plain.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut said = Vec::new();
    let _ = plain.read_to_end(&mut said);
    assert!(!String::from_utf8_lossy(&said).contains("ready"), "{said:?}");
    // Half of a pair changes nothing.
    place.write("server.pem", "nonsense");
    gateway.reload();
    std::thread::sleep(Duration::from_millis(300));
    assert!(ask(&gateway, &first).is_some());
    let second = certificate(&place);
    gateway.reload();
    assert!(crate::support::eventually(|| ask(&gateway, &second).is_some()));
    assert!(ask(&gateway, &first).is_none());
    assert_eq!(gateway.stop(), 0);
}
