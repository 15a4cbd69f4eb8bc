//! Tokens of an authorization server whose keys are fetched, change, or are missing.

use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};

use super::*;

const HERE: &str = "https://mcp.example.com/mcp/fs";

/// An authorization server, with the keys that it signs with now.
struct Issuer {
    server: HttpServer,
    keys: Arc<Mutex<Vec<(String, rcgen::KeyPair)>>>,
}

impl Issuer {
    fn start() -> Self {
        let keys = Arc::new(Mutex::new(vec![("one".to_owned(), rcgen::KeyPair::generate().unwrap())]));
        let own = Arc::clone(&keys);
        let server = HttpServer::start(move |asked| match asked.path.as_str() {
            "/.well-known/oauth-authorization-server" => {
                let base = format!("http://{}", asked.header("host").unwrap());
                Reply::json(json!({"issuer": base, "jwks_uri": format!("{base}/keys")}))
            }
            "/keys" => {
                let keys: Vec<Value> =
                    own.lock().unwrap().iter().map(|(kid, key)| public(kid, key)).collect();
                Reply::json(json!({"keys": keys}))
            }
            _ => Reply::status(404),
        });
        Self { server, keys }
    }

    fn name(&self) -> String {
        format!("http://127.0.0.1:{}", self.server.port)
    }

    /// A gateway that takes its tokens.
    fn gateway(&self, place: &Place, more: &str) -> Gateway {
        let oauth = format!("oauth: {{issuer: \"{}\", scopes: [mcp]{more}}}", self.name());
        Gateway::start(
            place,
            &file(place, &format!("public_url: https://mcp.example.com\nauth: {{{oauth}}}\n")),
        )
    }

    /// A token of the newest key, with some claims changed.
    fn token(&self, changed: Value) -> String {
        let mut claims =
            json!({"sub": "ann", "iss": self.name(), "aud": HERE, "exp": now() + 600, "scope": "mcp"});
        claims.as_object_mut().unwrap().extend(changed.as_object().unwrap().clone());
        let keys = self.keys.lock().unwrap();
        let (kid, key) = keys.last().unwrap();
        let header = Header { kid: Some(kid.clone()), ..Header::new(Algorithm::ES256) };
        encode(&header, &claims, &EncodingKey::from_ec_der(&key.serialize_der())).unwrap()
    }
}

fn public(kid: &str, key: &rcgen::KeyPair) -> Value {
    let point = key.public_key_raw();
    let part = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(&point[range]);
    json!({"kty": "EC", "crv": "P-256", "kid": kid, "alg": "ES256", "x": part(1..33), "y": part(33..65)})
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Status of a handshake with this token, and what it says about getting another.
fn knock(gateway: &Gateway, token: &str) -> (u16, String) {
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}});
    let bearer = format!("Bearer {token}");
    let answer = gateway.post("/mcp/fs", &[("Authorization", &bearer)], &hello);
    (answer.status, answer.header("www-authenticate").unwrap_or_default().to_owned())
}

#[test]
fn tokens_are_checked_with_the_keys_that_the_issuer_publishes() {
    let place = Place::new(Mode::Invoker);
    let issuer = Issuer::start();
    let gateway = issuer.gateway(&place, "");
    let said = gateway.ask("GET", "/.well-known/oauth-protected-resource/mcp/fs", &[], "");
    let metadata: Value = serde_json::from_str(&said.body).unwrap();
    assert_eq!(
        (&metadata["resource"], &metadata["authorization_servers"]),
        (&json!(HERE), &json!([issuer.name()]))
    );
    let (status, challenge) = knock(&gateway, "nonsense");
    assert_eq!(status, 401);
    assert!(challenge.contains("resource_metadata=") && challenge.contains("invalid_token"), "{challenge}");
    assert_eq!(knock(&gateway, &issuer.token(json!({}))).0, 200);
    // Clocks differ by less than a minute.
    assert_eq!(knock(&gateway, &issuer.token(json!({"exp": now() - 30, "nbf": now() + 30}))).0, 200);
    // With a larger skew the refusal has the form of the protocol.
    for (skewed, says) in
        [(json!({"exp": now() - 120}), "Expired"), (json!({"nbf": now() + 120}), "Immature")]
    {
        let bearer = format!("Bearer {}", issuer.token(skewed));
        let answer = gateway.post("/mcp/fs", &[("Authorization", &bearer)], &call(7, "echo", json!({})));
        assert_eq!(answer.status, 401);
        let told = answer.last();
        assert!(told["error"]["message"].as_str().is_some_and(|text| text.contains(says)), "{}", answer.body);
    }
    for wrong in [
        json!({"exp": now() - 120}),
        json!({"nbf": now() + 120}),
        json!({"aud": "https://mcp.example.com/mcp/other"}),
        json!({"iss": "https://evil.example.com"}),
    ] {
        assert_eq!(knock(&gateway, &issuer.token(wrong.clone())).0, 401, "{wrong}");
    }
    let (status, challenge) = knock(&gateway, &issuer.token(json!({"scope": "other"})));
    assert_eq!(status, 403);
    assert!(challenge.contains("insufficient_scope") && challenge.contains("scope=\"mcp\""), "{challenge}");
    // The set was asked for once, whatever came.
    let fetched = issuer.server.asked().iter().filter(|asked| asked.path == "/keys").count();
    assert_eq!(fetched, 1);
    assert_eq!(gateway.stop(), 0);
    assert!(json!(place.listed(&["mcp", "events", "--json"])).to_string().contains("blocked-auth"));
}

