//! Verifies bearer tokens (JSON Web Tokens) with the keys of their authorization server.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
pub use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::config::OAuth;
use agentsh_base::users_files;

/// Permitted clock difference, in seconds.
pub const CLOCK_LEEWAY_S: u64 = 60;

#[derive(Debug, Deserialize)]
struct Claims {
    sub: String,
    #[serde(default)]
    scope: Option<String>,
    #[serde(default)]
    scp: Vec<String>,
}

/// Longest token, in bytes.
const MAX_BYTES: usize = 16 << 10;

/// Why a token is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenError {
    Invalid(String),
    /// Valid, but without this scope.
    Scope(String),
}

/// # Errors
/// When the file cannot be read, or is not a key set.
pub fn load(file: &Path) -> Result<JwkSet, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("cannot use the keys {}: {error}", file.display());
    let bytes = std::fs::read(file).map_err(|error| wrong(&error))?;
    users_files::judged(file, "the keys of an issuer of tokens", &bytes).map_err(|why| wrong(&why))?;
    serde_json::from_slice(&bytes).map_err(|error| wrong(&error))
}

/// The `kid` of a token.
#[must_use]
pub fn key_id(token: &str) -> Option<String> {
    if token.len() > MAX_BYTES {
        return None;
    }
    decode_header(token).ok()?.kid
}

/// The subject of a token for `audience`.
///
/// # Errors
/// A token of another issuer or audience, expired, unsigned, signed with a shared secret, or without a scope.
pub fn check(token: &str, oauth: &OAuth, keys: &JwkSet, audience: &str) -> Result<String, TokenError> {
    let claims: Claims = claims(token, oauth, keys, audience)
        .map_err(|why| TokenError::Invalid(format!("the token is not valid: {why}")))?;
    let has = |wanted: &String| {
        claims.scope.as_deref().unwrap_or_default().split(' ').any(|scope| scope == wanted)
            || claims.scp.contains(wanted)
    };
    match oauth.scopes.iter().find(|wanted| !has(wanted)) {
        Some(lacking) => Err(TokenError::Scope(format!("the token does not have the scope '{lacking}'"))),
        None => Ok(claims.sub),
    }
}

/// The verified claims of a token for `audience`, unless `oauth` names one.
///
/// # Errors
/// Why it is not valid, for people.
pub fn claims<T: DeserializeOwned>(
    token: &str,
    oauth: &OAuth,
    keys: &JwkSet,
    audience: &str,
) -> Result<T, String> {
    if token.len() > MAX_BYTES {
        return Err("it is longer than 16 KiB".to_owned());
    }
    let header = decode_header(token).map_err(|error| error.to_string())?;
    if has_critical(token) {
        return Err("its header has critical extensions (crit) that are not supported".to_owned());
    }
    let key = match &header.kid {
        Some(kid) => keys.find(kid),
        // Without `kid` only if there is one key.
        None => keys.keys.first().filter(|_| keys.keys.len() == 1),
    };
    let key = key.ok_or("it is signed with an unknown key")?;
    let algorithm = algorithm(key, header.alg).ok_or("its algorithm does not match the key")?;
    if !oauth.algorithms.is_empty() && !oauth.algorithms.contains(&algorithm) {
        return Err("its algorithm is not one of `algorithms`".to_owned());
    }
    let verifier = DecodingKey::from_jwk(key).map_err(|error| error.to_string())?;
    let mut validation = Validation::new(algorithm);
    validation.leeway = CLOCK_LEEWAY_S;
    validation.validate_nbf = true;
    validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
    validation.set_issuer(&[&oauth.issuer]);
    validation.set_audience(&[oauth.audience.as_deref().unwrap_or(audience)]);
    Ok(decode(token, &verifier, &validation).map_err(|error| error.to_string())?.claims)
}

/// RFC 7515: no `crit` extension is supported.
fn has_critical(token: &str) -> bool {
    let head = token.split('.').next().unwrap_or_default();
    let head = URL_SAFE_NO_PAD.decode(head).unwrap_or_default();
    let head: serde_json::Value = serde_json::from_slice(&head).unwrap_or_default();
    head.get("crit").is_some()
}

