//! An OpenID provider on the loopback: clients, redirect addresses, PKCE, codes and secrets are checked as the specifications have
//! it; a test may make it lie.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use url::{Url, form_urlencoded};

use crate::support::http_server::{Asked, HttpServer, Reply};

pub const CLIENT: &str = "fleet-pages";
pub const SECRET: &str = "s3cret of the pages";

/// Settings that a test changes.
#[derive(Default)]
pub struct Says {
    /// Claims that take the place of true ones; null takes one away.
    pub claims: BTreeMap<String, Value>,
    /// Changes of the metadata.
    pub metadata: BTreeMap<String, Value>,
    /// The `iss` next to the code.
    pub issuer: Option<String>,
    /// In place of a code.
    pub error: Option<&'static str>,
    pub without_token: bool,
    /// Signs with a key that nobody published.
    pub forges: bool,
    codes: BTreeMap<String, BTreeMap<String, String>>,
    serial: u64,
}

pub struct Provider {
    server: HttpServer,
    says: Arc<Mutex<Says>>,
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn pairs(text: &str) -> BTreeMap<String, String> {
    form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

fn public(key: &rcgen::KeyPair) -> Value {
    let point = key.public_key_raw();
    let part = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(&point[range]);
    json!({"kty": "EC", "crv": "P-256", "kid": "k", "alg": "ES256", "use": "sig", "x": part(1..33), "y": part(33..65)})
}

impl Provider {
    /// `redirect`: the one address that its client may be sent back to.
    pub fn start(redirect: &str) -> Self {
        let says = Arc::new(Mutex::new(Says::default()));
        let (key, other) = (rcgen::KeyPair::generate().unwrap(), rcgen::KeyPair::generate().unwrap());
        let (own, redirect) = (Arc::clone(&says), redirect.to_owned());
        let server = HttpServer::start(move |asked| {
            let issuer = format!("http://{}", asked.header("host").unwrap_or_default());
            let mut says = own.lock().unwrap();
            let (path, query) = asked.path.split_once('?').unwrap_or((&asked.path, ""));
            match (asked.method.as_str(), path) {
                ("GET", "/.well-known/openid-configuration") => says.about(&issuer),
                ("GET", "/keys") => Reply::json(json!({"keys": [public(&key)]})),
                ("GET", "/authorize") => says.authorize(pairs(query), &issuer, &redirect),
                ("POST", "/token") => {
                    let signer = if says.forges { &other } else { &key };
                    says.trade(asked, &issuer, signer)
                }
                _ => Reply::status(404),
            }
        });
        Self { server, says }
    }

    pub fn issuer(&self) -> String {
        format!("http://127.0.0.1:{}", self.server.port)
    }

    pub fn says(&self) -> MutexGuard<'_, Says> {
        self.says.lock().unwrap()
    }

    /// From here on it says the truth.
    pub fn repents(&self) {
        let mut says = self.says();
        let codes = std::mem::take(&mut says.codes);
        let serial = says.serial;
        *says = Says { codes, serial, ..Says::default() };
    }

    pub fn asked(&self, path: &str) -> usize {
        self.server.asked().iter().filter(|asked| asked.path.starts_with(path)).count()
    }
}

impl Says {
    fn about(&self, issuer: &str) -> Reply {
        let mut about = json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"),
            "jwks_uri": format!("{issuer}/keys"),
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
            "authorization_response_iss_parameter_supported": true,
        });
        for (name, value) in &self.metadata {
            about[name] = value.clone();
        }
        Reply::json(about)
    }

    fn authorize(&mut self, asked: BTreeMap<String, String>, issuer: &str, redirect: &str) -> Reply {
        let is = |name: &str, wanted: &str| asked.get(name).is_some_and(|value| value == wanted);
        let has_scope =
            asked.get("scope").is_some_and(|scopes| scopes.split(' ').any(|scope| scope == "openid"));
        let is_whole =
            asked.get("nonce").is_some_and(|nonce| nonce.len() >= 32) && asked.contains_key("state");
        if !is("client_id", CLIENT)
            || !is("redirect_uri", redirect)
            || !is("response_type", "code")
            || !is("code_challenge_method", "S256")
            || !has_scope
            || !is_whole
        {
            return Reply { status: 400, ..Reply::json(json!({"error": "invalid_request", "asked": asked})) };
        }
        self.serial += 1;
        let code = format!("code-{}", self.serial);
        let mut back = Url::parse(redirect).unwrap();
        let state = asked["state"].clone();
        match self.error {
            Some(error) => back.query_pairs_mut().append_pair("error", error),
            None => back.query_pairs_mut().append_pair("code", &code),
        };
        back.query_pairs_mut()
            .append_pair("state", &state)
            .append_pair("iss", self.issuer.as_deref().unwrap_or(issuer));
        self.codes.insert(code, asked);
        Reply::status(302).with("Location", back.as_str())
    }

    fn trade(&mut self, asked: &Asked, issuer: &str, key: &rcgen::KeyPair) -> Reply {
        let form = pairs(&asked.body);
        let refuse = |error: &str| Reply { status: 400, ..Reply::json(json!({"error": error})) };
        let basic = asked.header("authorization").and_then(|value| value.strip_prefix("Basic "));
        let basic = basic.and_then(|value| String::from_utf8(STANDARD.decode(value).ok()?).ok());
        let shown = basic.and_then(|pair| {
            let (id, secret) = pair.split_once(':')?;
            let plain = |text: &str| {
                form_urlencoded::parse(text.as_bytes()).next().map(|(text, _)| text.into_owned())
            };
            Some((plain(id)?, plain(secret)?))
        });
        if shown != Some((CLIENT.to_owned(), SECRET.to_owned())) {
            return refuse("invalid_client");
        }
        let Some(code) = form.get("code").and_then(|code| self.codes.remove(code)) else {
            return refuse("invalid_grant");
        };
        let verifier = form.get("code_verifier").cloned().unwrap_or_default();
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
        if challenge != code["code_challenge"] || form.get("redirect_uri") != code.get("redirect_uri") {
            return refuse("invalid_grant");
        }
        let mut claims = json!({"iss": issuer, "sub": "17", "aud": CLIENT, "exp": now() + 300, "iat": now(),
            "nonce": code["nonce"], "preferred_username": "ada", "roles": ["staff", "approver"]});
        for (name, value) in &self.claims {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        let header = Header { kid: Some("k".to_owned()), ..Header::new(Algorithm::ES256) };
        let token = encode(&header, &claims, &EncodingKey::from_ec_der(&key.serialize_der())).unwrap();
        let mut answer = json!({"access_token": "a", "token_type": "Bearer", "expires_in": 300});
        if !self.without_token {
            answer["id_token"] = json!(token);
        }
        Reply::json(answer)
    }
}
