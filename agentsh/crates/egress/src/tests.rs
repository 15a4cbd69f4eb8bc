#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::time::Duration;

use tokio::task::LocalSet;

use super::client::full_body;
use super::proxy::Proxy;
use super::target::{Rules, Target};
use super::testing::{Receiver, Step, answer, client, lookup};
use super::*;
use hyper::Method;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use rustls::RootCertStore;
use std::sync::Arc;
use url::Url;

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
async fn plain_http_to_another_machine_is_refused() {
    assert!(matches!(client().post(post("http://192.0.2.1/")).await, Err(HttpError::Refused { .. })));
    assert!(matches!(client().post(post("http://far.example/")).await, Err(HttpError::Refused { .. })));
    assert!(matches!(client().post(post("http://nowhere.example/")).await, Err(HttpError::Name { .. })));
    assert!(matches!(client().post(post("ftp://127.0.0.1/")).await, Err(HttpError::Refused { .. })));
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
        Client::with_roots(Ok(roots), lookup(), Rules::user_configured())
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
            let stranger = Client::with_roots(Ok(RootCertStore::empty()), lookup(), Rules::user_configured());
            let error = stranger.post(post(&format!("https://localhost:{port}/"))).await;
            assert!(matches!(error, Err(HttpError::Tls { .. })), "{error:?}");
        })
        .await;
}

fn request(client: &Client, method: Method, url: &str) -> client::Request {
    let credentials = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Bearer secret"))]);
    let target = client.target(url).unwrap();
    client::Request {
        method,
        target,
        headers: HeaderMap::new(),
        credentials,
        body: "{}".into(),
        one_origin: false,
    }
}

fn sent_on(status: &str, to: &str) -> Step {
    Step::Say(format!("HTTP/1.1 {status} X\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n"))
}

#[tokio::test]
async fn redirection_to_another_host_drops_credentials() {
    LocalSet::new()
        .run_until(async {
            let client = client();
            // The same service by another name: another origin.
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let elsewhere = format!("http://localhost:{}/c", listener.local_addr().unwrap().port());
            let script = vec![
                sent_on("307", "/b"),
                sent_on("308", &elsewhere),
                answer("200 OK", "here"),
                sent_on("307", "/b"),
                sent_on("308", &elsewhere),
            ];
            let start = Receiver::on(listener, script);
            let answered = client.follow(request(&client, Method::POST, &start.url("/a"))).await.unwrap();
            assert_eq!(answered.read_body(100).await.unwrap(), b"here");
            let mut messages = request(&client, Method::POST, &start.url("/a"));
            messages.one_origin = true;
            let refused = client.follow(messages).await.unwrap_err().to_string();
            assert!(refused.contains(&format!("sends messages on to {elsewhere}")), "{refused}");
            let got = start.got.borrow();
            let is_secret: Vec<bool> = got.iter().map(|(head, _)| head.contains("Bearer secret")).collect();
            assert_eq!(is_secret[..3], [true, true, false], "{got:?}");
            assert!(got.iter().all(|(_, body)| body == "{}") && got[2].0.starts_with("POST /c "), "{got:?}");
        })
        .await;
}

#[tokio::test]
async fn a_redirection_leads_to_no_other_service_of_this_machine() {
    LocalSet::new()
        .run_until(async {
            for client in [client(), Client::new(lookup(), Rules { loopback: true, ..Rules::default() })] {
                let other = Receiver::start(vec![answer("200 OK", "here")]).await;
                for to in [other.url("/"), format!("http://localhost:{}/", other.port)] {
                    let start = Receiver::start(vec![sent_on("307", &to)]).await;
                    let refused = client.follow(request(&client, Method::POST, &start.url("/"))).await;
                    let why = refused.map(|_| ()).unwrap_err().to_string();
                    assert!(why.contains("another service of this machine"), "{why}");
                }
                assert!(other.got.borrow().is_empty());
            }
            let public = Target::parse("https://example.com/", &Rules::user_configured()).unwrap();
            assert!(public.redirected("https://127.0.0.1:8443/", 0, &Rules::user_configured()).is_err());
            public.redirected("https://example.org/", 0, &Rules::user_configured()).unwrap();
        })
        .await;
}

#[tokio::test]
async fn redirections_are_limited_and_each_is_judged() {
    LocalSet::new()
        .run_until(async {
            let rules = Rules { loopback: true, ..Rules::default() };
            let client = Client::new(lookup(), rules);
            for (to, why) in [
                ("http://169.254.169.254/latest", "169.254.169.254"),
                ("https://10.0.0.1/", "10.0.0.1"),
                ("ftp://127.0.0.1/", "ftp"),
                ("\\\\127.0.0.1/", "differently"),
                ("/again", "more than 3 times"),
            ] {
                let start = Receiver::start(vec![sent_on("302", to)]).await;
                let refused =
                    client.follow(request(&client, Method::GET, &start.url("/"))).await.unwrap_err();
                assert!(refused.to_string().contains(why), "{to}: {refused}");
                assert_eq!(start.got.borrow().len(), if to == "/again" { 4 } else { 1 });
            }
            let secure = Target::parse("https://example.com/", &Rules::default()).unwrap();
            let rules = Rules { loopback: true, ..Rules::default() };
            assert!(secure.redirected("http://127.0.0.1/", 0, &rules).is_err());
        })
        .await;
}

#[tokio::test]
async fn response_body_is_read_as_it_arrives() {
    LocalSet::new()
        .run_until(async {
            let start = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n";
            let receiver = Receiver::start(vec![Step::SayAndWait(start.into())]).await;
            let limits = client::Limits { idle: Some(Duration::from_millis(50)), ..Default::default() };
            let client = client().with_limits(limits);
            let target = client.target(&receiver.url("/")).unwrap();
            let mut answered =
                client.send(Method::GET, &target, HeaderMap::new(), full_body("")).await.unwrap();
            assert_eq!(answered.chunk().await.unwrap().unwrap(), "abc");
            assert!(matches!(answered.chunk().await, Err(HttpError::Idle(_))));
        })
        .await;
}

#[tokio::test]
async fn a_proxy_is_used_where_the_caller_asks_for_it() {
    LocalSet::new()
        .run_until(async {
            let receiver = Receiver::start(vec![answer("403 Forbidden", "")]).await;
            let proxy = Proxy::new(&format!("http://u:p@127.0.0.1:{}", receiver.port), "").unwrap();
            let client = client().with_proxy(Some(proxy));
            let error = client.post(post("https://example.com/")).await.unwrap_err();
            assert!(matches!(error, HttpError::Proxy { .. }), "{error}");
            let got = receiver.got.borrow();
            assert!(
                got[0].0.starts_with("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443"),
                "{got:?}"
            );
            assert!(got[0].0.ends_with("Proxy-Authorization: Basic dTpw"), "{got:?}");
        })
        .await;
}