#[test]
fn rotated_issuer_keys_are_used_and_foreign_keys_are_refused() {
    let place = Place::new(Mode::Invoker);
    let issuer = Issuer::start();
    let gateway =
        issuer.gateway(&place, ", jwks: \"ISSUER/keys\"".replace("ISSUER", &issuer.name()).as_str());
    // The first question comes with the first token, and the next not at once.
    let early = issuer.token(json!({}));
    issuer.keys.lock().unwrap().push(("two".to_owned(), rcgen::KeyPair::generate().unwrap()));
    assert_eq!(knock(&gateway, &early).0, 200);
    assert_eq!(knock(&gateway, &issuer.token(json!({}))).0, 200);
    issuer.keys.lock().unwrap().push(("three".to_owned(), rcgen::KeyPair::generate().unwrap()));
    let late = issuer.token(json!({}));
    assert_eq!(knock(&gateway, &late).0, 401, "asked again at once");
    assert!(
        crate::support::within(Duration::from_secs(20), || knock(&gateway, &late).0 == 200),
        "the new key was never asked for"
    );
    // The name of a known key, and another's signature.
    let other = Issuer::start();
    other.keys.lock().unwrap()[0].0 = "two".to_owned();
    assert_eq!(knock(&gateway, &other.token(json!({"iss": issuer.name()}))).0, 401);
}

#[test]
fn token_is_refused_without_issuer_keys() {
    let place = Place::new(Mode::Invoker);
    let issuer = Issuer::start();
    let gateway = issuer.gateway(&place, ", jwks: \"http://127.0.0.1:1/keys\"");
    assert_eq!(knock(&gateway, &issuer.token(json!({}))).0, 503);
    // An issuer names keys at an address that is not public, and not its own.
    let other = Issuer::start();
    let keys = format!("{}/keys", other.name());
    let sly = HttpServer::start(move |asked| {
        Reply::json(json!({"issuer": format!("http://{}", asked.header("host").unwrap()), "jwks_uri": keys}))
    });
    let oauth = format!(
        "public_url: https://mcp.example.com\nauth: {{oauth: {{issuer: \"http://127.0.0.1:{}\"}}}}\n",
        sly.port
    );
    let fooled = Gateway::start(&place, &file(&place, &oauth));
    let token = other.token(json!({"iss": format!("http://127.0.0.1:{}", sly.port)}));
    assert_eq!(knock(&fooled, &token).0, 503);
    assert!(other.server.asked().is_empty());
    // Keys of the gateway itself are read from a file.
    assert_eq!(knock(&gateway, "agw_unknown").0, 401);
    let algorithm = issuer.gateway(&place, ", algorithms: [RS256]");
    assert_eq!(knock(&algorithm, &issuer.token(json!({}))).0, 401);
    let text = file(&place, "auth: {oauth: {issuer: \"https://a.example\", algorithms: [HS256]}}\n");
    let config = place.write("shared.yaml", text);
    let refused = Outcome::of(&mut place.agentsh(&["gateway", "--config", config.to_str().unwrap()]));
    assert!(refused.code != 0 && refused.stderr.contains("shared secret"), "{refused}");
}