/// The token's algorithm, if the key's type permits it. The key decides: a public key must not be used as a shared
/// secret.
fn algorithm(key: &Jwk, said: Algorithm) -> Option<Algorithm> {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    let can = match &key.algorithm {
        AlgorithmParameters::RSA(_) => {
            matches!(said, RS256 | RS384 | RS512 | PS256 | PS384 | PS512)
        }
        AlgorithmParameters::EllipticCurve(_) => matches!(said, ES256 | ES384),
        AlgorithmParameters::OctetKeyPair(_) => matches!(said, EdDSA),
        AlgorithmParameters::OctetKey(_) => false,
    };
    let named = key.common.key_algorithm.map(|named| named.to_string());
    let agrees = named.is_none_or(|named| named == format!("{said:?}"));
    (can && agrees).then_some(said)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use jsonwebtoken::{EncodingKey, Header, encode};
    use serde_json::{Value, json};

    use super::*;

    const HERE: &str = "https://mcp.example.com/mcp/fs";

    struct Issuer {
        key: rcgen::KeyPair,
        set: JwkSet,
        oauth: OAuth,
    }

    fn issuer() -> Issuer {
        let key = rcgen::KeyPair::generate().unwrap();
        let point = key.public_key_raw();
        let part = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(&point[range]);
        let set = json!({"keys": [{"kty": "EC", "crv": "P-256", "kid": "k", "alg": "ES256",
            "x": part(1..33), "y": part(33..65)}]});
        let oauth = OAuth {
            issuer: "https://login.example.com".into(),
            audience: None,
            jwks: None,
            algorithms: Vec::new(),
            scopes: vec!["mcp".into()],
        };
        Issuer { key, set: serde_json::from_value(set).unwrap(), oauth }
    }

    fn claims() -> Value {
        let exp = jiff::Timestamp::now().as_second() + 600;
        json!({"sub": "ann", "iss": "https://login.example.com", "aud": HERE, "exp": exp, "scope": "a mcp"})
    }

    impl Issuer {
        fn sign(&self, claims: &Value) -> String {
            let header = Header { kid: Some("k".into()), ..Header::new(Algorithm::ES256) };
            encode(&header, claims, &EncodingKey::from_ec_der(&self.key.serialize_der())).unwrap()
        }

        fn check(&self, token: &str) -> Result<String, TokenError> {
            check(token, &self.oauth, &self.set, HERE)
        }
    }

    #[test]
    fn token_for_this_audience_and_time_is_accepted() {
        let issuer = issuer();
        assert_eq!(issuer.check(&issuer.sign(&claims())), Ok("ann".to_owned()));
        let mut listed = claims();
        listed["scope"] = Value::Null;
        listed["scp"] = json!(["mcp"]);
        assert_eq!(issuer.check(&issuer.sign(&listed)), Ok("ann".to_owned()));
    }

    #[test]
    fn token_with_wrong_claims_or_signature_is_refused() {
        let issuer = issuer();
        for (name, value) in [
            ("iss", json!("https://evil.example.com")),
            ("aud", json!("https://mcp.example.com/mcp/other")),
            ("exp", json!(1_000_000)),
            ("nbf", json!(99_999_999_999_u64)),
            ("exp", Value::Null),
        ] {
            let mut wrong = claims();
            wrong[name] = value;
            assert!(matches!(issuer.check(&issuer.sign(&wrong)), Err(TokenError::Invalid(_))), "{name}");
        }
        let mut narrow = claims();
        narrow["scope"] = json!("a b");
        assert!(matches!(issuer.check(&issuer.sign(&narrow)), Err(TokenError::Scope(_))));
        // Another's key, and the public key as a shared secret.
        assert!(issuer.check(&super::tests::issuer().sign(&claims())).is_err());
        let secret = EncodingKey::from_secret(issuer.key.public_key_raw());
        let header = Header { kid: Some("k".into()), ..Header::new(Algorithm::HS256) };
        assert!(issuer.check(&encode(&header, &claims(), &secret).unwrap()).is_err());
        let none = format!(
            "{}.{}.",
            URL_SAFE_NO_PAD.encode(r#"{"alg":"none","kid":"k"}"#),
            URL_SAFE_NO_PAD.encode(claims().to_string())
        );
        assert!(issuer.check(&none).is_err());
        assert!(issuer.check("").is_err());
        assert!(issuer.check(&"a".repeat(20_000)).is_err());
        let good = issuer.sign(&claims());
        let (head, rest) = good.split_once('.').unwrap();
        let mut head: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(head).unwrap()).unwrap();
        head["crit"] = json!(["x"]);
        let critical = format!("{}.{rest}", URL_SAFE_NO_PAD.encode(head.to_string()));
        assert!(format!("{:?}", issuer.check(&critical)).contains("crit"));
        let mut narrow = issuer.oauth.clone();
        narrow.algorithms = vec![Algorithm::RS256];
        assert!(check(&good, &narrow, &issuer.set, HERE).is_err());
    }
}
