//! Tokens that nobody signed open nothing, whatever they say.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::gateway::config::OAuth;
use super::gateway::token::{self, JwkSet};

/// A point that anybody can name, and nobody signs with.
const KEYS: &str = r#"{"keys": [{"kty": "EC", "crv": "P-256", "kid": "k", "alg": "ES256",
    "x": "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY", "y": "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"},
    {"kty": "oct", "kid": "s", "k": "c2VjcmV0"}]}"#;

/// The token itself, or the texts of its parts, one a line.
pub fn check(data: &[u8]) {
    let keys: JwkSet = serde_json::from_str(KEYS).unwrap();
    let oauth = OAuth {
        issuer: "https://login.example.com".to_owned(),
        audience: None,
        jwks: None,
        algorithms: Vec::new(),
        scopes: Vec::new(),
    };
    let made: Vec<String> = data.split(|byte| *byte == b'\n').map(|part| URL_SAFE_NO_PAD.encode(part)).collect();
    for text in [String::from_utf8_lossy(data).into_owned(), made.join("."), format!("{}.", made.join("."))] {
        let _ = token::key_id(&text);
        assert!(token::check(&text, &oauth, &keys, "https://mcp.example.com/mcp/fs").is_err(), "it came in");
    }
}
