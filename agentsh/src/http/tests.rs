#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::time::Duration;

use tokio::task::LocalSet;

use super::testing::{Receiver, Step, answer, client};
use super::*;

fn post(url: &str) -> Post {
    Post {
        url: Url::parse(url).unwrap(),
        headers: vec![(HeaderName::from_static("x-a"), HeaderValue::from_static("b"))],
        body: b"{}".to_vec(),
        within: Duration::from_millis(500),
        max_answer: 1000,
    }
}

async fn asked(step: Step) -> (Result<Answer, HttpError>, Vec<(String, String)>) {
    let local = LocalSet::new();
    local
        .run_until(async {
            let receiver = Receiver::start(vec![step]).await;
            let answer = client().post(post(&receiver.url("/a?b=c"))).await;
            let got = receiver.got.borrow().clone();
            (answer, got)
        })
        .await
}

#[tokio::test]
async fn a_request_is_sent_as_asked_and_answered_once() {
    let (got, requests) = asked(answer("418 I'm a teapot", "short")).await;
    assert_eq!(got.unwrap(), Answer { status: 418, body: b"short".to_vec() });
    let (head, body) = &requests[0];
    assert!(head.starts_with("POST /a?b=c HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("host: 127.0.0.1:") && head.contains("x-a: b"), "{head}");
    assert_eq!(body, "{}");
}

#[tokio::test]
async fn a_redirection_is_not_followed() {
    let step =
        Step::Say("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n".into());
    let (got, requests) = asked(step).await;
    assert_eq!(got.unwrap().status, 302);
    assert_eq!(requests.len(), 1);
}

#[tokio::test]
async fn answers_are_bounded_in_time_and_size() {
    assert!(matches!(asked(Step::Silence).await.0, Err(HttpError::TimedOut(_))));
    assert!(matches!(asked(answer("200 OK", &"x".repeat(1001))).await.0, Err(HttpError::TooLarge(1000))));
    let endless = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(10_000));
    assert!(matches!(asked(Step::Flood(endless)).await.0, Err(HttpError::TooLarge(1000))));
    let head = format!("HTTP/1.1 200 OK\r\n{}", "x-a: bbbbbbbbbbbbbbbb\r\n".repeat(4000));
    assert!(matches!(asked(Step::Flood(head)).await.0, Err(HttpError::Broken(_))));
    assert!(matches!(asked(Step::HangUp).await.0, Err(HttpError::Broken(_))));
    assert!(matches!(asked(Step::Say("hello\r\n\r\n".into())).await.0, Err(HttpError::Broken(_))));
}

#[tokio::test]
async fn what_is_not_on_this_machine_needs_a_certificate() {
    assert!(matches!(client().post(post("http://192.0.2.1/")).await, Err(HttpError::Address(_))));
    assert!(matches!(client().post(post("http://far.example/")).await, Err(HttpError::Address(_))));
    assert!(matches!(client().post(post("http://nowhere.example/")).await, Err(HttpError::Name { .. })));
    assert!(matches!(client().post(post("ftp://127.0.0.1/")).await, Err(HttpError::Address(_))));
}

/// Answers one connection with the certificate of `localhost`.
async fn secure_receiver() -> u16 {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let chain = vec![CertificateDer::from_pem_slice(include_bytes!("testing_keys/leaf.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("testing_keys/leaf.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::task::spawn_local(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let Ok(mut stream) = tokio_rustls::TlsAcceptor::from(Arc::new(config)).accept(stream).await else {
            return;
        };
        let mut buffer = [0; 4096];
        let _ = stream.read(&mut buffer).await.unwrap();
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await;
        let _ = stream.read(&mut buffer).await;
    });
    port
}

#[tokio::test]
async fn only_a_known_authority_and_the_right_name_are_accepted() {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    let known = || {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(include_bytes!("testing_keys/ca.pem")).unwrap()).unwrap();
        Client::trusting(roots, client().resolve)
    };
    LocalSet::new()
        .run_until(async {
            let port = secure_receiver().await;
            let answer = known().post(post(&format!("https://localhost:{port}/"))).await.unwrap();
            assert_eq!((answer.status, answer.body), (200, b"hi".to_vec()));
            let port = secure_receiver().await;
            let error = known().post(post(&format!("https://127.0.0.1:{port}/"))).await;
            assert!(matches!(error, Err(HttpError::Tls { .. })), "{error:?}");
            let port = secure_receiver().await;
            let stranger = Client::trusting(RootCertStore::empty(), client().resolve);
            let error = stranger.post(post(&format!("https://localhost:{port}/"))).await;
            assert!(matches!(error, Err(HttpError::Tls { .. })), "{error:?}");
        })
        .await;
}
